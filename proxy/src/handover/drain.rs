//! One drained object: wait until nobody can be working on it, then acknowledge.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use ringside_ring::{Grace, ResourceVersion, cluster_ring::GroupResource};
use tokio::time::Instant;

use super::{
    Handover,
    acknowledge::{Acknowledge, Attempt},
    drains::Phase,
    settle::settle,
};
use crate::{
    fence::{Guard, Moving},
    views::Leaving,
};

/// How long to wait before the first retry of an acknowledgement, and at most.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// An object that this shard is asked to let go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Its resource.
    pub(crate) resource: GroupResource,
    /// Its namespace, if the resource has them.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// Its kind.
    pub(crate) kind: String,
    /// The drain label's value, unique to the move.
    pub(crate) drain: String,
    /// Its labels when it was first seen drained.
    pub(crate) labels: BTreeMap<String, String>,
    /// The resourceVersion at which it was first seen drained.
    ///
    /// The write that drained it has this one or a lower one, so a watch that is past this is past that.
    /// A later write to the object needs no waiting: it changes nothing about what the watches show.
    pub(crate) version: ResourceVersion,
    /// Whether it is the very write that drained it. Not so when it was drained before our watch began.
    pub(crate) is_exact: bool,
}

impl Drained {
    /// `NAMESPACE/NAME`, for people.
    pub(super) fn place(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        format!("{}{}", namespace.unwrap_or_default(), self.name)
    }
}

impl Drained {
    /// Has the fence know of it, from this moment on.
    pub(super) fn guard(&self, handover: &Handover) -> Guard {
        // The sharder may rely on what this shard promised when it was drained, by a proxy that has been restarted since.
        let asked = Grace::asked(&self.drain).map_or(Duration::ZERO, Grace::duration);
        handover.fence.drained(self.moving(), &self.version, handover.grace.max(asked), handover.term)
    }

    fn moving(&self) -> Moving {
        let Self { resource, namespace, name, uid, .. } = self.clone();
        Moving { resource, namespace, name, uid: uid.into() }
    }

    pub(super) fn leaving(&self) -> Arc<Leaving> {
        let Self { resource, namespace, name, uid, kind, labels, version, is_exact, .. } = self.clone();
        Arc::new(Leaving { resource, namespace, name, uid, kind, labels, version, is_exact, excused: Mutex::default() })
    }
}

/// Lets go of one object. Polled for as long as our own watch shows it with this drain.
///
/// What others write (a kubelet, another controller) holds nothing: the fence knows what the controller sends.
pub(super) async fn let_go(handover: Handover, object: Arc<Drained>, fence: Guard, acknowledge: impl Acknowledge) {
    let under_way = handover.drains.begin(object.clone(), Instant::now());
    let Drained { resource, namespace, name, uid, .. } = &*object;
    let leaving = object.leaving();
    handover.views.leaves(&leaving);
    let mut pause = FIRST_RETRY;
    loop {
        under_way.phase(Phase::Views);
        settle(&handover, &object, &leaving, &acknowledge, &under_way).await;
        under_way.phase(Phase::Grace);
        fence.quiet().await;
        under_way.phase(Phase::Acknowledgement);
        loop {
            // Closed never.
            let seat = handover.seats.acquire().await;
            // First, so that no page of an old list is asked for after the look at the views.
            handover.views.gone(&leaving);
            // Looked at with the seat in hand, since waiting for one may take long: a watch that was opened
            // meanwhile, from before the drain, may have brought the object back.
            if handover.views.behind(&leaving) > 0 || !fence.close() {
                break;
            }
            // Closed from here on, whatever comes of the attempt: nobody knows whether one without answer was carried out.
            let Attempt::Again(error) = acknowledge.attempt(&object).await else { return };
            drop(seat);
            tracing::warn!(%resource, namespace, name, uid, error, retry_in = ?pause, "can't acknowledge a drain");
            under_way.refused(error);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_RETRY);
        }
    }
}

/// One, for tests of others.
#[cfg(test)]
pub(crate) fn drained() -> Drained {
    Drained {
        resource: GroupResource { group: String::new(), resource: "things".into() },
        namespace: Some("default".into()),
        name: "a".into(),
        uid: "u".into(),
        kind: "Thing".into(),
        drain: "m".into(),
        labels: BTreeMap::new(),
        version: crate::views::fixtures::at(1),
        is_exact: true,
    }
}
