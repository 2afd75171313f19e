//! The `MutatingAdmissionPolicy` of a ring: the API server itself keeps the labels of owned objects, also while no sharder
//! answers the webhook (DESIGN, "The webhook must not undo the handover"; CONTROL-PLANE, 12).
//!
//! Stable since Kubernetes 1.36. Older servers have it as beta or alpha, when it is turned on; the version that there is
//! gets used, as all have the same fields.

use std::{convert::Infallible, sync::Arc};

use kube::discovery::ApiResource;
use tokio::sync::watch;

mod policy;

use self::policy::{binding, policy};
use super::{conditions::Finding, reconcile::Told};
use crate::{
    keep::{Kept, Standing},
    mutating_policies::{Support, bindings_of},
    news::tell,
    snapshot::Snapshot,
    verdict::Verdict,
};

/// The type of the condition that says whether the labels are kept without the webhook.
const CONDITION: &str = "LabelsProtected";

/// How the labels of a ring are protected.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Protection {
    InPlace,
    /// The ring has no resources.
    Needless,
    NotServed,
    Disturbed,
    Refused(String),
}

impl Protection {
    /// What users are told, once it is known whether the API server `acts` by policies of this kind.
    pub(super) fn finding(self, acts: &Verdict) -> Option<Finding> {
        let (holds, reason, message) = match self {
            Self::InPlace => match acts.as_ref()? {
                Ok(()) => {
                    (true, "PolicyInPlace", "the API server keeps the labels, also while no sharder answers".to_owned())
                }
                Err(why) => (
                    false,
                    "PolicyWithoutEffect",
                    format!("only the webhook keeps the labels, as the policy for it can't be relied on: {why}"),
                ),
            },
            Self::Needless => (true, "NoResources", "the ring has no resources".to_owned()),
            Self::NotServed => (
                false,
                "PolicyNotServed",
                "this API server has no MutatingAdmissionPolicy, so only the webhook keeps the labels: while no sharder answers, \
                 a write that drops them takes the object from its shard, and so does at any time one of a built-in resource's \
                 status; use Kubernetes 1.36 or newer, or turn the feature \
                 gate MutatingAdmissionPolicy and its API on"
                    .to_owned(),
            ),
            Self::Disturbed => (
                false,
                "PolicyDisturbed",
                "another client changes or deletes the MutatingAdmissionPolicy that keeps the labels, whenever it is written: then only \
                 the webhook keeps them"
                    .to_owned(),
            ),
            Self::Refused(why) => (
                false,
                "PolicyRefused",
                format!("the MutatingAdmissionPolicy that keeps the labels can't be written, so only the webhook keeps them: {why}"),
            ),
        };
        Some(Finding { type_: CONDITION, holds, reason, message })
    }
}

/// Keeps the policy and its binding of this name, and tells how the labels are protected.
pub(super) async fn protect(
    told: &Told,
    name: &str,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    protection: &watch::Sender<Option<Protection>>,
) -> Infallible {
    let mut support = told.support.clone();
    loop {
        let known = support.borrow_and_update().clone();
        match known {
            None => {}
            Some(Support::NotServed) => _ = tell(protection, Some(Protection::NotServed)),
            Some(Support::Unknown(why)) => _ = tell(protection, Some(Protection::Refused(why))),
            Some(Support::Served { policies, sharder }) => {
                tokio::select! {
                    never = keep(told, name, snapshots.clone(), (&policies, &sharder), protection) => match never {},
                    // Its sender ends only with the process, and then this is about to stop.
                    Ok(()) = support.changed() => continue,
                }
            }
        }
        if support.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn keep(
    told: &Told,
    name: &str,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    (policies, sharder): (&ApiResource, &str),
    protection: &watch::Sender<Option<Protection>>,
) -> Infallible {
    let (clients, bindings) = ((&told.client, &told.watches), bindings_of(policies));
    let (rule, rule_keeper) = Kept::new(clients, policies, name.to_owned(), told.period);
    let (link, link_keeper) = Kept::new(clients, &bindings, name.to_owned(), told.period);
    let steer = async {
        let (mut rule_stands, mut link_stands) = (rule.changes(), link.changes());
        loop {
            rule_stands.borrow_and_update();
            link_stands.borrow_and_update();
            let snapshot = snapshots.borrow_and_update().clone();
            rule.want(policy(&snapshot, policies, sharder));
            link.want(binding(&snapshot, &bindings));
            tell(protection, come_of(&rule.standing(), &link.standing()));
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    // The ring is gone: the caller is about to stop this.
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
fn come_of(rule: &Standing, link: &Standing) -> Option<Protection> {
    match (rule, link) {
        (Standing::Refused { why, .. } | Standing::NotOurs { why }, _)
        | (_, Standing::Refused { why, .. } | Standing::NotOurs { why }) => Some(Protection::Refused(why.clone())),
        (Standing::Pending, _) | (_, Standing::Pending) => None,
        (Standing::Absent, _) | (_, Standing::Absent) => Some(Protection::Needless),
        (Standing::Disturbed { again: true } | Standing::Edited { .. }, _)
        | (_, Standing::Disturbed { again: true } | Standing::Edited { .. }) => Some(Protection::Disturbed),
        // One that was disturbed once is back in no time.
        _ => Some(Protection::InPlace),
    }
}
