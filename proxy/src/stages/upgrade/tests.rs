#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::future::poll_immediate;
use proptest::prelude::*;
use ringside_ring::cluster_ring::GroupResource;
use tokio::{
    io::{DuplexStream, duplex},
    time::{Instant, advance, timeout},
};

use super::*;
use crate::{
    frames::Frames,
    stages::tap,
    views::{
        Views,
        fixtures::{self, leaving},
    },
};

/// A message of the client's, and its end, masked with zeros.
const HELLO: &[u8] = b"\x81\x85\0\0\0\0hello";
const CLOSING: &[u8] = b"\x88\x82\0\0\0\0\x03\xe8";
/// A pong that the client asked for, an event, and what ends a watch.
const ITS_PONG: &[u8] = b"\x8a\x02hi";
const EVENT: &[u8] = b"\x81\x13{\"type\":\"BOOKMARK\"}";
const CLOSED: &[u8] = &[0x88, 2, 0x03, 0xe8];
/// Ten seconds of silence, and ten for an answer.
const GIVEN_UP: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_watch_by_websocket_has_come_as_far_as_what_the_client_took() {
    let event = br#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
    let message = [&[0x81, u8::try_from(event.len()).unwrap()][..], event].concat();
    let (views, things) = (Views::new(), GroupResource { group: "x.io".into(), resource: "things".into() });
    let view = fixtures::watch(&views, things.clone(), None);
    // The client's side takes half of the message before the test reads it.
    let ((mut server, from), (to, mut client)) = (duplex(1024), duplex(message.len() / 2));
    server.write_all(&message).await.unwrap();
    let watched = tap::fixtures::open(Frames::websocket(), Some(view));
    let mut copying = Box::pin(down(from, to, (Some(watched), None), None));
    let (twelve, mut taken) = (leaving(things, None, 12), vec![0; message.len()]);
    assert!(poll_immediate(&mut copying).await.is_none());
    assert_eq!(views.count_blocking(&twelve), 1);
    tokio::select! {
        _ = &mut copying => unreachable!("the server goes on"),
        read = client.read_exact(&mut taken) => assert_eq!(read.unwrap(), message.len()),
    }
    assert!(poll_immediate(&mut copying).await.is_none());
    assert_eq!((taken, views.count_blocking(&twelve)), (message, 0));
    drop(server);
    copying.await.unwrap();
    assert_eq!(views.numbers().open, 0);
}

/// Both ends of a watch, as the client and the API server have them.
fn watch() -> (DuplexStream, DuplexStream) {
    let ((client, near), (far, server)) = (duplex(1024), duplex(1024));
    tokio::spawn(async move {
        let heartbeat = Arc::new(Heartbeat::new());
        let watched = tap::fixtures::open(Frames::websocket(), None);
        let ((from_client, to_client), (from_server, to_server)) = (tokio::io::split(near), tokio::io::split(far));
        let both = tokio::try_join!(
            up(from_client, to_server, &heartbeat),
            down(from_server, to_client, (Some(watched), None), Some(heartbeat.clone()))
        );
        both.is_ok()
    });
    (client, server)
}

/// So many bytes.
async fn take(from: &mut DuplexStream, length: usize) -> Vec<u8> {
    let mut taken = vec![0; length];
    timeout(Duration::from_secs(60), from.read_exact(&mut taken)).await.expect("too few bytes").unwrap();
    taken
}

/// Reads a ping, and returns the answer to it.
async fn pong(server: &mut DuplexStream) -> Vec<u8> {
    let ping = take(server, 22).await;
    assert_eq!(ping[..2], [0x89, 0x80 | 16], "a masked ping");
    let payload = ping[6..].iter().zip(ping[2..6].iter().cycle()).map(|(byte, key)| byte ^ key);
    [0x8a, 16].into_iter().chain(payload).collect()
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_between_two_frames_and_its_answers_pass() {
    let (mut client, mut server) = watch();
    let begun = Instant::now();
    let first = pong(&mut server).await;
    assert_eq!(begun.elapsed(), GIVEN_UP / 2);
    client.write_all(&HELLO[..8]).await.unwrap();
    let answered = [&first, ITS_PONG, EVENT].concat();
    server.write_all(&answered).await.unwrap();
    assert_eq!(take(&mut client, answered.len()).await, answered);
    // Not within the client's frame, however long that takes; and then no server is given up that could not be asked.
    advance(2 * GIVEN_UP).await;
    assert_eq!(take(&mut server, 8).await, HELLO[..8]);
    client.write_all(&HELLO[8..]).await.unwrap();
    assert_eq!(take(&mut server, HELLO.len() - 8).await, HELLO[8..]);
    let second = pong(&mut server).await;
    for byte in second {
        server.write_all(&[byte]).await.unwrap();
    }
    let third = pong(&mut server).await;
    assert_eq!(third, first, "of one connection all are alike, and no other's");
    server.write_all(EVENT).await.unwrap();
    drop(server);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [&first, EVENT, CLOSED].concat());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_whose_server_does_not_answer() {
    for (sent, come, end) in [
        (&b""[..], &b""[..], CLOSED),
        (HELLO, EVENT, CLOSED),
        // Half an event can't be closed, and nor can half a pong.
        (HELLO, &EVENT[..9], b""),
        (HELLO, &ITS_PONG[..1], b""),
        // The server owes the end, and nothing may be sent to it any more.
        (CLOSING, EVENT, CLOSED),
    ] {
        let (mut client, mut server) = watch();
        client.write_all(sent).await.unwrap();
        assert_eq!(take(&mut server, sent.len()).await, sent);
        server.write_all(come).await.unwrap();
        let (begun, mut rest) = (Instant::now(), Vec::new());
        timeout(2 * GIVEN_UP, client.read_to_end(&mut rest)).await.expect("no end").unwrap();
        assert_eq!((rest, begun.elapsed()), ([come, end].concat(), GIVEN_UP), "{sent:?}, {come:?}");
        drop(client);
        let mut asked = Vec::new();
        server.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked.len(), if sent == CLOSING { 0 } else { 22 });
    }
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let framed = |first: u8, payload: Vec<u8>| [vec![first, u8::try_from(payload.len()).unwrap()], payload].concat();
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    prop_oneof![
        Just(framed(0x8a, OWN.to_vec())),
        bytes(20).prop_map(move |payload| framed(0x8a, payload)),
        // Nearly ours.
        (0..OWN.len()).prop_map(move |length| framed(0x8a, OWN[..length].to_vec())),
        (0..OWN.len()).prop_map(move |at| {
            let mut payload = OWN.to_vec();
            payload[at] ^= 1;
            framed(0x8a, payload)
        }),
        // Ours as a ping, and within a message.
        Just(framed(0x89, OWN.to_vec())),
        Just(framed(0x82, framed(0x8a, OWN.to_vec()))),
        bytes(400).prop_map(|payload| {
            [&[0x02, 126], &u16::try_from(payload.len()).unwrap().to_be_bytes()[..], &payload].concat()
        }),
    ]
}

const OWN: [u8; 16] = *b"a payload of our";

proptest! {
    #[test]
    fn borders_are_where_frames_end(
        frames in prop::collection::vec(frame(), 1..12),
        key in any::<Option<[u8; 4]>>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let masked = |frame: &Vec<u8>| {
            let header = if frame[1] == 126 { 4 } else { 2 };
            let (mut frame, key) = (frame.clone(), key.map(Vec::from).unwrap_or_default());
            frame[1] |= if key.is_empty() { 0 } else { 0x80 };
            frame.splice(header..header, key);
            frame
        };
        let frames: Vec<_> = frames.iter().map(masked).collect();
        let ends: Vec<_> = frames.iter().scan(0, |sum, frame| { *sum += frame.len(); Some(*sum) }).collect();
        let sent = frames.concat();
        let cut = cut.index(sent.len() + 1);
        let mut borders = Borders::new();
        borders.pass(&sent[..cut]);
        prop_assert_eq!(borders.at_frame_boundary(), cut == 0 || ends.contains(&cut));
    }
}
