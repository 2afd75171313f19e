//! What objects' moves were made of, as the API server wrote it down.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use ringside_e2e::audit::{Request, Requests};

use super::objects::{is_ours, root_of};

/// Whom the API server takes the bench for, and its shards.
const ADMIN: &str = "admin";
const OBJECTS: [&str; 2] = ["secrets", "configmaps"];
const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];

/// The requests of the sharder, and of the shards.
pub(super) struct Log {
    sharder: Requests,
    shards: Requests,
}

impl Log {
    pub(super) fn of(path: PathBuf, sharder: &str) -> Self {
        Self { sharder: Requests::of(path.clone(), sharder), shards: Requests::of(path, ADMIN) }
    }

    /// What was asked since the last time.
    pub(super) fn since(&mut self) -> anyhow::Result<Seen> {
        Ok(Seen { sharder: self.sharder.since()?, shards: self.shards.since()? })
    }
}

/// What was asked in a phase.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) sharder: Vec<Request>,
    shards: Vec<Request>,
}

impl Seen {
    pub(super) fn extend(&mut self, more: Self) {
        self.sharder.extend(more.sharder);
        self.shards.extend(more.shards);
    }

    /// Whether anything was written to the ring's objects.
    pub(super) fn writes(&self) -> bool {
        self.object_writes().next().is_some()
    }

    /// All that was written to the ring's objects, with whether the sharder did.
    fn object_writes(&self) -> impl Iterator<Item = (&Request, bool)> {
        let all = self.sharder.iter().map(|one| (one, true)).chain(self.shards.iter().map(|one| (one, false)));
        // The bench creates the objects, and writes to them before there is a sharder.
        all.filter(|(one, _)| is_write(one) && one.verb != "create" && is_object(one))
    }
}

fn is_write(request: &Request) -> bool {
    WRITES.contains(&&*request.verb)
}

fn is_object(request: &Request) -> bool {
    OBJECTS.contains(&&*request.resource) && is_ours(&request.name)
}

fn since(from: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(from)).unwrap_or_default()
}

/// The moves of a phase.
#[derive(Debug, Default)]
pub struct Moves {
    /// Main objects that got another owner.
    pub count: usize,
    /// Writes to objects and children, the refused ones too, of the sharder and of the shards.
    pub writes: usize,
    /// Those of them that were answered with an error.
    pub refused: usize,
    /// Lists of the sharder of the ring's resources.
    pub lists: usize,
    /// Its reads of single objects.
    pub gets: usize,
    /// Its writes to the shards' Leases.
    pub lease_writes: usize,
    /// From the drain to the next owner, in order, where there was a drain.
    pub drained: Vec<Duration>,
    /// How long a child was on another shard than its owner, at most.
    pub apart: Duration,
    /// Until the last main object had its owner.
    pub last_root: Duration,
    /// Until the last child had, or the last main object where there are none.
    pub last_child: Duration,
}

impl Moves {
    /// Reads them from a phase that began at `began`, in which the objects in `moved` got another owner. Returns the time of
    /// the last write, too.
    pub(super) fn of(seen: &Seen, moved: &BTreeSet<String>, began: Timestamp) -> (Self, Timestamp) {
        let mut found = Self { count: moved.len(), ..Self::default() };
        let (mut roots, mut children) = (BTreeMap::<&str, Vec<(Timestamp, bool)>>::new(), BTreeMap::new());
        for (write, by_sharder) in seen.object_writes() {
            found.writes += 1;
            if write.code >= 300 {
                found.refused += 1;
            } else if moved.contains(&write.name) {
                roots.entry(&write.name).or_default().push((write.answered, by_sharder));
            } else if root_of(&write.name).is_some_and(|root| moved.contains(&root)) {
                let last = children.entry(&*write.name).or_insert(write.answered);
                *last = write.answered.max(*last);
            }
        }
        let mut owned = BTreeMap::new();
        for (name, mut writes) in roots {
            writes.sort_unstable();
            let (Some((first, _)), Some((last, _))) = (writes.first(), writes.last()) else { continue };
            owned.insert(name.to_owned(), *last);
            // What a shard acknowledges, the sharder has drained. Its webhook may name the next owner in the same write.
            if writes.iter().any(|(_, by_sharder)| !by_sharder) {
                found.drained.push(since(*first, *last));
            }
        }
        found.drained.sort_unstable();
        let last_root = owned.values().max().copied().unwrap_or(began);
        let last_child = children.values().max().copied().unwrap_or(last_root);
        (found.last_root, found.last_child) = (since(began, last_root), since(began, last_child));
        for (child, at) in &children {
            let Some(root) = root_of(child).and_then(|root| owned.get(&root)) else { continue };
            found.apart = found.apart.max(since(*root, *at)).max(since(*at, *root));
        }
        let counted = |verb: &'static str| seen.sharder.iter().filter(move |one| one.verb == verb);
        found.lists = counted("list").filter(|one| OBJECTS.contains(&&*one.resource)).count();
        found.gets = counted("get").filter(|one| is_object(one)).count();
        let on_leases = |one: &&Request| is_write(one) && one.resource == "leases" && one.name.starts_with("shard-");
        found.lease_writes = seen.sharder.iter().filter(on_leases).count();
        (found, last_root.max(last_child))
    }

    /// So many a move, of something that was counted.
    pub fn each(&self, counted: usize) -> f64 {
        counted as f64 / self.count.max(1) as f64
    }

    /// Moves a second, until the last child had its owner.
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.took().as_secs_f64().max(1e-3)
    }

    /// Until all of it was done.
    pub fn took(&self) -> Duration {
        self.last_root.max(self.last_child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).unwrap_or_default()
    }

    fn request(verb: &str, resource: &str, name: &str, answered: i64, code: u16) -> Request {
        Request {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            uri: String::new(),
            agent: String::new(),
            pod: None,
            received: at(answered),
            answered: at(answered),
            code,
        }
    }

    #[test]
    fn a_move_with_its_child_is_read_from_the_log() {
        let sharder = vec![
            request("patch", "secrets", "root-000001", 1_000, 200),
            request("list", "configmaps", "", 1_025, 200),
            request("patch", "configmaps", "child-000001-0", 1_030, 422),
            request("patch", "configmaps", "child-000001-0", 1_040, 200),
            request("patch", "secrets", "root-000001", 1_050, 200),
            request("patch", "leases", "shard-3", 1_060, 200),
            request("patch", "leases", "ringside-sharder", 1_060, 200),
            request("patch", "secrets", "root-000002", 1_070, 200),
        ];
        let shards = vec![
            request("create", "secrets", "root-000001", 1, 201),
            request("patch", "secrets", "root-000001", 1_020, 200),
        ];
        let seen = Seen { sharder, shards };
        let (moves, last) = Moves::of(&seen, &BTreeSet::from(["root-000001".to_owned()]), at(500));
        assert_eq!((moves.count, moves.writes, moves.refused), (1, 6, 1));
        assert_eq!((moves.lists, moves.gets, moves.lease_writes), (1, 0, 1));
        assert_eq!(moves.drained, [Duration::from_millis(50)]);
        assert_eq!(moves.apart, Duration::from_millis(10));
        assert_eq!((moves.last_root, moves.last_child), (Duration::from_millis(550), Duration::from_millis(540)));
        assert_eq!((last, moves.took()), (at(1_050), Duration::from_millis(550)));
    }
}
