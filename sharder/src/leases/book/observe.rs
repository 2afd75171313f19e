//! What is known of a Lease that was seen.

use std::sync::Arc;

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use ringside_ring::{
    Controller, Moment, ShardName, Weight,
    labels::ring_of,
    lease::{LeaseFacts, LeaseOwner, ShardState},
};

use super::{Book, LeaseKey, Observed, key_of, state_label};

impl Book {
    /// What is now known of a Lease, `anyway` also if it is older than what was; `None` when it can't be a shard's.
    pub(super) fn observe(&mut self, mut lease: Lease, anyway: bool, now: Moment) -> Option<(LeaseKey, Observed)> {
        let key = key_of(&lease)?;
        let ring = ring_of(&lease.metadata)?;
        if ring.as_ref().is_ok_and(|ring| !self.kinds.contains(&ring.kind())) {
            return None;
        }
        lease.metadata.managed_fields = None;
        let names = ring.and_then(|ring| Ok((ring, key.name.parse::<ShardName>()?)));
        let (ring, shard) = match names {
            Ok(names) => names,
            Err(fault) => {
                self.complain(&key, "ignoring a Lease that can't be a shard's", &fault.to_string());
                return None;
            }
        };
        let facts = LeaseFacts::of(&lease);
        let weight = Weight::of(&lease);
        match &weight {
            Ok(_) => drop(self.complaints.remove(&key)),
            Err(fault) => {
                self.complain(&key, "a shard counts with weight 1, as its weight can't be read", &fault.to_string());
            }
        }
        let late = [ShardState::Expired, ShardState::Uncertain].map(|state| Some(state.as_str()));
        let late_before = facts.held_by_shard && late.contains(&state_label(&lease));
        let known = self.leases.get(&key);
        let before = known.filter(|known| known.lease.metadata.uid == lease.metadata.uid).map(|known| known.owner);
        let owner = LeaseOwner::of(&lease, before);
        let is_absent = Controller::of(&lease) == Controller::Absent;
        let absent = is_absent.then(|| (now, Timestamp::now()));
        let (changed, contradicted, read, lease) = (now, false, None, Arc::new(lease));
        let seen =
            Observed { ring, shard, facts, owner, weight, absent, changed, late_before, contradicted, read, lease };
        let seen = match known {
            Some(known) => seen.after(known, anyway),
            None => seen,
        };
        Some((key, seen))
    }

    fn complain(&mut self, key: &LeaseKey, what: &'static str, fault: &str) {
        let LeaseKey { namespace, name } = key;
        if self.complaints.insert(key.clone(), fault.to_owned()).is_none_or(|before| before != fault) {
            tracing::warn!(namespace, lease = name, fault, "{what}");
        }
    }
}
