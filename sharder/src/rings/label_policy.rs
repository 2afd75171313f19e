//! The `MutatingAdmissionPolicy` of a ring: the API server itself keeps the labels of owned objects, also while no sharder
//! answers the webhook (DESIGN, "The webhook must not undo the handover"; CONTROL-PLANE, 12).
//!
//! Stable since Kubernetes 1.36. Older servers have it as beta or alpha, when it is turned on; the version that there is
//! gets used, as all have the same fields.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams, discovery::ApiResource};
use ringside_ring::cluster_ring::GroupResource;
use tokio::{sync::watch, time::sleep};

mod policy;

use self::policy::{binding, policy};
use super::status::Finding;
use crate::{
    keep::{Kept, Standing},
    snapshot::Snapshot,
};
use ringside_runtime::{
    discovery::{self, LookUpError},
    explain::explain,
};

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "mutatingadmissionpolicies";
/// The type of the condition that says whether the labels are kept without the webhook.
const CONDITION: &str = "LabelsProtected";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How the labels of a ring are protected, for who says what the ring is.
pub(super) struct Protection {
    ring: watch::Sender<Option<Arc<Snapshot>>>,
    outcome: watch::Sender<Option<Outcome>>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    InPlace,
    /// The ring has no resources.
    Needless,
    NotServed,
    Refused(String),
}

impl Protection {
    /// The protection of a ring's labels by a policy and a binding of this name, and the one who keeps them.
    pub(super) fn new((client, watches): (&Client, &Client), name: String, period: Duration) -> (Self, Protector) {
        let protection = Self { ring: watch::Sender::default(), outcome: watch::Sender::default() };
        let protector = Protector {
            ring: protection.ring.subscribe(),
            outcome: protection.outcome.clone(),
            client: client.clone(),
            watches: watches.clone(),
            name,
            period,
        };
        (protection, protector)
    }

    /// The ring is like this from now on.
    pub(super) fn want(&self, snapshot: &Arc<Snapshot>) {
        self.ring.send_if_modified(|ring| {
            let changed = ring.as_ref().is_none_or(|ring| !Arc::ptr_eq(ring, snapshot));
            *ring = Some(snapshot.clone());
            changed
        });
    }

    /// Tells when what came of it changes.
    pub(super) fn changes(&self) -> watch::Receiver<impl Sized + use<>> {
        self.outcome.subscribe()
    }

    /// What users are told; none while nothing is known.
    pub(super) fn finding(&self) -> Option<Finding> {
        let outcome = self.outcome.borrow().clone()?;
        let (holds, reason, message) = match outcome {
            Outcome::InPlace => {
                (true, "PolicyInPlace", "the API server keeps the labels, also while no sharder answers".to_owned())
            }
            Outcome::Needless => (true, "NoResources", "the ring has no resources".to_owned()),
            Outcome::NotServed => (
                false,
                "PolicyNotServed",
                "this API server has no MutatingAdmissionPolicy, so only the webhook keeps the labels: while no sharder answers, \
                 a write that drops them takes the object from its shard; use Kubernetes 1.36 or newer, or turn the feature \
                 gate MutatingAdmissionPolicy and its API on"
                    .to_owned(),
            ),
            Outcome::Refused(why) => (
                false,
                "PolicyRefused",
                format!("the MutatingAdmissionPolicy that keeps the labels can't be written, so only the webhook keeps them: {why}"),
            ),
        };
        Some(Finding { type_: CONDITION, holds, reason, message })
    }
}

/// Keeps the policy and its binding.
pub(super) struct Protector {
    ring: watch::Receiver<Option<Arc<Snapshot>>>,
    outcome: watch::Sender<Option<Outcome>>,
    client: Client,
    watches: Client,
    name: String,
    period: Duration,
}

/// What is known before there can be a policy.
#[derive(Clone, Debug, PartialEq)]
struct Ground {
    policies: ApiResource,
    /// Who the API server takes the sharder for: the only one who may give an object to another shard.
    sharder: String,
}

impl Protector {
    /// Keeps them until it is dropped.
    pub(super) async fn run(self) -> Infallible {
        loop {
            let pause = match ground(&self.client).await {
                Ok(Some(ground)) => {
                    tokio::select! {
                        never = keep(&self, &ground) => match never {},
                        () = changed(&self.client, &ground, self.period) => continue,
                    }
                }
                Ok(None) => {
                    self.tell(Outcome::NotServed);
                    self.period
                }
                Err(why) => {
                    tracing::warn!(name = self.name, why, "can't protect the labels of a ring; trying again");
                    self.tell(Outcome::Refused(why));
                    RETRY
                }
            };
            sleep(pause).await;
        }
    }

    fn tell(&self, outcome: Outcome) {
        tell(&self.outcome, Some(outcome));
    }
}

fn tell(told: &watch::Sender<Option<Outcome>>, outcome: Option<Outcome>) {
    told.send_if_modified(|told| {
        let changed = *told != outcome;
        *told = outcome;
        changed
    });
}

async fn ground(client: &Client) -> Result<Option<Ground>, String> {
    let name = GroupResource { group: GROUP.to_owned(), resource: POLICIES.to_owned() };
    let policies = match discovery::resource(client, &name).await {
        Ok(served) => served.api,
        Err(LookUpError::NotServed(_)) => return Ok(None),
        Err(error @ LookUpError::NoAnswer(_)) => return Err(error.to_string()),
    };
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review.map_err(|error| explain(&error))?.status.and_then(|status| status.user_info);
    let sharder = user.and_then(|user| user.username).ok_or("the API server does not say who the sharder is")?;
    Ok(Some(Ground { policies, sharder }))
}

/// Returns once the API server says something else: it was upgraded, or the sharder got another account.
async fn changed(client: &Client, known: &Ground, period: Duration) {
    loop {
        sleep(period).await;
        // While it can't say, what was known counts.
        if let Ok(ground) = ground(client).await
            && ground.as_ref() != Some(known)
        {
            return;
        }
    }
}

async fn keep(protector: &Protector, ground: &Ground) -> Infallible {
    let Protector { ring, outcome, client, watches, name, period } = protector;
    let (mut ring, clients) = (ring.clone(), (client, watches));
    let bindings = ApiResource {
        kind: format!("{}Binding", ground.policies.kind),
        plural: "mutatingadmissionpolicybindings".to_owned(),
        ..ground.policies.clone()
    };
    let (rule, rule_keeper) = Kept::new(clients, &ground.policies, name.clone(), *period);
    let (link, link_keeper) = Kept::new(clients, &bindings, name.clone(), *period);
    let steer = async {
        let (mut rule_stands, mut link_stands) = (rule.changes(), link.changes());
        loop {
            rule_stands.borrow_and_update();
            link_stands.borrow_and_update();
            if let Some(snapshot) = ring.borrow_and_update().clone() {
                rule.want(policy(&snapshot, &ground.policies, &ground.sharder));
                link.want(binding(&snapshot, &bindings));
                tell(outcome, come_of(&rule.standing(), &link.standing()));
            }
            tokio::select! {
                changed = ring.changed() => if changed.is_err() {
                    // The ring is gone: whoever started this is about to stop it.
                    return std::future::pending::<Infallible>().await;
                },
                // The senders live in `rule` and `link`, so these fail never.
                _ = rule_stands.changed() => {}
                _ = link_stands.changed() => {}
            }
        }
    };
    tokio::select! {
        never = rule_keeper.run() => never,
        never = link_keeper.run() => never,
        never = steer => never,
    }
}

/// What both amount to; none while it is not known.
fn come_of(rule: &Standing, link: &Standing) -> Option<Outcome> {
    match (rule, link) {
        (Standing::Refused { why, .. }, _) | (_, Standing::Refused { why, .. }) => Some(Outcome::Refused(why.clone())),
        (Standing::Pending, _) | (_, Standing::Pending) => None,
        (Standing::InPlace { .. }, Standing::InPlace { .. }) => Some(Outcome::InPlace),
        (Standing::Absent, _) | (_, Standing::Absent) => Some(Outcome::Needless),
    }
}
