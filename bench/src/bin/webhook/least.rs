//! A webhook that does the least: it answers every review with the same patch, and reads nothing of it but its uid.
//!
//! It runs in the process that creates, so that no other is woken for it.

use std::{convert::Infallible, net::Ipv4Addr, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use crate::ground::SHARD_LABEL;

/// Serves until it is dropped.
pub(crate) struct Least {
    port: u16,
    authority: String,
    server: JoinHandle<()>,
}

impl Least {
    /// Starts it on a free loopback port, as the server of this name.
    pub(crate) async fn start(name: &str) -> anyhow::Result<Self> {
        let own = rcgen::generate_simple_self_signed([name.to_owned()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls))));
        Ok(Self { port, authority: BASE64_STANDARD.encode(own.cert.pem()), server })
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What vouches for it, as a webhook configuration wants it.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

impl Drop for Least {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    while let Ok((stream, _)) = listener.accept().await {
        // It costs time and nothing else where this is refused.
        let _ = stream.set_nodelay(true);
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            // The API server tells of what fails: the run ends with that.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // A review that breaks off has no uid, and the API server does not wait for its answer.
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = format!("/metadata/labels/{}least", SHARD_LABEL.replace('/', "~1"));
    let patch = json!([{"op": "add", "path": path, "value": "shard-0"}]).to_string();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
        "uid": uid(&body), "allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(patch)}});
    let mut response = Response::new(Full::from(review.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The first one in a review is the review's own.
fn uid(review: &[u8]) -> &str {
    const BEFORE: &[u8] = b"\"uid\":\"";
    let begin = review.windows(BEFORE.len()).position(|bytes| bytes == BEFORE).map(|at| at + BEFORE.len());
    let rest = begin.map_or(&[][..], |begin| &review[begin..]);
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or_default();
    std::str::from_utf8(&rest[..end]).unwrap_or_default()
}
