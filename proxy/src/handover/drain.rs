//! One drained object: wait until nobody can be working on it, then acknowledge.

use std::sync::Arc;

use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};
use tokio::{sync::Notify, time::Instant};

use super::{Handover, acknowledge::Acknowledge, drains::Phase};

/// An object that this shard is asked to let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drained {
    /// Its resource.
    pub(super) resource: GroupResource,
    /// Its namespace, if the resource has them.
    pub(super) namespace: Option<String>,
    /// Its name.
    pub(super) name: String,
    /// Its uid.
    pub(super) uid: String,
    /// The drain label's value, unique to the move.
    pub(super) drain: String,
    /// A resourceVersion at which the object was seen drained.
    ///
    /// The write that drained it has this one or a lower one, so a watch that is past this is past that.
    /// A later write to the object needs no waiting: it changes nothing about what the watches show.
    pub(super) version: ResourceVersion,
}

/// Lets go of one object. Polled for as long as our own watch shows it with this drain.
///
/// `touched` says that the object was written again, which begins the grace time anew: somebody is at work
/// on it still, and it can hardly be anybody else.
pub(super) async fn let_go(
    handover: Handover,
    object: Arc<Drained>,
    touched: Arc<Notify>,
    acknowledge: impl Acknowledge,
) {
    let under_way = handover.drains.begin(object.clone(), Instant::now());
    let Drained { resource, namespace, version, .. } = &*object;
    loop {
        under_way.phase(Phase::Views);
        handover.views.past(resource, namespace.as_deref(), version).await;
        under_way.phase(Phase::Grace);
        tokio::select! {
            () = tokio::time::sleep(handover.grace) => {}
            () = touched.notified() => continue,
        }
        // A watch that was opened meanwhile, from before the drain, may have brought the object back.
        if handover.views.behind(resource, namespace.as_deref(), version) == 0 {
            break;
        }
    }
    under_way.phase(Phase::Acknowledgement);
    acknowledge.acknowledge(&object).await;
}
