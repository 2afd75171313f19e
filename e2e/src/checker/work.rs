//! Who is at work on what.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::{record::Uid, report::Overlap};

/// The reconciles that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// By object: the instances at work, with the time at which each began.
    open: HashMap<Uid, HashMap<String, Duration>>,
    killed: HashSet<String>,
    pub(super) overlaps: Vec<Overlap>,
    pub(super) reconciles: BTreeMap<String, usize>,
}

impl Work {
    pub(super) fn start(&mut self, at: Duration, uid: &Uid, instance: String) {
        // A report that was still on its way when its sender was killed: the sender never got the answer
        // that it waits for before it works.
        if self.killed.contains(&instance) {
            return;
        }
        let open = self.open.entry(uid.clone()).or_default();
        for (other, since) in open.iter().filter(|(other, _)| **other != instance) {
            self.overlaps.push(Overlap {
                uid: uid.clone(),
                first: (other.clone(), *since),
                second: (instance.clone(), at),
            });
        }
        open.insert(instance, at);
    }

    pub(super) fn end(&mut self, uid: &Uid, instance: &str) {
        let Some(open) = self.open.get_mut(uid) else { return };
        if open.remove(instance).is_some() {
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
            open.remove(instance);
            !open.is_empty()
        });
    }
}
