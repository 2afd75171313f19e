//! How requests share connections, and what becomes of them when a connection ends.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use ringside_runtime::client::{ApiServer, Body, Connection, Held, NoAnswer, Short, Transport as Client};
use tokio::time::timeout;
use tower::ServiceExt;

use self::server::{Server, Settings, endless, nothing, text, watch};

#[path = "connections/credentials.rs"]
mod credentials;
#[path = "connections/faults.rs"]
mod faults;
#[path = "connections/peer.rs"]
mod peer;
#[path = "connections/server.rs"]
mod server;

/// How long anything may take that is due at once.
const DEADLINE: Duration = Duration::from_secs(20);
/// As the transport has it.
const PLACES: usize = 64;
const SHORT_READS: usize = 8;
const SHORT_READ: Duration = Duration::from_secs(5);
/// The least that RFC 9113 asks of a server.
const USUAL: Settings = Settings { http2: true, streams: 100 };

fn client(server: &Server) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = server.write_kubeconfig(folder.path());
    ApiServer::find(Some(&kubeconfig), "test").unwrap().transport().unwrap()
}

async fn send(client: &Client, method: Method, path: &str) -> Result<Response<Held>, NoAnswer> {
    let request = Request::builder().method(method).uri(path).body(Body::default()).unwrap();
    timeout(DEADLINE, client.clone().oneshot(request)).await.expect("no answer in time")
}

async fn get(client: &Client, path: &str) -> Response<Held> {
    send(client, Method::GET, path).await.unwrap()
}

async fn by_path() -> Server {
    Server::start(USUAL, |request| {
        let answer = match request.uri().path() {
            "/watch" => watch(),
            "/endless" => endless(),
            _ => text("ok"),
        };
        std::future::ready(Some(answer)).boxed()
    })
    .await
}

#[tokio::test]
async fn more_requests_than_there_are_places_on_a_connection_have_several() {
    let server = by_path().await;
    let client = client(&server);
    let watches = join_all((0..3 * PLACES).map(|_| get(&client, "/watch"))).await;
    for mut watch in watches {
        let line = timeout(DEADLINE, watch.body_mut().frame()).await.expect("a watch waits for a place");
        assert_eq!(line.unwrap().unwrap().into_data().unwrap(), "line\n");
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_request_uses_the_connection_that_it_names_as_long_as_there_is_that() {
    let server = by_path().await;
    let client = client(&server);
    let connection = |answer: &Response<Held>| answer.extensions().get::<Connection>().cloned().unwrap();
    let first = join_all((0..PLACES).map(|_| get(&client, "/watch"))).await;
    // No place is left, but for this.
    let second = join_all((0..PLACES).map(|_| get(&client, "/watch"))).await;
    let wanted = connection(&second[0]);
    assert_ne!(wanted, connection(&first[0]));
    drop(first);
    let by = async |connection: &Connection| {
        let mut request = Request::get("/").body(Body::default()).unwrap();
        request.extensions_mut().insert(connection.clone());
        timeout(DEADLINE, client.clone().oneshot(request)).await.expect("no answer in time").unwrap()
    };
    assert_eq!(connection(&by(&wanted).await), wanted);
    assert_ne!(connection(&get(&client, "/").await), wanted);
    let gone = connection(&get(&self::client(&server), "/").await);
    assert_ne!(connection(&by(&gone).await), gone);
}

#[tokio::test]
async fn a_server_that_allows_fewer_is_asked_for_no_more() {
    let few = Settings { streams: 10, ..USUAL };
    let server = Server::start(few, |_| std::future::ready(Some(watch())).boxed()).await;
    let client = client(&server);
    let watches = join_all((0..PLACES).map(|_| get(&client, "/watch"))).await;
    for mut watch in watches {
        let line = timeout(DEADLINE, watch.body_mut().frame()).await.expect("a watch waits for a place");
        assert_eq!(line.unwrap().unwrap().into_data().unwrap(), "line\n");
    }
    assert_eq!(server.requests(), PLACES, "none was refused and sent again");
}

#[tokio::test]
async fn a_place_is_free_again_when_its_answer_has_passed() {
    let server = by_path().await;
    let client = client(&server);
    for _ in 0..2 * PLACES {
        let answer = get(&client, "/").await.into_body().collect().await.unwrap();
        assert_eq!(answer.to_bytes(), "ok");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn few_short_reads_at_a_time_go_by_http_1_and_the_others_by_http_2() {
    let all = Arc::new(tokio::sync::Barrier::new(SHORT_READS + 1));
    let server = Server::start(USUAL, move |request| {
        let all = all.clone();
        async move {
            if request.uri().path() == "/together" {
                all.wait().await;
            }
            Some(text("ok"))
        }
        .boxed()
    })
    .await;
    let client = client(&server);
    let read = async |path: &str| {
        let mut request = Request::get(path).body(Body::default()).unwrap();
        request.extensions_mut().insert(Short);
        let answer = timeout(DEADLINE, client.clone().oneshot(request)).await.expect("no answer in time").unwrap();
        (answer.version(), answer.into_body().collect().await.unwrap()).0
    };
    let versions = join_all((0..=SHORT_READS).map(|_| read("/together"))).await;
    let by_http_1 = versions.iter().filter(|version| **version == Version::HTTP_11).count();
    assert_eq!((by_http_1, server.connections()), (SHORT_READS, SHORT_READS + 1));
    assert_eq!(read("/").await, Version::HTTP_11);
    assert_eq!(get(&client, "/").await.version(), Version::HTTP_2);
    assert_eq!(server.connections(), SHORT_READS + 1, "they are kept");
}

#[tokio::test]
async fn a_short_read_that_is_not_answered_by_http_1_is_sent_over_http_2() {
    let asked = Arc::new(tokio::sync::Notify::new());
    let tell = asked.clone();
    let server = Server::start(USUAL, move |request| {
        // What is asked on a new connection another server answers.
        let is_dead = request.version() == Version::HTTP_11 && request.uri().path() != "/livez";
        let tell = tell.clone();
        async move {
            if is_dead {
                tell.notify_one();
                std::future::pending::<()>().await;
            }
            Some(text("ok"))
        }
        .boxed()
    })
    .await;
    let client = client(&server);
    let reads = tokio::spawn(async move {
        let mut request = Request::get("/").body(Body::default()).unwrap();
        request.extensions_mut().insert(Short);
        client.oneshot(request).await.unwrap().version()
    });
    timeout(DEADLINE, asked.notified()).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(SHORT_READ).await;
    tokio::time::resume();
    assert_eq!(timeout(DEADLINE, reads).await.unwrap().unwrap(), Version::HTTP_2);
}

#[tokio::test]
async fn readers_that_stop_delay_no_other() {
    let server = by_path().await;
    let client = client(&server);
    let stuck = join_all((0..PLACES - 1).map(|_| get(&client, "/endless"))).await;
    for _ in 0..20 {
        let answer = timeout(DEADLINE, get(&client, "/").await.into_body().collect()).await.expect("it was delayed");
        assert_eq!(answer.unwrap().to_bytes(), "ok");
    }
    assert_eq!((stuck.len(), server.connections()), (PLACES - 1, 1), "it was beside them");
}

#[tokio::test]
async fn a_server_without_http_2_is_spoken_to_in_http_1() {
    let settings = Settings { http2: false, ..USUAL };
    let server = Server::start(settings, |_| std::future::ready(Some(watch())).boxed()).await;
    let client = client(&server);
    let watches = join_all((0..5).map(|_| get(&client, "/watch"))).await;
    for mut watch in watches {
        assert_eq!(watch.body_mut().frame().await.unwrap().unwrap().into_data().unwrap(), "line\n");
    }
    // One to find out, and one for each watch.
    assert_eq!(server.connections(), 6);
}

/// By HTTP/2 the connection's pings find that out.
#[tokio::test]
async fn a_request_to_a_server_without_http_2_that_hangs_fails_in_time() {
    let hangs = Arc::new(AtomicBool::new(false));
    let switch = hangs.clone();
    let server = Server::start(Settings { http2: false, ..USUAL }, move |_| {
        let hangs = switch.load(Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Some(text("ok"))
        }
        .boxed()
    })
    .await;
    let client = client(&server);
    drop(get(&client, "/").await.into_body().collect().await.unwrap());
    hangs.store(true, Ordering::SeqCst);
    for method in [Method::GET, Method::POST] {
        let before = server.requests();
        let request = Request::builder().method(&method).uri("/").body(Body::default()).unwrap();
        let asked = tokio::spawn(client.clone().oneshot(request));
        while server.requests() == before {
            tokio::task::yield_now().await;
        }
        // Nothing else can happen, so that time passes by itself.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let error = asked.await.unwrap().unwrap_err();
        assert!(matches!(error, NoAnswer::Gone(_)), "{method}: {error}");
        assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
        tokio::time::resume();
    }
}

#[tokio::test]
async fn what_only_reads_is_sent_again_once_and_a_write_never() {
    let fails = Arc::new(AtomicBool::new(true));
    let switch = fails.clone();
    let answer = move |_| {
        let answer = (!switch.load(Ordering::SeqCst)).then(|| nothing(StatusCode::OK));
        std::future::ready(answer).boxed()
    };
    for http2 in [true, false] {
        let server = Server::start(Settings { http2, ..USUAL }, answer.clone()).await;
        let client = client(&server);
        fails.store(true, Ordering::SeqCst);
        for (method, times) in [(Method::GET, 2), (Method::POST, 1), (Method::PUT, 1), (Method::DELETE, 1)] {
            let before = server.requests();
            let error = send(&client, method.clone(), "/").await.unwrap_err();
            assert!(matches!(error, NoAnswer::Failed(_)), "{method}: {error}");
            assert_eq!(server.requests() - before, times, "{method}, HTTP/2: {http2}");
        }
        fails.store(false, Ordering::SeqCst);
        assert_eq!(get(&client, "/").await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_known_to_have_got_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = by_path().await;
    let kubeconfig = server.write_kubeconfig(folder.path());
    // Of a socket that does not listen, and keeps all others from it.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = taken.local_addr().unwrap();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let (before, after) = text.split_once("https://127.0.0.1:").unwrap();
    let rest = after.trim_start_matches(|it: char| it.is_ascii_digit());
    std::fs::write(&kubeconfig, format!("{before}https://{gone}{rest}")).unwrap();
    let client = ApiServer::find(Some(&kubeconfig), "test").unwrap().transport().unwrap();
    let error = send(&client, Method::POST, "/").await.unwrap_err();
    assert!(matches!(error, NoAnswer::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("efused"), "{error}");
}
