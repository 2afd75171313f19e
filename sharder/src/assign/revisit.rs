//! Looks again at what was being moved when the shards changed: an object whose shard is there again is shown by no watch,
//! but its children may be apart from it, or it is drained and nobody works on it.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};

use super::{PARALLEL, Queue, Scope, failures::Failures};
use crate::{pauses::Pauses, target::Target};

/// Queues those that an available shard has, as they are now; the watch brings the others. Ends when all were read.
///
/// What is remembered is what was being worked on when the shards changed, so these are few.
pub(super) async fn revisit(scope: &Scope, queue: &Queue) {
    let resource = &scope.main.resource.id;
    let known: BTreeMap<String, Target> = scope
        .begun
        .of(resource)
        .into_iter()
        .chain(scope.claims.of(resource))
        .map(|owner| (owner.uid.clone(), owner))
        .collect();
    let mut owners: Vec<_> = known.into_values().collect();
    let mut pauses = Pauses::new();
    while !owners.is_empty() {
        let (mut unread, mut failures) = (Vec::new(), Failures::default());
        let mut read = stream::iter(owners).map(|owner| read(scope, owner)).buffer_unordered(PARALLEL);
        while let Some(outcome) = read.next().await {
            match outcome {
                Ok(Some(owner)) if scope.shard_of(&owner).is_some() => {
                    if queue.send(owner).await.is_err() {
                        // The worker ends only together with this.
                        std::future::pending::<()>().await;
                    }
                }
                Ok(_) => {}
                Err((owner, error)) => {
                    unread.push(owner);
                    failures.add(error);
                }
            }
        }
        drop(read);
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
        scope.claims.end(&owner.uid);
    }
    Ok(found)
}
