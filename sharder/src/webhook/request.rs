//! What the API server asks: the few fields of an `AdmissionReview` that the decision rests on.
//!
//! Everything else is skipped, not decoded: an object may be 1.5 MB, and what it says is none of our business.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ringside_ring::{Ownership, RingLabels, cluster_ring::GroupResource, handover::Write};
use serde::Deserialize;

use super::lenient;
use crate::{cel::POD_NAME, resources::is_namespaces};

/// An `AdmissionReview`, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default, deserialize_with = "lenient::object")]
    request: Option<Request>,
}

/// The version of reviews that our webhook configurations ask for.
pub(super) const VERSION: &str = "admission.k8s.io/v1";

/// The request in a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) resource: GroupResource,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    operation: String,
    sub_resource: Option<String>,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default, deserialize_with = "lenient::object")]
    options: Option<Options>,
    #[serde(default, deserialize_with = "lenient::object")]
    object: Option<Reviewed>,
    #[serde(default, deserialize_with = "lenient::object")]
    old_object: Option<Reviewed>,
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo {
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// How the request was made: of what creates, updates and patches.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    field_manager: Option<String>,
}

/// An object in a review.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Reviewed {
    #[serde(default, deserialize_with = "lenient::object")]
    metadata: Option<Metadata>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    #[serde(default, deserialize_with = "lenient::labels")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "lenient::labels")]
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Why a body can't be answered as it should; the uid if at least that could be read.
#[derive(Debug, thiserror::Error)]
#[error("the AdmissionReview can't be read: {reason}")]
pub(super) struct Unreadable {
    pub(super) uid: Option<String>,
    reason: String,
}

impl Unreadable {
    /// For a review of which there are only these bytes.
    pub(super) fn new(body: &[u8], reason: impl Into<String>) -> Self {
        Self { uid: lenient::uid(body), reason: reason.into() }
    }
}

/// Why a request is none that the webhook is there for. Our webhook configurations ask for no such.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Odd {
    /// It does not write the object itself.
    #[error("writes of the subresource '{0}' are not reviewed")]
    Subresource(String),
    /// It does not write an object.
    #[error("only CREATE and UPDATE are reviewed, not '{0}'")]
    Operation(String),
    /// What it writes, or what is there, is missing.
    #[error("the object, or its metadata, is missing")]
    NoObject,
}

/// Reads a review.
pub(super) fn parse(body: &[u8]) -> Result<Request, Unreadable> {
    let unreadable = |reason: String| Unreadable::new(body, reason);
    let mut json = serde_json::Deserializer::from_slice(body);
    let review = lenient::object::<_, Review>(&mut json).and_then(|review| json.end().map(|()| review));
    let review = review.map_err(|error| unreadable(error.to_string()))?;
    let review = review.ok_or_else(|| unreadable("it is null".to_owned()))?;
    if let Some(kind) = review.kind.filter(|kind| kind != "AdmissionReview") {
        return Err(unreadable(format!("it is of kind '{kind}'")));
    }
    if review.api_version.is_some_and(|version| version != VERSION) {
        return Err(unreadable("its version is unknown".to_owned()));
    }
    review.request.ok_or_else(|| unreadable("it has no request".to_owned()))
}

impl Request {
    /// The write, if it is one that could give an object an owner, or take it.
    pub(super) fn write(&self, labels: &RingLabels) -> Result<Write<'_>, Odd> {
        if let Some(subresource) = self.sub_resource.as_ref().filter(|subresource| !subresource.is_empty()) {
            return Err(Odd::Subresource(subresource.clone()));
        }
        let updates = match &*self.operation {
            "CREATE" => false,
            "UPDATE" => true,
            other => return Err(Odd::Operation(other.to_owned())),
        };
        let new = self.object.as_ref().filter(|object| object.metadata.is_some()).ok_or(Odd::NoObject)?;
        let new = new.ownership(labels);
        if !updates {
            return Ok(Write::Create { new });
        }
        let old = self.old_object.as_ref().ok_or(Odd::NoObject)?.ownership(labels);
        Ok(Write::Update { old, new, writer: self.pod(), manager: self.manager() })
    }

    /// The drain label of the object before the write.
    pub(super) fn drain(&self, labels: &RingLabels) -> Option<&str> {
        self.old_object.as_ref()?.ownership(labels).drain
    }

    /// The Pod that the writer's token is bound to.
    fn pod(&self) -> Option<&str> {
        self.user_info.extra.as_ref()?.get(POD_NAME)?.first().map(String::as_str)
    }

    /// The field manager that the writer names.
    fn manager(&self) -> Option<&str> {
        self.options.as_ref()?.field_manager.as_deref()
    }

    /// Whether the object is created by this write.
    pub(super) fn creates(&self) -> bool {
        self.operation == "CREATE"
    }

    /// What the object is placed by; none while its name is still to be generated. That is in the object sooner than in the
    /// request.
    pub(super) fn placed(&self) -> Option<ObjectMeta> {
        let metadata = self.object.as_ref().and_then(|object| object.metadata.as_ref());
        let in_object = metadata.and_then(|metadata| metadata.name.as_deref());
        let name = self.name.as_deref().into_iter().chain(in_object).find(|name| !name.is_empty())?;
        Some(ObjectMeta {
            name: Some(name.to_owned()),
            namespace: self.namespace().map(str::to_owned),
            labels: metadata.and_then(|metadata| metadata.labels.clone()),
            annotations: metadata.and_then(|metadata| metadata.annotations.clone()),
            ..ObjectMeta::default()
        })
    }

    /// The owner references of the object, and those until this write: a PUT from a template drops them together with the labels.
    pub(super) fn owner_references(&self) -> impl Iterator<Item = &[OwnerReference]> {
        let objects = self.object.iter().chain(&self.old_object);
        objects.filter_map(|object| object.metadata.as_ref()?.owner_references.as_deref())
    }

    /// Who would own the object after the write as it is.
    pub(super) fn ownership(&self, labels: &RingLabels) -> Ownership<'_> {
        self.object.as_ref().map(|object| object.ownership(labels)).unwrap_or_default()
    }

    /// Whether the new object has a labels map that a patch can add to.
    pub(super) fn has_labels(&self) -> bool {
        self.object
            .as_ref()
            .and_then(|object| object.metadata.as_ref())
            .is_some_and(|metadata| metadata.labels.is_some())
    }

    /// The namespace, for a key; none for an object without one. Of a Namespace the API server says its own name.
    pub(super) fn namespace(&self) -> Option<&str> {
        let namespace = self.namespace.as_deref().filter(|_| !is_namespaces(&self.resource));
        namespace.filter(|namespace| !namespace.is_empty())
    }
}

impl Reviewed {
    fn ownership(&self, labels: &RingLabels) -> Ownership<'_> {
        labels.ownership(self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()))
    }
}
