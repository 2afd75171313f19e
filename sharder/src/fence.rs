//! The API server's fence: a ValidatingAdmissionPolicy for each ring that asks for one (DESIGN, "The fence has two layers").
//!
//! The leader keeps it ([`keep`]). The policy ([`policy`]) depends on the shards only by their service accounts
//! ([`accounts`]). It acts a while after it was written, so it says itself of what it has been in place for long enough
//! ([`mark`]); every replica reads that ([`observe`]), and what relies on the fence asks here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use ringside_ring::{Ring, RingName, cluster_ring, cluster_ring::GroupResource};
use tokio::sync::watch;

mod accounts;
mod keep;
mod mark;
mod observe;
mod policy;

pub(crate) use keep::{Keeper, keep};
pub(crate) use observe::follow;

use crate::{lock::Mutex, snapshot::Snapshot, verdict::Verdict};
use mark::Covered;

/// What is known of the fences of all rings; clones share it.
#[derive(Clone)]
pub(crate) struct Fences {
    policies: Store<ValidatingAdmissionPolicy>,
    bindings: Store<ValidatingAdmissionPolicyBinding>,
    known: Arc<Mutex<Known>>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Known {
    /// Why policies, or bindings, can't be seen.
    blind: BTreeMap<&'static str, String>,
    /// Whether the API server judges writes by policies, as the leader finds out.
    judged: Verdict,
    /// What the leader found out about each ring.
    rings: BTreeMap<RingName, Findings>,
}

/// What the leader found out about a ring's fence.
#[derive(Clone, Debug, Default, PartialEq)]
struct Findings {
    /// Why the policy can't be written.
    refused: Option<String>,
    /// The service account of each shard, or why the fence does not know the shard.
    shards: BTreeMap<String, Result<String, String>>,
}

/// How a ring's fence is, for its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The ring does not ask for it.
    Unasked,
    /// It can't be, and why.
    Impossible(String),
    /// It was written, and may not act everywhere yet.
    Pending,
    /// It is in place, but not around these shards, and why.
    Leaky(Vec<String>),
    /// It is in place.
    InPlace,
}

impl Fences {
    /// Nothing known, with the writers of what is seen.
    fn new() -> (Self, Writer<ValidatingAdmissionPolicy>, Writer<ValidatingAdmissionPolicyBinding>) {
        let (policies, bindings) = (Writer::default(), Writer::default());
        let this = Self {
            policies: policies.as_reader(),
            bindings: bindings.as_reader(),
            known: Arc::default(),
            changed: watch::Sender::new(()),
        };
        (this, policies, bindings)
    }

    /// Tells when something about any fence changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The main resources of the ring whose objects must not be assigned yet. The fence is about to be around them.
    ///
    /// Where it can't be, nothing is withheld: it is the second layer, the ring says what is missing, and a cluster that
    /// is too old, or a forgotten permission, must not leave new objects without owner.
    pub(crate) fn withheld(&self, name: &RingName, ring: &Ring) -> BTreeSet<GroupResource> {
        if !ring.spec.asks_for_fence() || self.fault(name).is_some() {
            return BTreeSet::new();
        }
        let (covered, namespaces) = (self.covered(name).unwrap_or_default(), ring.spec.effective_namespace_selector());
        let mains = ring.spec.resources.iter().filter(|main| {
            let resource = main.group_resource();
            !covered.has_all(main.controlled_resources.iter().chain([&resource]), &namespaces)
        });
        mains.map(cluster_ring::RingResource::group_resource).collect()
    }

    /// Whether what this shard writes to objects of these resources is judged by the API server.
    pub(crate) fn holds<'a>(
        &self,
        snapshot: &Snapshot,
        resources: impl Iterator<Item = &'a GroupResource>,
        shard: &str,
    ) -> bool {
        let ring = &snapshot.ring;
        // A replica that can't see the policy does not know whether the API server enforces it.
        if self.fault(ring).is_some() || !self.is_seen_to_judge() {
            return false;
        }
        let account = self.known.lock().rings.get(ring).and_then(|ring| ring.shards.get(shard)?.clone().ok());
        self.covered(ring).zip(account).is_some_and(|(covered, account)| {
            covered.accounts.contains(&account) && covered.has_all(resources, &snapshot.namespace_selector)
        })
    }

    /// How the ring's fence is.
    pub(crate) fn report(&self, snapshot: &Snapshot) -> Report {
        if !snapshot.spec.asks_for_fence() {
            return Report::Unasked;
        }
        let name = &snapshot.ring;
        if let Some(fault) = self.fault(name) {
            return Report::Impossible(fault);
        }
        let Some(covered) = self.covered(name) else { return Report::Pending };
        let known = self.known.lock();
        let shards = known.rings.get(name).map(|ring| &ring.shards).into_iter().flatten();
        let (mut pending, mut leaks) =
            (!covered.has_all(snapshot.named.iter(), &snapshot.namespace_selector), Vec::new());
        for (shard, account) in shards {
            match account {
                Ok(account) => pending |= !covered.accounts.contains(account),
                Err(reason) => leaks.push(format!("shard '{shard}': {reason}")),
            }
        }
        match (pending, leaks.is_empty()) {
            (_, false) => Report::Leaky(leaks),
            (true, true) => Report::Pending,
            (false, true) => Report::InPlace,
        }
    }

    /// What the ring's policy has been in place for.
    fn covered(&self, ring: &RingName) -> Option<Covered> {
        let name = ring.made_for();
        let (policy, binding) =
            (self.policies.get(&ObjectRef::new(&name))?, self.bindings.get(&ObjectRef::new(&name))?);
        mark::read(&policy.metadata, &binding.metadata)
    }

    /// Whether there is a policy or a binding of the ring.
    fn has_any(&self, name: &str) -> bool {
        self.policies.get(&ObjectRef::new(name)).is_some() || self.bindings.get(&ObjectRef::new(name)).is_some()
    }

    fn fault(&self, ring: &RingName) -> Option<String> {
        // Who does not lead, or has just begun to, knows it from the policy itself.
        let noted = || mark::idle(&self.policies.get(&ObjectRef::new(&ring.made_for()))?.metadata);
        let known = self.known.lock();
        let idle = || {
            let why = known.judged.clone().map_or_else(noted, Result::err)?;
            Some(format!("the API server's fence can't be relied on: {why}; or set fence to Proxy in the ring"))
        };
        known.blind.values().next().cloned().or_else(|| known.rings.get(ring)?.refused.clone()).or_else(idle)
    }

    /// Whether the API server was seen to judge writes by policies.
    fn is_seen_to_judge(&self) -> bool {
        self.known.lock().judged == Some(Ok(()))
    }

    /// Whether the API server judges writes by policies, as far as this replica has found out.
    fn verdict(&self) -> Verdict {
        self.known.lock().judged.clone()
    }

    /// The leader found out whether the API server judges writes by policies.
    pub(crate) fn judged(&self, verdict: Verdict) {
        let mut known = self.known.lock();
        if known.judged != verdict {
            known.judged = verdict;
            drop(known);
            self.changed.send_replace(());
        }
    }

    /// The leader found something out.
    fn found(&self, ring: &RingName, findings: &Findings) {
        let before = self.known.lock().rings.insert(ring.clone(), findings.clone());
        if before.as_ref() != Some(findings) {
            self.changed.send_replace(());
        }
    }

    /// Forgets what the keeper of a ring found out, as the keeper has ended.
    fn forget(&self, ring: &RingName) {
        if self.known.lock().rings.remove(ring).is_some() {
            self.changed.send_replace(());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
