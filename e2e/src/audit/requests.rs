//! Who asked for what: each request once, when it was answered, or when its watch began.

use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;

use super::{event::Event, lines};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `patch` and so on.
    pub verb: String,
    /// The resource with its subresource.
    pub resource: String,
    /// The object, where it names one.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// The program that asked, as it says itself.
    pub agent: String,
    /// The Pod that the token of who asked is bound to.
    pub pod: Option<String>,
    /// When it arrived.
    pub received: Timestamp,
    /// When it was answered, or its watch began.
    pub answered: Timestamp,
    /// The status of the answer.
    pub code: u16,
}

/// The requests of one user in a log that grows, from where it was last read.
#[derive(Debug)]
pub struct Requests {
    path: PathBuf,
    user: String,
    offset: u64,
}

impl Requests {
    /// Those of a user.
    pub fn of(path: PathBuf, user: &str) -> Self {
        Self { path, user: user.to_owned(), offset: 0 }
    }

    /// Those since this was asked for the last time. The API server writes them a moment after it has answered.
    pub fn since(&mut self) -> anyhow::Result<Vec<Request>> {
        let mut found = Vec::new();
        self.offset = lines(&self.path, self.offset, |line| {
            let event = Event::parse(line)?;
            // The end of a watch is none.
            let counts = if event.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
            if event.user.username != self.user || event.stage != counts {
                return Ok(());
            }
            let pod = event.user.pod().cloned();
            found.push(Request {
                verb: event.verb,
                resource: event.object_ref.resource(),
                name: event.object_ref.name,
                uri: event.request_uri,
                agent: event.user_agent,
                pod,
                received: event.request_received_timestamp.0,
                answered: event.stage_timestamp.0,
                code: event.response_status.code,
            });
            Ok(())
        })?;
        Ok(found)
    }
}
