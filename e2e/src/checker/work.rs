//! Who is at work on what.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{record::Uid, report::Overlap};

/// The reconciles that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// By object: who is at work, with the time at which each began.
    open: HashMap<Uid, HashMap<Worker, Duration>>,
    killed: HashSet<String>,
    pub(super) overlaps: Vec<Overlap>,
    pub(super) reconciles: BTreeMap<String, usize>,
}

/// An instance that reconciles, or that does what belongs to no generation, as timers do, beside its reconciles.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    instance: String,
    reconciles: bool,
}

impl Work {
    pub(super) fn start(&mut self, at: Duration, uid: &Uid, instance: String, generation: i64) {
        // A report that was still on its way when its sender was killed: the sender never got the answer
        // that it waits for before it works.
        if self.killed.contains(&instance) {
            return;
        }
        let open = self.open.entry(uid.clone()).or_default();
        for (other, since) in open.iter().filter(|(other, _)| other.instance != instance) {
            self.overlaps.push(Overlap {
                uid: uid.clone(),
                first: (other.instance.clone(), *since),
                second: (instance.clone(), at),
            });
        }
        open.insert(Worker { instance, reconciles: generation > 0 }, at);
    }

    pub(super) fn end(&mut self, uid: &Uid, instance: &str, generation: i64) {
        let Some(open) = self.open.get_mut(uid) else { return };
        let worker = Worker { instance: instance.to_owned(), reconciles: generation > 0 };
        if open.remove(&worker).is_some() && worker.reconciles {
            *self.reconciles.entry(instance.to_owned()).or_default() += 1;
        }
        if open.is_empty() {
            self.open.remove(uid);
        }
    }

    pub(super) fn objects(&self) -> usize {
        self.open.len()
    }

    pub(super) fn kill(&mut self, instance: &str) {
        self.killed.insert(instance.to_owned());
        self.open.retain(|_, open| {
            open.retain(|worker, _| worker.instance != instance);
            !open.is_empty()
        });
    }
}
