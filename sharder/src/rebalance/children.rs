//! The pass over controlled objects: those that are not with their owner are brought there, and those whose owner is not
//! the ring's any more lose their labels.
//!
//! The owner's move takes its children along, and the webhook labels new ones; what both missed is found here. That
//! includes what a leader before left half done, which nobody remembers. A child of the owner itself costs a read only where
//! one of both is not at home; of a chain each link costs one.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use ringside_ring::{Ownership, ShardName, cluster_ring::GroupResource, decide::Action};
use tokio::time::sleep;

use crate::{
    assign::{
        BATCH, PARALLEL, Scope,
        children::list,
        failures::Failures,
        write::{conflict, is_undone},
    },
    census::Lone,
    child::{self, AsSeen, is_with},
    faults::graver,
    owners::{Owner, owner},
    queue::limiter::Priority,
    release::Releases,
    resources::Resource,
    survey::{Way, survey},
    target::Target,
};
use ringside_runtime::explain::code;

/// The pauses of one pass after which what failed is tried again: so long takes an API server to find its feet, or a child to be
/// left in peace by others.
const AGAIN: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// Looks at every object of the resources that the main resource controls; returns what went wrong with some of them, at first
/// what somebody must do something about.
///
/// # Errors
/// Also when more of them failed than can be remembered, and may work in a moment: that is an outage.
pub(super) async fn pass(scope: &Scope, way: Way) -> Result<Option<kube::Error>, kube::Error> {
    let (mut fault, mut pauses, mut failed) = (None, AGAIN.into_iter(), 0);
    for kind in &scope.main.controlled {
        let all = survey(kind.objects(&scope.watches, None), scope.snapshot.labels.clone(), way).await?;
        let mut pages = std::pin::pin!(all.try_chunks(BATCH).map_err(|error| error.1));
        let (mut objects, mut lone) = (0_usize, Lone::default());
        while let Some(page) = pages.try_next().await? {
            page.iter().filter(|child| is_lone(scope, kind, child)).for_each(|child| lone.count(&kind.id, child));
            let brought = bring_patiently(scope, kind, page, &mut pauses).await?;
            objects += brought.objects;
            fault = graver(fault, graver(brought.refused, brought.error));
            let apart: Vec<_> = brought.failed.into_iter().filter_map(|stray| stray.owner).collect();
            failed += apart.len();
            // Their next move looks for their children everywhere. Where there are too many, the pass is made again.
            for owner in apart.iter().filter(|_| failed <= BATCH) {
                scope.begun.scatter(&scope.main.resource.id, owner);
            }
        }
        scope.census.found_lone(&kind.id, lone);
        if objects > 0 {
            let (ring, resource) = (&scope.snapshot.ring, &kind.id);
            tracing::info!(%ring, %resource, objects, "moved children to their owners' shards");
        }
    }
    match fault {
        Some(error) if failed > BATCH => Err(error),
        fault => Ok(fault),
    }
}

/// Brings the strays of a page. Those that fail for the moment are tried again while there are pauses left, as the next pass
/// may be minutes away, and their owners' controllers would create them meanwhile.
async fn bring_patiently(
    scope: &Scope,
    kind: &Resource,
    page: Vec<Target>,
    pauses: &mut impl Iterator<Item = Duration>,
) -> Result<Brought, kube::Error> {
    let mut all = bring(scope, kind, page).await?;
    while !all.failed.is_empty()
        && let Some(pause) = pauses.next()
    {
        sleep(pause).await;
        let again = bring(scope, kind, all.failed.into_iter().map(|stray| stray.child).collect()).await?;
        all = Brought { objects: all.objects + again.objects, refused: graver(all.refused, again.refused), ..again };
    }
    Ok(all)
}

/// Looks at the children that a label selector shows, and brings the strays among them; returns how many were brought of which
/// resource. What fails for longer than the pauses is told, and left to the next look or pass.
pub(super) async fn bring_selected<'a>(
    scope: &'a Scope,
    selector: &str,
) -> Result<Vec<(&'a GroupResource, usize)>, kube::Error> {
    let parameters = ListParams::default().limit(u32::try_from(BATCH).unwrap_or(u32::MAX)).labels(selector);
    let (mut brought, mut pauses) = (Vec::new(), AGAIN.into_iter());
    for kind in &scope.main.controlled {
        let mut pages = std::pin::pin!(list(scope, kind, None, parameters.clone()));
        let mut objects = 0;
        while let Some(page) = pages.try_next().await? {
            objects += bring_patiently(scope, kind, page, &mut pauses).await?.objects;
        }
        brought.extend((objects > 0).then_some((&kind.id, objects)));
    }
    Ok(brought)
}

/// What came of children that were looked at.
#[derive(Default)]
pub(super) struct Brought {
    /// How many were brought to their owners.
    pub(super) objects: usize,
    /// What the API server will refuse again: at first what somebody must do something about.
    refused: Option<kube::Error>,
    /// The children of which something failed that may pass.
    failed: Vec<Stray>,
    /// Why that of the first failed.
    error: Option<kube::Error>,
}

/// A child, and its owner where that is known, and is not that of another one which is there already.
struct Stray {
    child: Target,
    owner: Option<Target>,
}

/// Brings the strays of one page, and takes the labels off what follows nobody of the ring.
pub(super) async fn bring(scope: &Scope, kind: &Resource, page: Vec<Target>) -> Result<Brought, kube::Error> {
    let scope = &Scope { writes: scope.writes.with_priority(Priority::Repair), ..scope.clone() };
    // Siblings stand together in a list, so knowing the owners of one page saves most reads, in bounded memory.
    let mut known = Known::default();
    let (mut strays, mut strangers, mut unread) = (Vec::new(), Vec::new(), Failures::default());
    let mut failed = Vec::new();
    for child in page {
        if known.is_unread(&child) {
            failed.push(Stray { child, owner: None });
            continue;
        }
        match judge(scope, kind, &child, &mut known).await {
            Ok(Verdict::Stays) => {}
            Ok(Verdict::Strays(owner, shard)) => strays.push((Stray { child, owner: Some(*owner) }, shard)),
            Ok(Verdict::Stranger) => strangers.push(Stray { child, owner: None }),
            // An object that the API server itself can't read: it holds up nobody else.
            Err(error) if code(&error) == Some(500) => {
                unread.add(error);
                let owner = known.unread(&child);
                failed.push(Stray { child, owner });
            }
            Err(error) => return Err(error),
        }
    }
    let unread = unread.tell(&scope.snapshot.ring, &kind.id, "can't read owners of children");
    let releases = strangers.into_iter().map(|stray| async {
        // One that was adopted meanwhile may follow an object of the ring.
        let next = |now: &Target| if now.follows_same(&stray.child) { Action::Release } else { Action::Keep };
        match Releases::of(scope, kind).one(stray.child.clone(), next).await {
            Ok(outcome) => Ok(outcome.wrote()),
            Err(error) => Err((stray, error)),
        }
    });
    let what = "can't take labels off children of objects that are not the ring's";
    let released = write_all(scope, &kind.id, releases, what).await?;
    if released.objects > 0 {
        tracing::info!(ring = %scope.snapshot.ring, resource = %kind.id, objects = released.objects, "removed labels of children that follow no object of the ring");
    }
    let writes = strays.into_iter().map(|(stray, shard)| async move {
        match child::bring_as_seen(scope, kind, stray.child.clone(), &shard).await {
            Ok(AsSeen::There { wrote }) => Ok(wrote),
            // It is judged again.
            Ok(AsSeen::Changed(now)) => {
                Err((Stray { child: *now, ..stray }, conflict("the child has changed since its owner was read")))
            }
            Err(error) => Err((stray, error)),
        }
    });
    let given = write_all(scope, &kind.id, writes, "can't bring children to their owners' shards").await?;
    failed.extend(released.failed.into_iter().chain(given.failed));
    Ok(Brought {
        objects: given.objects,
        refused: graver(released.refused, given.refused),
        failed,
        error: unread.or(released.error).or(given.error),
    })
}

/// Carries out the writes for a page of children, some of them at once; tells how many of them changed something.
///
/// One that the API server refuses does not hold up the others.
async fn write_all(
    scope: &Scope,
    resource: &GroupResource,
    writes: impl Iterator<Item = impl Future<Output = Result<bool, (Stray, kube::Error)>>>,
    what: &'static str,
) -> Result<Brought, kube::Error> {
    let mut outcomes = std::pin::pin!(stream::iter(writes).buffer_unordered(PARALLEL));
    let (mut wrote, mut refusals, mut failures) = (Brought::default(), Failures::default(), Failures::default());
    while let Some(outcome) = outcomes.next().await {
        let (stray, error) = match outcome {
            Ok(done) => {
                wrote.objects += usize::from(done);
                continue;
            }
            Err((_, error)) if code(&error).is_none() => return Err(error),
            Err(failed) => failed,
        };
        if passes(&error) {
            failures.add(error);
            wrote.failed.push(stray);
            continue;
        }
        // What is refused is where it was, but for what may have lost its label by that.
        if let Some(owner) = stray.owner.filter(|_| is_undone(&error)) {
            scope.begun.scatter(&scope.main.resource.id, &owner);
        }
        refusals.add(error);
    }
    wrote.refused = refusals.tell(&scope.snapshot.ring, resource, what);
    wrote.error = failures.tell(&scope.snapshot.ring, resource, what);
    Ok(wrote)
}

/// Whether the same write may be carried out in a moment. One that did not fit what was there (422) was decided anew several
/// times.
fn passes(error: &kube::Error) -> bool {
    matches!(code(error), Some(409 | 429 | 500..))
}

/// Where a child belongs.
enum Verdict {
    /// Where it is, or nobody knows.
    Stays,
    /// With the shard of its owner.
    Strays(Box<Target>, ShardName),
    /// It follows nobody of the ring, and has labels of it.
    Stranger,
}

async fn judge<'a>(
    scope: &'a Scope,
    kind: &Resource,
    child: &Target,
    known: &mut Known<'a>,
) -> Result<Verdict, kube::Error> {
    let is_labelled = child.ownership() != Ownership::default();
    let Some(controller) = controller_in_ring(scope, kind, child).cloned() else {
        let may_follow = child.controller.as_ref().is_some_and(|controller| scope.snapshot.may_be_above(controller));
        return Ok(if is_labelled && !may_follow { Verdict::Stranger } else { Verdict::Stays });
    };
    let Some(owner) = known.owner(scope, kind, child, &controller).await? else { return Ok(Verdict::Stays) };
    if scope.namespaces.excludes(&scope.snapshot.namespaces, child.namespace.as_deref()) {
        // Not before its owner: until then somebody works on both.
        let is_free = is_labelled
            && known
                .read(scope, child, &owner)
                .await?
                .is_none_or(|owner| scope.shard_of(&owner).is_none() && scope.unknown_for(&owner).is_zero());
        return Ok(if is_free { Verdict::Stranger } else { Verdict::Stays });
    }
    // Without shards there is nowhere to bring it.
    if scope.snapshot.is_vacant() || !is_suspicious(scope, child, &owner) || !scope.selects(child).await? {
        return Ok(Verdict::Stays);
    }
    let owner = known.look(scope, child, &owner).await?;
    let settled = owner.and_then(|owner| scope.shard_for_children(&owner).map(|shard| (owner, shard)));
    let elsewhere = settled.filter(|(_, shard)| !is_with(child, shard));
    Ok(elsewhere.map_or(Verdict::Stays, |(owner, shard)| Verdict::Strays(Box::new(owner), shard)))
}

/// Whether no shard sees the object, as it is in a namespace of the ring and has no controller of it.
fn is_lone(scope: &Scope, kind: &Resource, child: &Target) -> bool {
    let may_follow = |controller| scope.snapshot.may_be_above(controller);
    controller_in_ring(scope, kind, child).is_none()
        && !child.controller.as_ref().is_some_and(may_follow)
        && !scope.namespaces.excludes(&scope.snapshot.namespaces, child.namespace.as_deref())
}

/// The controller of a child, if its resource is one that is followed in this ring.
fn controller_in_ring<'a>(scope: &Scope, kind: &Resource, child: &'a Target) -> Option<&'a OwnerReference> {
    child.controller.as_ref().filter(|controller| scope.snapshot.above(&kind.id, controller).is_some())
}

/// Whether it is worth to read the owner: the child is not where the hash ring places both, or its owner is not.
fn is_suspicious(scope: &Scope, child: &Target, owner: &Owner<'_>) -> bool {
    let placed = scope.snapshot.hash_ring().owner(&owner.key(child.namespace.as_deref()));
    placed.is_none_or(|placed| !is_with(child, placed))
        || scope.census.is_away(&scope.main.resource.id, &owner.reference.uid)
}

/// What was learned of the owners of one page.
#[derive(Default)]
struct Known<'a> {
    /// By the uid of a child's controller.
    owners: HashMap<String, Option<Owner<'a>>>,
    /// By their own.
    found: HashMap<String, Option<Target>>,
    /// The uids of controllers that can't be read, or something above them.
    unread: HashSet<String>,
}

impl<'a> Known<'a> {
    /// Whether nothing was learned of whom the child follows.
    fn is_unread(&self, child: &Target) -> bool {
        child.controller.as_ref().is_some_and(|controller| self.unread.contains(&controller.uid))
    }

    /// Nothing can be learned of whom the child follows; returns as much of that as its controllers say.
    fn unread(&mut self, child: &Target) -> Option<Target> {
        let controller = child.controller.as_ref()?;
        self.unread.insert(controller.uid.clone());
        let owner = self.owners.get(&controller.uid)?.as_ref()?;
        let namespace = child.namespace.clone().filter(|_| owner.main.resource.namespaced);
        let (uid, name) = (owner.reference.uid.clone(), owner.reference.name.clone());
        Some(Target { uid, name, namespace, ..Target::default() })
    }

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
        let mut found = self.read(scope, child, owner).await?;
        if let Some(moving) = found.as_ref().filter(|found| leaves_behind(scope, found, child)) {
            scope.begun.scatter(&scope.main.resource.id, moving);
            self.found.remove(&owner.reference.uid);
            found = self.read(scope, child, owner).await?;
        }
        Ok(found)
    }

    /// The owner as it is now, or was a moment ago.
    async fn read(&mut self, scope: &Scope, child: &Target, owner: &Owner<'_>) -> Result<Option<Target>, kube::Error> {
        if let Some(found) = self.found.get(&owner.reference.uid) {
            return Ok(found.clone());
        }
        let found = owner.read(&scope.client, &scope.snapshot, child.namespace.as_deref()).await?;
        self.found.insert(owner.reference.uid.clone(), found.clone());
        Ok(found)
    }
}

/// Whether the owner is on the move and its child is not where the children are looked for.
fn leaves_behind(scope: &Scope, owner: &Target, child: &Target) -> bool {
    let from = owner.shard.clone().or_else(|| scope.drains.previous(&owner.uid));
    scope.shard_for_children(owner).is_none() && child.shard != from
}
