//! Locks in protobuf, as client-go's typed clients send them.
//!
//! The messages name the fields that an election needs and that clients check; finalizers, owner references and managed
//! fields of a lock are left out.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::ConfigMap,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
    jiff::Timestamp,
};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaMessage>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigMapMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<MetaMessage>,
    #[prost(btree_map = "string, string", tag = "2")]
    data: BTreeMap<String, String>,
    #[prost(btree_map = "string, bytes", tag = "3")]
    binary_data: BTreeMap<String, Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    immutable: Option<bool>,
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

fn some_map<T>(map: BTreeMap<String, T>) -> Option<BTreeMap<String, T>> {
    (!map.is_empty()).then_some(map)
}

impl From<MetaMessage> for ObjectMeta {
    fn from(message: MetaMessage) -> Self {
        Self {
            name: some(message.name),
            namespace: some(message.namespace),
            uid: some(message.uid),
            resource_version: some(message.resource_version),
            creation_timestamp: message.creation_timestamp.and_then(TimeMessage::timestamp).map(Time),
            labels: some_map(message.labels),
            annotations: some_map(message.annotations),
            ..Self::default()
        }
    }
}

impl From<&ObjectMeta> for MetaMessage {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            creation_timestamp: meta.creation_timestamp.as_ref().map(|time| TimeMessage::of(time.0)),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
        }
    }
}

impl From<LeaseMessage> for Lease {
    fn from(message: LeaseMessage) -> Self {
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
        Self { metadata: message.metadata.unwrap_or_default().into(), spec }
    }
}

impl From<&Lease> for LeaseMessage {
    fn from(lease: &Lease) -> Self {
        let spec = lease.spec.as_ref().map(|spec| SpecMessage {
            holder_identity: spec.holder_identity.clone(),
            lease_duration_seconds: spec.lease_duration_seconds,
            acquire_time: spec.acquire_time.as_ref().map(|time| TimeMessage::of(time.0)),
            renew_time: spec.renew_time.as_ref().map(|time| TimeMessage::of(time.0)),
            lease_transitions: spec.lease_transitions,
            strategy: spec.strategy.clone(),
            preferred_holder: spec.preferred_holder.clone(),
        });
        Self { metadata: Some((&lease.metadata).into()), spec }
    }
}

impl From<ConfigMapMessage> for ConfigMap {
    fn from(message: ConfigMapMessage) -> Self {
        let binary_data = message.binary_data.into_iter().map(|(key, bytes)| (key, ByteString(bytes)));
        Self {
            metadata: message.metadata.unwrap_or_default().into(),
            data: some_map(message.data),
            binary_data: some_map(binary_data.collect()),
            immutable: message.immutable,
        }
    }
}

impl From<&ConfigMap> for ConfigMapMessage {
    fn from(map: &ConfigMap) -> Self {
        let binary_data = map.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
        Self {
            metadata: Some((&map.metadata).into()),
            data: map.data.clone().unwrap_or_default(),
            binary_data: binary_data.collect(),
            immutable: map.immutable,
        }
    }
}
