//! Locks in the two forms that clients send them in. client-go's typed clients use protobuf for built-in types.

use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use serde_json::{Value, json};

use super::{
    messages::{ConfigMapMessage, LeaseMessage},
    object::{Kind, Object},
};
use crate::{
    frames::{self, behind_length, line},
    request::representation::{Encoding, is_compressed},
    wire::{self, WatchEvent},
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
        Encoding::Protobuf => decode_protobuf(kind, body),
    }
}

fn decode_protobuf(kind: Kind, body: &Bytes) -> Option<Object> {
    let raw = wire::unwrap(body)?.raw;
    match kind {
        Kind::Lease => LeaseMessage::decode(raw).ok().map(|it| Object::Lease(it.into())),
        Kind::ConfigMap => ConfigMapMessage::decode(raw).ok().map(|it| Object::ConfigMap(it.into())),
    }
}

/// Reads the object of this kind in an event of a watch; `None` if there is none, as in a table.
pub(super) fn decode_event(kind: Kind, encoding: Encoding, event: &Bytes) -> Option<Object> {
    match encoding {
        Encoding::Json => kind.read(serde_json::from_slice::<Value>(event).ok()?["object"].take()).ok(),
        Encoding::Protobuf => decode_protobuf(kind, &WatchEvent::decode(event.clone()).ok()?.object?.raw),
    }
}

/// Writes a lock.
pub(super) fn encode(object: &Object, encoding: Encoding) -> Bytes {
    let (api_version, kind) = object.kind().type_meta();
    match (encoding, object) {
        // A lock is made of strings, numbers and maps with string keys: nothing that JSON can't hold.
        (Encoding::Json, object) => serde_json::to_vec(object).unwrap_or_default().into(),
        (Encoding::Protobuf, Object::Lease(lease)) => wire::wrap(api_version, kind, &LeaseMessage::from(lease)),
        (Encoding::Protobuf, Object::ConfigMap(map)) => wire::wrap(api_version, kind, &ConfigMapMessage::from(map)),
    }
}

/// Writes an event of a watch, with what stands between events.
pub(super) fn encode_event(event: &str, object: &Object, encoding: Encoding) -> Bytes {
    let event = frames::event(event, encode(object, encoding), encoding);
    match encoding {
        Encoding::Json => line(&event),
        Encoding::Protobuf => behind_length(&event),
    }
}

/// Writes a list of this lock, or of nothing.
pub(super) fn encode_list(kind: Kind, object: Option<&Object>, version: u64, encoding: Encoding) -> Bytes {
    let (api_version, of) = kind.type_meta();
    let (of, resource_version) = (format!("{of}List"), version.to_string());
    match encoding {
        Encoding::Json => {
            let items: Vec<_> = object.into_iter().collect();
            let metadata = json!({"resourceVersion": resource_version});
            json!({"kind": of, "apiVersion": api_version, "metadata": metadata, "items": items}).to_string().into()
        }
        Encoding::Protobuf => {
            let items = object.map(|object| match object {
                Object::Lease(lease) => LeaseMessage::from(lease).encode_to_vec().into(),
                Object::ConfigMap(map) => ConfigMapMessage::from(map).encode_to_vec().into(),
            });
            let metadata = Some(wire::ListMeta { resource_version, ..Default::default() });
            wire::wrap(api_version, &of, &wire::List { metadata, items: items.into_iter().collect() })
        }
    }
}

/// Writes what an API server says of an object that is gone.
pub(super) fn encode_deleted(object: &Object, encoding: Encoding) -> Bytes {
    let (name, uid) = (object.metadata().name.clone(), object.metadata().uid.clone());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let (group, kind) = object.kind().names();
    let (group, kind) = (group.to_owned(), kind.to_owned());
    let status = wire::Status {
        metadata: Some(wire::ListMeta::default()),
        status: "Success".to_owned(),
        details: Some(wire::StatusDetails { name, group, kind, uid, ..wire::StatusDetails::default() }),
        ..wire::Status::default()
    };
    status.encoded(encoding)
}
