//! Looks again at the owners whose children may be apart from them: one that stays with its shard is shown by no watch.

use futures::{StreamExt, stream};

use super::{PARALLEL_WRITES, Queue, Scope, failures::Failures};
use crate::{pauses::Pauses, target::Target};

/// Queues those that an available shard has, as they are now; the watch brings the others. Ends when all were read.
///
/// What is remembered is what was being worked on when the shards changed, so these are few.
pub(super) async fn revisit(scope: &Scope, queue: &Queue) {
    let resource = &scope.main.resource.id;
    let mut owners = scope.begun.of(resource);
    let mut pauses = Pauses::new();
    while !owners.is_empty() {
        let (mut unread, mut failures) = (Vec::new(), Failures::default());
        let mut read = stream::iter(owners).map(|owner| read(scope, owner)).buffer_unordered(PARALLEL_WRITES);
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
        let what = "can't read owners whose children may be apart from them; trying again";
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
