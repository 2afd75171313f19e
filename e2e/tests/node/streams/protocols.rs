//! Which protocol a session was in. kubectl tries SPDY where WebSocket fails, and says nothing about it: so the cases would
//! all pass with one of the two.

use std::sync::Arc;

use super::{POD, Protocol, Way};
use crate::Shared;

/// Makes kubectl say of each answer to what it was, and its status.
pub(crate) const TELL: &str = "-v=6";

pub(crate) async fn each_is_spoken_by_exec(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    for way in streams.ways() {
        let output = way.run(&["exec", TELL, POD, "--", "/guest", "say", "x", "", "0"], b"").await;
        way.assert_spoken(&output.stderr, POD, "exec");
    }
}

impl Way {
    /// By what kubectl said: each connection to that part of the pod was made by the way's protocol, at the first try.
    pub(crate) fn assert_spoken(&self, said: &[u8], pod: &str, subresource: &str) {
        let (said, path) = (String::from_utf8_lossy(said), format!("/pods/{pod}/{subresource}"));
        let answers: Vec<_> =
            said.lines().filter(|line| line.contains("\"Response\"") && line.contains(&path)).collect();
        // A WebSocket opens with GET (RFC 6455, section 4.1), and a POST is what the API has for SPDY.
        let verb = if self.protocol == Protocol::WebSocket { "verb=\"GET\"" } else { "verb=\"POST\"" };
        let opened = |line: &&str| line.contains(verb) && line.contains("status=\"101 ");
        assert!(!answers.is_empty() && answers.iter().all(opened), "{}: {answers:#?}", self.name);
    }
}
