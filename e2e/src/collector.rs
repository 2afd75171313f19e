//! Receives what operators report of their reconciles, on loopback, and stamps it with the time of receipt.
//!
//! An operator posts the start of a reconcile and waits for the answer before it works, and posts the end
//! after its last write: so what is recorded covers the true time of work, and no overlap goes unseen.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::checker::{Event, Outcome, Record};

/// The path that operators post to.
pub const PATH: &str = "/reconciles";

/// What an operator posts: `{"phase":"start","uid":"…","generation":1,"instance":"…"}`, and for the end
/// `{"phase":"end",…,"outcome":"done"}` (or `"failed"`, or `"alreadyExists"`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", tag = "phase")]
enum Posted {
    Start {
        uid: String,
        generation: i64,
        instance: String,
    },
    End {
        uid: String,
        generation: i64,
        instance: String,
        #[serde(default)]
        outcome: Outcome,
    },
}

/// One order of everything that is recorded, with one clock.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun: Instant,
    records: UnboundedSender<Record>,
}

impl Recorder {
    /// A recorder, and the end at which its records come out in order.
    pub fn new() -> (Self, UnboundedReceiver<Record>) {
        let (records, received) = unbounded_channel();
        (Self { begun: Instant::now(), records }, received)
    }

    /// The time since the beginning.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Records that something happened now. Nobody listens any more once the run has ended: then it is dropped.
    pub fn record(&self, event: Event) {
        let _nobody_listens = self.records.send(Record { at: self.now(), event });
    }
}

/// A collector that serves until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Collector {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(recorder: Recorder) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route(PATH, post(take)).with_state(recorder);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the collector ended");
            }
        });
        Ok(Self { address, server })
    }

    /// Where operators post to.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(recorder): State<Recorder>, Json(posted): Json<Posted>) -> StatusCode {
    let event = match posted {
        Posted::Start { uid, generation, instance } => Event::Started { uid, generation, instance },
        Posted::End { uid, generation, instance, outcome } => Event::Ended { uid, generation, instance, outcome },
    };
    recorder.record(event);
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn recorded(posted: &str) -> Event {
        let (recorder, mut records) = Recorder::new();
        let posted = serde_json::from_str(posted).unwrap();
        assert_eq!(take(State(recorder), Json(posted)).await, StatusCode::NO_CONTENT);
        records.recv().await.unwrap().event
    }

    #[tokio::test]
    async fn takes_what_the_operator_posts() {
        let start = r#"{"phase":"start","uid":"u","generation":3,"instance":"a.1"}"#;
        let (uid, instance) = ("u".to_owned(), "a.1".to_owned());
        assert_eq!(
            recorded(start).await,
            Event::Started { uid: uid.clone(), generation: 3, instance: instance.clone() }
        );
        for (outcome, expected) in
            [("done", Outcome::Done), ("failed", Outcome::Failed), ("alreadyExists", Outcome::AlreadyExists)]
        {
            let end = format!(r#"{{"phase":"end","uid":"u","generation":3,"instance":"a.1","outcome":"{outcome}"}}"#);
            let expected =
                Event::Ended { uid: uid.clone(), generation: 3, instance: instance.clone(), outcome: expected };
            assert_eq!(recorded(&end).await, expected);
        }
    }

    #[tokio::test]
    async fn an_end_without_an_outcome_is_a_failure() {
        let end = r#"{"phase":"end","uid":"u","generation":3,"instance":"a.1"}"#;
        assert!(matches!(recorded(end).await, Event::Ended { outcome: Outcome::Failed, .. }));
    }
}
