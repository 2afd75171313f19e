//! When the objects of a resource that has joined the ring are labelled: until then proxies show all of them to every shard.
//!
//! That is when each family that had something to be written, once all lists had ended, was tried once. One that is refused does not
//! keep the others waiting, and is told as such.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use ringside_ring::cluster_ring::GroupResource;
use tokio::time::Instant;

use super::ring::Ring;
use crate::{index::Slot, lock::Mutex, queue::limiter::Priority};

/// How long after nothing withholds the objects it is looked what is to be done: all have been decided again by then.
const DECIDED: Duration = Duration::from_secs(1);

/// The first passes of a ring's families, by their main resources.
#[derive(Debug, Default)]
pub(super) struct FirstPasses(Mutex<HashMap<GroupResource, Pass>>);

/// How far the first pass of a family's objects is.
#[derive(Debug)]
enum Pass {
    /// They are being decided, since then.
    Deciding(Instant),
    /// Those that have yet to be tried.
    UnderWay(HashSet<Slot>),
    Done,
}

impl Ring {
    /// Whether the objects of a resource were labelled, as far as the API server lets them be. Not while they are withheld.
    pub(super) fn is_labelled(&self, resource: &GroupResource) -> bool {
        let view = self.judge.view();
        let is_of = |family: &GroupResource| family == resource || view.spec.family(family).contains(resource);
        let mut families = view.mains.iter().filter(|main| is_of(&main.resource.id)).peekable();
        families.peek().is_some() && families.all(|main| !view.withholds(main) && self.has_passed(&main.resource.id))
    }

    fn has_passed(&self, family: &GroupResource) -> bool {
        let Some(id) = self.id(family).filter(|id| self.is_listed(*id)) else { return false };
        let under_way = self.judge.queue(id).under_way(Priority::Between);
        let mut passes = self.first_passes.0.lock();
        let pass = passes.entry(family.clone()).or_insert_with(|| Pass::Deciding(Instant::now()));
        if matches!(pass, Pass::Deciding(since) if since.elapsed() >= DECIDED) {
            *pass = Pass::UnderWay(under_way);
        } else if let Pass::UnderWay(left) = pass {
            left.retain(|slot| under_way.contains(slot));
        }
        if matches!(pass, Pass::UnderWay(left) if left.is_empty()) {
            *pass = Pass::Done;
        }
        matches!(pass, Pass::Done)
    }
}
