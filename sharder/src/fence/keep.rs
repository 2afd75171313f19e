//! Keeps the policy of one ring: writes it, puts it back when somebody changed it, notes when it is in place, and takes it
//! away when the ring does not ask for it any more. The leader does this.
//!
//! It is replaced as a whole and not applied: what others add to it, such as a condition that is never met, would stay.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{
    api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use ringside_ring::{RingName, cluster_ring::Fence, labels::fence_policy_name};
use ringside_runtime::explain::{code, explain};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    Fences, Findings,
    accounts::Accounts,
    mark::{self, Covered, Writing},
    policy::{self, Wanted, wanted},
};
use crate::{FIELD_MANAGER, leases::Leases, snapshot::Snapshot};

/// How long a policy must have been stored before anything relies on it. An API server takes a second, and the time of its
/// watch: some milliseconds as a rule. One that is later than this by far serves old objects as well.
const MARGIN: Duration = Duration::from_secs(10);
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// What keeping a ring's fence needs.
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) leases: Leases,
    pub(crate) fences: Fences,
    pub(crate) period: Duration,
}

/// One ring's fence, as far as its keeper remembers it.
struct Kept {
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
    accounts: Accounts,
    /// What is stored, and since when it was seen to be.
    since: Option<(Writing, Instant)>,
    findings: Findings,
}

/// Keeps the fence of one ring.
pub(crate) async fn keep(keeper: Keeper, mut snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
    let Keeper { client, leases, fences, period } = keeper;
    let mut changes = fences.changes();
    let mut kept = Kept {
        policies: Api::all(client.clone()),
        bindings: Api::all(client.clone()),
        accounts: Accounts::default(),
        since: None,
        findings: Findings::default(),
    };
    let ring = snapshots.borrow().ring.clone();
    let _forgotten_at_the_end = Forget(&fences, &ring);
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        changes.borrow_and_update();
        let outcome = match snapshot.spec.fence {
            Fence::ApiServer => kept.put_up(&client, &leases, &snapshot).await,
            Fence::Proxy => kept.take_down(&fences, &ring).await.map(|()| None),
        };
        let pause = kept.judge(&ring, outcome).unwrap_or(period);
        fences.found(&ring, &kept.findings);
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                // The ring is gone: whoever started this is about to stop it.
                std::future::pending::<()>().await;
            },
            // The sender lives in `fences`.
            _ = changes.changed() => {}
            () = sleep(pause) => {}
        }
    }
}

/// What one leader found out is nothing that the next may rely on.
struct Forget<'a>(&'a Fences, &'a RingName);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

impl Kept {
    /// Takes in how it went; returns when to look again.
    fn judge(&mut self, ring: &RingName, outcome: Result<Option<Duration>, kube::Error>) -> Option<Duration> {
        let error = match outcome {
            Ok(pause) => {
                self.findings.refused = None;
                return pause;
            }
            Err(error) => error,
        };
        let text = explain(&error);
        if code(&error) != Some(409) {
            tracing::warn!(%ring, error = text, "can't keep the policy that fences a ring; trying again");
        }
        // What passes by itself changes nothing about what is stored.
        if let Some(fault) = code(&error).and_then(|code| impossible(code, &text)) {
            self.findings.refused = Some(fault);
        }
        Some(RETRY)
    }

    /// Sees that policy and binding are as the ring asks; returns when there is something to do again.
    async fn put_up(
        &mut self,
        client: &Client,
        leases: &Leases,
        snapshot: &Snapshot,
    ) -> Result<Option<Duration>, kube::Error> {
        let name = fence_policy_name(&snapshot.ring);
        self.findings.shards = self.accounts.learn(client, &leases.places(&snapshot.ring)).await?;
        let stored = (self.policies.get_opt(&name).await?, self.bindings.get_opt(&name).await?);
        if let Some(policy) = &stored.0 {
            self.accounts.add(policy::accounts(policy));
        }
        let Wanted { policy, binding } = wanted(snapshot, self.accounts.all());
        let whole = Covered {
            resources: snapshot.named.iter().map(ToString::to_string).collect(),
            accounts: self.accounts.all().clone(),
        };
        let binding = self.bind(stored.1, binding).await?;
        let policy = self.write(stored.0, policy, &binding, &whole).await?;
        self.note(policy, &binding, whole).await
    }

    async fn bind(
        &self,
        stored: Option<ValidatingAdmissionPolicyBinding>,
        wanted: ValidatingAdmissionPolicyBinding,
    ) -> Result<ValidatingAdmissionPolicyBinding, kube::Error> {
        let Some(mut stored) = stored else { return self.bindings.create(&by_us(), &wanted).await };
        let adorned = adorn(&mut stored.metadata, &wanted.metadata);
        if stored.spec == wanted.spec && !adorned {
            return Ok(stored);
        }
        tracing::info!(policy = stored.name_any(), "putting the binding of a ring's policy in order");
        let stored = ValidatingAdmissionPolicyBinding { spec: wanted.spec, ..stored };
        self.bindings.replace(&stored.name_any(), &by_us(), &stored).await
    }

    async fn write(
        &self,
        stored: Option<ValidatingAdmissionPolicy>,
        wanted: ValidatingAdmissionPolicy,
        binding: &ValidatingAdmissionPolicyBinding,
        whole: &Covered,
    ) -> Result<ValidatingAdmissionPolicy, kube::Error> {
        let Some(mut stored) = stored else {
            tracing::info!(policy = wanted.name_any(), "writing the policy that fences a ring");
            return self.policies.create(&by_us(), &wanted).await;
        };
        let adorned = adorn(&mut stored.metadata, &wanted.metadata);
        if stored.spec == wanted.spec && !adorned {
            return Ok(stored);
        }
        tracing::info!(policy = stored.name_any(), "putting the policy that fences a ring in order");
        if stored.spec != wanted.spec {
            // What it was around already stays fenced: an API server goes from the old spec to the new one in one step.
            let covered = mark::read(&stored, binding).unwrap_or_default().and(whole);
            let next = Writing::of(&stored, binding).next();
            mark::write(&mut stored, next, covered);
        }
        let stored = ValidatingAdmissionPolicy { spec: wanted.spec, status: None, ..stored };
        self.policies.replace(&stored.name_any(), &by_us(), &stored).await
    }

    /// Notes on the policy that it is in place, once it has been for the margin.
    async fn note(
        &mut self,
        mut policy: ValidatingAdmissionPolicy,
        binding: &ValidatingAdmissionPolicyBinding,
        whole: Covered,
    ) -> Result<Option<Duration>, kube::Error> {
        if mark::read(&policy, binding).as_ref() == Some(&whole) {
            return Ok(None);
        }
        let now = Writing::of(&policy, binding);
        let since = match &self.since {
            Some((of, since)) if *of == now => *since,
            _ => Instant::now(),
        };
        self.since = Some((now.clone(), since));
        if let Some(rest) = MARGIN.checked_sub(since.elapsed()).filter(|rest| !rest.is_zero()) {
            return Ok(Some(rest));
        }
        mark::write(&mut policy, now, whole);
        // Only this very version of it: it tests the resourceVersion.
        self.policies.replace(&policy.name_any(), &by_us(), &policy).await?;
        tracing::info!(policy = policy.name_any(), "the policy that fences a ring is in place");
        Ok(None)
    }

    async fn take_down(&mut self, fences: &Fences, ring: &RingName) -> Result<(), kube::Error> {
        self.findings = Findings::default();
        self.since = None;
        self.accounts = Accounts::default();
        let (name, parameters) = (fence_policy_name(ring), DeleteParams::default());
        if fences.has_binding(&name) {
            gone(self.bindings.delete(&name, &parameters).await.map(drop))?;
        }
        if fences.has_policy(&name) {
            gone(self.policies.delete(&name, &parameters).await.map(drop))?;
            tracing::info!(policy = name, "took away the policy that fenced a ring");
        }
        Ok(())
    }
}

/// Why there can't be a fence until somebody does something about it; none for what passes by itself.
pub(super) fn impossible(code: u16, error: &str) -> Option<String> {
    const OR: &str = "or set fence to Proxy in the ring";
    match code {
        404 | 405 => Some(format!(
            "the API server's fence needs ValidatingAdmissionPolicies, which Kubernetes has since 1.30 and this API server does not serve: update it, {OR}"
        )),
        403 => Some(format!("the API server's fence: {error}: apply the sharder's manifest of this version, {OR}")),
        400 | 422 => Some(format!("the API server does not accept the policy of its fence: {error}: update it, {OR}")),
        _ => None,
    }
}

fn by_us() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Sets what is ours in an object's metadata; returns whether something was not.
fn adorn(stored: &mut ObjectMeta, wanted: &ObjectMeta) -> bool {
    let before = stored.clone();
    stored.labels.get_or_insert_default().extend(wanted.labels.clone().unwrap_or_default());
    stored.owner_references.clone_from(&wanted.owner_references);
    *stored != before
}

fn gone(outcome: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match outcome {
        Err(error) if code(&error) == Some(404) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::{fixtures::FakeApi, snapshot::tests::snapshot};

    const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/";

    fn stored<K: serde::de::DeserializeOwned>(name: &str, uid: &str, generation: i64) -> K {
        let metadata = json!({"name": name, "uid": uid, "generation": generation, "resourceVersion": "7"});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_is_in_place_only_after_it_was_stored_unchanged_for_the_margin() {
        let (api, name) = (FakeApi::default(), fence_policy_name(&snapshot().ring));
        let (policies, bindings) = (Api::all(api.client()), Api::all(api.client()));
        let (accounts, findings) = (Accounts::default(), Findings::default());
        let mut kept = Kept { policies, bindings, accounts, since: None, findings };
        let whole = Covered { resources: ["configmaps".to_owned()].into(), ..Covered::default() };
        let binding: ValidatingAdmissionPolicyBinding = stored(&name, "b", 1);
        let mut note = async |generation| {
            let policy: ValidatingAdmissionPolicy = stored(&name, "p", generation);
            api.put(&format!("{PATH}{name}"), serde_json::to_value(&policy).unwrap());
            let again = kept.note(policy, &binding, whole.clone()).await.unwrap();
            let marked =
                api.get(&format!("{PATH}{name}")).unwrap()["metadata"]["annotations"][mark::IN_PLACE].is_string();
            (again, marked)
        };
        assert_eq!(note(1).await, (Some(MARGIN), false));
        tokio::time::advance(MARGIN / 2).await;
        assert_eq!(note(1).await, (Some(MARGIN / 2), false));
        assert_eq!(note(2).await, (Some(MARGIN), false), "another policy begins anew");
        tokio::time::advance(MARGIN).await;
        assert_eq!(note(2).await, (None, true));
    }
}
