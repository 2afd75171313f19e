//! What the API server refuses while a ring's objects are distributed, for the ring's status.
//!
//! A ring whose permissions are missing is not ready, although its webhook was configured. What passes by itself, such
//! as an API server that restarts, is only logged.

use std::{collections::BTreeMap, fmt};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::{code, explain};
use tokio::sync::watch;

use crate::{assign::write::is_undone, snapshot::Snapshot};

/// A part of the work on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// The watch on objects without owner.
    Watch,
    /// Giving those an owner, children first.
    Assign,
    /// The pass over all objects.
    Drain,
    /// The pass over all children.
    Children,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Watch => "can't be watched",
            Self::Assign => "can't be assigned",
            Self::Drain => "can't be drained",
            Self::Children => "can't take their children along",
        })
    }
}

type Refused = BTreeMap<(GroupResource, Task), String>;

/// The last refusal of each task of one ring; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(watch::Sender<Refused>);

impl Faults {
    /// The task failed.
    pub(crate) fn failed(&self, resource: &GroupResource, task: Task, error: &kube::Error) {
        if !lasts(error) {
            return;
        }
        let fault = explain(error);
        self.0.send_if_modified(|refused| {
            refused.insert((resource.clone(), task), fault.clone()).as_ref() != Some(&fault)
        });
    }

    /// The task does what it should.
    pub(crate) fn works(&self, resource: &GroupResource, task: Task) {
        self.0.send_if_modified(|refused| refused.remove(&(resource.clone(), task)).is_some());
    }

    /// There is nothing to do.
    pub(crate) fn clear(&self) {
        self.0.send_if_modified(|refused| !std::mem::take(refused).is_empty());
    }

    /// Tells when they change.
    pub(crate) fn changes(&self) -> watch::Receiver<Refused> {
        self.0.subscribe()
    }

    /// As sentences; those of resources that the ring no longer has don't count.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> Vec<String> {
        let refused = self.0.borrow();
        let ours = refused.iter().filter(|((resource, _), _)| snapshot.main(resource).is_some());
        ours.map(|((resource, task), fault)| format!("objects of '{resource}' {task}: {fault}")).collect()
    }
}

/// Whether it will be the same next time, until somebody does something about it.
pub(crate) fn lasts(error: &kube::Error) -> bool {
    is_undone(error) || matches!(code(error), Some(401 | 403 | 404 | 405))
}

/// Of two errors the one that somebody must do something about, or else the first: what passes by itself does not hide it.
pub(crate) fn graver(one: Option<kube::Error>, other: Option<kube::Error>) -> Option<kube::Error> {
    match (one, other) {
        (Some(one), Some(other)) if lasts(&other) && !lasts(&one) => Some(other),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::Status;

    use super::*;
    use crate::snapshot::tests::snapshot;

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed())
    }

    #[test]
    fn what_passes_by_itself_hides_nothing_that_somebody_must_mend() {
        let graver = |codes: [u16; 2]| code(&graver(Some(error(codes[0])), Some(error(codes[1]))).unwrap()).unwrap();
        assert_eq!([[500, 403], [403, 500], [403, 404], [500, 503]].map(graver), [403, 403, 403, 500]);
        assert_eq!(code(&super::graver(None, Some(error(500))).unwrap()), Some(500));
    }

    #[test]
    fn what_is_refused_is_told_until_it_works() {
        let (faults, snapshot) = (Faults::default(), snapshot());
        let main = &snapshot.mains[0].resource.id;
        let gone = GroupResource { group: "x.y".into(), resource: "things".into() };
        let mut changes = faults.changes();
        for code in [409, 410, 422, 429, 500, 503] {
            faults.failed(main, Task::Assign, &error(code));
        }
        assert_eq!(
            (faults.of(&snapshot), changes.has_changed().ok()),
            (vec![], Some(false)),
            "they pass by themselves"
        );
        faults.failed(main, Task::Watch, &error(403));
        faults.failed(&gone, Task::Watch, &error(403));
        assert_eq!(faults.of(&snapshot), ["objects of 'configmaps' can't be watched: missing permission: no"]);
        changes.borrow_and_update();
        faults.failed(main, Task::Watch, &error(403));
        faults.works(main, Task::Assign);
        assert_eq!(changes.has_changed().ok(), Some(false));
        faults.works(main, Task::Watch);
        assert_eq!((faults.of(&snapshot), changes.has_changed().ok()), (vec![], Some(true)));
    }
}
