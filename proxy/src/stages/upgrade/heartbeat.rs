//! Asks whether the API server is still there, on a watch by WebSocket on which nothing comes.
//!
//! HTTP/1.1 has no pings, and TCP's questions are answered by whoever holds the connection: a load balancer, or the kernel
//! of a server that hangs. WebSocket has pings, which every endpoint answers with the same payload (RFC 6455, section
//! 5.5.2), and so do API servers (golang.org/x/net/websocket, beneath `HandleWS`). A client that sends pings of its own goes
//! on doing so: only pongs with this connection's random payload are taken out of what it receives.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

use super::borders::Borders;

/// After how much silence the API server is asked, and how long it may take to answer: as with HTTP/2.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(10);

/// First bytes of a ping and a pong, and the bit of the second that says: masked.
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const MASKED: u8 = 0x80;
const PAYLOAD: usize = 16;
const PAYLOAD_LENGTH: u8 = 16;
const _: () = assert!(PAYLOAD_LENGTH as usize == PAYLOAD);
/// A pong as servers send it, unmasked.
const FRAME: usize = 2 + PAYLOAD;

/// What both directions of one connection know of its questions.
#[derive(Debug)]
pub(super) struct Heartbeat {
    payload: [u8; PAYLOAD],
    question: watch::Sender<Question>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// There is none.
    None,
    /// To be asked as soon as the client's bytes are at a border.
    Due,
    /// On its way.
    Asked,
    /// The client has said its last, and nothing can be asked any more: what the API server owes now is the end.
    Last,
}

impl Heartbeat {
    pub(super) fn new() -> Self {
        Self { payload: rand::random(), question: watch::Sender::new(Question::None) }
    }

    /// A ping, masked as everything that clients send, with a key that nobody can foresee (section 5.3).
    pub(super) fn ping(&self) -> Vec<u8> {
        let key: [u8; 4] = rand::random();
        let masked = self.payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
        [PING, MASKED | PAYLOAD_LENGTH].into_iter().chain(key).chain(masked).collect()
    }

    /// What takes the answers out.
    pub(super) fn pongs(&self) -> Pongs {
        Pongs::new(self.payload)
    }

    /// Returns when nothing came for too long although the API server was asked. To be dropped when something comes.
    pub(super) async fn unanswered(&self) {
        sleep(SILENCE).await;
        self.becomes(Question::Due);
        self.until(|it| matches!(it, Question::Asked | Question::Last)).await;
        sleep(ANSWER).await;
    }

    /// Something came.
    pub(super) fn heard(&self) {
        self.becomes(Question::None);
    }

    /// Returns when the API server has to be asked.
    pub(super) async fn due(&self) {
        self.until(|it| it == Question::Due).await;
    }

    /// It is asked now.
    pub(super) fn asked(&self) {
        self.becomes(Question::Asked);
    }

    /// The client has closed its side.
    pub(super) fn last_said(&self) {
        self.becomes(Question::Last);
    }

    fn becomes(&self, next: Question) {
        self.question.send_if_modified(|now| {
            let changes = *now != next && *now != Question::Last;
            if changes {
                *now = next;
            }
            changes
        });
    }

    async fn until(&self, wanted: impl Fn(Question) -> bool) {
        // The sender is here.
        drop(self.question.subscribe().wait_for(|now| wanted(*now)).await);
    }
}

/// Takes the pongs with one payload out of what a server sends, and changes nothing else.
#[derive(Debug)]
pub struct Pongs {
    own: [u8; FRAME],
    /// So many bytes of `own` came since the last border, and are held back.
    matched: usize,
    borders: Borders,
}

impl Pongs {
    /// Those with this payload.
    pub fn new(payload: [u8; PAYLOAD]) -> Self {
        let mut own = [0; FRAME];
        (own[0], own[1]) = (PONG, PAYLOAD_LENGTH);
        own[2..].copy_from_slice(&payload);
        Self { own, matched: 0, borders: Borders::new() }
    }

    /// Adds to `out` what the client gets of these bytes.
    pub fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let [first, rest @ ..] = bytes {
            if self.borders.at_border() {
                if *first == self.own[self.matched] {
                    self.matched = (self.matched + 1) % FRAME;
                    bytes = rest;
                    continue;
                }
                self.release(out);
            }
            let taken = self.borders.advance(bytes);
            out.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
        }
    }

    /// Adds to `out` what was held back, when nothing more comes or it is no pong of ours.
    pub fn release(&mut self, out: &mut Vec<u8>) {
        let held = &self.own[..std::mem::take(&mut self.matched)];
        self.borders.pass(held);
        out.extend_from_slice(held);
    }
}
