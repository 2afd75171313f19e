//! One line: an event of `audit.k8s.io/v1`, as far as it matters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use ringside_ring::{ResourceVersion, RingLabels, cluster_ring::GroupResource, partition::controller_of};
use serde::Deserialize;
use serde_json::Value;

use super::{User, is_write};
use crate::{
    checker::{Change, Labels, Object, Write},
    system::SHARDER_USER,
};

/// What the API server says where a policy refuses a write: with the same code and reason as where a permission is missing.
const POLICY: &str = "ValidatingAdmissionPolicy";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    object_ref: Option<Reference>,
    response_status: Option<Status>,
    /// An object, or a patch of any kind.
    request_object: Option<Value>,
    response_object: Option<Response>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Reference {
    resource: String,
    api_group: String,
    namespace: String,
    name: String,
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// An object, a list of them, or a `Status`.
#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
    details: Option<Details>,
    items: Option<Vec<Response>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    uid: String,
}

/// What a line says of a request that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It arrived; as long as nothing more is said, nobody knows what came of it.
    Begun(Box<Write>),
    /// It was answered, and these came of it: none when it was only tried or refused, unless the fence did that; several when
    /// it deleted a collection.
    Ended(String, Vec<Write>),
    /// Nothing that matters.
    Nothing,
}

pub(super) fn said(line: &[u8], labels: &RingLabels, shards: &str) -> Result<Said, String> {
    let mut event: Event = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    if !is_write(&event.verb, &event.request_uri) {
        return Ok(Said::Nothing);
    }
    let reference = event.object_ref.take().unwrap_or_default();
    match &*event.stage {
        "RequestReceived" => {
            let write = event.write(&reference, shards, Change::Unanswered, reference.object());
            Ok(Said::Begun(Box::new(write)))
        }
        "ResponseComplete" => {
            let answer = event.response_object.take();
            let change = event.change(&reference, answer.as_ref());
            let objects =
                change.map_or_else(|| Ok(Vec::new()), |change| event.objects(&reference, answer, change, labels));
            let write = |object| Some(event.write(&reference, shards, change?, object));
            Ok(Said::Ended(event.id.clone(), objects?.into_iter().filter_map(write).collect()))
        }
        _ => Ok(Said::Nothing),
    }
}

impl Event {
    /// What the request did, where it did anything that matters.
    fn change(&self, reference: &Reference, answer: Option<&Response>) -> Option<Change> {
        let status = self.response_status.as_ref()?;
        match (&*self.verb, status.code) {
            ("create", 409) if status.reason == "AlreadyExists" => Some(Change::Refused),
            (_, 403) if status.message.contains(POLICY) => Some(Change::Barred),
            // Even so it may have been carried out: the API server gives up waiting, not the write.
            (_, 500..) => Some(Change::Unanswered),
            (_, 300..) => None,
            ("create", _) if reference.subresource.is_empty() => Some(Change::Created),
            // Server-side apply creates what is not there.
            ("patch" | "update", 201) => Some(Change::Created),
            ("create" | "patch" | "update", _) => Some(Change::Updated),
            // It is answered with the object where that stays for a while: marked, for its finalizers.
            ("delete", _) if answer.is_some_and(|answer| answer.details.is_none()) => Some(Change::Updated),
            _ => Some(Change::Deleted),
        }
    }

    /// What it did that to.
    fn objects(
        &self,
        reference: &Reference,
        answer: Option<Response>,
        change: Change,
        labels: &RingLabels,
    ) -> Result<Vec<Object>, String> {
        Ok(match answer {
            _ if matches!(change, Change::Barred | Change::Refused) => {
                vec![Object { controller: self.request_object.as_ref().and_then(controller), ..reference.object() }]
            }
            _ if change == Change::Unanswered => vec![reference.object()],
            Some(Response { items: Some(items), .. }) => {
                items.into_iter().map(|item| item.object(labels)).collect::<Result<_, _>>()?
            }
            Some(Response { details: Some(Details { uid }), .. }) => vec![Object { uid, ..reference.object() }],
            // Whether an object has such labels, only the object itself tells.
            Some(response) if matches!(&*reference.subresource, "" | "status") => vec![response.object(labels)?],
            Some(response) => vec![Object { labels: None, ..response.object(labels)? }],
            None => {
                return Err(format!(
                    "a {} of {}/{} without its outcome",
                    self.verb, reference.resource, reference.name
                ));
            }
        })
    }

    fn write(&self, reference: &Reference, shards: &str, change: Change, object: Object) -> Write {
        let shard = self.user.pod().filter(|_| self.user.username == shards);
        Write {
            id: self.id.clone(),
            received: self.request_received_timestamp.0,
            answered: self.stage_timestamp.0,
            shard: shard.cloned(),
            by_sharder: self.user.username == SHARDER_USER,
            change,
            resource: GroupResource { group: reference.api_group.clone(), resource: reference.resource.clone() },
            object,
        }
    }
}

/// The uid of the controller that an object was to have.
fn controller(asked: &Value) -> Option<String> {
    let Response { metadata, .. } = Response::deserialize(asked).ok()?;
    controller_of(metadata.owner_references.as_deref()).map(|owner| owner.uid.clone())
}

impl Reference {
    fn object(&self) -> Object {
        Object { name: format!("{}/{}", self.namespace, self.name), ..Object::default() }
    }
}

impl Response {
    fn object(self, labels: &RingLabels) -> Result<Object, String> {
        let Metadata { name, namespace, uid, resource_version, labels: all, owner_references } = self.metadata;
        let version: ResourceVersion = resource_version.parse().map_err(|error| format!("{error}"))?;
        let ownership = labels.ownership(all.as_ref());
        Ok(Object {
            uid,
            name: format!("{namespace}/{name}"),
            version: Some(version),
            labels: Some(Labels {
                shard: ownership.shard.map(str::to_owned),
                drain: ownership.drain.map(str::to_owned),
            }),
            controller: controller_of(owner_references.as_deref()).map(|owner| owner.uid.clone()),
            holder: self.spec.and_then(|spec| spec.holder_identity),
        })
    }
}

#[cfg(test)]
mod tests;
