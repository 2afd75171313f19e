//! Passes over all objects: those that belong elsewhere are drained, and children that strayed are brought back.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use futures::{StreamExt, stream};
use ringside_ring::cluster_ring::GroupResource;
use tokio::sync::watch;

mod children;
mod looks;
mod objects;

pub(crate) use looks::{Looks, look_again};
pub(crate) use objects::move_id;

use crate::{
    assign::{Scope, failures::Failures},
    faults::Task,
};
use ringside_runtime::explain::{code, explain};

/// How soon a pass that failed is made again.
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
pub(crate) struct Due(watch::Sender<BTreeSet<(GroupResource, Pass)>>);

impl Due {
    /// These passes are due for these resources.
    pub(crate) fn mark(&self, resources: impl IntoIterator<Item = GroupResource>, passes: &[Pass]) {
        self.0.send_modify(|due| {
            for resource in resources {
                due.extend(passes.iter().map(|pass| (resource.clone(), *pass)));
            }
        });
    }

    /// What is due for a resource.
    #[cfg(test)]
    pub(crate) fn of(&self, resource: &GroupResource) -> Vec<Pass> {
        self.0.borrow().iter().filter(|(of, _)| of == resource).map(|(_, pass)| *pass).collect()
    }

    /// Whether nothing is due for any resource.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    fn done(&self, resource: &GroupResource, pass: Pass) {
        self.0.send_modify(|due| {
            due.remove(&(resource.clone(), pass));
        });
    }

    /// The pass that is due next; objects before children, which follow them.
    async fn next(&self, resource: &GroupResource) -> Pass {
        let mut due = self.0.subscribe();
        loop {
            let found = due.borrow_and_update().iter().find(|(of, _)| of == resource).map(|(_, pass)| *pass);
            if let Some(pass) = found {
                return pass;
            }
            // The sender is `self`.
            let _ = due.changed().await;
        }
    }
}

/// Makes the passes over one resource whenever they are due.
pub(crate) async fn passes(scope: &Scope, due: &Due) -> Infallible {
    let resource = &scope.main.resource.id;
    let mut made = BTreeSet::new();
    loop {
        let pass = due.next(resource).await;
        let (task, outcome) = match pass {
            Pass::Objects => (Task::Drain, objects::pass(scope).await),
            Pass::Children => (Task::Children, children::pass(scope).await),
        };
        match outcome {
            Ok(refused) => {
                due.done(resource, pass);
                made.insert(pass);
                if made.len() == BOTH {
                    scope.begun.know(resource);
                }
                match refused {
                    Some(error) => scope.faults.failed(resource, task, &error),
                    None => scope.faults.works(resource, task),
                }
            }
            Err(error) => {
                scope.faults.failed(resource, task, &error);
                let (ring, error) = (&scope.snapshot.ring, explain(&error));
                tracing::warn!(%ring, %resource, ?pass, error, "can't look through all objects; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Carries out the writes for a page of objects, some of them at once; returns how many of them changed something, and the first refusal.
///
/// One that the API server refuses stays as it is until the next pass: it must not hold up the others.
async fn write_all(
    scope: &Scope,
    resource: &GroupResource,
    writes: impl Iterator<Item = impl Future<Output = Result<bool, kube::Error>>>,
    at_once: usize,
    what: &'static str,
) -> Result<(usize, Option<kube::Error>), kube::Error> {
    let mut outcomes = std::pin::pin!(stream::iter(writes).buffer_unordered(at_once));
    let (mut written, mut failures) = (0, Failures::default());
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(done) => written += usize::from(done),
            Err(error) if code(&error).is_some() => failures.add(error),
            Err(error) => return Err(error),
        }
    }
    Ok((written, failures.tell(&scope.snapshot.ring, resource, what)))
}

#[cfg(test)]
mod tests;
