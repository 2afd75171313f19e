//! What the API server asks: the few fields of an `AdmissionReview` that the decision rests on.
//!
//! Everything else is skipped, not decoded: an object may be 1.5 MB, and what it says is none of our business.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::{Ownership, RingLabels, cluster_ring::GroupResource, handover::Write, partition::controller_of};
use serde::Deserialize;

/// Where the API server says which Pod a token is bound to (CONTROL-PLANE, 5).
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// An `AdmissionReview`, as far as it matters.
#[derive(Debug, Deserialize)]
struct Review {
    request: Option<Request>,
}

/// Only the uid, for an answer when the rest can't be read.
#[derive(Debug, Deserialize)]
struct Envelope {
    request: Option<Uid>,
}

#[derive(Debug, Deserialize)]
struct Uid {
    uid: String,
}

/// The request in a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) kind: Kind,
    pub(super) resource: GroupResource,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    operation: String,
    #[serde(default)]
    user_info: UserInfo,
    object: Option<Reviewed>,
    old_object: Option<Reviewed>,
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo {
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    #[serde(default)]
    pub(super) group: String,
    pub(super) kind: String,
}

/// An object in a review.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Reviewed {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Why a body can't be answered as it should; the uid if at least that could be read.
#[derive(Debug, thiserror::Error)]
#[error("the AdmissionReview can't be read: {reason}")]
pub(super) struct Unreadable {
    pub(super) uid: Option<String>,
    reason: String,
}

/// Reads a review.
pub(super) fn parse(body: &[u8]) -> Result<Request, Unreadable> {
    let unreadable = |reason: String| {
        let envelope: Option<Envelope> = serde_json::from_slice(body).ok();
        Unreadable { uid: envelope.and_then(|envelope| envelope.request).map(|request| request.uid), reason }
    };
    let review: Review = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    review.request.ok_or_else(|| unreadable("it has no request".to_owned()))
}

impl Request {
    /// The write; none when nothing is written that could have an owner.
    pub(super) fn write(&self, labels: &RingLabels) -> Option<Write<'_>> {
        let new = self.object.as_ref()?.ownership(labels);
        match (&*self.operation, &self.old_object) {
            ("CREATE", _) => Some(Write::Create { new }),
            ("UPDATE", Some(old)) => Some(Write::Update { old: old.ownership(labels), new, writer: self.pod() }),
            _ => None,
        }
    }

    /// The Pod that the writer's token is bound to.
    fn pod(&self) -> Option<&str> {
        self.user_info.extra.as_ref()?.get(POD_NAME)?.first().map(String::as_str)
    }

    /// Whether the object is created by this write.
    pub(super) fn creates(&self) -> bool {
        self.operation == "CREATE"
    }

    /// The object's name; none while it is still to be generated. It is in the object sooner than in the request.
    pub(super) fn name(&self) -> Option<&str> {
        let in_object = self.object.as_ref().and_then(|object| object.metadata.name.as_deref());
        self.name.as_deref().into_iter().chain(in_object).find(|name| !name.is_empty())
    }

    /// The owner reference that makes the object a controlled one, or did so until this write: a PUT from
    /// a template drops it together with the labels.
    pub(super) fn controller(&self) -> Option<&OwnerReference> {
        let objects = self.object.iter().chain(&self.old_object);
        objects.filter_map(|object| controller_of(object.metadata.owner_references.as_deref())).next()
    }

    /// Who would own the object after the write as it is.
    pub(super) fn ownership(&self, labels: &RingLabels) -> Ownership<'_> {
        self.object.as_ref().map(|object| object.ownership(labels)).unwrap_or_default()
    }

    /// Whether the new object has a labels map that a patch can add to.
    pub(super) fn has_labels(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.metadata.labels.is_some())
    }

    /// The namespace, for a key; none for an object without one.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}

impl Reviewed {
    fn ownership(&self, labels: &RingLabels) -> Ownership<'_> {
        labels.ownership(self.metadata.labels.as_ref())
    }
}
