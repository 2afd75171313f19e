//! Looks again at what was being moved, or about to be, when the shards changed. An object whose shard is there again is
//! shown by no watch, but its children may be apart from it, or it is drained and nobody works on it. Others are shown by the
//! new watch, but that takes a while.

use std::{collections::BTreeMap, mem::take};

use futures::{StreamExt, stream};

use super::{PARALLEL, Queue, Scope, failures::Failures};
use crate::{pauses::Pauses, target::Target};

/// The carried objects that are not in the queue yet. Dropped, it leaves them to whoever begins next: nobody else remembers
/// them.
struct Unread<'a> {
    scope: &'a Scope,
    by_uid: BTreeMap<String, Target>,
}

impl<'a> Unread<'a> {
    fn take(scope: &'a Scope) -> Self {
        let carried = scope.carried.take(&scope.main.resource.id);
        Self { scope, by_uid: carried.into_iter().map(|target| (target.uid.clone(), target)).collect() }
    }
}

impl Unread<'_> {
    /// Whether the object was seen without owner.
    fn was_nobodys(&self, owner: &Target) -> bool {
        self.by_uid.get(&owner.uid).is_some_and(|carried| carried.shard.is_none())
    }
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        self.scope.carried.leave(&self.scope.main.resource.id, take(&mut self.by_uid).into_values());
    }
}

/// Queues them as they are now. Ends when all were read.
///
/// What is remembered is what was being worked on when the shards changed, so these are few; but a shard that is gone may have
/// left hundreds, and what another one has let go of by then does not wait for them.
pub(super) async fn revisit(scope: &Scope, queue: &Queue) {
    let resource = &scope.main.resource.id;
    let mut carried = Unread::take(scope);
    let known: BTreeMap<String, Target> = scope
        .begun
        .of(resource)
        .into_iter()
        .chain(carried.by_uid.values().cloned())
        .map(|owner| (owner.uid.clone(), owner))
        .collect();
    let (let_go, others): (Vec<_>, Vec<_>) = known.into_values().partition(|owner| carried.was_nobodys(owner));
    let mut owners: Vec<_> = let_go.into_iter().chain(others).collect();
    let mut pauses = Pauses::new();
    while !owners.is_empty() {
        let (mut unread, mut failures) = (Vec::new(), Failures::default());
        let reads = stream::iter(owners).map(|owner| async move { (owner.uid.clone(), read(scope, owner).await) });
        let mut reads = reads.buffer_unordered(PARALLEL);
        while let Some((uid, outcome)) = reads.next().await {
            match outcome {
                Ok(Some(owner)) => {
                    if queue.send(owner).await.is_err() {
                        // The worker ends only together with this.
                        std::future::pending::<()>().await;
                    }
                    carried.by_uid.remove(&uid);
                }
                Ok(None) => drop(carried.by_uid.remove(&uid)),
                Err((owner, error)) => {
                    unread.push(owner);
                    failures.add(error);
                }
            }
        }
        drop(reads);
        owners = unread;
        let what = "can't read objects whose moves were broken off; trying again";
        if failures.tell(&scope.snapshot.ring, resource, what).is_some() {
            pauses.next().await;
        }
    }
}

/// The object as it is now; none when it is gone, which is then remembered no longer.
pub(super) async fn read(scope: &Scope, owner: Target) -> Result<Option<Target>, (Target, kube::Error)> {
    let api = scope.main.resource.objects(&scope.client, owner.namespace.as_deref());
    let found = match api.get_opt(&owner.name).await {
        Ok(found) => found.map(|found| Target::of(&found.metadata, &scope.snapshot.labels)),
        Err(error) => return Err((owner, error)),
    };
    // One of the same name and another uid is another object.
    let found = found.filter(|found| found.uid == owner.uid);
    if found.is_none() {
        scope.begun.end(&owner.uid, true);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use http::StatusCode;
    use tokio::{sync::mpsc, time::timeout};

    use super::*;
    use crate::{
        assign::{
            queue,
            tests::{CONFIG_MAPS, object, path, scope, target},
        },
        fixtures::FakeApi,
    };

    #[tokio::test(start_paused = true)]
    async fn what_was_let_go_of_does_not_wait_for_what_a_shard_left_behind() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let put = |name: &str, shard: Option<&str>| {
            let object = object(&scope, name, shard);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            target(&scope, &object)
        };
        let left = (0..PARALLEL + 1).map(|number| put(&format!("o-{number}"), Some("gone"))).collect::<Vec<_>>();
        scope.carried.leave(&scope.main.resource.id, left.into_iter().chain([put("z", None)]));
        let (queue, mut receiver) = queue();
        assert!(timeout(Duration::from_secs(1), revisit(&scope, &queue)).await.is_ok());
        let asked = api.asked().into_iter().position(|asked| asked.path == path(CONFIG_MAPS, "z"));
        assert_eq!(asked, Some(0), "it is asked for first");
        let queued: Vec<_> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        assert_eq!(queued.len(), PARALLEL + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_carried_over_and_is_not_queued_when_the_shards_change_again_is_carried_on() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let resource = &scope.main.resource.id;
        let seen = |name: &str| {
            let object: crate::resources::Object = serde_json::from_value(object(&scope, name, None)).unwrap();
            scope.target(&object)
        };
        for name in ["o", "p"] {
            api.put(&path(CONFIG_MAPS, name), object(&scope, name, None));
        }
        scope.carried.leave(resource, ["o", "p", "deleted"].map(seen));
        let (queue, mut receiver) = mpsc::channel(1);
        let soon = Duration::from_secs(1);
        api.intercept(|_, _| Some(StatusCode::SERVICE_UNAVAILABLE));
        assert!(timeout(soon, revisit(&scope, &queue)).await.is_err());
        api.intercept(|_, _| None);
        assert!(timeout(soon, revisit(&scope, &queue)).await.is_err(), "the queue has room for one");
        let queued = receiver.recv().await.unwrap().uid;
        let left: Vec<_> = scope.carried.take(resource).into_iter().map(|target| target.uid).collect();
        assert_eq!(left, [if queued == "uid-o" { "uid-p" } else { "uid-o" }]);
    }
}
