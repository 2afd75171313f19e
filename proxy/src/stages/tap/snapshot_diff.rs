//! Finds out what has left while an API server could not say it: of what was this shard's when the client's watch had come so
//! far, all that is not its own any more.
//!
//! An API server that was restarted sends no events of before. But etcd has what was there then, for as long as it is not
//! compacted (five minutes by default), so two lists in pages tell: of then, and of now. Both are in the order of their keys,
//! so that a page of each is held at a time, and each object is told of as soon as it is found.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::{SinkExt, channel::mpsc::Sender};
use http::{HeaderValue, StatusCode};
use prost::Message as _;
use ringside_ring::ResourceVersion;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    budget::Unread,
    frames::Deleted,
    request::{
        Query,
        representation::{Encoding, JSON, PROTOBUF},
    },
    stages::{
        as_client::AsClient,
        list::{List, ListMeta},
    },
    wire::{self, AnyMetadata},
};

/// Objects in one page, of which one is held for each list, while there is room.
const PAGE: usize = 50;
/// How long is waited for room for half as many; it doubles each time.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest page that is read: 160 KiB an object. Some may be larger; where so many are, nothing is found out.
const MAX_PAGE: usize = 8 << 20;

/// Why it is not known.
#[derive(Debug)]
pub(super) enum DiffError {
    /// The API server may say it later.
    NoAnswer,
    /// There is no room for what it says.
    NoRoom,
    /// It has forgotten that state.
    Forgotten,
    /// The client may not ask, or what it gets is no list that can be read.
    Refused,
}

/// How to ask for lists.
pub(super) struct SnapshotDiff {
    client: AsClient,
    /// What the watch selects.
    query: Query,
    /// In what form its client wants whole objects.
    whole: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct ItemMetadata {
    namespace: Option<String>,
    name: String,
    uid: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// An object of a list, and all of it, as text or in protobuf.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Item {
    metadata: ItemMetadata,
    whole: Bytes,
}

impl TryFrom<Value> for Item {
    type Error = serde_json::Error;

    fn try_from(object: Value) -> Result<Self, Self::Error> {
        Ok(Self { metadata: ItemMetadata::deserialize(&object["metadata"])?, whole: object.to_string().into() })
    }
}

impl Item {
    /// By what lists are ordered. Another object of a name is none that has left: most clients know objects by their names
    /// (`missed`).
    fn key(&self) -> String {
        let ItemMetadata { namespace, name, .. } = &self.metadata;
        namespace.iter().chain([name]).map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

/// Reads a list in protobuf, whose type is not needed.
fn in_protobuf(body: &Bytes) -> Option<List<Item>> {
    let list = wire::List::decode(wire::unwrap(body)?.raw).ok()?;
    let item = |object: &Bytes| {
        let wire::Metadata { name, namespace, uid, labels, .. } = AnyMetadata::decode(&object[..]).ok()?.metadata?;
        let namespace = Some(namespace).filter(|it| !it.is_empty());
        Some(Item { metadata: ItemMetadata { namespace, name, uid, labels }, whole: Bytes::copy_from_slice(object) })
    };
    let items = list.items.iter().map(item).collect::<Option<_>>()?;
    let wire::ListMeta { resource_version, r#continue } = list.metadata?;
    let metadata = ListMeta { resource_version, r#continue: Some(r#continue) };
    Some(List { kind: String::new(), api_version: String::new(), metadata, items: Some(items) })
}

/// A list of one state, page by page.
struct Pages<'a> {
    diff: &'a SnapshotDiff,
    accepts: Option<&'a HeaderValue>,
    /// How many objects a page has.
    limit: usize,
    pause: Duration,
    /// What the next page is asked for by; none behind the last.
    from: Option<Vec<(&'static str, String)>>,
    page: std::vec::IntoIter<Item>,
    last: String,
}

impl Pages<'_> {
    /// The next object, and its key.
    async fn next(&mut self) -> Result<Option<(String, Item)>, DiffError> {
        loop {
            if let Some(item) = self.page.next() {
                let key = item.key();
                if key <= self.last {
                    // In another order two lists can't be compared.
                    return Err(DiffError::Refused);
                }
                self.last.clone_from(&key);
                return Ok(Some((key, item)));
            }
            let Some(from) = &self.from else { return Ok(None) };
            let query = [from.as_slice(), &[("limit", self.limit.to_string())]].concat();
            let page = match self.diff.page(&query, self.accepts).await {
                Err(DiffError::NoRoom) if self.limit > 1 => {
                    self.limit /= 2;
                    sleep(self.pause).await;
                    self.pause *= 2;
                    continue;
                }
                page => page?,
            };
            let rest = page.metadata.r#continue.filter(|rest| !rest.is_empty());
            self.from = rest.map(|rest| vec![("continue", rest)]);
            self.page = page.items.unwrap_or_default().into_iter();
        }
    }
}

impl SnapshotDiff {
    /// As this client, whose watch selects this, and has whole objects in that encoding.
    pub(super) fn of(client: AsClient, query: Query, whole: Option<Encoding>) -> Self {
        Self { client, query, whole: whole.map(|whole| HeaderValue::from_static(whole.media_type())) }
    }

    /// Tells what has left since then, and returns up to when that is known. Where the API server does not have the
    /// state of then any more, that is unknown, and nothing is told.
    pub(super) async fn since(
        &self,
        then: &ResourceVersion,
        tell: &mut Sender<Deleted>,
    ) -> Result<ResourceVersion, DiffError> {
        // What is asked for as metadata has lost its kind.
        let first = self.page(&[("limit", "1".to_owned())], Some(&HeaderValue::from_static(JSON))).await;
        // Nothing is listed yet: it is tried again.
        let first = first
            .map_err(|unknown| if matches!(unknown, DiffError::NoRoom) { DiffError::NoAnswer } else { unknown })?;
        let until: ResourceVersion = first.metadata.resource_version.parse().map_err(|_| DiffError::Refused)?;
        if until < *then {
            // Another etcd, or one that was restored.
            return Err(DiffError::Refused);
        }
        let kind = first.kind.strip_suffix("List").unwrap_or(&first.kind);
        let mut all_here = self.pages(&until, None);
        let mut all_then = self.pages(then, self.whole.as_ref());
        // So slow that it is to be begun again.
        let again = |unknown| if matches!(unknown, DiffError::Forgotten) { DiffError::NoAnswer } else { unknown };
        let (mut here, mut count) = (all_here.next().await.map_err(again)?, 0);
        loop {
            let (key, item) = match all_then.next().await {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(DiffError::Forgotten) => {
                    tracing::info!(resource = %self.client.scope.resource, "can't determine removed objects: resourceVersion compacted (410)");
                    break;
                }
                Err(unknown) => return Err(unknown),
            };
            while here.as_ref().is_some_and(|(other, _)| *other < key) {
                here = all_here.next().await.map_err(again)?;
            }
            if here.as_ref().is_some_and(|(other, _)| *other == key) {
                continue;
            }
            let Item { metadata: ItemMetadata { namespace, name, uid, labels }, whole } = item;
            let (api_version, kind, resource_version) = (first.api_version.clone(), kind.to_owned(), until.to_string());
            let whole = self.whole.is_some().then_some(whole);
            let event = Deleted { api_version, kind, namespace, name, uid, labels, resource_version, whole };
            // Waits until the client has those before it.
            tell.send(event).await.map_err(|_| DiffError::Refused)?;
            count += 1;
        }
        tracing::info!(resource = %self.client.scope.resource, count, "sent DELETED for objects that left while the API server restarted");
        Ok(until)
    }

    fn pages<'a>(&'a self, at: &ResourceVersion, accepts: Option<&'a HeaderValue>) -> Pages<'a> {
        let from = vec![("resourceVersion", at.to_string()), ("resourceVersionMatch", "Exact".to_owned())];
        let (from, page) = (Some(from), Vec::new().into_iter());
        Pages { diff: self, accepts, limit: PAGE, pause: PAUSE, from, page, last: String::new() }
    }

    async fn page(&self, query: &[(&str, String)], accepts: Option<&HeaderValue>) -> Result<List<Item>, DiffError> {
        let AsClient { budget, scope, .. } = &self.client;
        let _turn = budget.turn().await;
        let mut whole = self.query.clone();
        query.iter().for_each(|(key, value)| whole.set(key, value));
        let answer = self.client.list(scope.namespace.as_deref(), &whole, accepts).await;
        let answer = answer.ok_or(DiffError::Refused)?.map_err(|_| DiffError::NoAnswer)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::GONE => return Err(DiffError::Forgotten),
            StatusCode::TOO_MANY_REQUESTS => return Err(DiffError::NoAnswer),
            status if status.is_client_error() => return Err(DiffError::Refused),
            _ => return Err(DiffError::NoAnswer),
        }
        let body = budget.collect(answer.into_body(), MAX_PAGE).await;
        let body = body.map_err(|unread| match unread {
            Unread::TooLong(_) => DiffError::Refused,
            Unread::NoRoom(_) => DiffError::NoRoom,
            Unread::Broken(_) => DiffError::NoAnswer,
        })?;
        let list = if accepts.is_some_and(|accepts| accepts == PROTOBUF) {
            in_protobuf(&body)
        } else {
            serde_json::from_slice(&body).ok()
        };
        let mut list: List<Item> = list.ok_or(DiffError::Refused)?;
        drop(body);
        for item in list.items.iter_mut().flatten() {
            item.whole = budget.hold(std::mem::take(&mut item.whole).into()).ok_or(DiffError::NoRoom)?;
        }
        Ok(list)
    }
}
