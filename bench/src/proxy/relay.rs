//! The bare relay: what passing requests on costs with the same server, client and TLS as the proxy's, and nothing else.

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderValue, Request, Response, Uri, Version, header};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::TokioExecutor,
};

use super::{
    certificates::{Certificates, SERVER, of_client},
    loads::Protocol,
    serve::serve,
    started::token,
};

/// Connections for watches with HTTP/2: a server allows so many streams on each.
const WATCHES: usize = 8;

type Api = Client<HttpsConnector<HttpConnector>, Incoming>;

struct Relay {
    /// The first has all requests but watches.
    clients: Vec<Api>,
    authority: String,
    token: HeaderValue,
    watches: std::sync::atomic::AtomicUsize,
}

/// Passes on what comes to `listen`, until the process ends.
///
/// # Errors
/// When it can't listen.
pub async fn relay(
    (listen, api): (SocketAddr, SocketAddr),
    protocol: Protocol,
    certificates: &Certificates,
) -> anyhow::Result<()> {
    let client = || client(protocol, certificates);
    let relay = Arc::new(Relay {
        clients: (0..=WATCHES).map(|_| client()).collect::<Result<_, _>>()?,
        authority: format!("{SERVER}:{}", api.port()),
        token: HeaderValue::try_from(format!("Bearer {}", token()))?,
        watches: std::sync::atomic::AtomicUsize::new(0),
    });
    let pass = move |request| {
        let relay = Arc::clone(&relay);
        async move { relay.pass(request).await }
    };
    serve(listen, certificates.of_server()?, pass).await
}

fn client(protocol: Protocol, certificates: &Certificates) -> anyhow::Result<Api> {
    let tls = of_client(&certificates.certificate(), &[])?;
    let connector = HttpsConnectorBuilder::new().with_tls_config(Arc::unwrap_or_clone(tls)).https_only();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let is_http2 = protocol == Protocol::Http2;
    let connector = match is_http2 {
        true => connector.enable_http2().wrap_connector(http),
        false => connector.enable_http1().wrap_connector(http),
    };
    Ok(Client::builder(TokioExecutor::new()).http2_only(is_http2).build(connector))
}

impl Relay {
    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Error> {
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(http::uri::Scheme::HTTPS);
        uri.authority = self.authority.parse().ok();
        let is_watch = uri.path_and_query.as_ref().is_some_and(|path| path.as_str().contains("watch="));
        *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
        *request.version_mut() = Version::HTTP_11;
        for name in [header::HOST, header::CONNECTION] {
            request.headers_mut().remove(name);
        }
        request.headers_mut().insert(header::AUTHORIZATION, self.token.clone());
        let mut response = self.client(is_watch).request(request).await?;
        *response.version_mut() = Version::HTTP_11;
        for name in [header::TRANSFER_ENCODING, header::CONNECTION] {
            response.headers_mut().remove(name);
        }
        Ok(response)
    }

    fn client(&self, is_watch: bool) -> &Api {
        let next = || 1 + self.watches.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % WATCHES;
        &self.clients[if is_watch { next() } else { 0 }]
    }
}
