//! Leases in the two forms that clients send them in. client-go's typed clients use protobuf for built-in types.
//!
//! The protobuf messages name the fields that an election needs and that clients check; finalizers, owner
//! references and managed fields of such a Lease are left out.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::HeaderMap;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
    jiff::Timestamp,
};
use prost::Message;
use serde_json::json;

use super::{GROUP, RESOURCE};
use crate::{
    request::representation::{Encoding, is_compressed},
    wire,
};

/// Reads a Lease from a body; `None` if it is none, which is the API server's to judge.
pub(super) fn decode(headers: &HeaderMap, body: &Bytes) -> Option<Lease> {
    if is_compressed(headers) {
        return None;
    }
    match Encoding::of_body(headers)? {
        Encoding::Json => serde_json::from_slice(body).ok(),
        Encoding::Protobuf => {
            let unknown = wire::unwrap(body)?;
            LeaseMessage::decode(unknown.raw).ok().map(Lease::from)
        }
    }
}

/// Writes a Lease.
pub(super) fn encode(lease: &Lease, encoding: Encoding) -> Bytes {
    match encoding {
        // A Lease is made of strings, numbers and maps with string keys: nothing that JSON can't hold.
        Encoding::Json => serde_json::to_vec(lease).unwrap_or_default().into(),
        Encoding::Protobuf => wire::wrap("coordination.k8s.io/v1", "Lease", &LeaseMessage::from(lease)),
    }
}

/// Writes what an API server says of a Lease that is gone.
pub(super) fn encode_deleted(lease: &Lease, encoding: Encoding) -> Bytes {
    let (name, uid) = (lease.metadata.name.clone(), lease.metadata.uid.clone());
    let (name, uid) = (name.unwrap_or_default(), uid.unwrap_or_default());
    let (group, kind) = (GROUP, RESOURCE);
    match encoding {
        Encoding::Json => json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": SUCCESS,
            "details": {"name": name, "group": group, "kind": kind, "uid": uid},
        })
        .to_string()
        .into(),
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

#[derive(Clone, PartialEq, Message)]
struct LeaseMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaMessage>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct MetaMessage {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "3")]
    namespace: Option<String>,
    #[prost(string, optional, tag = "5")]
    uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<TimeMessage>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct SpecMessage {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    acquire_time: Option<TimeMessage>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<TimeMessage>,
    #[prost(int32, optional, tag = "5")]
    lease_transitions: Option<i32>,
    #[prost(string, optional, tag = "6")]
    strategy: Option<String>,
    #[prost(string, optional, tag = "7")]
    preferred_holder: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct TimeMessage {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl TimeMessage {
    fn of(time: Timestamp) -> Self {
        Self { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
    }

    /// None for a time that no calendar has, and for zero, by which Go's types mean that there is none.
    fn timestamp(self) -> Option<Timestamp> {
        if self == Self::default() {
            return None;
        }
        Timestamp::new(self.seconds, self.nanos).ok()
    }
}

/// Absent is the same as empty in these strings.
fn some(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn some_map(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then_some(map)
}

impl From<LeaseMessage> for Lease {
    fn from(message: LeaseMessage) -> Self {
        let meta = message.metadata.unwrap_or_default();
        let metadata = ObjectMeta {
            name: some(meta.name),
            namespace: some(meta.namespace),
            uid: some(meta.uid),
            resource_version: some(meta.resource_version),
            creation_timestamp: meta.creation_timestamp.and_then(TimeMessage::timestamp).map(Time),
            labels: some_map(meta.labels),
            annotations: some_map(meta.annotations),
            ..ObjectMeta::default()
        };
        let time = |message: Option<TimeMessage>| message.and_then(TimeMessage::timestamp).map(MicroTime);
        let spec = message.spec.map(|spec| LeaseSpec {
            holder_identity: spec.holder_identity,
            lease_duration_seconds: spec.lease_duration_seconds,
            acquire_time: time(spec.acquire_time),
            renew_time: time(spec.renew_time),
            lease_transitions: spec.lease_transitions,
            strategy: spec.strategy,
            preferred_holder: spec.preferred_holder,
        });
        Self { metadata, spec }
    }
}

impl From<&Lease> for LeaseMessage {
    fn from(lease: &Lease) -> Self {
        let meta = &lease.metadata;
        let metadata = MetaMessage {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            creation_timestamp: meta.creation_timestamp.as_ref().map(|time| TimeMessage::of(time.0)),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
        };
        let spec = lease.spec.as_ref().map(|spec| SpecMessage {
            holder_identity: spec.holder_identity.clone(),
            lease_duration_seconds: spec.lease_duration_seconds,
            acquire_time: spec.acquire_time.as_ref().map(|time| TimeMessage::of(time.0)),
            renew_time: spec.renew_time.as_ref().map(|time| TimeMessage::of(time.0)),
            lease_transitions: spec.lease_transitions,
            strategy: spec.strategy.clone(),
            preferred_holder: spec.preferred_holder.clone(),
        });
        Self { metadata: Some(metadata), spec }
    }
}
