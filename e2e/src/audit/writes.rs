//! What a line says of a request that writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ringside_ring::{RingLabels, cluster_ring::GroupResource, partition::owner_of};
use serde::Deserialize as _;
use serde_json::Value;

use super::event::{Details, Event, Reference, Response};
use crate::{
    checker::{Change, Object, Write},
    system::SHARDER_USER,
};

/// What the API server says where a policy refuses a write: with the same code and reason as where a permission is missing.
const POLICY: &str = "ValidatingAdmissionPolicy";

/// What a line says of a request that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It arrived; as long as nothing more is said, its outcome is unknown.
    Begun(Box<Write>),
    /// It was answered, and these came of it: none when it was only tried or refused, unless the fence did that; several when
    /// it deleted a collection.
    Ended(String, Vec<Write>),
    /// Nothing that matters.
    Nothing,
}

pub(super) fn said(line: &[u8], labels: &RingLabels, shards: &str) -> Result<Said, String> {
    let mut event = Event::parse(line)?;
    if !event.is_write() {
        return Ok(Said::Nothing);
    }
    match &*event.stage {
        "RequestReceived" => {
            let write = event.write(shards, Change::Unanswered, event.object_ref.object());
            Ok(Said::Begun(Box::new(write)))
        }
        "ResponseComplete" => {
            let answer = event.response_object.take();
            let change = event.change(answer.as_ref());
            let objects = change.map_or_else(|| Ok(Vec::new()), |change| event.objects(answer, change, labels));
            let write = |object| Some(event.write(shards, change?, object));
            Ok(Said::Ended(event.id.clone(), objects?.into_iter().filter_map(write).collect()))
        }
        _ => Ok(Said::Nothing),
    }
}

impl Event {
    /// What the request did, where it did anything that matters.
    fn change(&self, answer: Option<&Response>) -> Option<Change> {
        let (reference, status) = (&self.object_ref, &self.response_status);
        match (&*self.verb, status.code) {
            ("create", 409) if status.reason == "AlreadyExists" => Some(Change::Refused),
            (_, 403) if status.message.contains(POLICY) => Some(Change::Barred),
            // Even so it may have been carried out: the API server gives up waiting, not the write.
            (_, 500..) => Some(Change::Unanswered),
            (_, 0 | 300..) => None,
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
    fn objects(&self, answer: Option<Response>, change: Change, labels: &RingLabels) -> Result<Vec<Object>, String> {
        let reference = &self.object_ref;
        Ok(match answer {
            _ if matches!(change, Change::Barred | Change::Refused) => {
                vec![Object {
                    controller: self.request_object.as_ref().and_then(asked_controller),
                    ..reference.object()
                }]
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

    fn write(&self, shards: &str, change: Change, object: Object) -> Write {
        let shard = self.user.pod().filter(|_| self.user.username == shards);
        Write {
            id: self.id.clone(),
            received: self.request_received_timestamp.0,
            answered: self.stage_timestamp.0,
            shard: shard.cloned(),
            by_sharder: self.user.username == SHARDER_USER,
            change,
            resource: GroupResource {
                group: self.object_ref.api_group.clone(),
                resource: self.object_ref.resource.clone(),
            },
            object,
        }
    }
}

/// The uid of the controller that an object was to have.
fn asked_controller(asked: &Value) -> Option<String> {
    let owners = Vec::<OwnerReference>::deserialize(asked.pointer("/metadata/ownerReferences")?).ok()?;
    Some(owner_of(&owners, |_| true).one()?.uid.clone())
}

impl Reference {
    fn object(&self) -> Object {
        Object { name: format!("{}/{}", self.namespace, self.name), ..Object::default() }
    }
}

impl Response {
    /// The object that it is.
    pub(crate) fn object(self, labels: &RingLabels) -> Result<Object, String> {
        let object = Object::of(&self.metadata, labels).ok_or("an object without a uid, a name or a version")?;
        Ok(Object { holder: self.spec.and_then(|spec| spec.holder_identity), ..object })
    }
}

#[cfg(test)]
mod tests;
