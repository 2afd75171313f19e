//! Writes the status of a ring where it is another one, and tells what has changed in it.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use ringside_ring::{Ring, cluster_ring::ClusterRingStatus};
use ringside_runtime::explain::explain;
use serde_json::json;
use tokio::time::Instant;

use super::{announce::Announcer, reconcile::Told};
use crate::{metrics::RingFigures, snapshot::Snapshot};

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How soon the status is written again when nothing but its counts have changed: no more often than a person reads it, as
/// every proxy of the ring is sent it too.
pub(super) const COUNTS: Duration = Duration::from_secs(10);

/// How a ring was reported last.
pub(super) struct Report<'a> {
    told: &'a Told,
    pub(super) announcer: Announcer,
    /// What was written, and on which snapshot: its watch may not have shown it yet.
    written: Option<(Arc<Snapshot>, ClusterRingStatus)>,
    /// Before these times nothing is written, and no counts.
    not_before: Instant,
    no_counts_before: Instant,
}

impl<'a> Report<'a> {
    pub(super) fn new(told: &'a Told) -> Self {
        let announcer = Announcer::new(told.notices.clone(), told.leases.clone());
        Self { told, announcer, written: None, not_before: Instant::now(), no_counts_before: Instant::now() }
    }

    /// What was told last.
    pub(super) fn stored(&self, snapshot: &Arc<Snapshot>) -> Option<ClusterRingStatus> {
        let written = self.written.as_ref().filter(|(of, _)| Arc::ptr_eq(of, snapshot));
        written.map(|(_, status)| status).or(snapshot.status.as_ref()).cloned()
    }

    /// Writes the status if it is another one.
    pub(super) async fn make(
        &mut self,
        (snapshot, before): (&Arc<Snapshot>, Option<ClusterRingStatus>),
        wanted: ClusterRingStatus,
        mut measured: RingFigures,
    ) {
        (measured.shards, measured.available_shards) = (wanted.shards, wanted.available_shards);
        let absent = self.told.leases.absent(&snapshot.ring);
        measured.absent_controllers = i32::try_from(absent.len()).unwrap_or(i32::MAX);
        measured.absent_since = absent.iter().map(|it| it.since.as_second()).min();
        let conditions = wanted.conditions.iter();
        measured.conditions = conditions
            .map(|it| {
                (it.type_.clone(), (it.status == "True", it.last_transition_time.0.as_second(), it.reason.clone()))
            })
            .collect();
        self.told.metrics.ring(&snapshot.ring, measured);
        let now = Instant::now();
        let but_for_counts = |of: &ClusterRingStatus| ClusterRingStatus { objects: None, ..of.clone() };
        let same = before.as_ref().is_some_and(|before| but_for_counts(before) == but_for_counts(&wanted));
        let same_counts = before.as_ref().is_some_and(|before| before.objects == wanted.objects);
        if snapshot.pending || now < self.not_before || (same && (same_counts || now < self.no_counts_before)) {
            return;
        }
        match write(&self.told.client, snapshot, &wanted).await {
            Ok(()) => {
                self.announcer.conditions(snapshot, before.as_ref(), &wanted);
                self.no_counts_before = now + COUNTS;
                self.written = Some((snapshot.clone(), wanted));
            }
            Err(error) => {
                tracing::warn!(ring = %snapshot.ring, error = %explain(&error), "can't write the status of a ring; trying again");
                self.not_before = now + RETRY;
            }
        }
    }
}

pub(super) async fn write(client: &Client, snapshot: &Snapshot, wanted: &ClusterRingStatus) -> Result<(), kube::Error> {
    let api: Api<Ring> = Api::all_with(client.clone(), &snapshot.ring.kind());
    let mut patch = json!({"metadata": {"uid": snapshot.uid}, "status": wanted});
    // What is left out of a merge patch stays as it is.
    patch["status"]["resources"] = json!(wanted.resources);
    patch["status"]["objects"] = json!(wanted.objects);
    patch["status"]["shardNamespaces"] = json!(wanted.shard_namespaces);
    let patch = Patch::Merge(patch);
    api.patch_status(snapshot.ring.name(), &PatchParams::default(), &patch).await?;
    tracing::info!(
        ring = %snapshot.ring, shards = wanted.shards, available = wanted.available_shards,
        problems = ?snapshot.problems, "reported the status of a ring"
    );
    Ok(())
}
