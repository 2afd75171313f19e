//! Of an object's bytes what says whose it is: its uid, its labels and its owners. Everything else is skipped unread.
//!
//! In every form that objects come in: JSON, YAML, protobuf, metadata alone, Tables of one row; and what patches would
//! make of the owners. Whatever can't be read for sure is an error, and who asks fails closed: a field that is named
//! twice, for instance, in which Go's decoders see the first, the last or both, by the type of the object.

use std::{collections::BTreeMap, io::Read};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use http::{HeaderMap, header};
use prost::Message;
use ringside_ring::partition::{Controls, leading_owners};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    request::representation::{JSON, PROTOBUF, essence, is_compressed},
    wire,
};

mod patch;
#[cfg(test)]
mod tests;

/// How much of an object is read, compressed or not. One of etcd's 1.5 MiB is a few times as long in JSON at most.
pub const MAX_OBJECT: usize = 8 << 20;

/// What is read of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Its name.
    pub name: Option<String>,
    /// Its uid.
    pub uid: Option<String>,
    /// Its version.
    pub resource_version: Option<String>,
    /// Its labels.
    pub labels: Option<BTreeMap<String, String>>,
    /// Who owns it.
    pub owner_references: Option<Vec<Owner>>,
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version.
    pub api_version: String,
    /// The kind, which is not the resource's name.
    pub kind: String,
    /// The name, in the same namespace or in none.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// Whether it controls the object, which one owner at most does.
    pub controller: Option<bool>,
}

/// Why nothing can be said about an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The form is not one that the proxy knows.
    #[error("its content type is not one that the proxy can read")]
    Form,
    /// It is not what its form says, or ambiguous.
    #[error("{0}")]
    Malformed(String),
    /// A Table without objects in it, or with several.
    #[error("it is a table that does not show one object's metadata")]
    Table,
}

impl Metadata {
    /// The owners that may say what it follows: its controller alone, or all where none controls it.
    pub fn owners(&self) -> &[Owner] {
        leading_owners(self.owner_references.as_deref().unwrap_or_default())
    }
}

impl Controls for Owner {
    fn controls(&self) -> bool {
        self.controller == Some(true)
    }
}

/// What a request says of the object that it writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// What it is called, where that is said.
    pub name: Option<String>,
    /// Who would control it, or else all who would own it.
    pub owners: Vec<Owner>,
}

/// Reads what a request writes: an object, an apply, or a patch of any kind.
///
/// # Errors
/// When its form is not known, or it can't be read for sure.
pub fn of_request(headers: &HeaderMap, body: &Bytes) -> Result<Written, Unreadable> {
    if is_compressed(headers) {
        return Err(Unreadable::Form);
    }
    let (name, owners) = match content_type(headers).as_str() {
        JSON | "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            json::<ToWrite>(body)?.parts()
        }
        "application/yaml" | "application/apply-patch+yaml" => yaml::<ToWrite>(body)?.parts(),
        PROTOBUF => protobuf(body).map(|metadata| (metadata.name, metadata.owner_references))?,
        "application/json-patch+json" => (None, Some(patch::owners(body)?)),
        _ => return Err(Unreadable::Form),
    };
    let mut owners = owners.unwrap_or_default();
    if owners.iter().any(Owner::controls) {
        owners.retain(Owner::controls);
    }
    // A patch may name one that is there by its uid alone, and make it the controller: which that is can't be said. One that does not
    // control the object is there already, and its part of the patch changes nothing here.
    let is_named = |owner: &Owner| [&owner.api_version, &owner.kind, &owner.name].iter().all(|part| !part.is_empty());
    owners.retain(|owner| owner.controls() || is_named(owner));
    if !owners.iter().all(is_named) {
        let why = "a controlling owner without apiVersion, kind and name can't be judged; name it in full";
        return Err(Unreadable::Malformed(why.to_owned()));
    }
    Ok(Written { name, owners })
}

/// Reads the object in an answer.
///
/// # Errors
/// When it shows no object's metadata, or not in a form that can be read here.
pub fn of_answer(headers: &HeaderMap, body: &Bytes) -> Result<Metadata, Unreadable> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let inflated = match (encodings.next(), encodings.next()) {
        (None, _) => None,
        (Some(only), None) if only == "gzip" => Some(inflate(body)?),
        _ => return Err(Unreadable::Form),
    };
    let body = inflated.as_ref().unwrap_or(body);
    match content_type(headers).as_str() {
        JSON => of_object(body),
        "application/yaml" => shown(yaml(body)?, || yaml(body)),
        PROTOBUF => protobuf(body),
        _ => Err(Unreadable::Form),
    }
}

/// Reads an object in JSON, or its metadata alone.
///
/// # Errors
/// When it shows no object's metadata.
pub fn of_object(body: &Bytes) -> Result<Metadata, Unreadable> {
    shown(json(body)?, || json(body))
}

/// A few bytes can stand for many: no more than [`MAX_OBJECT`] are made of them.
fn inflate(body: &Bytes) -> Result<Bytes, Unreadable> {
    let (mut inflated, most) = (Vec::new(), MAX_OBJECT as u64);
    let read = MultiGzDecoder::new(&body[..]).take(most + 1).read_to_end(&mut inflated);
    read.map_err(|error| Unreadable::Malformed(error.to_string()))?;
    if inflated.len() > MAX_OBJECT { Err(Unreadable::Form) } else { Ok(inflated.into()) }
}

/// A list, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its objects.
    pub items: Vec<Metadata>,
    /// What the next part is asked for by, if there is one.
    pub next: Option<String>,
}

/// Reads the objects of a list in JSON.
///
/// # Errors
/// When it is none.
pub fn of_list(body: &Bytes) -> Result<Page, Unreadable> {
    let list: List = json(body)?;
    let items = list.items.into_iter().flatten().map(|object| object.metadata.unwrap_or_default()).collect();
    let next = list.metadata.and_then(|metadata| metadata.next).filter(|next| !next.is_empty());
    Ok(Page { items, next })
}

/// An object to be written, or what a patch merges into one.
#[derive(Deserialize)]
struct ToWrite {
    metadata: Option<MetadataToWrite>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataToWrite {
    name: Option<String>,
    owner_references: Option<Vec<Owner>>,
}

impl ToWrite {
    fn parts(self) -> (Option<String>, Option<Vec<Owner>>) {
        let MetadataToWrite { name, owner_references } = self.metadata.unwrap_or_default();
        (name, owner_references)
    }
}

/// An object in an answer; a Table too.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct List {
    metadata: Option<ListMetadata>,
    /// Null where there is none, as Go writes an empty list. But it has to be there: to take something else for an empty
    /// list would be to find no object.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Object>>,
}

/// What else a Table has. Read only where there is one: another object's `rows` can be anything.
#[derive(Deserialize)]
struct Table {
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
struct Row {
    object: Option<Object>,
}

impl Object {
    fn is_table(&self) -> bool {
        let ours = self.api_version.as_deref().is_some_and(|version| version.starts_with("meta.k8s.io/"));
        ours && self.kind.as_deref() == Some("Table")
    }
}

/// The metadata that an answer shows: its own, or that in the one row of a Table.
fn shown(object: Object, table: impl FnOnce() -> Result<Table, Unreadable>) -> Result<Metadata, Unreadable> {
    if !object.is_table() {
        return object.metadata.ok_or_else(|| Unreadable::Malformed("it has no metadata".to_owned()));
    }
    let [row] = <[Row; 1]>::try_from(table()?.rows.unwrap_or_default()).map_err(|_| Unreadable::Table)?;
    row.object.and_then(|object| object.metadata).ok_or(Unreadable::Table)
}

/// The media type of a body, which is JSON where none is named.
fn content_type(headers: &HeaderMap) -> String {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return JSON.to_owned() };
    value.to_str().map(essence).unwrap_or_default()
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(body).map_err(|error| Unreadable::Malformed(error.to_string()))
}

/// client-go sends JSON where the API server takes YAML; every JSON object is the same object in YAML.
fn yaml<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unreadable> {
    json(body).or_else(|_| serde_saphyr::from_slice(body).map_err(|error| Unreadable::Malformed(error.to_string())))
}

fn protobuf(body: &Bytes) -> Result<Metadata, Unreadable> {
    let malformed = || Unreadable::Malformed("it is not an object in protobuf".to_owned());
    let unknown = wire::unwrap(body).ok_or_else(malformed)?;
    // Not offered in protobuf so far. Its first field would be another.
    if unknown.type_meta.is_some_and(|it| it.kind == "Table") {
        return Err(Unreadable::Table);
    }
    let object = wire::AnyMetadata::decode(unknown.raw).map_err(|_| malformed())?;
    Ok(object.metadata.map(Metadata::from).unwrap_or_default())
}

impl From<wire::Metadata> for Metadata {
    fn from(message: wire::Metadata) -> Self {
        // Go writes empty strings too.
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let owner = |it: wire::OwnerReference| Owner {
            api_version: it.api_version,
            kind: it.kind,
            name: it.name,
            uid: it.uid,
            controller: it.controller,
        };
        Self {
            name: some(message.name),
            uid: some(message.uid),
            resource_version: some(message.resource_version),
            labels: Some(message.labels),
            owner_references: Some(message.owner_references.into_iter().map(owner).collect()),
        }
    }
}
