//! The `MutatingAdmissionPolicy` of a ring: the API server itself keeps the labels of owned objects, also while no sharder
//! answers the webhook (DESIGN, "The webhook must not undo the handover"; CONTROL-PLANE, 12).
//!
//! Stable since Kubernetes 1.36. Older servers have it as beta or alpha, when it is turned on; the version that there is
//! gets used, as all have the same fields.

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::{Client, discovery::ApiResource};
use tokio::sync::watch;

mod policy;

use self::policy::{binding, policy};
use super::conditions::Finding;
use crate::{
    keep::{Kept, Standing},
    mutating_policies::{Support, bindings_of},
    news::tell,
    snapshot::Snapshot,
    verdict::Verdict,
};

/// The type of the condition that says whether the labels are kept without the webhook.
const CONDITION: &str = "LabelsProtected";

/// How the labels of a ring are protected, for who says what the ring is.
pub(super) struct Protection {
    ring: watch::Sender<Option<Arc<Snapshot>>>,
    outcome: watch::Sender<Option<Outcome>>,
    /// Whether the API server goes by policies of this kind.
    acts: watch::Receiver<Verdict>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    InPlace,
    /// The ring has no resources.
    Needless,
    NotServed,
    Disturbed,
    Refused(String),
}

impl Protection {
    /// The protection of a ring's labels by a policy and a binding of this name, and the one who keeps them.
    pub(super) fn new(
        (client, watches): (&Client, &Client),
        (support, acts): (watch::Receiver<Option<Support>>, watch::Receiver<Verdict>),
        name: String,
        period: Duration,
    ) -> (Self, Protector) {
        let protection = Self { ring: watch::Sender::default(), outcome: watch::Sender::default(), acts };
        let protector = Protector {
            support,
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

    /// Whether anything is known.
    pub(super) fn is_settled(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// What users are told, once it is known.
    pub(super) fn finding(&self) -> Option<Finding> {
        let outcome = self.outcome.borrow().clone()?;
        let (holds, reason, message) = match outcome {
            Outcome::InPlace => match self.acts.borrow().clone()? {
                Ok(()) => {
                    (true, "PolicyInPlace", "the API server keeps the labels, also while no sharder answers".to_owned())
                }
                Err(why) => (
                    false,
                    "PolicyWithoutEffect",
                    format!("only the webhook keeps the labels, as the policy for it can't be relied on: {why}"),
                ),
            },
            Outcome::Needless => (true, "NoResources", "the ring has no resources".to_owned()),
            Outcome::NotServed => (
                false,
                "PolicyNotServed",
                "this API server has no MutatingAdmissionPolicy, so only the webhook keeps the labels: while no sharder answers, \
                 a write that drops them takes the object from its shard, and so does at any time one of a built-in resource's \
                 status; use Kubernetes 1.36 or newer, or turn the feature \
                 gate MutatingAdmissionPolicy and its API on"
                    .to_owned(),
            ),
            Outcome::Disturbed => (
                false,
                "PolicyDisturbed",
                "another client changes or deletes the MutatingAdmissionPolicy that keeps the labels, whenever it is written: then only \
                 the webhook keeps them"
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
    support: watch::Receiver<Option<Support>>,
    ring: watch::Receiver<Option<Arc<Snapshot>>>,
    outcome: watch::Sender<Option<Outcome>>,
    client: Client,
    watches: Client,
    name: String,
    period: Duration,
}

impl Protector {
    /// Keeps them until it is dropped.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let support = self.support.borrow_and_update().clone();
            let mut changes = self.support.clone();
            match support {
                None => {}
                Some(Support::NotServed) => self.tell(Outcome::NotServed),
                Some(Support::Unknown(why)) => self.tell(Outcome::Refused(why)),
                Some(Support::Served { policies, sharder }) => {
                    tokio::select! {
                        never = keep(&self, &policies, &sharder) => match never {},
                        // Its sender ends only with the process, and then this is about to stop.
                        Ok(()) = changes.changed() => continue,
                    }
                }
            }
            if self.support.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn tell(&self, outcome: Outcome) {
        tell(&self.outcome, Some(outcome));
    }
}

async fn keep(protector: &Protector, policies: &ApiResource, sharder: &str) -> Infallible {
    let Protector { ring, outcome, client, watches, name, period, .. } = protector;
    let (mut ring, clients, bindings) = (ring.clone(), (client, watches), bindings_of(policies));
    let (rule, rule_keeper) = Kept::new(clients, policies, name.clone(), *period);
    let (link, link_keeper) = Kept::new(clients, &bindings, name.clone(), *period);
    let steer = async {
        let (mut rule_stands, mut link_stands) = (rule.changes(), link.changes());
        loop {
            rule_stands.borrow_and_update();
            link_stands.borrow_and_update();
            if let Some(snapshot) = ring.borrow_and_update().clone() {
                rule.want(policy(&snapshot, policies, sharder));
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
        (Standing::Refused { why, .. } | Standing::NotOurs { why }, _)
        | (_, Standing::Refused { why, .. } | Standing::NotOurs { why }) => Some(Outcome::Refused(why.clone())),
        (Standing::Pending, _) | (_, Standing::Pending) => None,
        (Standing::Absent, _) | (_, Standing::Absent) => Some(Outcome::Needless),
        (Standing::Disturbed { again: true } | Standing::Edited { .. }, _)
        | (_, Standing::Disturbed { again: true } | Standing::Edited { .. }) => Some(Outcome::Disturbed),
        // One that was disturbed once is back in no time.
        _ => Some(Outcome::InPlace),
    }
}
