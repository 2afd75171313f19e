//! Receives what operators report of their reconciles, on loopback, and stamps it with the time of receipt.
//!
//! An operator posts the start of a reconcile and waits for the answer before it works, and posts the end
//! after its last write: so what is recorded covers the true time of work, and no overlap goes unseen.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    checker::{Event, Outcome},
    system::Monitor,
};

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

/// A collector that serves until it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    _server: AbortOnDropHandle<()>,
}

impl Collector {
    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(monitor: Monitor) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let routes = Router::new().route(PATH, post(take)).with_state(monitor);
        let serving = async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the collector ended");
            }
        };
        Ok(Self { address, _server: AbortOnDropHandle::new(tokio::spawn(serving)) })
    }

    /// Where operators post to.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }
}

async fn take(State(monitor): State<Monitor>, Json(posted): Json<Posted>) -> StatusCode {
    let event = match posted {
        Posted::Start { uid, generation, instance } => Event::Started { uid, generation, instance },
        Posted::End { uid, generation, instance, outcome } => Event::Ended { uid, generation, instance, outcome },
    };
    monitor.record(event);
    StatusCode::NO_CONTENT
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn takes_what_the_operator_posts_and_an_end_without_an_outcome_as_a_failure() {
        let (uid, generation, instance) = ("u".to_owned(), 3, "a.1".to_owned());
        let ended = |outcome| Event::Ended { uid: uid.clone(), generation, instance: instance.clone(), outcome };
        for (phase, expected) in [
            (r#""start""#, Event::Started { uid: uid.clone(), generation, instance: instance.clone() }),
            (r#""end","outcome":"done""#, ended(Outcome::Done)),
            (r#""end","outcome":"failed""#, ended(Outcome::Failed)),
            (r#""end","outcome":"alreadyExists""#, ended(Outcome::AlreadyExists)),
            (r#""end""#, ended(Outcome::Failed)),
        ] {
            let posted = format!(r#"{{"uid":"u","generation":3,"instance":"a.1","phase":{phase}}}"#);
            let (monitor, posted) = (Monitor::new(), serde_json::from_str(&posted).unwrap());
            assert_eq!(take(State(monitor.clone()), Json(posted)).await, StatusCode::NO_CONTENT);
            assert_eq!(monitor.journal().pop().unwrap().event, expected);
        }
    }
}
