//! In which namespaces the sharder may write the Leases of shards.
//!
//! Where a ring does not name the namespaces of its shards, its Leases make shards only where it was granted its rights:
//! many may create Leases in a namespace of their own. Every replica asks the API server for each namespace with a Lease of a ring.
//! Only an explicit no excludes a namespace, and one that has counted keeps counting for a minute of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::{Api, Client, api::PostParams};
use ringside_ring::Moment;
use ringside_runtime::{clock::told_or_at, explain::explain};

use super::Leases;

/// How soon a namespace is asked about again that is granted.
const GRANTED_AGAIN: Duration = Duration::from_secs(60);
/// The same of any other: a person may be about to grant the rights.
const REFUSED_AGAIN: Duration = Duration::from_secs(10);
/// For how long the answer is no until a namespace that has counted is none of the ring's: an API server that starts knows roles a
/// little later than it answers.
const REVOKED_AFTER: Duration = Duration::from_secs(60);
/// Questions at once.
const PARALLEL_QUESTIONS: usize = 8;

/// Whether the sharder may update Leases in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Granted,
    /// The API server has not said it.
    Unknown,
    /// It has said no since then.
    Denied(Moment),
    /// It has said no for so long that no namespace counts for having counted.
    Revoked,
}

/// What the API server said of each namespace, and when it is asked again.
#[derive(Debug, Default)]
pub(super) struct Rights(BTreeMap<String, (Right, Moment)>);

impl Rights {
    /// Whether the namespace was asked about.
    pub(super) fn has(&self, namespace: &str) -> bool {
        self.0.contains_key(namespace)
    }

    /// Whether Leases in this namespace count, as far as this replica knows by itself.
    pub(super) fn count(&self, namespace: &str) -> bool {
        matches!(self.0.get(namespace), Some((Right::Granted | Right::Unknown, _)))
    }

    /// Whether a namespace that has counted is to count no more. Where no namespace is granted, that is no statement about one.
    pub(super) fn is_revoked(&self, namespace: &str) -> bool {
        let is_granted = self.0.values().any(|(right, _)| *right == Right::Granted);
        is_granted && matches!(self.0.get(namespace), Some((Right::Revoked, _)))
    }

    /// Takes in an answer, none where there was none; returns whether it is another one than before.
    pub(super) fn take(&mut self, namespace: &str, answer: Option<bool>, now: Moment) -> bool {
        let before = self.0.get(namespace).map(|(right, _)| *right);
        let right = match (answer, before) {
            (Some(true), _) => Right::Granted,
            (None, before) => before.unwrap_or(Right::Unknown),
            (Some(false), Some(Right::Denied(since))) if since + REVOKED_AFTER <= now => Right::Revoked,
            (Some(false), Some(denied @ (Right::Denied(_) | Right::Revoked))) => denied,
            (Some(false), _) => Right::Denied(now),
        };
        let again = now + if answer == Some(true) { GRANTED_AGAIN } else { REFUSED_AGAIN };
        self.0.insert(namespace.to_owned(), (right, again));
        if before != Some(right) {
            tracing::info!(namespace, ?right, "found out about the rights on the Leases of a namespace");
        }
        before != Some(right)
    }

    /// Forgets all other namespaces; returns those of these that are to be asked about, and when the next is.
    pub(super) fn due(&mut self, namespaces: &BTreeSet<String>, now: Moment) -> (Vec<String>, Option<Moment>) {
        self.0.retain(|known, _| namespaces.contains(known));
        let is_due = |namespace: &&String| self.0.get(*namespace).is_none_or(|(_, again)| *again <= now);
        let due = namespaces.iter().filter(is_due).cloned().collect();
        (due, self.0.values().map(|(_, again)| *again).filter(|again| now < *again).min())
    }
}

/// Asks about the namespaces of all Leases, again and again.
pub(crate) async fn ask(client: Client, leases: Leases) -> Result<(), Infallible> {
    let mut membership = leases.membership();
    loop {
        membership.borrow_and_update();
        let (due, next) = leases.book.lock().rights_due(leases.clock.now());
        if !due.is_empty() {
            let client = &client;
            let answers =
                stream::iter(due).map(|namespace| async move { (may_write(client, &namespace).await, namespace) });
            leases.granted(answers.buffer_unordered(PARALLEL_QUESTIONS).collect().await);
            continue;
        }
        // Its sender lives in `leases`.
        told_or_at(&mut membership, &*leases.clock, next).await;
    }
}

/// Asks whether this account may update Leases in a namespace; returns none where there is no sure answer.
async fn may_write(client: &Client, namespace: &str) -> Option<bool> {
    let attributes = ResourceAttributes {
        group: Some("coordination.k8s.io".to_owned()),
        resource: Some("leases".to_owned()),
        verb: Some("update".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    match Api::<SelfSubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await {
        Ok(SelfSubjectAccessReview { status: Some(status), .. }) => answer(namespace, &status),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(namespace, error = %explain(&error), "can't ask for the rights on Leases; Leases count there as before");
            None
        }
    }
}

fn answer(namespace: &str, status: &SubjectAccessReviewStatus) -> Option<bool> {
    let fault = status.evaluation_error.as_deref().filter(|fault| !fault.is_empty());
    match (status.allowed, status.denied, fault) {
        (true, ..) => Some(true),
        (false, Some(true), _) | (false, _, None) => Some(false),
        (false, _, Some(fault)) => {
            tracing::warn!(namespace, fault, "the rights on Leases can't be judged; Leases count there as before");
            None
        }
    }
}

#[cfg(test)]
mod tests;
