//! Locks in the two forms that clients send them in. client-go's typed clients use protobuf for built-in types.

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use serde_json::json;

use super::{
    messages::{ConfigMapMessage, LeaseMessage},
    object::{Kind, Object},
};
use crate::{
    request::representation::{Encoding, is_compressed},
    wire,
};

/// Reads an object of this kind from a body; `None` if it is none, which is the API server's to judge.
pub(super) fn decode(kind: Kind, headers: &HeaderMap, body: &Bytes) -> Option<Object> {
    if is_compressed(headers) {
        return None;
    }
    match Encoding::of_body(headers)? {
        Encoding::Json => match kind {
            Kind::Lease => serde_json::from_slice(body).ok().map(Object::Lease),
            Kind::ConfigMap => serde_json::from_slice(body).ok().map(Object::ConfigMap),
        },
        Encoding::Protobuf => {
            let raw = wire::unwrap(body)?.raw;
            match kind {
                Kind::Lease => LeaseMessage::decode(raw).ok().map(|it| Object::Lease(it.into())),
                Kind::ConfigMap => ConfigMapMessage::decode(raw).ok().map(|it| Object::ConfigMap(it.into())),
            }
        }
    }
}

/// Writes a lock.
pub(super) fn encode(object: &Object, encoding: Encoding) -> Bytes {
    let (api_version, kind) = object.kind().type_meta();
    match (encoding, object) {
        // A lock is made of strings, numbers and maps with string keys: nothing that JSON can't hold.
        (Encoding::Json, Object::Lease(lease)) => serde_json::to_vec(lease).unwrap_or_default().into(),
        (Encoding::Json, Object::ConfigMap(map)) => serde_json::to_vec(map).unwrap_or_default().into(),
        (Encoding::Protobuf, Object::Lease(lease)) => wire::wrap(api_version, kind, &LeaseMessage::from(lease)),
        (Encoding::Protobuf, Object::ConfigMap(map)) => wire::wrap(api_version, kind, &ConfigMapMessage::from(map)),
    }
}

/// Writes what an API server says of an object that is gone.
pub(super) fn encode_deleted(object: &Object, encoding: Encoding) -> Bytes {
    let (name, uid) = (object.metadata().name.clone(), object.metadata().uid.clone());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let (group, kind) = object.kind().names();
    match encoding {
        Encoding::Json => {
            let mut status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": SUCCESS,
                "details": {"name": name, "kind": kind, "uid": uid},
            });
            if !group.is_empty() {
                status["details"]["group"] = json!(group);
            }
            status.to_string().into()
        }
        Encoding::Protobuf => {
            let (group, kind) = (group.to_owned(), kind.to_owned());
            let status = wire::Status {
                metadata: Some(wire::VersionOnly::default()),
                status: SUCCESS.to_owned(),
                details: Some(wire::StatusDetails { name, group, kind, uid, ..wire::StatusDetails::default() }),
                ..wire::Status::default()
            };
            wire::wrap("v1", "Status", &status)
        }
    }
}

const SUCCESS: &str = "Success";
