//! Whether the API server judges and changes writes by admission policies. It stores them, and serves them, also where
//! the admission plugin that enforces them is turned off (`--disable-admission-plugins`).

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    coordination::v1::Lease,
};
use kube::{Client, core::DynamicObject, discovery::ApiResource};
use ringside_runtime::explain::explain;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Answer, Concerned, Home, NAME, PAUSE, Probe};
use crate::{
    cel::quoted,
    fence::Fences,
    keep::{Kept, with_spec},
    mutating_policies::{Support, bindings_of},
    news::tell,
    snapshot::Snapshots,
    verdict::{Verdict, Verdicts},
};

const VALIDATING: &str = "validating-policy";
const MUTATING: &str = "mutating-policy";
/// By which a refusal is known as that of our policy.
const REFUSAL: &str = "probes of the sharder are refused, so that it sees that policies are gone by";
/// The annotation that our policy adds.
const MARK: &str = "ringside.dev/policy";

/// Looks whether writes are judged by ValidatingAdmissionPolicies, while any ring relies on that.
pub(crate) async fn validating(
    clients: (&Client, &Client),
    home: &Home,
    mut rings: watch::Receiver<Option<Arc<Snapshots>>>,
    period: Duration,
    fences: &Fences,
) -> Infallible {
    let policies = ApiResource::erase::<ValidatingAdmissionPolicy>(&());
    let bindings = ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&());
    let steer = async |policy: &Kept, link: &Kept| {
        loop {
            // Before rings are known, it is unknown whether what is there is to go.
            let known = rings.borrow_and_update().clone();
            if let Some(known) = known {
                let relied_on = known.values().any(|ring| ring.spec.asks_for_fence());
                policy.want(relied_on.then(|| refusing(&policies, home)));
                link.want(relied_on.then(|| binding(&bindings, home, &json!({"validationActions": ["Deny"]}))));
            }
            if rings.changed().await.is_err() {
                // Its sender ends only with the process.
                return std::future::pending().await;
            }
        }
    };
    let probe = Probe {
        client: clients.0,
        home,
        what: VALIDATING,
        read: &refused,
        pause: PAUSE,
        does: "it judges writes by ValidatingAdmissionPolicies",
        passed: "it judges writes by no ValidatingAdmissionPolicies; is its admission plugin ValidatingAdmissionPolicy turned off?",
    };
    probed(clients, [&policies, &bindings], period, probe, steer, |verdict| fences.judged(verdict)).await
}

/// Looks whether writes are changed by MutatingAdmissionPolicies, where the API server has them.
pub(crate) async fn mutating(
    clients: (&Client, &Client),
    home: &Home,
    mut support: watch::Receiver<Option<Support>>,
    period: Duration,
    verdicts: &Verdicts,
) -> Infallible {
    loop {
        let now = support.borrow_and_update().clone();
        let looked = async {
            match now {
                Some(Support::Served { policies, .. }) => changing(clients, home, &policies, period, verdicts).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            never = looked => return never,
            changed = support.changed() => if changed.is_err() {
                // Its sender ends only with the process.
                return std::future::pending().await;
            }
        }
    }
}

async fn changing(
    clients: (&Client, &Client),
    home: &Home,
    policies: &ApiResource,
    period: Duration,
    verdicts: &Verdicts,
) -> Infallible {
    let bindings = bindings_of(policies);
    let steer = async |policy: &Kept, link: &Kept| {
        policy.want(Some(marking(policies, home)));
        link.want(Some(binding(&bindings, home, &json!({}))));
        std::future::pending().await
    };
    let probe = Probe {
        client: clients.0,
        home,
        what: MUTATING,
        read: &|made| Answer::by_mark(made, MARK),
        pause: PAUSE,
        does: "it changes writes by MutatingAdmissionPolicies",
        passed: "it changes writes by no MutatingAdmissionPolicies; is its admission plugin MutatingAdmissionPolicy turned off?",
    };
    probed(clients, [policies, &bindings], period, probe, steer, |verdict| _ = tell(verdicts, verdict)).await
}

/// Keeps a policy and its binding as `steer` says, and probes them.
async fn probed(
    clients: (&Client, &Client),
    kinds: [&ApiResource; 2],
    period: Duration,
    probe: Probe<'_>,
    steer: impl AsyncFnOnce(&Kept, &Kept) -> Infallible,
    tell: impl Fn(Verdict),
) -> Infallible {
    let [(policy, policy_keeper), (link, link_keeper)] =
        kinds.map(|kind| Kept::new(clients, kind, NAME.to_owned(), period));
    let objects = [&policy, &link];
    tokio::select! {
        never = policy_keeper.run() => never,
        never = link_keeper.run() => never,
        never = steer(&policy, &link) => never,
        never = probe.repeat(&objects, tell) => never,
    }
}

fn refusing(kind: &ApiResource, home: &Home) -> DynamicObject {
    let does = json!({"validations": [{"expression": "false", "message": REFUSAL}]});
    with_spec(kind, home.belonging(), policy(home.concerned(VALIDATING), does))
}

fn marking(kind: &ApiResource, home: &Home) -> DynamicObject {
    let patch =
        format!("[JSONPatch{{op: 'add', path: '/metadata/annotations', value: {{{}: 'acted'}}}}]", quoted(MARK));
    let does = json!({
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        "reinvocationPolicy": "Never",
    });
    with_spec(kind, home.belonging(), policy(home.concerned(MUTATING), does))
}

/// A policy that does this to the probes for it.
fn policy(Concerned { rules, objects, namespaces }: Concerned, does: Value) -> Value {
    let mut spec = does;
    spec["matchConstraints"] =
        json!({"resourceRules": rules, "objectSelector": objects, "namespaceSelector": namespaces});
    // What can't be tried refuses nothing but a probe.
    spec["failurePolicy"] = json!("Fail");
    spec
}

fn binding(kind: &ApiResource, home: &Home, does: &Value) -> DynamicObject {
    let mut spec = does.clone();
    spec["policyName"] = json!(NAME);
    with_spec(kind, home.belonging(), spec)
}

fn refused(made: Result<Lease, kube::Error>) -> Answer {
    match made {
        Ok(_) => Answer::Passed,
        Err(kube::Error::Api(status)) if status.message.contains(REFUSAL) => Answer::Treated,
        Err(error) => Answer::Unclear(explain(&error)),
    }
}
