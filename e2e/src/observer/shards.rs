//! The shard Leases of a ring, as a watch shows them.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{ResourceExt as _, runtime::watcher};
use ringside_ring::{
    labels::LEASE_STATE,
    lease::{LeaseFacts, holder},
};

use crate::checker::{Cause, Event};

/// The shards, by name.
#[derive(Debug, Default)]
pub(super) struct Shards {
    known: BTreeMap<String, Shard>,
    unconfirmed: HashSet<String>,
}

#[derive(Debug)]
struct Shard {
    state: String,
    held: bool,
}

impl Shards {
    /// What the checker should know of this event: who took its Lease, and who lost it.
    pub(super) fn apply(&mut self, event: watcher::Event<Lease>) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.unconfirmed = self.known.keys().cloned().collect();
                Vec::new()
            }
            watcher::Event::InitApply(lease) | watcher::Event::Apply(lease) => self.seen(&lease).into_iter().collect(),
            watcher::Event::InitDone => {
                let gone = std::mem::take(&mut self.unconfirmed);
                gone.iter().filter_map(|name| self.gone(name)).collect()
            }
            watcher::Event::Delete(lease) => self.gone(&lease.name_any()).into_iter().collect(),
        }
    }

    /// The states that the sharder wrote on the Leases.
    pub(super) fn states(&self) -> BTreeMap<String, String> {
        self.known.iter().map(|(name, shard)| (name.clone(), shard.state.clone())).collect()
    }

    fn seen(&mut self, lease: &Lease) -> Option<Event> {
        let name = lease.name_any();
        self.unconfirmed.remove(&name);
        let held = LeaseFacts::of(lease).held_by_shard;
        let state = lease.labels().get(LEASE_STATE).cloned().unwrap_or_default();
        let before = self.known.insert(name.clone(), Shard { state, held });
        if before.is_some_and(|before| before.held == held) {
            return None;
        }
        let cause = if holder(lease.spec.as_ref()).is_none() { Cause::Released } else { Cause::Dead };
        Some(if held { Event::ShardAvailable { shard: name } } else { Event::ShardUnavailable { shard: name, cause } })
    }

    fn gone(&mut self, name: &str) -> Option<Event> {
        let shard = self.known.remove(name)?;
        // One that was not held was reported when it was lost.
        shard.held.then(|| Event::ShardUnavailable { shard: name.to_owned(), cause: Cause::Dead })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use kube::core::ObjectMeta;
    use watcher::Event::{Apply, Delete};

    use super::*;

    fn lease(holder: &str, state: &str) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some("s".to_owned()),
                labels: Some([(LEASE_STATE.to_owned(), state.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec { holder_identity: Some(holder.to_owned()), ..LeaseSpec::default() }),
        }
    }

    fn unavailable(cause: Cause) -> Vec<Event> {
        vec![Event::ShardUnavailable { shard: "s".to_owned(), cause }]
    }

    #[test]
    fn reports_only_who_takes_and_who_loses_a_lease() {
        let mut shards = Shards::default();
        let available = || vec![Event::ShardAvailable { shard: "s".to_owned() }];
        assert_eq!(shards.apply(Apply(lease("s", ""))), available());
        assert!(shards.apply(Apply(lease("s", "ready"))).is_empty());
        assert_eq!(shards.states()["s"], "ready");
        assert_eq!(shards.apply(Apply(lease("", "dead"))), unavailable(Cause::Released));
        assert!(shards.apply(Apply(lease("", "dead"))).is_empty());
        assert_eq!(shards.apply(Apply(lease("s", "ready"))), available());
        assert_eq!(shards.apply(Apply(lease("shardlease-controller", "dead"))), unavailable(Cause::Dead));
        assert!(shards.apply(Delete(lease("", "orphaned"))).is_empty());
        assert!(shards.states().is_empty());
    }

    #[test]
    fn a_held_lease_that_is_deleted_is_a_loss() {
        let mut shards = Shards::default();
        shards.apply(Apply(lease("s", "ready")));
        assert_eq!(shards.apply(Delete(lease("s", "ready"))), unavailable(Cause::Dead));
    }
}
