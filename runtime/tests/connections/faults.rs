//! What becomes of requests when a server stops, and of connections that the server or no client wants.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Version};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ListParams, WatchParams},
};
use ringside_runtime::client::{ApiServer, Body, NoAnswer, WATCH_WINDOW, Watch};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{advance, pause, resume, timeout},
};
use tower::ServiceExt;

use super::{
    Client, DEADLINE, PLACES, Settings, USUAL, client, get,
    peer::{Did, INTERNAL_ERROR, NO_ERROR, Peer, REFUSED_STREAM},
    send,
    server::{Server, silence, watch},
};

/// As the transport has them.
const UNUSED: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ASK_AGAIN: Duration = Duration::from_secs(300);
const WINDOW: usize = 256 << 10;
/// Who asks at once, how often, and how many frames a connection lives for.
const CLIENTS: usize = 16;
const TRIES: usize = 500;
const ON_EACH: usize = 20;
/// What a frame takes, as long as no peer says otherwise.
const FRAME: usize = 16 << 10;

/// Each connection is one of `script`, with its number.
async fn scripted<F, S>(script: F) -> Server
where
    F: Fn(Peer, usize) -> S + Clone + Send + Sync + 'static,
    S: Future<Output = ()> + Send,
{
    Server::listen(true, move |stream, number| {
        let script = script.clone();
        async move { script(Peer::new(stream, 100).await, number).await }.boxed()
    })
    .await
}

/// Answers all requests.
async fn answer(mut peer: Peer) {
    loop {
        match peer.next().await {
            Did::Asked(stream) => {
                peer.head(stream).await;
                peer.data(stream, b"ok").await;
                peer.end(stream).await;
            }
            Did::Reset(_) | Did::Heard => {}
            Did::Left => return,
        }
    }
}

async fn with_body(client: &Client, method: Method) -> Result<(), NoAnswer> {
    let body = Full::from("body").map_err(|never| match never {}).boxed_unsync();
    let request = Request::builder().method(method).uri("/").body(body).unwrap();
    let sent = timeout(DEADLINE, client.clone().oneshot(request)).await;
    sent.expect("no answer in time").map(drop)
}

#[tokio::test]
async fn an_answer_that_is_reset_in_the_middle_is_not_whole() {
    let server = scripted(|mut peer: Peer, _| async move {
        let stream = peer.asked().await;
        peer.head(stream).await;
        peer.data(stream, b"half").await;
        peer.reset(stream, NO_ERROR).await;
        let stream = peer.asked().await;
        peer.head(stream).await;
        peer.data(stream, b"whole").await;
        peer.end(stream).await;
        peer.reset(stream, NO_ERROR).await;
        peer.stay().await;
    })
    .await;
    let client = client(&server);
    let error = get(&client, "/").await.into_body().collect().await.unwrap_err();
    assert!(error.to_string().contains("before the end"), "{error}");
    assert_eq!(get(&client, "/").await.into_body().collect().await.unwrap().to_bytes(), "whole");
}

#[tokio::test]
async fn what_a_server_did_not_process_is_sent_again_or_is_known_to_be_undone() {
    for refuse in [true, false] {
        let server = scripted(move |mut peer: Peer, number| async move {
            if number % 2 == 0 {
                return answer(peer).await;
            }
            let stream = peer.asked().await;
            if refuse {
                peer.go_away(stream, NO_ERROR).await;
                peer.reset(stream, REFUSED_STREAM).await;
            } else {
                peer.go_away(stream - 1, NO_ERROR).await;
            }
            peer.stay().await;
        })
        .await;
        for method in [Method::GET, Method::DELETE, Method::POST] {
            // A client of its own each time, so that the first connection is one that stops.
            let (client, before) = (client(&server), server.connections());
            assert_eq!(before % 2, 0);
            assert!(send(&client, method.clone(), "/").await.is_ok(), "{method}, refused: {refuse}");
            assert_eq!(server.connections() - before, 2);
        }
        let error = with_body(&client(&server), Method::PUT).await.unwrap_err();
        assert!(matches!(error, NoAnswer::NotProcessed(_)), "refused: {refuse}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_left_alone_after_a_while() {
    let server = scripted(|mut peer: Peer, _| async move {
        while let Did::Asked(stream) = peer.next().await {
            peer.reset(stream, REFUSED_STREAM).await;
        }
    })
    .await;
    let error = send(&client(&server), Method::GET, "/").await.unwrap_err();
    assert!(matches!(error, NoAnswer::NotProcessed(_)), "{error}");
}

#[tokio::test]
async fn a_write_that_may_have_been_processed_is_not_sent_again() {
    for reset in [true, false] {
        let server = scripted(move |mut peer: Peer, _| async move {
            let stream = peer.asked().await;
            if reset {
                peer.reset(stream, INTERNAL_ERROR).await;
                peer.stay().await;
            } else {
                // It may still answer this one, and then it is gone.
                peer.go_away(stream, NO_ERROR).await;
            }
        })
        .await;
        let client = client(&server);
        let error = send(&client, Method::DELETE, "/").await.unwrap_err();
        assert!(matches!(error, NoAnswer::Failed(_)), "reset: {reset}: {error}");
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_server_that_goes_away_finishes_what_it_began_and_gets_no_more() {
    let (tell, mut told) = mpsc::channel(1);
    let server = scripted(move |mut peer: Peer, number| {
        let tell = tell.clone();
        async move {
            if number > 1 {
                return answer(peer).await;
            }
            let stream = peer.asked().await;
            peer.head(stream).await;
            peer.go_away(stream, NO_ERROR).await;
            peer.ping().await;
            while peer.next().await != Did::Heard {}
            tell.send(()).await.unwrap();
            // Whatever else comes here would have no answer.
            tokio::select! {
                did = peer.next() => panic!("{did:?} after the end"),
                () = tell.closed() => {}
            }
        }
    })
    .await;
    let client = client(&server);
    let mut begun = get(&client, "/").await;
    told.recv().await.unwrap();
    for _ in 0..3 {
        with_body(&client, Method::PUT).await.unwrap();
    }
    assert_eq!(server.connections(), 2);
    assert!(begun.body_mut().frame().now_or_never().is_none(), "it goes on");
}

/// What is sent just then must not wait for a connection that is gone. It takes luck to see that it does: threads beside each
/// other, and many tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_sent_as_its_connection_ends_comes_to_an_end_as_well() {
    let server = scripted(|mut peer: Peer, _| async move {
        for _ in 0..ON_EACH {
            match peer.next().await {
                Did::Asked(stream) => {
                    peer.head(stream).await;
                    peer.end(stream).await;
                }
                Did::Reset(_) | Did::Heard => {}
                Did::Left => return,
            }
        }
    })
    .await;
    let client = client(&server);
    let clients = (0..CLIENTS).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..TRIES {
                let request = Request::get("/").body(Body::default()).unwrap();
                // Whether it is answered is luck as well.
                let _ = timeout(DEADLINE, client.clone().oneshot(request)).await.expect("neither answered nor failed");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert!(server.connections() > CLIENTS);
}

/// There may be nothing to say: that is no error, and nothing to wait for.
#[tokio::test]
async fn silent_watch_ends_and_silent_list_fails() {
    let server = Server::start(USUAL, |_| async { Some(silence()) }.boxed()).await;
    let folder = tempfile::tempdir().unwrap();
    let found = ApiServer::find(Some(&server.write_kubeconfig(folder.path())), "test").unwrap();
    let namespaces: Api<Namespace> = Api::all(found.client_within(Duration::from_millis(100)).unwrap());
    let mut events = namespaces.watch(&WatchParams::default(), "1").await.unwrap().boxed();
    let event = timeout(DEADLINE, events.next()).await.unwrap();
    assert!(event.is_none(), "{event:?}");
    let listed = timeout(DEADLINE, namespaces.list(&ListParams::default())).await.unwrap();
    assert!(listed.is_err());
}

#[tokio::test]
async fn a_connection_that_ends_before_the_settings_is_noticed_at_once() {
    let server = Server::listen(true, |stream, _| Peer::silent(stream).map(drop).boxed()).await;
    let client = client(&server);
    let answer = timeout(CONNECT_TIMEOUT / 2, send(&client, Method::GET, "/")).await.expect("it was waited for");
    assert!(matches!(answer.unwrap_err(), NoAnswer::Unreachable(_)));
}

#[tokio::test]
async fn a_server_that_allows_no_request_is_not_asked_for_ever() {
    let server = Server::listen(true, |stream, _| async { Peer::new(stream, 0).await.stay().await }.boxed()).await;
    let client = client(&server);
    let answer = timeout(CONNECT_TIMEOUT / 2, send(&client, Method::GET, "/")).await.expect("it was waited for");
    assert!(matches!(answer.unwrap_err(), NoAnswer::Unreachable(_)));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_server_that_allows_one_request_has_the_next_when_that_is_over() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::listen(true, move |stream, _| {
        let tell = tell.clone();
        async move {
            let mut peer = Peer::new(stream, 1).await;
            loop {
                let did = peer.next().await;
                match did {
                    // Every other request has no answer.
                    Did::Asked(stream) if stream % 4 == 1 => peer.head(stream).await,
                    Did::Left => return,
                    _ => {}
                }
                tell.send(did).unwrap();
            }
        }
        .boxed()
    })
    .await;
    let client = client(&server);
    drop(get(&client, "/").await);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { drop(get(&client, "/").await) }
    });
    for did in [Did::Asked(1), Did::Reset(1), Did::Asked(3)] {
        assert_eq!(timeout(DEADLINE, told.recv()).await.unwrap(), Some(did));
    }
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    drop(get(&client, "/").await);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn no_request_gets_the_failure_of_a_connection_that_was_given_up() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::listen(true, move |stream, number| {
        let tell = tell.clone();
        async move {
            let mut peer = Peer::silent(stream).await;
            if number == 1 {
                tell.send(()).unwrap();
                peer.stay().await;
                tell.send(()).unwrap();
            } else {
                peer.settings(100).await;
                answer(peer).await;
            }
        }
        .boxed()
    })
    .await;
    let client = client(&server);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { drop(get(&client, "/").await) }
    });
    timeout(DEADLINE, told.recv()).await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    pause();
    advance(CONNECT_TIMEOUT + Duration::from_secs(1)).await;
    resume();
    timeout(DEADLINE, told.recv()).await.expect("its making goes on alone, and ends in time");
    get(&client, "/").await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_answer_that_no_client_reads_leaves_its_window_to_the_others() {
    let server = scripted(|mut peer: Peer, _| async move {
        loop {
            match peer.next().await {
                Did::Asked(stream) => {
                    peer.head(stream).await;
                    for _ in 0..WINDOW / FRAME {
                        peer.data(stream, &[0; FRAME]).await;
                    }
                }
                Did::Reset(_) | Did::Heard => {}
                Did::Left => return,
            }
        }
    })
    .await;
    let client = client(&server);
    for _ in 0..2 * PLACES {
        let mut answer = get(&client, "/").await;
        assert!(answer.body_mut().frame().await.unwrap().is_ok(), "more came than there is room for");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn watch_has_a_window_and_connections_of_its_own() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = scripted(move |mut peer: Peer, number| {
        let tell = tell.clone();
        async move {
            loop {
                match peer.next().await {
                    Did::Asked(stream) => {
                        tell.send((number, peer.window())).unwrap();
                        peer.head(stream).await;
                        peer.end(stream).await;
                    }
                    Did::Reset(_) | Did::Heard => {}
                    Did::Left => return,
                }
            }
        }
    })
    .await;
    let client = client(&server);
    for (is_watch, seen) in [(false, (1, 256 << 10)), (true, (2, WATCH_WINDOW)), (true, (2, WATCH_WINDOW))] {
        let mut request = Request::get("/").body(Body::default()).unwrap();
        if is_watch {
            request.extensions_mut().insert(Watch);
        }
        timeout(DEADLINE, client.clone().oneshot(request)).await.unwrap().unwrap();
        assert_eq!(told.recv().await, Some(seen));
    }
}

#[tokio::test]
async fn a_connection_that_the_server_may_close_at_any_moment_gets_no_request() {
    let server = scripted(|peer, _| answer(peer)).await;
    let client = client(&server);
    for connections in 1..3 {
        for _ in 0..2 {
            let answer: Bytes = get(&client, "/").await.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(answer, "ok");
        }
        assert_eq!(server.connections(), connections);
        pause();
        advance(UNUSED).await;
        resume();
    }
}

#[tokio::test]
async fn a_connection_that_no_request_uses_any_more_is_closed() {
    let closed = Arc::new(Semaphore::new(0));
    let told = closed.clone();
    let server = scripted(move |peer, _| {
        let told = told.clone();
        async move {
            answer(peer).await;
            told.add_permits(1);
        }
    })
    .await;
    let client = client(&server);
    let one_more = || async { timeout(DEADLINE, closed.acquire()).await.expect("it stays open").unwrap().forget() };
    get(&client, "/").await.into_body().collect().await.unwrap();
    pause();
    advance(UNUSED).await;
    resume();
    get(&client, "/").await.into_body().collect().await.unwrap();
    one_more().await;
    drop(client);
    one_more().await;
}

#[tokio::test]
async fn a_server_that_had_no_http_2_is_asked_again_later() {
    let server = Server::start(Settings { http2: false, ..USUAL }, |_| std::future::ready(Some(watch())).boxed()).await;
    let client = client(&server);
    let old = [get(&client, "/").await, get(&client, "/").await];
    assert_eq!((old[1].version(), server.connections()), (Version::HTTP_11, 3), "one to find out");
    server.has_http2();
    assert_eq!(get(&client, "/").await.version(), Version::HTTP_11);
    pause();
    advance(ASK_AGAIN).await;
    resume();
    assert_eq!(get(&client, "/").await.version(), Version::HTTP_2);
}

#[tokio::test]
async fn settings_that_come_late_are_waited_for() {
    let server = Server::listen(true, |stream, _| {
        async {
            let mut peer = Peer::silent(stream).await;
            // More than nothing, and what comes meanwhile would be a request.
            let early = timeout(Duration::from_millis(100), peer.asked()).await;
            assert!(early.is_err(), "a request before it is known how many there may be");
            peer.settings(100).await;
            answer(peer).await;
        }
        .boxed()
    })
    .await;
    get(&client(&server), "/").await;
    assert_eq!(server.connections(), 1);
}
