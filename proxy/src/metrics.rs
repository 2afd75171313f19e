//! What can be counted and measured, with few label values: never an object's name.

use std::sync::Arc;

use http::StatusCode;
use prometheus_client::{
    collector::Collector,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use ringside_ring::RingName;

use crate::request::Verb;

/// The counters that the stages write to. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Counters>);

/// Counters by so many labels, each with its name and its value.
type Labelled<const N: usize> = Family<[(&'static str, &'static str); N], Counter>;

#[derive(Debug, Default)]
struct Counters {
    requests: Labelled<2>,
    narrowed: Counter,
    refused: Labelled<1>,
    asked: Counter,
    unseen: Labelled<1>,
    foreign: Labelled<1>,
    unlabelled: Labelled<1>,
    unfiltered: Counter,
    arrived: Labelled<1>,
    kinds: Gauge,
    kinds_evicted: Counter,
}

impl Metrics {
    /// A request was answered.
    pub fn answered(&self, verb: Verb, status: StatusCode) {
        let verb = match verb {
            Verb::Get | Verb::List => "read",
            Verb::Watch => "watch",
            Verb::Create | Verb::Update | Verb::Patch => "write",
            Verb::Delete | Verb::DeleteCollection => "delete",
            Verb::Unknown => "other",
        };
        let outcome = match status.as_u16() {
            100..400 => "ok",
            400..500 => "client_error",
            _ => "server_error",
        };
        self.0.requests.get_or_create(&[("verb", verb), ("outcome", outcome)]).inc();
    }

    /// A request was narrowed to the shard.
    pub fn narrowed(&self) {
        self.0.narrowed.inc();
    }

    /// The proxy refused a request.
    pub fn refused(&self, reason: &'static str) {
        self.0.refused.get_or_create(&[("reason", reason)]).inc();
    }

    /// The labels of an object were asked for, for the fence.
    pub fn asked(&self) {
        self.0.asked.inc();
    }

    /// A request came that the API server's own fence can't judge, for this reason (docs/dev/fence.md, "What it does not see").
    pub fn unseen(&self, what: &'static str) {
        self.0.unseen.get_or_create(&[("what", what)]).inc();
    }

    /// A request came with another account's token.
    pub fn foreign(&self, outcome: &'static str) {
        self.0.foreign.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// A controlled object had no label: it has one now, or was left to the sharder.
    pub fn unlabelled(&self, outcome: &'static str) {
        self.0.unlabelled.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The client of a request about objects of the ring accepts YAML and no JSON, so it sees their labels.
    pub fn unfiltered(&self) {
        self.0.unfiltered.inc();
    }

    /// Objects came from other shards, and are shown after their children; or before, as these took too long.
    pub fn arrived(&self, in_time: bool) {
        let outcome = if in_time { "after_children" } else { "too_late" };
        self.0.arrived.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// So many kinds of owners are known now, and so many were forgotten for that.
    pub fn kinds(&self, known: usize, evicted: usize) {
        self.0.kinds.set(i64::try_from(known).unwrap_or(i64::MAX));
        self.0.kinds_evicted.inc_by(evicted as u64);
    }

    #[cfg(test)]
    pub(crate) fn known_kinds(&self) -> (i64, u64) {
        (self.0.kinds.get(), self.0.kinds_evicted.get())
    }

    #[cfg(test)]
    pub(crate) fn were_unlabelled(&self, outcome: &'static str) -> u64 {
        self.0.unlabelled.get_or_create(&[("outcome", outcome)]).get()
    }

    #[cfg(test)]
    pub(crate) fn were_foreign(&self, outcome: &'static str) -> u64 {
        self.0.foreign.get_or_create(&[("outcome", outcome)]).get()
    }

    #[cfg(test)]
    pub(crate) fn have_arrived(&self, outcome: &'static str) -> u64 {
        self.0.arrived.get_or_create(&[("outcome", outcome)]).get()
    }

    #[cfg(test)]
    pub(crate) fn were_unfiltered(&self) -> u64 {
        self.0.unfiltered.get()
    }

    #[cfg(test)]
    pub(crate) fn were_unseen(&self, what: &'static str) -> u64 {
        self.0.unseen.get_or_create(&[("what", what)]).get()
    }

    /// Registers these and what is measured at each scrape. All carry the ring, as the alerts are by ring.
    pub fn registry(&self, ring: &RingName, live: Box<dyn Collector>) -> Registry {
        let of_ring = [("ring".into(), ring.to_string().into())];
        let mut registry = Registry::with_prefix_and_labels("ringside_proxy", of_ring.into_iter());
        registry.register("requests", "Requests by what they do and how they ended", self.0.requests.clone());
        registry.register("narrowed_requests", "Requests narrowed to the shard", self.0.narrowed.clone());
        registry.register("refused_requests", "Requests that the proxy refused itself", self.0.refused.clone());
        let asked = "Objects whose labels the fence asked the API server for";
        registry.register("label_questions", asked, self.0.asked.clone());
        let unseen = "Requests to objects that the API server's fence can't judge, and the proxy's own did";
        registry.register("unseen_requests", unseen, self.0.unseen.clone());
        let foreign = "Requests with another account's token, by whether they were passed or refused";
        registry.register("foreign_token_requests", foreign, self.0.foreign.clone());
        let unlabelled =
            "Controlled objects that the controller was to create and that had no label, by what came of it";
        registry.register("unlabelled_children", unlabelled, self.0.unlabelled.clone());
        let unfiltered =
            "Requests about the ring's resources whose client accepts YAML and no JSON, and sees the ring's labels";
        registry.register("unfiltered_requests", unfiltered, self.0.unfiltered.clone());
        let arrived =
            "Times that objects came from other shards and waited until their children were shown, by what came of it";
        registry.register("arrivals", arrived, self.0.arrived.clone());
        let kinds = "Kinds of owners whose resource is remembered";
        registry.register("known_kinds", kinds, self.0.kinds.clone());
        registry.register(
            "known_kinds_evictions",
            format!("{kinds}: those that were forgotten for others"),
            self.0.kinds_evicted.clone(),
        );
        registry.register_collector(live);
        registry
    }
}

#[cfg(test)]
mod tests;
