//! What can be counted and measured, with few label values: never an object's name.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use http::StatusCode;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};
use ringside_ring::RingName;
use ringside_runtime::{clock::SharedClock, lease::Tenure};

use crate::{
    budget::Budget,
    controller::Controller,
    election::Hold,
    fence::{self, Fence},
    gap::Gaps,
    handover::Drains,
    request::Verb,
    views::{self, Views},
};

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
    pub fn registry(&self, ring: &RingName, live: Live) -> Registry {
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
        registry.register_collector(Box::new(live));
        registry
    }
}

/// What is measured at the moment of asking.
#[derive(Debug)]
pub struct Live {
    /// The controller's views.
    pub views: Views,
    /// The drains under way.
    pub drains: Drains,
    /// Whether the controller works.
    pub controller: Controller,
    /// The fence.
    pub fence: Fence,
    /// What is held in buffers.
    pub budget: Budget,
    /// Whether the controller ran through a gap.
    pub gaps: Gaps,
    /// The ring's hold on the locks of the controller's elections.
    pub hold: Arc<Hold>,
    /// The hold on the Lease, once there is one.
    pub tenure: Arc<OnceLock<Tenure>>,
    /// The clock that its validity counts on.
    pub clock: Clock,
}

/// A clock that can be printed.
#[derive(Clone)]
pub struct Clock(pub SharedClock);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let valid_until = self.tenure.get().and_then(Tenure::valid_until);
        let left = valid_until.map_or(0.0, |until| until.since(self.clock.0.now()).as_secs_f64());
        let now = tokio::time::Instant::now();
        let ((drains, oldest_drain), (refused, oldest_refused)) = (self.drains.all(now), self.drains.refused(now));
        // Numbers of open streams and drains are far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let count = |number: usize| number as f64;
        let (fence, views, windows) = (self.fence.numbers(), self.views.numbers(), self.budget.windows());
        let gauges = [
            ("open_views", "Open watches and lists of the ring's resources", count(views.open)),
            ("drains", "Objects that the shard was asked to release and has not released", count(drains)),
            ("oldest_drain_seconds", "Age of the oldest of them", oldest_drain.as_secs_f64()),
            (
                "refused_drains",
                "Of them those whose release the API server refuses, so that they are not worked on",
                count(refused),
            ),
            ("oldest_refused_drain_seconds", "Age of the oldest of those", oldest_refused.as_secs_f64()),
            ("buffered_bytes", "Bytes of bodies and events that the proxy holds", count(self.budget.used())),
            ("watch_window_bytes", "Bytes that open watches hold at most while they are not read", count(windows)),
            ("writes_in_flight", "Writes of the ring's resources that may yet be carried out", count(fence.writes)),
            (
                "oldest_write_seconds",
                "Age of the oldest of them: it may hold a drain",
                fence.oldest_write.as_secs_f64(),
            ),
            (
                "lead_in_doubt_seconds",
                "How long nothing is done for the controller, as the ring may have lost the lock that it leads by",
                self.hold.doubted_for().as_secs_f64(),
            ),
            (
                "controller_stale_seconds",
                "How long the controller is known to run since before a gap, in which objects could move unseen by it",
                self.gaps.stale_for().as_secs_f64(),
            ),
            (
                "controller_absent_seconds",
                "How long the controller has not watched or listed every main resource, so that others get its objects",
                self.controller.absent_for().as_secs_f64(),
            ),
            ("lease_held", "Whether the shard Lease is held", count(usize::from(valid_until.is_some()))),
            ("lease_validity_seconds", "How long the Lease is valid without another renewal", left),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, entries, evicted) in memories(&fence, &views) {
            let (gauge, counter) = (ConstGauge::new(count(entries)), ConstCounter::new(evicted));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            let (name, help) = (format!("{name}_evictions"), format!("{help}: those that were forgotten for others"));
            counter.encode(encoder.encode_descriptor(&name, &help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

/// Each memory that has a bound, with its entries and how many it forgot.
fn memories(fence: &fence::Numbers, views: &views::Numbers) -> [(&'static str, &'static str, usize, u64); 7] {
    [
        ("moved_objects", "Released objects that the fence remembers", fence.moved, fence.moved_evicted),
        ("known_objects", "Objects that the fence knows to be the shard's", fence.known, fence.known_evicted),
        (
            "lingering_writes",
            "Writes whose client is gone and that may yet be carried out",
            fence.lingering,
            fence.lingering_evicted,
        ),
        ("adopted_objects", "Objects that were given another owner lately", fence.adopted, fence.adopted_evicted),
        ("ended_views", "Watches and lists that ended, and what they showed", views.ended, views.ended_evicted),
        (
            "leaving_objects",
            "Drained objects that a watch may have missed which begins behind them",
            views.leaving,
            views.leaving_evicted,
        ),
        ("listed_scopes", "Lists that were answered lately", views.lists, views.lists_evicted),
    ]
}

#[cfg(test)]
mod tests;
