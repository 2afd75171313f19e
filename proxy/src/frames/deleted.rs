//! A `DELETED` of the proxy's own, in each form that a watch may have been asked for. Metadata tells which object it was, and
//! often nothing else is known of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use serde_json::{Map, Value, json};

use super::error_event;
use crate::{
    request::representation::{Encoding, Form},
    wire::{self, AnyMetadata, Metadata, TypeMeta, Unknown},
};

/// What the event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Group and version, as in `apiVersion`.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// Its namespace, if the resource has them.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The labels that the client saw last, as far as is known.
    pub labels: BTreeMap<String, String>,
    /// Where the watch goes on from: a client that keeps it goes on from there too.
    pub resource_version: String,
    /// All of it in the encoding of the watch, where that is known: typed clients (kube-rs) can't read an object without its
    /// `spec`.
    pub whole: Option<Bytes>,
}

const METADATA_VERSION: &str = "meta.k8s.io/v1";

impl Deleted {
    /// The event, without what stands between events.
    pub(super) fn event(&self, encoding: Encoding, form: Form) -> Vec<u8> {
        let object = match encoding {
            Encoding::Json => self.json(form).to_string().into(),
            Encoding::Protobuf => self.protobuf(form),
        };
        error_event::event("DELETED", object, encoding)
    }

    fn kind(&self, form: Form) -> (&str, &str) {
        match form {
            Form::Object => (&self.api_version, &self.kind),
            Form::Metadata | Form::Table => (METADATA_VERSION, "PartialObjectMetadata"),
        }
    }

    fn json(&self, form: Form) -> Value {
        let (api_version, kind) = self.kind(form);
        let mut metadata = json!({
            "name": self.name, "uid": self.uid, "resourceVersion": self.resource_version, "labels": self.labels,
        });
        if let Some(namespace) = &self.namespace {
            metadata["namespace"] = json!(namespace);
        }
        let whole = self.whole.as_ref().filter(|_| form == Form::Object);
        if let Some(whole) = whole.and_then(|text| serde_json::from_slice::<Map<_, _>>(text).ok()) {
            // The items of a list may have neither.
            let mut object =
                Map::from_iter([("apiVersion".to_owned(), json!(api_version)), ("kind".to_owned(), json!(kind))]);
            object.extend(whole);
            object["metadata"]["resourceVersion"] = json!(self.resource_version);
            return Value::Object(object);
        }
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        if form != Form::Table {
            return object;
        }
        json!({
            "apiVersion": METADATA_VERSION, "kind": "Table", "metadata": {"resourceVersion": self.resource_version},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}],
            "rows": [{"cells": [self.name], "object": object}],
        })
    }

    fn protobuf(&self, form: Form) -> Bytes {
        let (api_version, kind) = self.kind(form);
        if let Some(whole) = self.whole.as_ref().filter(|_| form == Form::Object) {
            // Decoders merge metadata that comes twice, and take the last version.
            let version = Metadata { resource_version: self.resource_version.clone(), ..Metadata::default() };
            let raw = [&whole[..], &AnyMetadata { metadata: Some(version) }.encode_to_vec()].concat().into();
            let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
            return wire::enveloped(&Unknown { type_meta: Some(type_meta), raw, ..Unknown::default() });
        }
        let metadata = Metadata {
            name: self.name.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            uid: self.uid.clone(),
            resource_version: self.resource_version.clone(),
            labels: self.labels.clone(),
            ..Metadata::default()
        };
        wire::wrap(api_version, kind, &AnyMetadata { metadata: Some(metadata) })
    }
}
