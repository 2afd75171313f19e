//! The pass over controlled objects: those that are not with their owner are brought there.
//!
//! The owner's move takes its children along, and the webhook labels new ones; what both missed is found here. That
//! includes what a leader before left half done, which nobody remembers. A child of the owner itself costs a read only where
//! it is not at home; of a chain each link costs one.

use std::collections::HashMap;

use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use ringside_ring::ShardName;

use super::write_all;
use crate::{
    assign::{
        BATCH, PARALLEL, Scope,
        children::list,
        write::{Outcome, assign, write},
    },
    owners::{Owner, owner},
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

/// Brings the strays of one page; returns how many there were, and the first refusal.
pub(super) async fn bring(
    scope: &Scope,
    kind: &Resource,
    page: Vec<Target>,
) -> Result<(usize, Option<kube::Error>), kube::Error> {
    // Siblings stand together in a list, so knowing the owners of one page saves most reads, in bounded memory.
    let mut known = Known::default();
    let mut strays = Vec::new();
    for child in page {
        let Some(controller) = child.controller.clone() else { continue };
        let Some(owner) = known.owner(scope, kind, &child, &controller).await? else { continue };
        if !is_suspicious(scope, &child, &owner) || !scope.selects(&child).await? {
            continue;
        }
        let owner = known.look(scope, &child, &owner).await?;
        let shard = owner.and_then(|owner| settled_shard(scope, &owner));
        strays.extend(shard.filter(|shard| child.shard.as_deref() != Some(shard.as_str())).map(|shard| (child, shard)));
    }
    let writes = strays.into_iter().map(|(child, shard)| give(scope, kind, child, shard));
    write_all(scope, &kind.id, writes, PARALLEL, "can't bring children to their owners' shards").await
}

/// Whether it is worth to read the owner: the child is not where the hash ring places both.
fn is_suspicious(scope: &Scope, child: &Target, owner: &Owner<'_>) -> bool {
    let placed = scope.snapshot.hash_ring.owner(&owner.key(child.namespace.as_deref()));
    child.shard.as_deref() != placed.map(ShardName::as_str)
}

/// What was learned of the owners of one page.
#[derive(Default)]
struct Known<'a> {
    /// By the uid of a child's controller.
    owners: HashMap<String, Option<Owner<'a>>>,
    /// By their own.
    found: HashMap<String, Option<Target>>,
}

impl<'a> Known<'a> {
    /// Which object of the main resource the child follows, if it follows any.
    async fn owner(
        &mut self,
        scope: &'a Scope,
        kind: &Resource,
        child: &Target,
        controller: &OwnerReference,
    ) -> Result<Option<Owner<'a>>, kube::Error> {
        if let Some(known) = self.owners.get(&controller.uid) {
            return Ok(known.clone());
        }
        let owner = owner(&scope.client, &scope.snapshot, &kind.id, controller, child.namespace.as_deref()).await?;
        let owner = owner.filter(|owner| owner.main.resource == scope.main.resource);
        self.owners.insert(controller.uid.clone(), owner.clone());
        Ok(owner)
    }

    /// The owner as it is now, or was a moment ago. One that is on the move without this child is remembered, so that
    /// whoever moves it looks for its children everywhere, and read again, as its move may have ended before it was
    /// remembered.
    async fn look(&mut self, scope: &Scope, child: &Target, owner: &Owner<'_>) -> Result<Option<Target>, kube::Error> {
        let read = || owner.read(&scope.client, &scope.snapshot, child.namespace.as_deref());
        let mut found = match self.found.remove(&owner.reference.uid) {
            Some(found) => found,
            None => read().await?,
        };
        if let Some(moving) = found.as_ref().filter(|found| leaves_behind(scope, found, child)) {
            scope.begun.scatter(&scope.main.resource.id, moving);
            found = read().await?;
        }
        self.found.insert(owner.reference.uid.clone(), found.clone());
        Ok(found)
    }
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
