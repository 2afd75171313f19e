//! Objects of shards that are gone, which wait until the sharder holds the Leases of these.

use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    time::Duration,
};

use crate::lock::Mutex;
use tokio::{sync::Notify, time::timeout};

use super::{family::Root, ring::Ring};
use crate::{
    index::{ResourceId, Slot},
    leases::Hold,
    queue::limiter::Priority,
};

/// How often it is looked at least whether a Lease is held: one that was left alone may be again.
const LOOK: Duration = Duration::from_millis(500);

/// What waits, by shard.
#[derive(Default)]
pub(super) struct Takeovers {
    waiting: Mutex<BTreeMap<String, HashSet<(ResourceId, Slot)>>>,
    came: Notify,
}

impl Takeovers {
    /// The hold on the shard of a root, which is gone. None, and the root comes again when there is one.
    pub(super) fn hold(&self, ring: &Ring, root: &Root) -> Option<Hold> {
        let shard = root.target.shard.as_deref()?;
        let hold = ring.tools.leases.hold(&ring.judge.view().ring, shard, &root.target.uid);
        if hold.is_none() {
            self.wait(root);
        }
        hold
    }

    /// The root comes again when there is a hold on its shard.
    pub(super) fn wait(&self, root: &Root) {
        if let Some(shard) = &root.target.shard {
            self.waiting.lock().entry(shard.clone()).or_default().insert((root.resource, root.slot));
            self.came.notify_one();
        }
    }

    /// How many roots wait, by shard.
    pub(super) fn waiting(&self) -> BTreeMap<String, usize> {
        self.waiting.lock().iter().map(|(shard, roots)| (shard.clone(), roots.len())).collect()
    }

    /// The shards that are waited for.
    fn shards(&self) -> Vec<String> {
        self.waiting.lock().keys().cloned().collect()
    }
}

/// Has objects decided again when their shard's Lease is held, or when the shard is back.
pub(super) async fn follow(ring: &Ring) -> Infallible {
    let (takeovers, mut changes) = (&ring.takeovers, ring.tools.leases.attention());
    loop {
        changes.borrow_and_update();
        for shard in takeovers.shards() {
            let view = ring.judge.view();
            let is_back = view.members.is_available(&shard);
            if is_back || ring.tools.leases.hold(&view.ring, &shard, "").is_some() {
                let waiting = takeovers.waiting.lock().remove(&shard);
                for (resource, slot) in waiting.unwrap_or_default() {
                    ring.judge.queue(resource).add(slot, Priority::Takeover);
                }
            }
        }
        if takeovers.shards().is_empty() {
            takeovers.came.notified().await;
        } else {
            // The sender lives in the Leases.
            let _ = timeout(LOOK, changes.changed()).await;
        }
    }
}
