//! The pass over controlled objects: those that are not with their owner are brought there.
//!
//! The owner's move takes its children along, and the webhook labels new ones; what both missed is found here. That
//! includes what a leader before left half done, which nobody remembers.

use std::collections::HashMap;

use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use ringside_ring::{PartitionKey, ShardName, partition::group_of};

use super::write_all;
use crate::{
    assign::{
        BATCH, Scope,
        children::list,
        write::{Outcome, assign, write},
    },
    owners,
    resources::Resource,
    target::Target,
};

/// Looks at every object of the resources that the main resource controls, page by page; returns the first refusal.
pub(super) async fn pass(scope: &Scope) -> Result<Option<kube::Error>, kube::Error> {
    let mut refused = None;
    for kind in &scope.main.controlled {
        let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX));
        let mut pages = std::pin::pin!(list(scope, kind, None, parameters));
        let mut brought = 0_usize;
        while let Some(page) = pages.try_next().await? {
            let (count, first) = bring(scope, kind, page).await?;
            brought += count;
            refused = refused.or(first);
        }
        if brought > 0 {
            let (ring, resource) = (&scope.snapshot.ring, &kind.id);
            tracing::info!(%ring, %resource, objects = brought, "brought children to their owners' shards");
        }
    }
    Ok(refused)
}

async fn bring(scope: &Scope, kind: &Resource, page: Vec<Target>) -> Result<(usize, Option<kube::Error>), kube::Error> {
    // Siblings stand together in a list, so knowing the owners of one page saves most reads, in bounded memory.
    let mut known: HashMap<String, Option<Target>> = HashMap::new();
    let mut strays = Vec::new();
    for child in page {
        let Some(owner) = controller(scope, &child).filter(|owner| is_suspicious(scope, &child, owner)).cloned() else {
            continue;
        };
        if !scope.selects(&child).await? {
            continue;
        }
        let owner = owner_of(scope, &child, &owner, &mut known).await?;
        let shard = owner.and_then(|owner| settled_shard(scope, &owner));
        strays.extend(shard.filter(|shard| child.shard.as_deref() != Some(shard.as_str())).map(|shard| (child, shard)));
    }
    let writes = strays.into_iter().map(|(child, shard)| give(scope, kind, child, shard));
    write_all(scope, &kind.id, writes, "can't bring children to their owners' shards").await
}

/// The child's controller, when that is an object of the main resource.
fn controller<'a>(scope: &Scope, child: &'a Target) -> Option<&'a OwnerReference> {
    let main = &scope.main.resource;
    let of_main =
        |owner: &&OwnerReference| group_of(&owner.api_version) == main.id.group && owner.kind == main.api.kind;
    child.controller.as_ref().filter(of_main)
}

/// Whether it is worth to read the owner: the child is not where the hash ring places both.
fn is_suspicious(scope: &Scope, child: &Target, owner: &OwnerReference) -> bool {
    let namespace = child.namespace.as_deref().unwrap_or_default();
    let key = PartitionKey::of_owner(owner, scope.main.resource.namespaced, namespace);
    let placed = scope.snapshot.hash_ring.owner(&key);
    child.shard.as_deref() != placed.map(ShardName::as_str)
}

/// The owner as it is now, or was a moment ago. One that is on the move without this child is remembered, so that whoever
/// moves it looks for its children everywhere, and read again, as its move may have ended before it was remembered.
async fn owner_of(
    scope: &Scope,
    child: &Target,
    reference: &OwnerReference,
    known: &mut HashMap<String, Option<Target>>,
) -> Result<Option<Target>, kube::Error> {
    let (main, namespace) = (&scope.main.resource, child.namespace.as_deref());
    let read = || owners::read(&scope.client, &scope.snapshot, main, reference, namespace);
    let mut owner = match known.remove(&reference.uid) {
        Some(owner) => owner,
        None => read().await?,
    };
    if let Some(moving) = owner.as_ref().filter(|owner| leaves_behind(scope, owner, child)) {
        scope.begun.scatter(&main.id, moving);
        owner = read().await?;
    }
    known.insert(reference.uid.clone(), owner.clone());
    Ok(owner)
}

/// Whether the owner is on the move and its child is not where the children are looked for.
fn leaves_behind(scope: &Scope, owner: &Target, child: &Target) -> bool {
    let from = owner.shard.clone().or_else(|| scope.drains.previous(&owner.uid));
    settled_shard(scope, owner).is_none() && child.shard != from
}

/// The shard that works on the owner and is to keep it; none while the owner is on the move, which takes its children along.
fn settled_shard(scope: &Scope, owner: &Target) -> Option<ShardName> {
    scope.shard_of(owner).filter(|_| owner.drain.is_none())
}

/// Returns whether the object was written to.
async fn give(scope: &Scope, kind: &Resource, child: Target, shard: ShardName) -> Result<bool, kube::Error> {
    let labels = &scope.snapshot.labels;
    let api = kind.objects(&scope.client, child.namespace.as_deref());
    let owner = child.controller.as_ref().map(|owner| owner.uid.clone());
    let decide = |child: &Target| {
        let same_owner = child.controller.as_ref().map(|owner| &owner.uid) == owner.as_ref();
        let stray = child.shard.as_deref() != Some(shard.as_str());
        (same_owner && stray).then(|| assign(labels, child, &shard))
    };
    Ok(matches!(write(&scope.writes, &api, labels, child, decide).await?, Outcome::Written(_)))
}
