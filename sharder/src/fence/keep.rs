//! Keeps the policy of one ring and its binding ([`crate::keep`]), notes on the policy when it is in place, and takes both
//! away when the ring does not ask for them any more. The leader does this.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{Api, Client, ResourceExt, core::DynamicObject, discovery::ApiResource};
use ringside_ring::{RingName, cluster_ring};
use ringside_runtime::explain::{code, explain};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Fences, Findings,
    accounts::Accounts,
    mark::{self, Covered, Writing},
    policy::{accounts, binding, policy, spec_of},
};
use crate::{
    keep::{ACTED_ON, Kept, Standing},
    leases::Leases,
    snapshot::Snapshot,
};

/// How long a policy may take to be in place for the first time, or again. A client that changes or deletes it again
/// and again must not leave objects unassigned.
const PLACE_TIMEOUT: Duration = Duration::from_secs(40);
/// How long in all where the API server refuses, again and again, what may work in a moment.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(300);
/// What can be done besides.
const OR: &str = "or set fence to Proxy in the ring";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// How soon a Pod of a shard that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// What keeping a ring's fence needs.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) leases: Leases,
    pub(crate) fences: Fences,
    pub(crate) period: Duration,
}

/// Keeps the fence of one ring.
pub(crate) async fn keep(keeper: Keeper, snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
    let ring = snapshots.borrow().ring.clone();
    let (clients, name) = ((&keeper.client, &keeper.watches), ring.made_for());
    let policies = ApiResource::erase::<ValidatingAdmissionPolicy>(&());
    let bindings = ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&());
    let (policy, policy_keeper) = Kept::new(clients, &policies, name.clone(), keeper.period);
    let (binding, binding_keeper) = Kept::new(clients, &bindings, name.clone(), keeper.period);
    let fence = Fence {
        policies: Api::all_with(keeper.client.clone(), &policies),
        bindings: Api::all_with(keeper.client.clone(), &bindings),
        policy,
        binding,
        name,
        accounts: Accounts::default(),
        stored: None,
        awaited: None,
        findings: Findings::default(),
    };
    let _forgotten_at_the_end = Forget(&keeper.fences, &ring);
    tokio::select! {
        never = policy_keeper.run() => never,
        never = binding_keeper.run() => never,
        never = fence.steer(&keeper, snapshots) => never,
    }
}

/// What one leader found out is nothing that the next may rely on.
struct Forget<'a>(&'a Fences, &'a RingName);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// One ring's fence, as far as its keeper remembers it.
struct Fence {
    policies: Api<DynamicObject>,
    bindings: Api<DynamicObject>,
    policy: Kept,
    binding: Kept,
    name: String,
    accounts: Accounts,
    /// Policy and binding as they are stored, as far as is known; none before they were read.
    stored: Option<[Option<Arc<DynamicObject>>; 2]>,
    /// It could be in place, and is not.
    awaited: Option<Awaited>,
    findings: Findings,
}

/// How long the fence is waited for.
struct Awaited {
    /// Until then, if nothing is refused meanwhile: who changes or deletes it goes on doing so.
    until: Instant,
    refused_until: Instant,
    /// What was refused last.
    refusal: Option<String>,
}

impl Awaited {
    fn begin() -> Self {
        let now = Instant::now();
        Self { until: now + PLACE_TIMEOUT, refused_until: now + REFUSED_TIMEOUT, refusal: None }
    }
}

impl Fence {
    /// Says how policy and binding should be, and takes in how they stand.
    async fn steer(mut self, keeper: &Keeper, mut snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
        let (mut changes, fences) = (keeper.fences.changes(), &keeper.fences);
        let (mut policy_stands, mut binding_stands) = (self.policy.changes(), self.binding.changes());
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            changes.borrow_and_update();
            policy_stands.borrow_and_update();
            binding_stands.borrow_and_update();
            let pause = match snapshot.spec.fence {
                cluster_ring::Fence::ApiServer => self.put_up(keeper, &snapshot).await,
                cluster_ring::Fence::Proxy => Ok(self.take_down(fences)),
            };
            let pause = pause.unwrap_or_else(|error| {
                self.refused(code(&error), &explain(&error));
                self.wait_for_place(is_awaited(keeper, &snapshot.ring));
                Some(RETRY)
            });
            fences.found(&snapshot.ring, &self.findings);
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    // The ring is gone: the caller is about to stop this.
                    std::future::pending::<()>().await;
                },
                // The senders live in `fences` and in `self`.
                _ = changes.changed() => {}
                _ = policy_stands.changed() => {}
                _ = binding_stands.changed() => {}
                () = sleep(pause.unwrap_or(keeper.period)) => {}
            }
        }
    }

    /// Wants policy and binding to be as the ring asks; returns when there is something to do again.
    async fn put_up(&mut self, keeper: &Keeper, snapshot: &Snapshot) -> Result<Option<Duration>, kube::Error> {
        let places = keeper.leases.places(&snapshot.ring);
        let all_read;
        (self.findings.shards, all_read) = self.accounts.learn(&keeper.client, &places).await;
        let look_again = (!all_read).then_some(READ_AGAIN);
        if self.stored.is_none() {
            let found = [self.policies.get_opt(&self.name).await?, self.bindings.get_opt(&self.name).await?];
            self.accounts.add(found[0].as_ref().map(accounts).unwrap_or_default());
            self.stored = Some(found.map(|found| found.map(Arc::new)));
        } else if self.stands().contains(&Standing::Pending) {
            // What comes of it decides what is noted in the next write.
            return Ok(look_again);
        }
        // Stored is not yet acted on, and where its admission plugin is turned off never is.
        let since = self.take_in().filter(|_| keeper.fences.is_seen_to_judge());
        let whole = Covered {
            resources: snapshot.named.iter().map(ToString::to_string).collect(),
            accounts: self.accounts.all().clone(),
            namespaces: snapshot.namespace_selector.clone(),
        };
        let mut wanted = policy(snapshot, self.accounts.all());
        let again = match &self.stored {
            Some([Some(policy), Some(binding)]) => note(&mut wanted, (policy, binding), whole, since),
            _ => None,
        };
        let stored = self.stored.as_ref().and_then(|stored| stored[0].as_ref());
        mark::note_idle(&mut wanted.metadata, &keeper.fences.verdict(), stored.map(|policy| &policy.metadata));
        self.policy.want(Some(wanted));
        self.binding.want(Some(binding(snapshot)));
        let rest = self.wait_for_place(is_awaited(keeper, &snapshot.ring));
        Ok(again.into_iter().chain(rest).chain(look_again).min())
    }

    /// Takes it that the fence can't be where it is not in place for long; returns when that will be so.
    fn wait_for_place(&mut self, awaited: bool) -> Option<Duration> {
        if !awaited {
            self.awaited = None;
            return None;
        }
        let Awaited { until, refused_until, refusal } = self.awaited.get_or_insert_with(Awaited::begin);
        let rest = until.saturating_duration_since(Instant::now());
        if !rest.is_zero() {
            return Some(rest);
        }
        let (name, refusal) = (&self.name, refusal.as_ref().filter(|_| until >= refused_until));
        self.findings.refused.get_or_insert_with(|| match refusal {
            Some(why) => format!("the API server's fence: what it needs is refused again and again: {why}: mend that, {OR}"),
            None => format!("the API server's fence: another client changes or deletes its policy {name}, or the binding, again and again: find out which, {OR}"),
        });
        None
    }

    fn take_down(&mut self, fences: &Fences) -> Option<Duration> {
        if fences.has_any(&self.name) || self.stored.take().is_some() {
            self.binding.want(None);
            self.policy.want(None);
        }
        self.findings = Findings::default();
        self.accounts = Accounts::default();
        self.awaited = None;
        None
    }

    fn stands(&self) -> [Standing; 2] {
        [self.policy.standing(), self.binding.standing()]
    }

    /// Takes in how both stand; returns since when both have been in place.
    fn take_in(&mut self) -> Option<Instant> {
        let mut since = None;
        for (index, standing) in self.stands().into_iter().enumerate() {
            match standing {
                Standing::InPlace { since: of_one, object } => {
                    self.stored.get_or_insert_default()[index] = Some(object);
                    since = since.max(Some(of_one));
                    self.findings.refused = None;
                }
                Standing::Refused { code, why } => {
                    self.refused(code, &why);
                    return None;
                }
                Standing::NotOurs { why } => {
                    self.findings.refused = Some(format!("the API server's fence: {why}, {OR}"));
                    return None;
                }
                Standing::Pending | Standing::Disturbed { .. } | Standing::Edited { .. } | Standing::Absent => {
                    return None;
                }
            }
        }
        since
    }

    /// What passes by itself changes nothing about what is stored, and nothing was seen of what others do to it.
    fn refused(&mut self, code: Option<u16>, why: &str) {
        if let Some(fault) = code.and_then(|code| impossible(code, why)) {
            self.findings.refused = Some(fault);
            // The next wait for the fence begins from zero.
            self.awaited = None;
            return;
        }
        let awaited = self.awaited.get_or_insert_with(Awaited::begin);
        awaited.until = (Instant::now() + PLACE_TIMEOUT).min(awaited.refused_until);
        awaited.refusal = Some(why.to_owned());
    }
}

/// Whether the fence of a ring could be in place, and is not. What the API server does not enforce has a reason of its
/// own.
fn is_awaited(keeper: &Keeper, ring: &RingName) -> bool {
    keeper.fences.is_seen_to_judge() && keeper.fences.covered(ring).is_none()
}

/// Notes on the policy as it is about to be written what it will have been in place for. `stored`: policy and binding as
/// they are, both of them since then. Returns when there will be more to note.
///
/// A note counts for one generation of both (see [`mark`]). Where another client was faster, it counts for nothing.
fn note(
    wanted: &mut DynamicObject,
    (policy, binding): (&DynamicObject, &DynamicObject),
    whole: Covered,
    since: Option<Instant>,
) -> Option<Duration> {
    let (covered, now) =
        (mark::read(&policy.metadata, &binding.metadata), Writing::of(&policy.metadata, &binding.metadata));
    if spec_of(policy) != spec_of(wanted) {
        // What it was around already stays fenced: an API server goes from the old spec to the new one in one step.
        mark::write(&mut wanted.metadata, now.next(), covered.unwrap_or_default().and(&whole));
        return None;
    }
    if covered.as_ref() == Some(&whole) {
        mark::keep(&mut wanted.metadata, &policy.metadata);
        return None;
    }
    let rest = ACTED_ON.saturating_sub(since.as_ref().map_or(Duration::ZERO, Instant::elapsed));
    if rest.is_zero() {
        tracing::info!(policy = policy.name_any(), "the policy that fences a ring is in place");
        mark::write(&mut wanted.metadata, now, whole);
        return None;
    }
    mark::keep(&mut wanted.metadata, &policy.metadata);
    Some(rest)
}

/// Why there can't be a fence until a user changes something. None for what passes by itself.
pub(super) fn impossible(code: u16, error: &str) -> Option<String> {
    match code {
        404 | 405 => Some(format!(
            "the API server's fence needs ValidatingAdmissionPolicies, which Kubernetes has since 1.30 and this API server does not serve: update it, {OR}"
        )),
        403 => Some(format!("the API server's fence: {error}: apply what `ringside rbac` prints for this ring, {OR}")),
        400 | 422 => Some(format!("the API server does not accept the policy of its fence: {error}: update it, {OR}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;
    use crate::snapshot::tests::snapshot;

    fn stored(mut object: DynamicObject, generation: i64) -> DynamicObject {
        object.metadata.uid = Some("uid".to_owned());
        object.metadata.generation = Some(generation);
        object
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_is_in_place_only_after_it_was_stored_unchanged_for_the_margin() {
        let (snapshot, nobody) = (snapshot(), BTreeSet::new());
        let whole = Covered { resources: ["configmaps".to_owned()].into(), ..Covered::default() };
        let binding = stored(binding(&snapshot), 1);
        let start = Instant::now();
        let written = |generation: i64, since: Instant| {
            let mut wanted = policy(&snapshot, &nobody);
            let policy = stored(policy(&snapshot, &nobody), generation);
            let again = note(&mut wanted, (&policy, &binding), whole.clone(), Some(since));
            (again, mark::read(&stored(wanted, generation).metadata, &binding.metadata))
        };
        assert_eq!(written(1, start), (Some(ACTED_ON), None));
        tokio::time::advance(ACTED_ON / 2).await;
        assert_eq!(written(1, start), (Some(ACTED_ON / 2), None));
        assert_eq!(written(2, Instant::now()), (Some(ACTED_ON), None), "another policy begins anew");
        tokio::time::advance(ACTED_ON / 2).await;
        assert_eq!(written(1, start), (None, Some(whole.clone())));
    }

    #[tokio::test]
    async fn a_policy_that_changes_goes_on_around_what_it_was_around() {
        let (snapshot, a, b) = (snapshot(), BTreeSet::from(["a".to_owned()]), BTreeSet::from(["b".to_owned()]));
        let covers = |accounts: &BTreeSet<String>| Covered {
            resources: ["configmaps".to_owned()].into(),
            accounts: accounts.clone(),
            ..Covered::default()
        };
        let (mut before, binding) = (stored(policy(&snapshot, &a), 7), stored(binding(&snapshot), 1));
        let now = Writing::of(&before.metadata, &binding.metadata);
        mark::write(&mut before.metadata, now, covers(&a));
        let both = &a | &b;
        let mut wanted = policy(&snapshot, &both);
        assert_eq!(note(&mut wanted, (&before, &binding), covers(&both), Some(Instant::now())), None);
        let after = |generation| mark::read(&stored(wanted.clone(), generation).metadata, &binding.metadata);
        assert_eq!(after(8), Some(covers(&a)));
        assert_eq!(after(9), None, "somebody else has written it in between");
    }
}
