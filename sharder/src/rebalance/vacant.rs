//! The pass over the objects of a ring without shards.
//!
//! There is nobody to give anything to, so objects stay as they are, and no watch is kept on them: they are counted. But those
//! in namespaces that are not the ring's any more have labels of shards that are gone, and nobody who would have to let go of
//! them.

use futures::TryStreamExt;
use ringside_ring::Ownership;
use ringside_runtime::explain::code;

use crate::{
    assign::{BATCH, Scope, withdraw},
    survey::{Way, survey},
};

/// Counts the objects, and takes the labels off what is in a namespace that left the ring; returns the first refusal.
///
/// By pages: they wait for as long as the writes take.
pub(super) async fn pass(scope: &Scope) -> Result<Option<kube::Error>, kube::Error> {
    let resource = &scope.main.resource;
    let all = survey(resource.objects(&scope.watches, None), scope.snapshot.labels.clone(), Way::Pages).await?;
    let mut pages = std::pin::pin!(all.try_chunks(BATCH).map_err(|error| error.1));
    let (mut refused, mut count) = (None, scope.census.pass(&resource.id));
    while let Some(page) = pages.try_next().await? {
        let mut left = Vec::new();
        for target in page {
            if scope.selects(&target).await? {
                count.count(&scope.snapshot.members, target.shard.as_deref());
            } else if target.ownership() != Ownership::default() {
                left.push(target);
            }
        }
        let (_, failures) = withdraw(scope, left).await;
        let what = "can't take labels off objects that left the ring";
        match failures.tell(&scope.snapshot.ring, &resource.id, what) {
            // What is refused stays as it is until the next pass: it must not hold up the others.
            Some(error) if code(&error).is_some() => refused = refused.or(Some(error)),
            Some(error) => return Err(error),
            None => {}
        }
    }
    count.end();
    Ok(refused)
}
