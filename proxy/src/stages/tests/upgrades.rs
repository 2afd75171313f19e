//! A watch by WebSocket, from the handshake to its end, over two real HTTP/1.1 connections in memory.

use hyper::body::Incoming;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, sleep, timeout},
};
use tower::ServiceBuilder;

use super::*;
use crate::views::{
    CacheProbe, View,
    fixtures::{leaving, watch},
};

/// More than a test sends.
const ROOM: usize = 1 << 16;
const DEADLINE: Duration = Duration::from_secs(10);
const ASKED: &str = "GET /apis/x.io/v1/things?watch=1&allowWatchBookmarks=true&resourceVersion=5 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret.1\r\n\
    Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
/// What ends a WebSocket in order: a frame that closes it, with 1000.
const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];
const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

async fn head(stream: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// The client's end and the API server's end of a joined connection.
async fn joined(shared: &Shared) -> (DuplexStream, DuplexStream) {
    joined_as(shared, ASKED).await
}

async fn joined_as(shared: &Shared, asked: &str) -> (DuplexStream, DuplexStream) {
    let ((mut client, ours), (theirs, mut server)) = (duplex(ROOM), duplex(ROOM));
    let theirs = Arc::new(Mutex::new(Some(theirs)));
    let upstream = service_fn(move |request: Request<Body>| {
        let theirs = theirs.clone();
        async move {
            let stream = TokioIo::new(theirs.lock().take().unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
            tokio::spawn(connection.with_upgrades());
            Ok(sender.send_request(request).await.unwrap().map(boxed))
        }
    });
    let stack = ServiceBuilder::new().map_request(|request: Request<Incoming>| request.map(boxed));
    let stack = TowerToHyperService::new(stack.service(super::stack(shared, upstream)));
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(ours), stack);
    tokio::spawn(serving.with_upgrades());
    client.write_all(asked.as_bytes()).await.unwrap();
    let asked = head(&mut server).await;
    assert!(asked.contains("labelSelector=s%3Dme") && !asked.contains("deflate"), "{asked}");
    server.write_all(ACCEPTED).await.unwrap();
    assert!(head(&mut client).await.starts_with("HTTP/1.1 101 "));
    (client, server)
}

/// Returns what still comes until the connection ends.
async fn rest(mut stream: DuplexStream) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("the connection goes on").unwrap();
    rest
}

async fn pass(from: &mut DuplexStream, to: &mut DuplexStream, bytes: &[u8]) {
    from.write_all(bytes).await.unwrap();
    let mut passed = vec![0; bytes.len()];
    timeout(DEADLINE, to.read_exact(&mut passed)).await.unwrap().unwrap();
    assert_eq!(passed, bytes);
}

/// A text message of a server.
fn message(event: &str) -> Vec<u8> {
    [&[0x81, u8::try_from(event.len()).unwrap()][..], event.as_bytes()].concat()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_tell_how_far_the_watch_has_come() {
    let lab = Lab::new(|_| ok());
    let (mut client, mut server) = joined(&lab.shared).await;
    pass(&mut client, &mut server, b"a ping, say").await;
    let event = r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
    let message = message(event);
    let (twelve, views) = (leaving(things(), None, 12), &lab.shared.views);
    assert_eq!(views.count_blocking(&twelve), 1);
    pass(&mut server, &mut client, &message).await;
    // The view is told a moment after the bytes are there to be read.
    timeout(DEADLINE, views.wait_delivered(&twelve)).await.unwrap();
    drop(server);
    assert_eq!(rest(client).await, CLOSED, "the API server is gone, and did not close it");
}

#[tokio::test]
async fn labels_of_the_ring_stay_here_and_the_length_is_right() {
    let lab = Lab::hiding(|_| ok());
    let (mut client, mut server) = joined(&lab.shared).await;
    server.write_all(&message(r#"{"type":"ADDED","object":{"labels":{"a":"b","s":"me"}}}"#)).await.unwrap();
    let expected = message(r#"{"type":"ADDED","object":{"labels":{"a":"b"         }}}"#);
    let mut shown = vec![0; expected.len()];
    timeout(DEADLINE, client.read_exact(&mut shown)).await.unwrap().unwrap();
    assert_eq!(shown, expected);
    drop(server);
    assert_eq!(rest(client).await, CLOSED);
}

#[tokio::test]
async fn bookmarks_that_nobody_asked_for_take_the_watch_further_and_stay_here() {
    let lab = Lab::new(|_| ok());
    let (mut client, mut server) = joined_as(&lab.shared, &ASKED.replace("allowWatchBookmarks=true&", "")).await;
    let message = |opcode: u8, event: &[u8]| [&[opcode, u8::try_from(event.len()).unwrap()][..], event].concat();
    let text = message(0x81, br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#);
    let object = [&b"\x0a\x08BOOKMARK\x12\x0e\x0a\x0ck8s\0\x12\x06\x0a\x04\x32\x0213"[..]].concat();
    let (binary, other) = (message(0x82, &object), message(0x81, br#"{"type":"ADDED","object":{}}"#));
    for (bookmark, at) in [(text, 12), (binary, 13)] {
        server.write_all(&bookmark).await.unwrap();
        timeout(DEADLINE, lab.shared.views.wait_delivered(&leaving(things(), None, at))).await.unwrap();
    }
    pass(&mut server, &mut client, &other).await;
}

/// How long the API server takes to say what it knows of children.
const KNOWS_AFTER: Duration = Duration::from_secs(1);

/// A lab whose things have parts, and the view of those.
fn family() -> (Lab, View) {
    let lab = Lab::new(|_| ok());
    let parts = GroupResource { resource: "parts".into(), ..things() };
    let families = [(things(), vec![parts.clone()])].into();
    let policy = Policy { families, resources: [things(), parts.clone()].into(), ..Policy::default() };
    lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
    let children = watch(&lab.shared.views, parts, Some(5));
    children.shown_to(None, CancellationToken::new());
    children.probed_by(CacheProbe::new(|| sleep(KNOWS_AFTER).boxed()));
    children.idle();
    (lab, children)
}

/// As the sharder writes it that gives it to this shard.
fn assigned() -> Vec<u8> {
    message(r#"{"type":"ADDED","object":{"metadata":{"managedFields":[{"manager":"ringside-sharder"}]}}}"#)
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_assigned_waits_for_the_watch_of_its_children() {
    let (lab, _children) = family();
    let (mut client, mut server) = joined(&lab.shared).await;
    let deleted = message(r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#);
    let (began, both) = (Instant::now(), [assigned(), deleted].concat());
    pass(&mut server, &mut client, &both).await;
    assert!(began.elapsed() >= KNOWS_AFTER, "it came after {:?}", began.elapsed());
    timeout(DEADLINE, lab.shared.views.wait_delivered(&leaving(things(), None, 12))).await.unwrap();
    // What waits as the API server goes is shown before the end.
    server.write_all(&both).await.unwrap();
    drop(server);
    assert_eq!(rest(client).await, [&both[..], CLOSED].concat());
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_the_lease_is_lost_is_not_shown() {
    let whole = assigned();
    for waits in [&whole[..], &whole[..40]] {
        let (lab, _children) = family();
        let (client, mut server) = joined(&lab.shared).await;
        server.write_all(&[&whole, waits].concat()).await.unwrap();
        sleep(KNOWS_AFTER / 2).await;
        lab.shared.gate.close();
        sleep(KNOWS_AFTER).await;
        drop(server);
        let told = rest(client).await;
        let told = String::from_utf8_lossy(&told);
        assert!(!told.contains("ADDED"), "{told}");
        assert!(told.contains("410"), "its client lists again: {told}");
    }
}

#[tokio::test]
async fn where_the_api_server_closed_it_or_left_a_message_half_written_nothing_is_added() {
    for last in [CLOSED, b"\x81\x04{"] {
        let lab = Lab::new(|_| ok());
        let (mut client, mut server) = joined(&lab.shared).await;
        pass(&mut server, &mut client, last).await;
        drop(server);
        assert_eq!(rest(client).await, b"");
    }
}

/// Creates under an owner wait for what is broken off.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_ends_is_broken_off_and_not_what_the_client_ends() {
    // Masked by zeros.
    let goodbye = [&[0x88, 0x82, 0, 0, 0, 0], &CLOSED[2..]].concat();
    for by_client in [true, false] {
        let lab = Lab::new(|_| ok());
        let (mut client, mut server) = joined(&lab.shared).await;
        if by_client {
            pass(&mut client, &mut server, &goodbye).await;
        }
        pass(&mut server, &mut client, CLOSED).await;
        if !by_client {
            pass(&mut client, &mut server, &goodbye).await;
        }
        drop(server);
        assert_eq!(rest(client).await, b"");
        sleep(Duration::from_secs(2)).await;
        let is_broken_off = lab.shared.views.interrupted(&things(), None, Instant::now()).await;
        assert_eq!(is_broken_off, !by_client);
    }
}

#[tokio::test]
async fn the_end_of_the_proxy_ends_it() {
    type Ends = fn(&Shared);
    let ends: [(&str, Ends, &[u8]); 2] = [
        // In order, as a watch by HTTP.
        ("closing", |shared| shared.closing.cancel(), CLOSED),
        ("abort", |shared| shared.abort.cancel(), b""),
    ];
    for (name, end, last) in ends {
        let lab = Lab::new(|_| ok());
        let (client, server) = joined(&lab.shared).await;
        end(&lab.shared);
        assert_eq!((&*rest(client).await, &*rest(server).await), (last, &b""[..]), "{name}");
        lab.shared.upgraded.close();
        timeout(DEADLINE, lab.shared.upgraded.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn without_the_lease_it_says_what_leaves_and_ends_in_order_with_it() {
    let lab = Lab::new(|_| ok());
    let (mut client, mut server) = joined(&lab.shared).await;
    let added = message(r#"{"type":"ADDED","object":{"metadata":{}}}"#);
    pass(&mut server, &mut client, &added).await;
    lab.shared.gate.close();
    server.write_all(&added).await.unwrap();
    pass(&mut server, &mut client, &message(r#"{"type":"DELETED","object":{"metadata":{}}}"#)).await;
    lab.shared.gate.open(term());
    let told = rest(client).await;
    assert!(String::from_utf8_lossy(&told).contains("410") && told.ends_with(CLOSED));
}

#[tokio::test]
async fn a_change_of_the_ring_makes_its_client_list_again_but_not_in_the_middle_of_a_message() {
    for middle in [false, true] {
        let lab = Lab::new(|_| ok());
        let (mut client, mut server) = joined(&lab.shared).await;
        let message: &[u8] = if middle { b"\x81\x0c{" } else { b"\x81\x0c{\"type\":\"X\"}" };
        pass(&mut server, &mut client, message).await;
        lab.shared.knowledge.send_replace(sharding(&[]));
        let told = rest(client).await;
        if middle {
            assert_eq!(told, b"");
            continue;
        }
        assert_eq!((&told[..2], &told[told.len() - 4..]), (&[0x81, 126][..], &[0x88, 2, 0x03, 0xe8][..]));
        let event: serde_json::Value = serde_json::from_slice(&told[4..told.len() - 4]).unwrap();
        assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
        assert_eq!(usize::from(u16::from_be_bytes([told[2], told[3]])), told.len() - 8);
        assert_eq!(rest(server).await, b"", "the proxy has closed it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_which_one_side_has_ended_is_closed() {
    for server_ends in [true, false] {
        let lab = Lab::new(|_| ok());
        let (client, server) = joined(&lab.shared).await;
        let (ended, kept) = if server_ends { (server, client) } else { (client, server) };
        drop(ended);
        lab.shared.upgraded.close();
        timeout(Duration::from_secs(11), lab.shared.upgraded.wait()).await.expect("it is joined still");
        drop(kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_no_obstacle_to_a_close() {
    let lab = Lab::new(|_| ok());
    let (client, mut server) = joined(&lab.shared).await;
    // More than has room on the way.
    let message = [&[0x81, 127][..], &(4 * ROOM as u64).to_be_bytes()].concat();
    server.write_all(&message).await.unwrap();
    let written = timeout(DEADLINE, server.write_all(&vec![b' '; 4 * ROOM])).await;
    assert!(written.is_err(), "it was read");
    let [view] = &lab.shared.views.open_blocking(&leaving(things(), None, 12))[..] else { panic!("one") };
    assert!(!view.is_idle() && view.close());
    lab.shared.upgraded.close();
    timeout(DEADLINE, lab.shared.upgraded.wait()).await.expect("it is joined still");
    drop(client);
}
