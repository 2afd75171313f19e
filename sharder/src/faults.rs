//! What the API server refuses while a ring's objects are distributed, for the ring's status.
//!
//! A ring whose permissions are missing is not ready, although its webhook was configured. What passes by itself, such
//! as an API server that restarts, is only logged. What is refused of single objects is told when it has lasted.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain;
use tokio::{sync::watch, time::Instant};

mod refusals;

pub(crate) use refusals::{Refusals, RefusedObjects};

use crate::{
    api_error::lasts,
    doing::RefusedNow,
    lock::{Mutex, rank},
    snapshot::Snapshot,
};

/// How soon sentences are others, while there are any: each change is a write of the status.
const SENTENCES: Duration = Duration::from_secs(10);

/// A part of the work on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Giving objects a shard, children first.
    Assign,
    /// Asking shards to release objects.
    Drain,
    /// Labels on what follows none of them.
    Children,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Assign => "can't be assigned",
            Self::Drain => "can't be drained",
            Self::Children => "can't take their children along",
        })
    }
}

/// Why a task is refused, and since when it is told so.
type Refused = BTreeMap<(GroupResource, Task), (String, Instant)>;

/// What is refused of one ring; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// A refusal of each task, of which each object may have its own words: another one is told after a while.
    tasks: watch::Sender<Refused>,
    /// What can't be listed or watched, by the main resource that it belongs to and its own name.
    unwatched: Arc<Mutex<BTreeMap<(GroupResource, GroupResource), Unwatched>>>,
    objects: Arc<Mutex<Objects, { rank::FAULTS }>>,
}

/// Why a resource can't be listed or watched.
struct Unwatched {
    why: String,
    /// When this was said first.
    said: Instant,
    since: Instant,
    /// Whether it will not pass by itself.
    lasts: bool,
}

/// The objects that are refused.
#[derive(Default)]
struct Objects {
    of: BTreeMap<GroupResource, Refusals>,
    /// A sentence for each resource, and when it was made.
    told: BTreeMap<GroupResource, String>,
    at: Option<Instant>,
}

impl Faults {
    /// The task was refused for good.
    pub(crate) fn refused(&self, resource: &GroupResource, task: Task, error: &kube::Error) {
        self.tasks.send_if_modified(|refused| {
            let (key, fault) = ((resource.clone(), task), explain(error));
            let stands = refused.get(&key).is_some_and(|(told, at)| *told == fault || at.elapsed() < SENTENCES);
            if !stands {
                refused.insert(key, (fault, Instant::now()));
            }
            !stands
        });
    }

    /// The task does what it should.
    pub(crate) fn works(&self, resource: &GroupResource, task: Task) {
        self.tasks.send_if_modified(|refused| refused.remove(&(resource.clone(), task)).is_some());
    }

    /// A resource of this family can't be listed or watched: told at once if that lasts, and after [`refusals::LASTS`] in any case.
    pub(crate) fn unwatched(&self, (family, resource): (&GroupResource, &GroupResource), error: &kube::Error) {
        let now = Instant::now();
        {
            let all = &mut *self.unwatched.lock();
            let new = || Unwatched { why: explain(error), said: now, since: now, lasts: false };
            let known = all.entry((family.clone(), resource.clone())).or_insert_with(new);
            // What makes it be told is what is told.
            let begins_to_last = lasts(error) && !known.lasts;
            if begins_to_last || now - known.said >= SENTENCES {
                (known.why, known.said) = (explain(error), now);
            }
            known.lasts = lasts(error);
        }
        self.tasks.send_modify(|_| {});
    }

    /// It is watched.
    pub(crate) fn watched(&self, (family, resource): (&GroupResource, &GroupResource)) {
        if self.unwatched.lock().remove(&(family.clone(), resource.clone())).is_some() {
            self.tasks.send_modify(|_| {});
        }
    }

    fn of_watches(&self, snapshot: &Snapshot) -> Vec<String> {
        let unwatched = self.unwatched.lock();
        let told = unwatched.iter().filter(|((family, _), it)| {
            snapshot.main(family).is_some() && (it.lasts || it.since.elapsed() >= refusals::LASTS)
        });
        let sentence =
            |((family, resource), it): (&(GroupResource, GroupResource), &Unwatched)| match family == resource {
                true => format!("objects of '{resource}' can't be watched: {}", it.why),
                false => {
                    format!("objects of '{resource}', which those of '{family}' control, can't be watched: {}", it.why)
                }
            };
        told.map(sentence).collect()
    }

    /// There is nothing to do.
    pub(crate) fn clear(&self) {
        self.unwatched.lock().clear();
        self.objects.lock().of.clear();
        self.tasks.send_if_modified(|refused| !std::mem::take(refused).is_empty());
    }

    /// These objects of the resource could not be written to.
    pub(crate) fn follow(&self, resource: &GroupResource, objects: &Refusals) {
        self.objects.lock().of.insert(resource.clone(), objects.clone());
    }

    /// Tells when those of tasks change.
    pub(crate) fn changes(&self) -> watch::Receiver<Refused> {
        self.tasks.subscribe()
    }

    /// As sentences; those of resources that the ring no longer has don't count.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> Vec<String> {
        let objects = self.of_objects(snapshot);
        let refused = self.tasks.borrow();
        let ours = refused.iter().filter(|((resource, _), _)| snapshot.main(resource).is_some());
        // Told with more of it below.
        let of_objects = |task: Task| matches!(task, Task::Assign | Task::Drain);
        let ours = ours.filter(|((resource, task), _)| !of_objects(*task) || !objects.contains_key(resource));
        let ours = ours.map(|((resource, task), (fault, _))| format!("objects of '{resource}' {task}: {fault}"));
        self.of_watches(snapshot).into_iter().chain(ours).chain(objects.values().cloned()).collect()
    }

    /// The objects that are refused, by resource.
    pub(crate) fn refused_now(&self) -> BTreeMap<String, RefusedNow> {
        let objects = self.objects.lock();
        let refused = objects.of.iter().filter_map(|(resource, refusals)| {
            let RefusedObjects { count, first, why } = refusals.refused()?;
            Some((resource.to_string(), RefusedNow { objects: count, first: first.place(), why }))
        });
        refused.collect()
    }

    fn of_objects(&self, snapshot: &Snapshot) -> BTreeMap<GroupResource, String> {
        let Objects { of, told, at } = &mut *self.objects.lock();
        if told.is_empty() || at.is_none_or(|at| at.elapsed() >= SENTENCES) {
            // Without shards none is tried.
            let tried = of.iter().filter(|(resource, _)| !snapshot.is_vacant() && snapshot.main(resource).is_some());
            let refused = tried.filter_map(|(resource, objects)| {
                let RefusedObjects { count, first, why } = objects.refused()?;
                let which = format!("{count} of them, such as '{}'", first.place());
                Some((resource.clone(), format!("objects of '{resource}' can't be labelled, {which}: {why}")))
            });
            (*told, *at) = (refused.collect(), Some(Instant::now()));
        }
        told.clone()
    }

    /// An object that has been refused for long, and why, if that was not told yet.
    pub(crate) fn take_untold(&self, snapshot: &Snapshot) -> Option<(ObjectReference, String)> {
        let objects = self.objects.lock();
        let mut of = objects.of.iter().filter_map(|(resource, objects)| Some((snapshot.main(resource)?, objects)));
        of.find_map(|(main, objects)| {
            let (target, why) = objects.take_untold()?;
            let reference = ObjectReference {
                api_version: Some(main.resource.api().api_version),
                kind: Some(main.resource.kind.clone()),
                namespace: target.namespace,
                name: Some(target.name),
                uid: Some(target.uid),
                ..ObjectReference::default()
            };
            Some((reference, why))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::Status;
    use tokio::time::advance;

    use super::*;
    use crate::snapshot::tests::snapshot;

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_told_until_it_works() {
        let (faults, snapshot) = (Faults::default(), snapshot());
        let main = &snapshot.mains[0].resource.id;
        let gone = GroupResource { group: "x.y".into(), resource: "things".into() };
        let mut changes = faults.changes();
        for code in [409, 410, 422, 429, 500, 503] {
            assert!(!lasts(&error(code)), "it passes by itself");
        }
        faults.refused(main, Task::Drain, &error(403));
        faults.refused(&gone, Task::Drain, &error(403));
        assert_eq!(faults.of(&snapshot), ["objects of 'configmaps' can't be drained: missing permission: no"]);
        changes.borrow_and_update();
        faults.refused(main, Task::Drain, &error(403));
        faults.works(main, Task::Assign);
        assert_eq!(changes.has_changed().ok(), Some(false));
        let other = kube::Error::Api(Status::failure("neither", "Reason").with_code(403).boxed());
        faults.refused(main, Task::Drain, &other);
        assert_eq!(changes.has_changed().ok(), Some(false), "a status for each object that is refused");
        advance(SENTENCES).await;
        faults.refused(main, Task::Drain, &other);
        assert_eq!(faults.of(&snapshot), ["objects of 'configmaps' can't be drained: missing permission: neither"]);
        changes.borrow_and_update();
        faults.works(main, Task::Drain);
        assert_eq!((faults.of(&snapshot), changes.has_changed().ok()), (vec![], Some(true)));
    }

    #[tokio::test(start_paused = true)]
    async fn resource_that_can_not_be_watched_is_named_at_once_or_after_a_minute() {
        let (faults, snapshot) = (Faults::default(), snapshot());
        let main = &snapshot.mains[0];
        let (family, child) = (&main.resource.id, &main.controlled[0].id);
        faults.unwatched((family, child), &error(500));
        // As where the API server restarts, and has other rights then.
        faults.unwatched((family, family), &error(500));
        assert_eq!(faults.of(&snapshot), [""; 0]);
        faults.unwatched((family, family), &error(403));
        let of_main = "objects of 'configmaps' can't be watched: missing permission: no";
        assert_eq!(faults.of(&snapshot), [of_main]);
        advance(refusals::LASTS).await;
        faults.unwatched((family, child), &error(500));
        faults.watched((family, family));
        let told = faults.of(&snapshot).join("; ");
        assert!(
            told.starts_with("objects of 'secrets', which those of 'configmaps' control, can't be watched: "),
            "{told}"
        );
        faults.watched((family, child));
        assert_eq!(faults.of(&snapshot), [""; 0]);
    }
}
