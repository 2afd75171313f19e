//! Kubernetes objects in protobuf: the envelope, and of each message the few fields that the proxy reads or writes.
//!
//! Field numbers are those of `generated.proto` in k8s.io/apimachinery and k8s.io/api. Fields that are not
//! named here are skipped unread.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

/// What every Kubernetes object in protobuf begins with (KEP "Protobuf serialization").
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`: the envelope behind [`MAGIC`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub(crate) type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) raw: Bytes,
    #[prost(string, tag = "3")]
    pub(crate) content_encoding: String,
    #[prost(string, tag = "4")]
    pub(crate) content_type: String,
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(crate) api_version: String,
    #[prost(string, tag = "2")]
    pub(crate) kind: String,
}

/// `metav1.WatchEvent`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEvent {
    #[prost(string, tag = "1")]
    pub(crate) event_type: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) object: Option<RawExtension>,
}

/// `runtime.RawExtension`: an object with its envelope.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) raw: Bytes,
}

/// Any object: its metadata is always the first field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyMetadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<Metadata>,
}

/// Of `metav1.ObjectMeta` what says which object it is, and whose. Absent is the same as empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) uid: String,
    #[prost(string, tag = "6")]
    pub(crate) resource_version: String,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) owner_references: Vec<OwnerReference>,
}

/// `metav1.OwnerReference`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OwnerReference {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) uid: String,
    #[prost(string, tag = "5")]
    pub(crate) api_version: String,
    #[prost(bool, optional, tag = "6")]
    pub(crate) controller: Option<bool>,
}

/// A list of one kind, which has its `metav1.ListMeta` and its items in these fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct List {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(crate) items: Vec<Bytes>,
}

/// Of `metav1.ListMeta` the resourceVersion, and by what the next page is asked for.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(crate) resource_version: String,
    #[prost(string, tag = "3")]
    pub(crate) r#continue: String,
}

/// `metav1.Status`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<ListMeta>,
    #[prost(string, tag = "2")]
    pub(crate) status: String,
    #[prost(string, tag = "3")]
    pub(crate) message: String,
    #[prost(string, tag = "4")]
    pub(crate) reason: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) details: Option<StatusDetails>,
    #[prost(int32, tag = "6")]
    pub(crate) code: i32,
}

/// Of `metav1.StatusDetails` what it is about, and when to try again.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusDetails {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) group: String,
    #[prost(string, tag = "3")]
    pub(crate) kind: String,
    #[prost(int32, tag = "5")]
    pub(crate) retry_after_seconds: i32,
    #[prost(string, tag = "6")]
    pub(crate) uid: String,
}

/// An object in its envelope.
pub(crate) fn wrap(api_version: &str, kind: &str, object: &impl Message) -> Bytes {
    let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    enveloped(&Unknown { type_meta: Some(type_meta), raw: object.encode_to_vec().into(), ..Unknown::default() })
}

/// The envelope as it is sent.
pub(crate) fn enveloped(unknown: &Unknown) -> Bytes {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(unknown.encode_to_vec());
    bytes.into()
}

/// What is in the envelope; `None` if it is none.
pub(crate) fn unwrap(bytes: &Bytes) -> Option<Unknown> {
    bytes.starts_with(MAGIC).then(|| Unknown::decode(bytes.slice(MAGIC.len()..)).ok())?
}
