//! What the API server refuses while a ring's objects are distributed, for the ring's status.
//!
//! A ring whose permissions are missing is not ready, although its webhook was configured. What passes by itself, such
//! as an API server that restarts, is told when it has lasted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::explain;
use tokio::time::Instant;

mod refusals;

use crate::{api_error::lasts, doing::RefusedNow, lock::Mutex, snapshot::Snapshot, target::Target};
use refusals::Refusals;

/// How soon sentences are others, while there are any: each change is a write of the status.
const SENTENCES: Duration = Duration::from_secs(10);

/// What is refused of one ring; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    /// What can't be listed or watched, by the main resource that it belongs to and its own name.
    unwatched: Arc<Mutex<BTreeMap<(GroupResource, GroupResource), Unwatched>>>,
    /// The objects whose labels can't be written, by resource.
    objects: Arc<Mutex<BTreeMap<GroupResource, Refusals>>>,
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

impl Faults {
    /// An object, by its number in the index, could not be read or written, or one of its children: told at once if that lasts, and
    /// after [`refusals::LASTS`] in any case.
    pub(crate) fn failed(
        &self,
        resource: &GroupResource,
        object: (u32, &Target),
        child: Option<&GroupResource>,
        error: &kube::Error,
    ) {
        self.objects.lock().entry(resource.clone()).or_default().failed(object, child, error);
    }

    /// An object was worked on, or is gone.
    pub(crate) fn worked(&self, number: u32) {
        self.objects.lock().values_mut().for_each(|refusals| refusals.worked(number));
    }

    /// Forgets the objects that are not there any more. `is_there` is asked without the lock.
    pub(crate) fn keep(&self, is_there: impl Fn(u32, &str) -> bool) {
        let mut gone: Vec<_> = self.objects.lock().values().flat_map(Refusals::known).collect();
        gone.retain(|(number, uid)| !is_there(*number, uid));
        for refusals in self.objects.lock().values_mut() {
            gone.iter().for_each(|(number, uid)| refusals.forget(*number, uid));
        }
    }

    /// A resource of this family can't be listed or watched: told at once if that lasts, and after [`refusals::LASTS`] in any case.
    pub(crate) fn unwatched(&self, (family, resource): (&GroupResource, &GroupResource), error: &kube::Error) {
        let (now, all) = (Instant::now(), &mut *self.unwatched.lock());
        let new = || Unwatched { why: explain(error), said: now, since: now, lasts: false };
        let known = all.entry((family.clone(), resource.clone())).or_insert_with(new);
        // What makes it be told is what is told.
        let begins_to_last = lasts(error) && !known.lasts;
        if begins_to_last || now - known.said >= SENTENCES {
            (known.why, known.said) = (explain(error), now);
        }
        known.lasts = lasts(error);
    }

    /// It is watched.
    pub(crate) fn watched(&self, (family, resource): (&GroupResource, &GroupResource)) {
        self.unwatched.lock().remove(&(family.clone(), resource.clone()));
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
        self.objects.lock().clear();
    }

    /// As sentences; those of resources that the ring no longer has don't count.
    pub(crate) fn of(&self, snapshot: &Snapshot) -> Vec<String> {
        let (mut told, objects) = (self.of_watches(snapshot), &mut *self.objects.lock());
        // Without shards none is tried.
        let tried = objects.iter_mut().filter(|(id, _)| !snapshot.is_vacant() && snapshot.resource(id).is_some());
        told.extend(tried.filter_map(|(id, refusals)| refusals.sentence(id)));
        told
    }

    /// The objects that are refused, by resource.
    pub(crate) fn refused_now(&self) -> BTreeMap<String, RefusedNow> {
        let objects = self.objects.lock();
        let refused = objects.iter().filter_map(|(id, refusals)| Some((id.to_string(), refusals.refused()?)));
        refused.collect()
    }

    /// An object that has been refused for long, and why, if that was not told yet.
    pub(crate) fn take_untold(&self, snapshot: &Snapshot) -> Option<(ObjectReference, String)> {
        let objects = &mut *self.objects.lock();
        let mut of = objects.iter_mut().filter_map(|(id, refusals)| Some((snapshot.resource(id)?, refusals)));
        of.find_map(|(resource, refusals)| {
            let (target, why) = refusals.take_untold()?;
            let reference = ObjectReference {
                api_version: Some(resource.api().api_version),
                kind: Some(resource.kind.clone()),
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
        let target = Target { uid: "u".into(), name: "o".into(), ..Target::default() };
        let failed = |id: &GroupResource, error: &kube::Error| faults.failed(id, (0, &target), None, error);
        for code in [409, 410, 422, 429, 500, 503] {
            failed(main, &error(code));
            assert_eq!(faults.of(&snapshot), [""; 0], "it passes by itself");
        }
        let told = "objects of 'configmaps' can't be labelled, 1 of them, such as 'o': missing permission: ";
        failed(main, &error(403));
        failed(&gone, &error(403));
        assert_eq!(faults.of(&snapshot), [format!("{told}no")]);
        failed(main, &error(503));
        assert_eq!(faults.of(&snapshot), [format!("{told}no")], "while no write is taken it is as it was");
        let other = kube::Error::Api(Status::failure("neither", "Reason").with_code(403).boxed());
        failed(main, &other);
        assert_eq!(faults.of(&snapshot), [format!("{told}no")], "a status for each object that is refused");
        assert!(faults.take_untold(&snapshot).is_none(), "it may pass within a minute");
        advance(SENTENCES).await;
        assert_eq!(faults.of(&snapshot), [format!("{told}neither")]);
        faults.worked(0);
        assert_eq!(faults.of(&snapshot), [""; 0]);
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
