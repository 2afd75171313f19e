//! How connections are kept, and how they end when the controller does not end them.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use futures::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tower::service_fn;

use super::*;
use crate::{
    access,
    body::{BodyError, full},
};

/// How long anything may take that is due at once.
const DEADLINE: Duration = Duration::from_secs(10);
/// The preface of HTTP/2, and empty settings (RFC 9113, sections 3.4 and 6.5).
const HTTP2_WITHOUT_REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn client(folder: &std::path::Path, http2: bool) -> Client<HttpsConnector<HttpConnector>, Empty<Bytes>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.crt")).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
    let connector = if http2 { builder.enable_http2().build() } else { builder.enable_http1().build() };
    Client::builder(TokioExecutor::new()).http2_only(http2).build(connector)
}

/// A server, and where it listens.
async fn server(folder: &std::path::Path, patience: Duration) -> (Server, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        listener,
        tls: access::prepare(folder, address, "ns").unwrap().tls,
        upgraded: TaskTracker::new(),
        closing: CancellationToken::new(),
        abort: CancellationToken::new(),
        left: Shutdown::new(),
        hurry: Shutdown::new(),
        patience: Patience { linger: patience, drain: patience },
    };
    (server, address.port())
}

/// Each watch by HTTP/2 has such a task for as long as it is open.
#[test]
fn what_is_around_a_request_is_small_however_large_that_is() {
    let large = [0_u8; 16 << 10];
    let task = contained(async move { assert_eq!(large[0], 0) }, CancellationToken::new());
    assert!(size_of_val(&task) <= 1_280, "{} bytes", size_of_val(&task));
}

#[tokio::test]
async fn who_has_left_is_not_taken_for_one_that_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let ((server, port), shutdown) = (server(folder.path(), DEADLINE).await, Shutdown::new());
    let stack = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(full("hi"))) });
    let left = server.left.clone();
    let ended = tokio::spawn(server.run(stack, shutdown.clone()));
    let client = client(folder.path(), true);
    client.get(format!("https://localhost:{port}/").parse().unwrap()).await.unwrap();
    shutdown.trigger();
    drop(client);
    timeout(DEADLINE, ended).await.unwrap().unwrap().unwrap();
    assert!(left.is_triggered());
}

#[tokio::test]
async fn what_goes_on_after_all_patience_is_cut() {
    for http2 in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (server, port) = server(folder.path(), Duration::from_millis(50)).await;
        let (upgraded, abort, shutdown) = (server.upgraded.clone(), server.abort.clone(), Shutdown::new());
        let left = server.left.clone();
        upgraded.spawn(async move { abort.cancelled().await });
        // A followed log, say: no watch, so nothing ends it.
        let stack = service_fn(|_: Request<Body>| async {
            let endless = futures::stream::once(std::future::ready("line")).chain(futures::stream::pending());
            let frames = endless.map(|line| Ok::<_, BodyError>(Frame::data(Bytes::from(line))));
            Ok::<_, Infallible>(Response::new(boxed(StreamBody::new(frames))))
        });
        let ended = tokio::spawn(server.run(stack, shutdown.clone()));
        let client = client(folder.path(), http2);
        let url = format!("https://localhost:{port}/").parse().unwrap();
        let mut body = client.get(url).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "line");
        shutdown.trigger();
        assert!(timeout(DEADLINE, body.frame()).await.unwrap().unwrap().is_err(), "HTTP/2: {http2}");
        timeout(DEADLINE, ended).await.unwrap().unwrap().unwrap();
        assert!(upgraded.is_empty() && !left.is_triggered());
    }
}

/// A client of a server that has room for it alone.
async fn caller() -> Arc<Caller> {
    Arc::new(Caller::new(ConnectionLimit::new(1, 1).admit().await))
}

/// Answers, and takes each token for a right one.
async fn hi(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    if request.headers().contains_key("authorization") {
        request.extensions().get::<Arc<Caller>>().unwrap().proves();
    }
    Ok(Response::new(full("hi")))
}

async fn serve(ours: DuplexStream) {
    let (caller, never) = (caller().await, CancellationToken::new);
    caller.bound(pin!(connection(ours, caller.clone(), service_fn(hi), never(), never()))).await;
}

async fn ask(client: &mut DuplexStream, headers: &str) -> String {
    client.write_all(format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let ended = |answer: &[u8]| answer.starts_with(b"HTTP/1.1 431") && answer.ends_with(b"\r\n\r\n");
    while !ended(&answer) && !answer.ends_with(b"hi") {
        assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "the connection was closed");
    }
    String::from_utf8(answer).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_kept_longer_than_clients_keep_it() {
    let (mut client, ours) = duplex(1 << 10);
    let serving = tokio::spawn(serve(ours));
    for _ in 0..2 {
        assert!(ask(&mut client, "Authorization: Bearer x\r\n").await.ends_with("hi"));
        // Go's idle time.
        sleep(Duration::from_secs(90)).await;
    }
    // But not for ever.
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_token_is_closed_however_far_it_has_come() {
    let asked = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for sent in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\n", asked, HTTP2_WITHOUT_REQUEST] {
        let (mut client, ours) = duplex(1 << 10);
        let serving = tokio::spawn(serve(ours));
        client.write_all(sent).await.unwrap();
        let start = tokio::time::Instant::now();
        timeout(2 * NEXT_REQUEST, serving).await.expect("it is kept for ever").unwrap();
        assert!(start.elapsed() <= Duration::from_secs(10), "{sent:?}");
    }
}

#[tokio::test]
async fn a_head_has_64_kib_at_most() {
    for (length, code) in [(48 << 10, "200"), (192 << 10, "431")] {
        let (mut client, ours) = duplex(1 << 20);
        tokio::spawn(serve(ours));
        let answer = ask(&mut client, &format!("X-Long: {}\r\n", "x".repeat(length))).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{length}: {answer}");
    }
}

/// By HTTP/2 the server says so beforehand (RFC 9113, section 6.5.2).
#[tokio::test]
async fn a_client_of_http2_is_told_of_64_kib_and_256_streams() {
    const STREAMS_OF_SETTINGS: u16 = 3;
    const HEAD_OF_SETTINGS: u16 = 6;
    let (mut client, ours) = duplex(1 << 20);
    tokio::spawn(serve(ours));
    client.write_all(HTTP2_WITHOUT_REQUEST).await.unwrap();
    let mut head = [0; 9];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "its settings come first");
    let mut settings = vec![0; usize::from(head[2])];
    client.read_exact(&mut settings).await.unwrap();
    let setting = |name: u16| {
        let named = settings.chunks(6).find(|it| it[..2] == name.to_be_bytes()).unwrap();
        u32::from_be_bytes(named[2..].try_into().unwrap())
    };
    assert_eq!((setting(STREAMS_OF_SETTINGS), setting(HEAD_OF_SETTINGS)), (256, 64 << 10));
}

#[tokio::test]
async fn who_opens_many_connections_without_a_token_keeps_no_controller_out() {
    let folder = tempfile::tempdir().unwrap();
    let (server, port) = server(folder.path(), DEADLINE).await;
    tokio::spawn(server.run(service_fn(hi), Shutdown::new()));
    let mut idle = Vec::new();
    for _ in 0..600 {
        idle.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let client = client(folder.path(), true);
    let ask = Request::get(format!("https://localhost:{port}/")).header("authorization", "Bearer x");
    let answer = timeout(DEADLINE, client.request(ask.body(Empty::new()).unwrap())).await.expect("it is kept out");
    assert_eq!(answer.unwrap().status(), 200);
    let mut open = 0;
    for stream in &mut idle {
        open += usize::from(timeout(Duration::ZERO, stream.read_u8()).await.is_err());
    }
    assert!(open <= UNPROVEN, "{open} connections without a token are open");
}

/// Each connection of the controller has one of these for as long as it is open.
#[tokio::test]
async fn a_connection_is_small() {
    let (_client, ours) = duplex(1);
    let size = size_of_val(&serve(ours));
    assert!(size <= 3 << 10, "{size} bytes");
}

/// No task asks the body for more, so its end can't be told.
#[tokio::test]
async fn a_stream_that_is_not_read_can_be_closed() {
    for http2 in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (server, port) = server(folder.path(), Duration::from_millis(50)).await;
        let (opened, mut streams) = tokio::sync::mpsc::unbounded_channel();
        let stack = service_fn(move |_: Request<Body>| {
            let opened = opened.clone();
            async move {
                let (close, body) = (crate::connection::current(), CancellationToken::new());
                let open = body.clone().drop_guard();
                let piece = move |_: ()| {
                    Ok::<_, BodyError>(Frame::data(Bytes::from(vec![b' '; 1 << 16]))).inspect(|_| {
                        let _ = &open;
                    })
                };
                opened.send((close, body)).unwrap();
                Ok::<_, Infallible>(Response::new(boxed(StreamBody::new(futures::stream::repeat(()).map(piece)))))
            }
        });
        let shutdown = Shutdown::new();
        let ended = tokio::spawn(server.run(stack, shutdown.clone()));
        let client = client(folder.path(), http2);
        let url: http::Uri = format!("https://localhost:{port}/").parse().unwrap();
        let unread = client.get(url.clone()).await.unwrap();
        let (close, body) = streams.recv().await.unwrap();
        assert!(timeout(Duration::from_millis(100), body.cancelled()).await.is_err(), "HTTP/2: {http2}");
        close.cancel();
        timeout(DEADLINE, body.cancelled()).await.expect("its body is there still");
        // Others go on.
        client.get(url).await.unwrap();
        shutdown.trigger();
        drop((unread, client));
        timeout(DEADLINE, ended).await.unwrap().unwrap().unwrap();
    }
}
