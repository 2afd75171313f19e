//! What is measured at the moment of asking, for the metrics of the parts of a proxy.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use ringside_runtime::lease::LeaseHandle;

use crate::{fence, shard::Parts, views};

impl Collector for Parts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let shared = &self.shared;
        let valid_until = self.lease_handle.get().and_then(LeaseHandle::valid_until);
        let left = valid_until.map_or(0.0, |until| until.since(self.clock.now()).as_secs_f64());
        let now = tokio::time::Instant::now();
        let ((drains, oldest_drain), (refused, oldest_refused)) = (self.drains.all(now), self.drains.refused(now));
        // Numbers of open streams and drains are far below what a float holds exactly.
        #[allow(clippy::cast_precision_loss)]
        let count = |number: usize| number as f64;
        let (fence, views, windows) = (shared.fence.numbers(), shared.views.numbers(), shared.budget.windows());
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
            ("buffered_bytes", "Bytes of bodies and events that the proxy holds", count(shared.budget.used())),
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
                shared.hold.doubted_for().as_secs_f64(),
            ),
            (
                "controller_stale_seconds",
                "How long the controller is known to run since before a gap, in which objects could move unseen by it",
                shared.gaps.stale_for().as_secs_f64(),
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
        ("adopted_objects", "Objects that were given another owner lately", fence.owner_changes, fence.adopted_evicted),
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
