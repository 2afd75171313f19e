//! Decides from the audit log what is seen of a controller's work outside the ring: whether a shard wrote for an object that was
//! another's, and how often things were made for one object.
//!
//! An object outside the ring has no labels. It belongs to the object of the ring that controls it, or whose name its own begins with.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::jiff::Timestamp;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use super::{Change, Uid, Write};

/// Takes in writes in any order.
#[derive(Debug, Default)]
pub struct Outside {
    roots: HashMap<Uid, Root>,
    others: Vec<Write>,
}

/// An object of the ring: its namespace and name, and by version when an answer told its shard.
#[derive(Debug, Default)]
struct Root {
    name: String,
    shards: BTreeMap<ResourceVersion, (Timestamp, Option<String>)>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Writes of a shard for an object that it did not have.
    pub foreign: Vec<Write>,
    /// What was made more than once under one name, and was not deleted before.
    pub twice: Vec<String>,
    /// How many were made for each object, by resource.
    pub made: BTreeMap<String, BTreeMap<String, usize>>,
    /// How many writes of shards were judged.
    pub by_shards: usize,
}

impl Outside {
    /// Takes in a write, of this resource of the ring's objects or of another.
    pub fn record(&mut self, write: Write, root: &GroupResource) {
        if matches!(write.change, Change::Unanswered | Change::Barred | Change::Refused) {
            return;
        }
        if write.resource != *root {
            self.others.push(write);
        } else if let (Some(version), Some(labels)) = (write.object.version, write.object.labels) {
            let one = self.roots.entry(write.object.uid).or_default();
            one.name = write.object.name;
            one.shards.insert(version, (write.answered, labels.shard));
        }
    }

    /// What all of them come to, where these replicas are no shards.
    pub fn verdict(mut self, unsharded: &[&str]) -> Seen {
        self.others.sort_by_key(|write| write.answered);
        let (mut seen, mut there) = (Seen::default(), HashSet::new());
        for write in &self.others {
            let which = (&write.resource.resource, &write.object.name);
            if write.change == Change::Deleted {
                there.remove(&which);
            } else if write.change == Change::Created && !there.insert(which) {
                seen.twice.push(format!("{} {}", which.0, which.1));
            }
            let Some(root) = self.root(write) else { continue };
            if write.change == Change::Created {
                let made = seen.made.entry(root.name.clone()).or_default();
                *made.entry(write.resource.resource.clone()).or_default() += 1;
            }
            let Some(shard) = write.shard.as_deref().filter(|shard| !unsharded.contains(shard)) else { continue };
            seen.by_shards += 1;
            if !root.had(shard, write) {
                seen.foreign.push(write.clone());
            }
        }
        seen
    }

    fn root(&self, write: &Write) -> Option<&Root> {
        let controller = write.object.controller.as_ref().and_then(|uid| self.roots.get(uid));
        let is_its = |root: &&Root| {
            let rest = write.object.name.strip_prefix(&root.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        controller.or_else(|| self.roots.values().filter(is_its).max_by_key(|root| root.name.len()))
    }
}

impl Root {
    /// Whether a shard had it when a write arrived, or at some time until its answer.
    fn had(&self, shard: &str, write: &Write) -> bool {
        let before = self.shards.values().rfind(|(at, _)| *at <= write.received);
        let meanwhile = self.shards.values().filter(|(at, _)| (write.received..=write.answered).contains(at));
        before.into_iter().chain(meanwhile).any(|(_, of)| of.as_deref() == Some(shard))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::checker::{Labels, Object};

    fn resource(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.to_owned() }
    }

    /// As `10 a creates secrets x-tls`, with the shard that a `root` has then, or the uid that controls anything else.
    fn write(text: &str) -> Write {
        let words: Vec<_> = text.split(' ').collect();
        let at = Timestamp::from_second(words[0].parse().unwrap()).unwrap();
        let last = words.get(5).map(|last| (*last).to_owned());
        let is_root = words[3] == "roots";
        Write {
            id: String::new(),
            received: at,
            answered: at + k8s_openapi::jiff::SignedDuration::from_secs(2),
            shard: Some(words[1].to_owned()).filter(|who| who != "sharder"),
            by_sharder: words[1] == "sharder",
            change: match words[2] {
                "creates" => Change::Created,
                "deletes" => Change::Deleted,
                _ => Change::Updated,
            },
            resource: resource(words[3]),
            object: Object {
                uid: format!("uid-{}", words[4]),
                name: format!("ns/{}", words[4]),
                version: words[0].parse().ok(),
                labels: Some(Labels { shard: last.clone().filter(|_| is_root), drain: None }),
                controller: last.filter(|_| !is_root),
                ..Object::default()
            },
        }
    }

    fn judged(text: &str) -> Seen {
        let mut outside = Outside::default();
        let moved = "0 sharder creates roots x a, 0 sharder creates roots x-y a, 50 sharder updates roots x b";
        for line in moved.split(", ").chain(text.split(", ")) {
            outside.record(write(line), &resource("roots"));
        }
        outside.verdict(&["solo"])
    }

    #[test]
    fn a_write_for_what_another_has_is_foreign() {
        for (text, foreign) in [
            ("10 a creates secrets x-tls", 0),
            ("10 b creates secrets x-tls", 1),
            ("60 b updates secrets x-tls", 0),
            ("60 a updates secrets x-tls", 1),
            // Under way as it moved.
            ("51 a updates secrets x-tls", 0),
            ("51 b updates secrets x-tls", 0),
            ("60 solo updates secrets x-tls", 0),
            // By its name it is of the one that did not move, by its controller of the other.
            ("60 a updates secrets x-y-tls", 0),
            ("60 a updates secrets x-y-tls uid-x", 1),
        ] {
            assert_eq!(judged(text).foreign.len(), foreign, "{text}");
        }
    }

    #[test]
    fn what_is_made_is_counted_by_its_object_and_twice_is_told() {
        let seen =
            judged("10 a creates secrets x-tls, 11 a creates secrets x-q uid-x, 60 b creates requests x-1 uid-x");
        assert_eq!(seen.made["ns/x"], [("requests".to_owned(), 1), ("secrets".to_owned(), 2)].into());
        assert_eq!((seen.twice.len(), seen.by_shards), (0, 3));
        for (then, twice) in [("30 a updates", 1), ("30 sharder deletes", 0)] {
            let text = format!("10 a creates secrets x-tls, {then} secrets x-tls, 60 b creates secrets x-tls");
            assert_eq!(judged(&text).twice.len(), twice, "{text}");
        }
    }
}
