//! Passes over all objects: those that belong elsewhere are drained, and children that strayed are brought back.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ringside_ring::cluster_ring::GroupResource;
use tokio::sync::watch;

mod children;
mod looks;
mod objects;
mod recount;
mod unlabelled;
mod vacant;

pub(crate) use looks::{Looks, look_again};
pub(crate) use recount::recount;
pub(crate) use unlabelled::look_for_unlabelled;

use crate::{
    assign::Scope,
    faults::{Task, lasts},
    pauses::Pauses,
    survey::Way,
};
use ringside_runtime::explain::{code, explain};

/// How soon a look that failed is made again.
const RETRY: Duration = Duration::from_secs(5);

/// How many passes there are.
const BOTH: usize = 2;

/// What a pass goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pass {
    /// All objects of a main resource.
    Objects,
    /// All objects of the resources that it controls: they are not watched, as that would
    /// stream every unrelated Secret or Pod.
    Children,
}

/// Which passes are due. It outlives the work on a snapshot: a pass that is broken off stays due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Due {
    /// With how often each has been marked since it was done.
    passes: watch::Sender<BTreeMap<(GroupResource, Pass), u64>>,
    held_back: Arc<AtomicBool>,
}

impl Due {
    /// These passes are due for these resources.
    pub(crate) fn mark(&self, resources: impl IntoIterator<Item = GroupResource>, passes: &[Pass]) {
        self.passes.send_modify(|due| {
            for resource in resources {
                for pass in passes {
                    *due.entry((resource.clone(), *pass)).or_default() += 1;
                }
            }
        });
    }

    /// Forgets what is due for all other resources: nobody would ever do it.
    pub(crate) fn keep_only(&self, resources: &BTreeSet<&GroupResource>) {
        self.passes.send_modify(|due| due.retain(|(resource, _), _| resources.contains(resource)));
    }

    /// What is due for a resource.
    #[cfg(test)]
    pub(crate) fn of(&self, resource: &GroupResource) -> Vec<Pass> {
        self.passes.borrow().keys().filter(|(of, _)| of == resource).map(|(_, pass)| *pass).collect()
    }

    /// Whether nothing is due for any of these resources.
    pub(crate) fn is_done<'a>(&self, mut resources: impl Iterator<Item = &'a GroupResource>) -> bool {
        let due = self.passes.borrow();
        resources.all(|resource| !due.keys().any(|(of, _)| of == resource))
    }

    /// An object stays where it is until it is known whether the shard that it belongs to is gone.
    fn hold_back(&self) {
        self.held_back.store(true, Ordering::Relaxed);
    }

    /// Whether that was so of any object since this was asked.
    pub(crate) fn take_held_back(&self) -> bool {
        self.held_back.swap(false, Ordering::Relaxed)
    }

    /// A pass is done that had been marked so often when it began. It stays due if it was marked meanwhile: it may have gone
    /// by already what that was for.
    fn done(&self, resource: &GroupResource, (pass, marked): (Pass, u64)) {
        self.passes.send_modify(|due| {
            let key = (resource.clone(), pass);
            if due.get(&key) == Some(&marked) {
                due.remove(&key);
            }
        });
    }

    /// The pass that is due next, and how often it has been marked; objects before children, which follow them.
    async fn next(&self, resource: &GroupResource) -> (Pass, u64) {
        let mut due = self.passes.subscribe();
        loop {
            let of_resource =
                |((of, pass), marked): (&(GroupResource, Pass), &u64)| (of == resource).then_some((*pass, *marked));
            let found = due.borrow_and_update().iter().find_map(of_resource);
            if let Some(found) = found {
                return found;
            }
            // The sender is `self`.
            let _ = due.changed().await;
        }
    }
}

/// Makes the passes over one resource whenever they are due.
pub(crate) async fn passes(scope: &Scope) -> Infallible {
    let (resource, is_vacant) = (&scope.main.resource.id, scope.snapshot.is_vacant());
    let (mut made, mut way, mut pauses) = (BTreeSet::new(), Way::Stream, Pauses::new());
    loop {
        let (pass, marked) = scope.due.next(resource).await;
        let (task, outcome) = match pass {
            Pass::Objects if is_vacant => (Task::Drain, vacant::pass(scope).await),
            Pass::Objects => (Task::Drain, objects::pass(scope, way).await),
            Pass::Children => (Task::Children, children::pass(scope, way).await),
        };
        match outcome {
            Ok(refused) => {
                (way, pauses) = (Way::Stream, Pauses::new());
                scope.due.done(resource, (pass, marked));
                made.insert(pass);
                // Without shards nobody is looked for by whom the children could be.
                if made.len() == BOTH && !is_vacant {
                    scope.begun.know(resource);
                }
                match refused {
                    // The same objects are looked at minutes later: what is refused by then is told.
                    Some(error) if lasts(&error) || is_final(&error) => scope.faults.refused(resource, task, &error),
                    // Everything was looked at: what was refused before is not any more.
                    _ => scope.faults.works(resource, task),
                }
            }
            Err(error) if way == Way::Stream => {
                tracing::debug!(ring = %scope.snapshot.ring, %resource, ?pass, error = explain(&error), "a stream of all objects broke; asking for pages");
                way = Way::Pages;
            }
            Err(error) => {
                scope.faults.failed(resource, task, &error);
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, ?pass, error, "object scan failed; trying again");
                way = Way::Stream;
                pauses.next().await;
            }
        }
    }
}

/// Whether an object is refused as it is: what may pass was tried again in the pass.
fn is_final(error: &kube::Error) -> bool {
    matches!(code(error), Some(400 | 413 | 422))
}

#[cfg(test)]
mod tests;
