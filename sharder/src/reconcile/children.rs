//! The children of a root: they are where the root is going before it is there, so that no shard creates them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{StreamExt, stream};
use kube::api::ListParams;
use ringside_ring::{ShardName, cluster_ring::GroupResource};
use tokio::time::{Instant, sleep, timeout};

use super::{
    family::{Failed, Root},
    rebalance::ask_for,
    ring::Ring,
};
use crate::{
    api_error::{is_certainly_refused, is_refused, is_unauthorized},
    child::{bring, bring_as_seen},
    index::{self, ChildrenOf, Mark, ResourceId, Selected, Slot, Source, repair},
    queue::limiter::MAX_PERMITS,
    resources::Resource,
    target::Target,
    writes::Writes,
};

/// How long the watch is waited for until the children are listed.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a child goes to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basis<'a> {
    /// Its root is on the way there, by this task alone, from the shard that it `left`, as far as that is known.
    Move { left: Option<&'a str> },
    /// Its root was seen there.
    Look,
}

impl Basis<'_> {
    /// Whether a shard is known not to have released the family.
    fn is_outside(self, shard: &str) -> bool {
        match self {
            Self::Move { left } => left != Some(shard),
            Self::Look => true,
        }
    }
}

/// A child that the API server refuses to write.
pub(super) struct Refused {
    pub(super) resource: GroupResource,
    /// As it was when its write was refused.
    pub(super) child: Target,
    pub(super) error: kube::Error,
}

impl From<Refused> for Failed {
    fn from(Refused { resource, error, .. }: Refused) -> Self {
        Self::of_child(&resource, error)
    }
}

/// What came of the children of a root that moves.
pub(super) enum Brought {
    /// They are all there, but for those that are refused.
    Whole(Vec<Refused>),
    /// Some are refused. The others were left where they were at that moment.
    Broken(Vec<Refused>),
    /// Other shards have to release some first.
    Held,
}

/// What becomes of the others when a child is refused.
#[derive(Clone, Copy)]
pub(super) enum Mode<'a> {
    /// None is begun any more.
    Stops,
    /// All others are brought. Those of these uids are refused, and not tried again.
    LeavesBehind(&'a BTreeSet<String>),
}

impl Mode<'_> {
    fn leaves_behind(self, child: &Target) -> bool {
        matches!(self, Self::LeavesBehind(refused) if refused.contains(&child.uid))
    }
}

/// A child that is not where it belongs.
struct Stray {
    at: (ResourceId, Slot),
    /// How many controllers are between it and the root, plus one.
    distance: usize,
    target: Option<Target>,
    namespace: Option<String>,
    name: String,
    /// The shard that has to release it first.
    held_by: Option<String>,
}

/// Brings all children to a shard, and says whether the root may go there. `began`: the shard that had the root creates none from this
/// moment on.
///
/// Where it is not known which shard released the family, the root waits for children that another one has to release.
pub(super) async fn bring_all(
    ring: &Ring,
    writes: &Writes,
    root: &Root,
    (to, left): (&ShardName, Option<&str>),
    (began, mode): (Mark, Mode<'_>),
) -> Result<Brought, Failed> {
    if root.main.controlled.is_empty() {
        return Ok(Brought::Whole(Vec::new()));
    }
    // Most are known already, and the answers to their writes say when the watch has shown the others.
    let basis = Basis::Move { left };
    let mut refused = bring_known(ring, writes, root, (to, basis), mode).await?;
    if !refused.is_empty() && matches!(mode, Mode::Stops) {
        return Ok(Brought::Broken(refused));
    }
    if left.is_none() && is_held(ring, root, to) {
        return Ok(Brought::Held);
    }
    let proofs =
        root.main.controlled.iter().map(|kind| prove(ring, kind, root.target.namespace.as_deref(), left, began));
    futures::future::try_join_all(proofs).await?;
    let tried: BTreeSet<_> = match mode {
        Mode::LeavesBehind(before) => {
            before.iter().cloned().chain(refused.iter().map(|it| it.child.uid.clone())).collect()
        }
        Mode::Stops => BTreeSet::new(),
    };
    let mode = if matches!(mode, Mode::Stops) { mode } else { Mode::LeavesBehind(&tried) };
    refused.extend(bring_known(ring, writes, root, (to, basis), mode).await?);
    Ok(match mode {
        Mode::Stops if !refused.is_empty() => Brought::Broken(refused),
        _ if left.is_none() && is_held(ring, root, to) => Brought::Held,
        _ => Brought::Whole(refused),
    })
}

/// Whether other available shards have children that they may work on by themselves.
fn is_held(ring: &Ring, root: &Root, to: &ShardName) -> bool {
    members(ring, root, (to, Basis::Look), |_, held_by| held_by.is_some()).contains(&true)
}

/// Brings back what is apart from a root that stays with its shard.
///
/// The index may be behind a move of the root: so that is read first.
pub(super) async fn gather(ring: &Ring, writes: &Writes, root: &Root, to: &ShardName) -> Result<(), Failed> {
    let target = &root.target;
    let place = (target.namespace.as_deref(), &*target.name);
    let now = ring.read((root.resource, root.slot), place).await.map_err(Failed::of_root)?;
    let stays = now
        .is_some_and(|now| now.uid == target.uid && now.shard.as_deref() == Some(to.as_str()) && now.drain.is_none());
    if !stays {
        return Ok(());
    }
    let apart = members(ring, root, (to, Basis::Look), |_, held_by| held_by.is_none());
    let mut refused = bring_known(ring, writes, root, (to, Basis::Look), Mode::LeavesBehind(&BTreeSet::new())).await?;
    let brought = apart.into_iter().filter(|is_brought| *is_brought).count().saturating_sub(refused.len());
    ring.told.gathered(&root.main.resource.id, brought);
    ring.told.left_behind(ring, root, &refused);
    refused.pop().map_or(Ok(()), |last| Err(last.into()))
}

/// An API server that has just started may take so long to read the roles: what its authorizer refuses in that time says nothing of a
/// child, and its owner is not sent elsewhere for it.
const STARTS: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);

/// Brings the children that the index shows elsewhere, those furthest from the root first. Returns those that are refused.
async fn bring_known(
    ring: &Ring,
    writes: &Writes,
    root: &Root,
    (to, basis): (&ShardName, Basis<'_>),
    mode: Mode<'_>,
) -> Result<Vec<Refused>, Failed> {
    let mut by_distance: BTreeMap<usize, Vec<Stray>> = BTreeMap::new();
    for stray in strays(ring, root, (to, basis)) {
        by_distance.entry(stray.distance).or_default().push(stray);
    }
    let (mut refused, stopped) = (Vec::new(), AtomicBool::new(false));
    for (_, strays) in by_distance.into_iter().rev() {
        let stopped = &stopped;
        let writes = strays.into_iter().map(|stray| async move {
            let kind = ring.resource(stray.at.0);
            let failed = |error| Failed::of_child(&kind.id, error);
            if stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let target = match stray.target {
                Some(target) => Some(target),
                None => ring.read(stray.at, (stray.namespace.as_deref(), &stray.name)).await.map_err(failed)?,
            };
            let Some(target) = target.filter(|target| !mode.leaves_behind(target)) else { return Ok(None) };
            let child = target.clone();
            let put = || async {
                let (at, target) = ((ring.client(), &**kind), target.clone());
                match (&stray.held_by, basis) {
                    (Some(shard), _) => ask_for_child(ring, kind, target, shard).await,
                    (None, Basis::Move { .. }) => bring(writes, at, &ring.labels, target, to).await,
                    // What has changed is decided again by what it shows.
                    (None, Basis::Look) => bring_as_seen(writes, at, &ring.labels, target, to).await,
                }
            };
            let (begun, mut written) = (Instant::now(), put().await);
            let may_pass = |begun: Instant| matches!(mode, Mode::Stops) && begun.elapsed() < STARTS;
            while matches!(&written, Err(error) if is_unauthorized(error)) && may_pass(begun) {
                sleep(AGAIN).await;
                written = put().await;
            }
            match written {
                Ok(()) => Ok(None),
                Err(error) if is_certainly_refused(&error) => {
                    stopped.store(matches!(mode, Mode::Stops), Ordering::Relaxed);
                    Ok(Some(Refused { resource: kind.id.clone(), child, error }))
                }
                Err(error) => Err(failed(error)),
            }
        });
        // One that is refused holds up none of those that are under way: what becomes of these must be known.
        let mut results = std::pin::pin!(stream::iter(writes).buffer_unordered(MAX_PERMITS));
        let mut changes_always = None;
        while let Some(result) = results.next().await {
            match result {
                Err(failed) if is_refused(&failed.error) => changes_always = Some(failed),
                result => refused.extend(result?),
            }
        }
        changes_always.map_or(Ok(()), Err)?;
        if stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(refused)
}

/// Asks the shard that has a child to release it, which it may have worked on by itself before the child was adopted.
async fn ask_for_child(ring: &Ring, kind: &Resource, child: Target, shard: &str) -> Result<(), kube::Error> {
    let promised = ring.tools.leases.grace(&ring.judge.view().ring, shard);
    let seen = child.clone();
    let asks = |now: &Target| now.still_follows(&seen) && now.shard.as_deref() == Some(shard) && now.drain.is_none();
    ask_for(ring, (kind, "follows an owner on another shard"), child, (shard, promised), asks).await
}

/// The children that are not with the shard. Without those that another one is asked to release.
///
/// An object of a resource that is a main one as well may have been its shard's before it was adopted. That shard works on it, unless
/// it is the one that the root left: it released the family.
fn strays(ring: &Ring, root: &Root, at: (&ShardName, Basis<'_>)) -> Vec<Stray> {
    let all = members(ring, root, at, |(distance, child), held_by| {
        // It is asked for that already.
        let is_asked = held_by.is_some() && child.drain().is_some();
        (!is_asked).then(|| Stray {
            at: (child.resource(), child.slot),
            distance,
            target: child.target(),
            namespace: Some(child.namespace()).filter(|namespace| !namespace.is_empty()).map(str::to_owned),
            name: child.name().to_owned(),
            held_by,
        })
    });
    all.into_iter().flatten().collect()
}

/// What there is to say of each child that is not with the shard: told its distance, and the shard that has to release it first.
fn members<T>(
    ring: &Ring,
    root: &Root,
    (to, basis): (&ShardName, Basis<'_>),
    say: impl Fn((usize, index::Object<'_>), Option<String>) -> T,
) -> Vec<T> {
    let held_by = |child: index::Object<'_>| {
        let shard = ring.judge.held_by(child, to.as_str());
        shard.filter(|shard| basis.is_outside(shard)).map(str::to_owned)
    };
    ring.index.read(|objects| {
        // It may be gone, and its slot another object's.
        let is_it = |object: index::Object<'_>| object.uid().is_none_or(|uid| uid == root.target.uid);
        let is_there = objects.get(root.slot).is_some_and(|object| object.resource() == root.resource && is_it(object));
        let followers = if is_there { objects.followers(root.slot) } else { Vec::new() };
        let followers = followers.into_iter();
        let known = followers.filter_map(|member| Some((member.distance, objects.get(member.slot)?)));
        let apart = known.filter(|(_, child)| child.selected() == Selected::Yes && !child.is_with(to.as_str()));
        apart.map(|(distance, child)| say((distance, child), held_by(child))).collect()
    })
}

/// Waits for the first list of the children's resources, where it has not ended and nothing says that it can't be made. Before
/// that, children may be anywhere, and another list of all would only make both slower.
pub(super) async fn until_listed(ring: &Ring, root: &Root) {
    for kind in &root.main.controlled {
        let Some(resource) = ring.id(&kind.id) else { continue };
        let first_list = || ring.sources.lock().first_list(resource, root.target.namespace.as_deref());
        while let Some(progress) = first_list().filter(|_| !ring.judge.is_unwatched(resource)) {
            // Another watch may take its place meanwhile.
            let _ = timeout(PROOF_TIMEOUT, progress.proven(Mark::default())).await;
        }
    }
}

/// Returns when the index shows all children of a resource that there were when it `began`.
///
/// A write of ours that began since then proves it once the watch has shown it. Else the children of the shard that `left` them are
/// listed, once for all families that wait at the same time.
async fn prove(
    ring: &Ring,
    kind: &Resource,
    namespace: Option<&str>,
    left: Option<&str>,
    began: Mark,
) -> Result<(), Failed> {
    let Some(resource) = ring.id(&kind.id) else { return Ok(()) };
    // An object without namespace may have children in several that are watched each by itself.
    let sources = ring.sources.lock().of(resource, namespace);
    let proofs = sources.iter().map(|source| prove_by(ring, (kind, source), namespace, left, began));
    futures::future::try_join_all(proofs).await.map(drop)
}

async fn prove_by(
    ring: &Ring,
    (kind, source): (&Resource, &Source),
    namespace: Option<&str>,
    left: Option<&str>,
    began: Mark,
) -> Result<(), Failed> {
    if source.progress.is_proven(began) {
        return Ok(());
    }
    if source.progress.is_awaited(began) && timeout(PROOF_TIMEOUT, source.progress.proven(began)).await.is_ok() {
        return Ok(());
    }
    // Before the first list has ended, children may be anywhere.
    let left = left.filter(|_| source.progress.is_proven(Mark::default()));
    let namespace = namespace.or(source.scope.namespace());
    let which = ChildrenOf {
        resource: source.resource,
        namespace: namespace.unwrap_or_default().to_owned(),
        shard: left.unwrap_or_default().to_owned(),
    };
    let list = async || {
        let selector = left.map(|shard| format!("{}={shard}", ring.labels.shard)).unwrap_or_default();
        let api = kind.objects(ring.client(), namespace);
        repair::list(source, &api, ListParams::default().labels(&selector)).await
    };
    ring.lists.since(which, began, list).await.map_err(|error| Failed::of_child(&kind.id, error))
}
