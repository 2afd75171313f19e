//! kopf's peering objects (`KopfPeering`, `ClusterKopfPeering`): in the `status` of one the operators of a kind say
//! that they are there, each under an identity of its own, and an operator that sees another of the same or of a higher
//! priority pauses.
//!
//! All shards have to work, so what a shard's controller says of itself stays here. It sees that, and what others say
//! on the real object: a replica without the sidecar, or a user with `kopf freeze`; for these it pauses as it always
//! did. The others see one peer for all shards, `ringside-<ring>` ([`presence`]), and pause for it. So shards and a
//! replica without the sidecar never work side by side (DESIGN, "Leader election, answered locally").

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use parking_lot::Mutex;
use ringside_ring::RingName;
use serde_json::{Map, Value};
use tokio::{sync::watch, time::Instant};

use crate::request::Resource;

pub mod presence;
#[cfg(test)]
mod tests;

pub use presence::RingPeer;

/// The groups of the peering objects: kopf's, and that of its beginnings.
const GROUPS: [&str; 2] = ["kopf.dev", "zalando.org"];
const PLURALS: [&str; 2] = ["kopfpeerings", "clusterkopfpeerings"];
/// How many objects and identities are kept here: a controller has one of each, or a few. More are left to the API server.
const MAX_REMEMBERED: usize = 32;
/// What kopf says of a peer that does not say it itself.
const LIFETIME: Duration = Duration::from_secs(60);
/// Where operators say that they are there.
const STATUS: &str = "status";

/// A peering object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeeringObject {
    /// The resource, with its version; no name of an object, and no subresource.
    resource: Collection,
    /// Its namespace, unless it is the cluster's.
    namespace: Option<String>,
    name: String,
}

impl PeeringObject {
    /// The path of the object.
    pub(crate) fn path(&self) -> String {
        let Collection { group, version, plural } = &self.resource;
        let within = self.namespace.as_ref().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        format!("/apis/{group}/{version}/{within}{plural}/{}", self.name)
    }
}

/// The resource of peering objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection {
    group: String,
    version: String,
    plural: String,
}

impl Collection {
    /// What a request is about, if that is peering objects as a whole, or their `status`.
    pub fn of(resource: &Resource) -> Option<Self> {
        let of_peerings = GROUPS.contains(&&*resource.kind.group) && PLURALS.contains(&&*resource.kind.resource);
        let whole = resource.subresource.as_deref().is_none_or(|part| part == STATUS);
        (of_peerings && whole).then(|| Self {
            group: resource.kind.group.clone(),
            version: resource.version.clone(),
            plural: resource.kind.resource.clone(),
        })
    }

    /// One of them.
    pub fn place(&self, namespace: Option<String>, name: String) -> PeeringObject {
        PeeringObject { resource: self.clone(), namespace, name }
    }

    /// The place of an object in an answer.
    pub(crate) fn place_of(&self, object: &Value) -> Option<PeeringObject> {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().map(str::to_owned);
        Some(self.place(namespace, metadata["name"].as_str()?.to_owned()))
    }
}

/// What the controller says of itself at one place.
#[derive(Clone, Debug)]
struct Own {
    peer: Value,
    until: Instant,
}

/// What shards have to say for the ring at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub(crate) priority: i64,
    pub(crate) lifetime: Duration,
}

/// What the controller says of itself, at all places.
#[derive(Debug)]
pub struct Peerings {
    /// The identity under which the ring appears among kopf peers.
    ring: String,
    own: Mutex<HashMap<PeeringObject, BTreeMap<String, Own>>>,
    changes: watch::Sender<()>,
}

/// There are more than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

impl Peerings {
    /// Of a ring's shard; nothing is said yet.
    pub fn new(ring: &RingName) -> Self {
        Self { ring: format!("ringside-{ring}"), own: Mutex::default(), changes: watch::Sender::default() }
    }

    /// The identity under which the ring appears among kopf peers.
    pub(crate) fn ring(&self) -> &str {
        &self.ring
    }

    /// Tells when the controller has said something.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// What a merge patch of the `status` says for the controller itself, as the ring has to say it; none if nothing.
    pub(crate) fn said(status: &Map<String, Value>) -> Option<Peer> {
        let peers = status.values().filter(|peer| peer.is_object());
        peers.map(peer).max_by_key(|peer| peer.priority)
    }

    /// Takes up what a merge patch of the `status` says; returns what is left for the API server: others that are to go.
    ///
    /// # Errors
    /// When more would be kept than is.
    pub(crate) fn say(&self, place: &PeeringObject, status: Map<String, Value>) -> Result<Map<String, Value>, TooMany> {
        let mut left = Map::new();
        {
            let mut own = self.own.lock();
            let now = Instant::now();
            own.values_mut().for_each(|peers| peers.retain(|_, peer| peer.until > now));
            own.retain(|_, peers| !peers.is_empty());
            let news = status.values().any(Value::is_object);
            let full = own.len() >= MAX_REMEMBERED && !own.contains_key(place);
            let many = own.get(place).map_or(0, BTreeMap::len) + status.len() > MAX_REMEMBERED;
            if news && (full || many) {
                return Err(TooMany);
            }
            for (identity, said) in status {
                if said.is_object() {
                    let until = now + peer(&said).lifetime;
                    own.entry(place.clone()).or_default().insert(identity, Own { peer: said, until });
                } else if own.get_mut(place).and_then(|peers| peers.remove(&identity)).is_none() {
                    left.insert(identity, said);
                }
            }
        }
        self.changes.send_replace(());
        Ok(left)
    }

    /// Makes of a real object what this shard's controller sees.
    pub(crate) fn show(&self, place: &PeeringObject, object: &mut Value) {
        let own = self.own.lock().get(place).cloned().unwrap_or_default();
        let Some(object) = object.as_object_mut() else { return };
        if own.is_empty() && !object.contains_key(STATUS) {
            return;
        }
        let status = object.entry(STATUS).or_insert_with(|| Map::new().into());
        let Some(status) = status.as_object_mut() else { return };
        status.remove(&self.ring);
        let now = Instant::now();
        let live = own.into_iter().filter(|(_, peer)| peer.until > now);
        status.extend(live.map(|(identity, own)| (identity, own.peer)));
    }

    /// Shows the peers so on one object or a list of them.
    pub(crate) fn show_all(&self, of: &Collection, answer: &mut Value) {
        if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
            for item in items {
                self.show_one(of, item);
            }
        } else {
            self.show_one(of, answer);
        }
    }

    fn show_one(&self, of: &Collection, object: &mut Value) {
        if let Some(place) = of.place_of(object) {
            self.show(&place, object);
        }
    }
}

fn peer(said: &Value) -> Peer {
    let lifetime = said["lifetime"].as_u64().map_or(LIFETIME, Duration::from_secs);
    Peer { priority: said["priority"].as_i64().unwrap_or_default(), lifetime: lifetime.min(Duration::from_hours(1)) }
}
