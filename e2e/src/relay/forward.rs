//! Sends a request on to the API server.

use std::path::Path;

use http::{
    HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, Version, header,
    uri::{Authority, Parts, Scheme},
};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{
    body::{Bytes, Incoming},
    upgrade::OnUpgrade,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::io::copy_bidirectional;
use tokio_util::sync::CancellationToken;

use super::record::{Copied, Entry, KeptUpgrade};

/// What belongs to one connection (RFC 9110, section 7.6.1), by the names that Kubernetes' clients send. `TE: trailers`
/// stays: trailers pass.
const OF_CONNECTION: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HeaderName::from_static("keep-alive")];

pub(super) type Fault = Box<dyn std::error::Error + Send + Sync>;
/// A body that passes, or is made here.
pub type Passing = UnsyncBoxBody<Bytes, Fault>;

/// A body that is made here.
pub(super) fn full(bytes: impl Into<Bytes>) -> Passing {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

type Https = HttpsConnector<HttpConnector>;

/// The way to the API server: HTTP/2, and HTTP/1.1 for what HTTP/2 can't, upgrades.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    authority: Authority,
    usual: Client<Https, Passing>,
    upgrades: Client<Https, Passing>,
    ended: CancellationToken,
}

impl Forward {
    pub(super) fn new(url: &str, ca: &Path, ended: CancellationToken) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only();
        let authority = url.trim_start_matches("https://").parse()?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder.http1_preserve_header_case(true).http1_title_case_headers(true).http1_max_headers(super::MAX_HEADERS);
        Ok(Self {
            authority,
            usual: builder.build(connector().enable_all_versions().build()),
            upgrades: builder.build(connector().enable_http1().build()),
            ended,
        })
    }

    /// Sends a request, and a read once more where its connection ends: the API server ends one by which it refused a token.
    async fn request(&self, request: Request<Passing>) -> Result<Response<Incoming>, Fault> {
        let again = (request.method() == Method::GET).then(|| {
            let mut again = Request::new(full(Bytes::new()));
            again.uri_mut().clone_from(request.uri());
            again.headers_mut().clone_from(request.headers());
            again
        });
        match (self.usual.request(request).await, again) {
            (Err(_), Some(again)) => Ok(self.usual.request(again).await?),
            (sent, _) => Ok(sent?),
        }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Passing>,
        entry: Option<&Entry>,
    ) -> Result<Response<Incoming>, Fault> {
        let wish = request.headers().get(header::UPGRADE).cloned();
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let mut to = Parts::default();
        (to.scheme, to.authority) = (Some(Scheme::HTTPS), Some(self.authority.clone()));
        to.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(to)?;
        *request.version_mut() = Version::HTTP_11;
        strip(request.headers_mut());
        let Some(wish) = wish else {
            let mut response = self.request(request).await?;
            strip(response.headers_mut());
            *response.version_mut() = Version::HTTP_11;
            return Ok(response);
        };
        request.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(header::UPGRADE, wish);
        let mut response = self.upgrades.request(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let server = response.extensions_mut().remove::<OnUpgrade>();
            if let (Some(client), Some(server)) = (client, server) {
                let joined = join(client, server, entry.map(KeptUpgrade::begin));
                tokio::spawn(self.ended.clone().run_until_cancelled_owned(joined));
            }
        } else {
            strip(response.headers_mut());
        }
        Ok(response)
    }
}

fn strip(headers: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
}

async fn join(client: OnUpgrade, server: OnUpgrade, kept: Option<KeptUpgrade>) {
    if let Ok((client, server)) = tokio::try_join!(client, server) {
        let keep = |side| kept.as_ref().map(|kept| kept.keep(side));
        let copied = |stream, keep| Copied { stream: TokioIo::new(stream), keep };
        let mut client = copied(client, keep(|to| &mut to.sent));
        let mut server = copied(server, keep(|to| &mut to.answered));
        // Either side may end it, as it may without a relay.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
