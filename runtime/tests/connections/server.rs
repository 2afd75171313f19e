//! A TLS server that answers as a test needs, and counts its connections.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
/// Serves the connection of this number, from 1.
type Serve = Arc<dyn Fn(TlsStream<TcpStream>, usize) -> BoxFuture<'static, ()> + Send + Sync>;
type Answer = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Option<Response<Body>>> + Send + Sync>;

/// What it is configured with.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) http2: bool,
    /// Streams on one connection.
    pub(crate) streams: u32,
}

pub(crate) struct Server {
    address: SocketAddr,
    authority: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    http2: Arc<AtomicBool>,
    certified: Arc<AtomicUsize>,
}

impl Server {
    /// `answer` may give none: then the connection ends.
    pub(crate) async fn start<F>(settings: Settings, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> BoxFuture<'static, Option<Response<Body>>> + Send + Sync + 'static,
    {
        let (requests, answer): (Arc<AtomicUsize>, Answer) = (Arc::default(), Arc::new(answer));
        let counted = requests.clone();
        let serve = move |stream, _| serve(stream, settings, answer.clone(), counted.clone()).boxed();
        Self { requests, ..Self::listen(settings.http2, serve).await }
    }

    /// Each connection is served by `serve`.
    pub(crate) async fn listen<F>(http2: bool, serve: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>, usize) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        Self::listen_with(generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap(), http2, serve).await
    }

    /// With this certificate, which is its own authority.
    pub(crate) async fn listen_with<F>(certified: CertifiedKey<KeyPair>, http2: bool, serve: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>, usize) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let CertifiedKey { cert, signing_key } = certified;
        Self::listen_with_pem(&cert.pem(), &signing_key.serialize_pem(), http2, serve).await
    }

    /// The same with certificate and key as PEM.
    pub(crate) async fn listen_with_pem<F>(certificate: &str, key: &str, http2: bool, serve: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>, usize) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let shown = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let tls = ServerConfig::builder().with_client_cert_verifier(Arc::new(AnyCertificate));
        let tls = tls.with_single_cert(vec![shown], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            authority: certificate.to_owned(),
            connections: Arc::default(),
            requests: Arc::default(),
            http2: Arc::new(http2.into()),
            certified: Arc::default(),
        };
        let (connections, http2) = (server.connections.clone(), server.http2.clone());
        let certified = server.certified.clone();
        let serve: Serve = Arc::new(serve);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut tls, connections, serve) = (tls.clone(), connections.clone(), serve.clone());
                let certified = certified.clone();
                tls.alpn_protocols.extend(http2.load(Ordering::SeqCst).then(|| b"h2".to_vec()));
                tls.alpn_protocols.push(b"http/1.1".to_vec());
                let acceptor = TlsAcceptor::from(Arc::new(tls));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let shown = stream.get_ref().1.peer_certificates().is_some();
                        certified.fetch_add(usize::from(shown), Ordering::SeqCst);
                        serve(stream, connections.fetch_add(1, Ordering::SeqCst) + 1).await;
                    }
                });
            }
        });
        server
    }

    /// Connections that were secured, so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Those of them whose client showed a certificate.
    pub(crate) fn certified(&self) -> usize {
        self.certified.load(Ordering::SeqCst)
    }

    /// From the next connection on.
    pub(crate) fn has_http2(&self) {
        self.http2.store(true, Ordering::SeqCst);
    }

    /// Requests that arrived, so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn write_kubeconfig(&self, folder: &Path) -> std::path::PathBuf {
        std::fs::write(folder.join("ca.crt"), &self.authority).unwrap();
        let path = folder.join("kubeconfig");
        let server = self.address;
        let text = format!(
            r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{{"name": "c", "cluster": {{"server": "https://{server}", "certificate-authority": "ca.crt"}}}}],
            "users": [{{"name": "u", "user": {{"token": "t"}}}}],
            "contexts": [{{"name": "x", "context": {{"cluster": "c", "user": "u"}}}}]}}"#
        );
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Asks for a client certificate, as API servers do, and takes any.
#[derive(Debug)]
struct AnyCertificate;

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

async fn serve(stream: TlsStream<TcpStream>, settings: Settings, answer: Answer, requests: Arc<AtomicUsize>) {
    let service = service_fn(move |request| {
        requests.fetch_add(1, Ordering::SeqCst);
        let answered = answer(request);
        async move { answered.await.ok_or("the connection ends") }
    });
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    // An error is how a test ends a connection, or the end of the test itself.
    let _ = if is_http2 {
        http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(settings.streams)
            .serve_connection(stream, service)
            .await
    } else {
        http1::Builder::new().serve_connection(stream, service).await
    };
}

pub(crate) fn text(text: &'static str) -> Response<Body> {
    Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync())
}

/// A line, and then nothing for as long as the client reads.
pub(crate) fn watch() -> Response<Body> {
    let line = stream::iter([Ok(Frame::data(Bytes::from_static(b"line\n")))]);
    Response::new(StreamBody::new(line.chain(stream::pending())).boxed_unsync())
}

/// Never a line.
pub(crate) fn silence() -> Response<Body> {
    Response::new(StreamBody::new(stream::pending()).boxed_unsync())
}

/// As much as the client reads.
pub(crate) fn endless() -> Response<Body> {
    let piece = Bytes::from(vec![b'x'; 16 << 10]);
    Response::new(StreamBody::new(stream::repeat_with(move || Ok(Frame::data(piece.clone())))).boxed_unsync())
}

pub(crate) fn nothing(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}
