//! Asks whether the API server is still there, on a watch by WebSocket on which nothing comes.
//!
//! HTTP/1.1 has no pings, and TCP's keep-alive probes are answered by the peer of the connection: a load balancer, or
//! the kernel of a server that hangs. WebSocket has pings, which every endpoint answers with the same payload (RFC
//! 6455, section 5.5.2), and so do API servers (golang.org/x/net/websocket, beneath `HandleWS`). The answers pass: a
//! client expects pongs that it did not ask for (section 5.5.3).

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// After how much silence the API server is asked, and how long it may take to answer: as with HTTP/2.
const SILENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(10);

/// The first byte of a ping, and the bit of the second that says: masked.
const PING: u8 = 0x89;
const MASKED: u8 = 0x80;
const PAYLOAD: usize = 16;
const PAYLOAD_LENGTH: u8 = 16;
const _: () = assert!(PAYLOAD_LENGTH as usize == PAYLOAD);

/// What both directions of one connection know of its questions.
#[derive(Debug)]
pub(in crate::stages) struct Heartbeat {
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

    /// A ping, masked as everything that clients send, with a key that can't be predicted (section 5.3).
    pub(super) fn ping(&self) -> Vec<u8> {
        let key: [u8; 4] = rand::random();
        let masked = self.payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
        [PING, MASKED | PAYLOAD_LENGTH].into_iter().chain(key).chain(masked).collect()
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

    /// Whether the client has closed its side.
    pub(in crate::stages) fn is_last_said(&self) -> bool {
        *self.question.borrow() == Question::Last
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
