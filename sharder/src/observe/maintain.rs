//! Makes new snapshots when rings, Leases or the API server's resources change.

use std::{convert::Infallible, num::NonZeroU32, sync::Arc};

use kube::ResourceExt;
use ringside_runtime::admin::Check;
use tokio::{sync::watch, time::Instant};

use crate::{
    fence::Fences,
    leases::Leases,
    metrics::Metrics,
    namespaces::Namespaces,
    resources::Catalog,
    rings::Rings,
    rolls::Rolls,
    snapshot::{Snapshot, Snapshots},
};

/// What snapshots are made of.
pub(crate) struct Sources {
    pub(crate) rings: Rings,
    /// Tells when the rings change.
    pub(crate) rings_changed: watch::Receiver<()>,
    pub(crate) leases: Leases,
    pub(crate) rolls: Rolls,
    pub(crate) fences: Fences,
    pub(crate) namespaces: Namespaces,
    pub(crate) catalog: watch::Receiver<Arc<Catalog>>,
    pub(crate) tokens_per_shard: NonZeroU32,
    pub(crate) metrics: Metrics,
}

/// Keeps the snapshots current. The first are published when all rings, Leases and namespaces have been seen.
pub(crate) async fn maintain(
    mut sources: Sources,
    snapshots: watch::Sender<Option<Arc<Snapshots>>>,
    synced: Check,
) -> Result<(), Infallible> {
    sources.rings.seen().await;
    sources.namespaces.synced().await;
    let mut membership = sources.leases.membership();
    let mut rolls = sources.rolls.changes();
    let mut fences = sources.fences.changes();
    loop {
        rolls.borrow_and_update();
        fences.borrow_and_update();
        sources.rings_changed.borrow_and_update();
        membership.borrow_and_update();
        sources.catalog.borrow_and_update();
        let previous = snapshots.borrow().clone();
        if let Some(built) = build(&sources, previous.as_deref()) {
            snapshots.send_replace(Some(Arc::new(built)));
            synced.pass();
        }
        let ended = tokio::select! {
            changed = sources.rings_changed.changed() => changed.is_err(),
            changed = membership.changed() => changed.is_err(),
            changed = rolls.changed() => changed.is_err(),
            changed = fences.changed() => changed.is_err(),
            changed = sources.catalog.changed() => changed.is_err(),
        };
        if ended {
            // A source is gone only when the process ends.
            std::future::pending::<()>().await;
        }
    }
}

fn build(sources: &Sources, previous: Option<&Snapshots>) -> Option<Snapshots> {
    let rings = sources.rings.all();
    sources.leases.confine(rings.iter().map(|ring| &**ring));
    let mut members = sources.leases.members()?;
    let catalog = sources.catalog.borrow().clone();
    let mut snapshots = Snapshots::new();
    for ring in rings {
        let name = match ring.name() {
            Ok(name) => name,
            Err(fault) => {
                let ring = format!("{} '{}'", ring.kind, ring.name_any());
                tracing::warn!(ring, %fault, "ignoring a ring that can't have its name");
                continue;
            }
        };
        let before = previous.and_then(|previous| previous.get(&name)).map(|snapshot| &**snapshot);
        let members = members.remove(&name).unwrap_or_default().replacing(sources.rolls.outgoing(&name));
        let snapshot = Snapshot::build(name.clone(), &ring, &catalog, members, before, sources.tokens_per_shard)
            .withholding(sources.fences.withheld(&name, &ring))
            .after(
                before,
                sources.leases.all_know(&name, ring.metadata.generation.unwrap_or_default()),
                Instant::now(),
            );
        if before.is_none_or(|before| !Arc::ptr_eq(before.hash_ring(), snapshot.hash_ring())) {
            sources.metrics.ring_calculated(&name);
        }
        if before.is_some_and(|before| !before.among_the_same(&snapshot) || !before.receives_alike(&snapshot)) {
            let passed_over =
                snapshot.members.available().filter(|shard| !snapshot.members.may_receive(shard.as_str())).count();
            tracing::info!(
                ring = %name, available = snapshot.hash_ring().shards().len(), passed_over, shards = snapshot.members.len(),
                "the shards of a ring changed"
            );
        }
        snapshots.insert(name, Arc::new(snapshot));
    }
    Some(snapshots)
}
