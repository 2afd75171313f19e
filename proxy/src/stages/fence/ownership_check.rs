//! Whose an object is: by what the fence remembers, or else by the labels that the object has at this moment.

use std::{sync::Arc, time::Duration};

use futures::future::try_join_all;
use ringside_ring::{
    MAX_OWNER_DEPTH, RingLabels, cluster_ring::GroupResource, labels::Ownership, partition::Controls as _,
};
use tokio::time::timeout;

use super::{
    ask::{ApiQuestions, Found, QuestionError, named},
    kinds::{Kinds, group_of},
};
use crate::{
    fence::{AskedAt, CacheScope, CachedOwner, Fence, Target, Uid, WriteGuard},
    metadata::{Metadata, Owner},
    request::Query,
    status::Refusal,
    views::Views,
};

/// How many owners of the ring a deletion of many may concern: each may cost a question, and is named under the fence's lock.
const MAX_OWNERS: usize = 2_000;
/// How many owners are asked about at once.
const AT_ONCE: usize = 16;
/// How long it may take to find out what a deletion of many concerns: it holds all drains of that meanwhile.
const DELETION: Duration = Duration::from_secs(30);

/// Judges what one request concerns.
pub(super) struct OwnershipCheck {
    pub(super) questions: ApiQuestions,
    pub(super) fence: Fence,
    pub(super) views: Views,
    pub(super) labels: Arc<RingLabels>,
    pub(super) hides_labels: bool,
    pub(super) kinds: Kinds,
    pub(super) cache_scope: CacheScope,
    /// The API version of the request.
    pub(super) version: String,
}

/// An object as its labels were at a moment.
struct Seen {
    target: Target,
    metadata: Metadata,
    asked: AskedAt,
}

/// What an owner reference names.
enum NamedOwner {
    /// No object of the ring's resources.
    Foreign,
    /// An object of the ring that is deleted. The garbage collector deletes what names it.
    Gone,
    /// An object of the ring.
    There(Box<Seen>),
}

/// What labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LabelOwner {
    Ours,
    /// Ours, and the sharder asked for it back.
    Draining,
    NoShard,
    /// Another shard's.
    OtherShard(String),
}

impl OwnershipCheck {
    pub(super) fn whose(&self, metadata: &Metadata) -> LabelOwner {
        match self.labels.ownership(metadata.labels.as_ref()) {
            Ownership { shard: None, .. } => LabelOwner::NoShard,
            Ownership { shard: Some(shard), .. } if shard != self.cache_scope.term.shard.as_str() => {
                LabelOwner::OtherShard(shard.to_owned())
            }
            Ownership { drain: Some(_), .. } => LabelOwner::Draining,
            Ownership { .. } => LabelOwner::Ours,
        }
    }

    /// Whether objects of the resource are drained, as they have no owner that they move with.
    fn is_main(&self, target: &Target) -> bool {
        self.cache_scope.policy.is_main(&target.resource)
    }

    /// The object is in the answer to a get, which was sent when something was `asked`.
    ///
    /// # Errors
    /// When the controller must not see it.
    pub(super) fn shown(&self, target: &Target, metadata: &Metadata, asked: AskedAt) -> Result<(), Refusal> {
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let version = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        match self.whose(metadata) {
            // What was answered before the drain can come after it: the controller would begin again with what its
            // shard has released.
            LabelOwner::Ours if !self.fence.predates_drain(uid, version.as_ref(), asked) => Ok(()),
            LabelOwner::NoShard if !self.fence.has_moved(uid) => Ok(()),
            LabelOwner::Ours | LabelOwner::NoShard | LabelOwner::Draining | LabelOwner::OtherShard(_) => {
                // Whatever was known of it: a child moves without a drain of its own.
                self.fence.forget(target);
                Err(Refusal::NotOurs(Box::new(named(target))))
            }
        }
    }

    /// The refusal of an object that is not there any more.
    pub(super) fn gone(&self, target: &Target) -> Refusal {
        Refusal::NotOurs(Box::new(named(target)))
    }

    /// The metadata of an object at this moment, if there is one.
    pub(super) async fn ask(&self, target: &Target) -> Result<Option<Metadata>, Refusal> {
        self.questions.metadata(target, &self.version).await.map_err(|failed| failed.about(target))
    }

    /// An object is about to be written: the uids of it and of all who control it. `asks`: whatever is remembered. The guard
    /// is told whom it may concern as soon as that is known.
    ///
    /// # Errors
    /// When it is not ours.
    pub(super) async fn written(
        &self,
        target: &Target,
        asks: bool,
        write_guard: &WriteGuard,
    ) -> Result<Vec<Uid>, Refusal> {
        if !asks && let CachedOwner::Ours(uids) = self.fence.cached_owner(&self.cache_scope, target) {
            return Ok(uids);
        }
        let asked = self.fence.asking();
        match self.ask(target).await? {
            Some(metadata) => {
                self.with_owners(Seen { target: target.clone(), metadata, asked }, asks, write_guard).await
            }
            // The object does not exist yet: the API server says so itself, or creates it.
            None => Ok(Vec::new()),
        }
    }

    /// All that a query selects is about to be deleted: the uids of what owns it. Where `asks`, as the labels are now.
    ///
    /// # Errors
    /// When one of those is an object of the ring that is not ours.
    pub(super) async fn deleted(
        &self,
        target: &Target,
        selecting: Query,
        asks: bool,
        write_guard: &WriteGuard,
    ) -> Result<Vec<Uid>, Refusal> {
        let wanted = |owner: &Owner| self.may_be_the_rings(std::slice::from_ref(owner));
        let judged = async {
            let owners = self.questions.owners((target, &self.version), selecting, wanted, MAX_OWNERS).await;
            let owners = owners.map_err(|failed| failed.about(target))?.ok_or(Refusal::TooManyOwners(MAX_OWNERS))?;
            self.controlled_by(&owners, target.namespace.as_deref(), asks, write_guard).await
        };
        let late =
            |_| QuestionError::passing(&format!("the owners of what it selects were not known within {DELETION:?}"));
        timeout(DELETION, judged).await.map_err(|elapsed| late(elapsed).about(target))?
    }

    /// Whether one of these owners may be an object of the ring, as far as their groups say.
    pub(super) fn may_be_the_rings(&self, owners: &[Owner]) -> bool {
        owners.iter().any(|owner| self.cache_scope.policy.resources.iter().any(|of| of.group == group_of(owner)))
    }

    /// Which of these an object of a controlled resource follows (CONTRACT, "owner"): those that control it; else the only one of a kind
    /// of the ring, and none where there are several.
    ///
    /// # Errors
    /// When the kind of an owner in a group of the ring can't be found out.
    pub(super) async fn followed(
        &self,
        owners: &[Owner],
        namespace: Option<&str>,
    ) -> Result<Vec<Owner>, QuestionError> {
        let mut of_ring = Vec::new();
        for owner in owners {
            let counts = owner.controls() || {
                let may_be = self.may_be_the_rings(std::slice::from_ref(owner));
                may_be && {
                    let (above, _) = self.kinds.target(&self.questions, owner, namespace).await?;
                    self.cache_scope.policy.resources.contains(&above.resource)
                }
            };
            of_ring.extend(counts.then(|| owner.clone()));
        }
        let is_clear = of_ring.len() == 1 || of_ring.iter().any(Owner::controls);
        Ok(if is_clear { of_ring } else { Vec::new() })
    }

    /// Whether an object of this resource belongs where one of these owners is worked on.
    ///
    /// # Errors
    /// When the kind of an owner can't be found out.
    pub(super) async fn follows(&self, child: &Target, owners: &[Owner]) -> Result<bool, QuestionError> {
        for owner in owners {
            let (above, _) = self.kinds.target(&self.questions, owner, child.namespace.as_deref()).await?;
            if self.cache_scope.policy.follows(&child.resource, &above.resource) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// These owners are about to control what is written: their uids, and those of who controls them. Where `asks`, as
    /// the labels are at this moment.
    ///
    /// # Errors
    /// When one is an object of the ring that is not ours.
    pub(super) async fn controlled_by(
        &self,
        owners: &[Owner],
        namespace: Option<&str>,
        asks: bool,
        write_guard: &WriteGuard,
    ) -> Result<Vec<Uid>, Refusal> {
        write_guard.add_candidates(&uids_of(owners));
        let mut uids = Vec::new();
        for batch in owners.chunks(AT_ONCE) {
            let asked = batch.iter().map(|owner| self.controller(owner, namespace, asks, write_guard));
            uids.extend(try_join_all(asked).await?.into_iter().flatten());
        }
        Ok(uids)
    }

    async fn controller(
        &self,
        owner: &Owner,
        namespace: Option<&str>,
        asks: bool,
        write_guard: &WriteGuard,
    ) -> Result<Vec<Uid>, Refusal> {
        let uid: Uid = owner.uid.as_str().into();
        if let (false, CachedOwner::Ours(uids)) = (asks, self.fence.standing_of(&self.cache_scope, &uid)) {
            return Ok(uids);
        }
        match self.owner(owner, namespace).await? {
            NamedOwner::Foreign | NamedOwner::Gone => Ok(Vec::new()),
            NamedOwner::There(seen) => self.with_owners(*seen, asks, write_guard).await,
        }
    }

    /// Decides what an owner reference names. What can't be told for sure is refused:
    ///
    /// | of a group of the ring | it was released | else |
    /// | --- | --- | --- |
    /// | the object is there | its labels decide: it may be back | its labels decide |
    /// | the object is gone | 409 | passes |
    /// | its kind is another resource's by now | 409 | passes |
    /// | no served version knows its kind, or the question fails | 409 | 503 |
    ///
    /// An owner of any other group passes, and costs no question.
    ///
    /// # Errors
    /// When the write must not be sent.
    async fn owner(&self, owner: &Owner, namespace: Option<&str>) -> Result<NamedOwner, Refusal> {
        if !self.may_be_the_rings(std::slice::from_ref(owner)) {
            return Ok(NamedOwner::Foreign);
        }
        let resource = GroupResource { group: group_of(owner).into(), resource: owner.kind.clone() };
        let reference = Target { resource, namespace: None, name: Some(owner.name.clone()) };
        match (self.look_up(owner, namespace).await, self.fence.has_moved(&owner.uid)) {
            (Ok(NamedOwner::There(seen)), _) => Ok(NamedOwner::There(seen)),
            (_, true) => Err(deny(&reference, DenyReason::Released)),
            (found, false) => found.map_err(|failed| failed.about(&reference)),
        }
    }

    /// Asks for the object that an owner reference of a group of the ring names.
    async fn look_up(&self, owner: &Owner, namespace: Option<&str>) -> Result<NamedOwner, QuestionError> {
        // A kind that is remembered may not be served any more: then it is looked up once more.
        for _ in 0..2 {
            let (target, version) = self.kinds.target(&self.questions, owner, namespace).await?;
            if !self.cache_scope.policy.resources.contains(&target.resource) {
                return Ok(NamedOwner::Foreign);
            }
            let asked = self.fence.asking();
            match self.questions.find(&target, &version).await? {
                Found::There(metadata) if metadata.uid.as_deref() == Some(&owner.uid) => {
                    return Ok(NamedOwner::There(Box::new(Seen { target, metadata, asked })));
                }
                Found::There(_) | Found::Absent => return Ok(NamedOwner::Gone),
                Found::NotServed => self.kinds.forget(owner),
            }
        }
        Err(QuestionError::passing(&"the API server lists its resource, and does not serve it"))
    }

    /// Whose an object is and all who control it, as far up as they are the ring's; those above what is labelled ours are asked
    /// about where they are not known, or it `asks`. What is found to be ours is learned.
    async fn with_owners(&self, mut seen: Seen, asks: bool, write_guard: &WriteGuard) -> Result<Vec<Uid>, Refusal> {
        let mut uids: Vec<Uid> = Vec::new();
        while uids.len() < MAX_OWNER_DEPTH {
            let Seen { target, metadata, asked } = seen;
            let uid: Uid = metadata.uid.as_deref().unwrap_or_default().into();
            let whose = self.whose(&metadata);
            match &whose {
                LabelOwner::OtherShard(shard) => return Err(deny(&target, DenyReason::Has(shard))),
                // Between the acknowledgement and the assignment, or while the acknowledgement is on its way.
                LabelOwner::NoShard | LabelOwner::Draining if self.fence.has_moved(&uid) => {
                    return Err(deny(&target, DenyReason::Released));
                }
                // A reconcile that was silent for longer than the grace does not know of the release, and nor does this
                // proxy.
                LabelOwner::NoShard | LabelOwner::Draining
                    if self.fence.has_evicted_recent() && !self.fence.lets_go_of(&self.cache_scope, &uid) =>
                {
                    return Err(deny(&target, DenyReason::MayBeReleased));
                }
                // Drained before this shard had its Lease: its controller was not shown it since, and the sharder may not
                // wait for an acknowledgement of what was drained while the shard was away.
                LabelOwner::Draining
                    if self.is_main(&target) && !self.fence.was_ours(&self.cache_scope, &target.resource, &uid) =>
                {
                    return Err(deny(&target, DenyReason::Draining));
                }
                LabelOwner::NoShard | LabelOwner::Draining | LabelOwner::Ours => {}
            }
            uids.push(uid.clone());
            let controller = match self.cache_scope.policy.is_controlled(&target.resource) {
                true => self.followed(metadata.owners(), target.namespace.as_deref()).await,
                false => Ok(metadata.owners().iter().filter(|owner| owner.controls()).cloned().collect()),
            };
            let controller = &controller.map_err(|failed| failed.about(&target))?;
            let controller = controller.first();
            write_guard.add_candidates(&uids_of(controller));
            // It moves before its owner has another shard: what is labelled ours, below what is known to be ours, is so.
            if let Some(owner) = controller.filter(|_| !asks && whose == LabelOwner::Ours)
                && let owner = Uid::from(owner.uid.as_str())
                && let CachedOwner::Ours(above) = self.fence.standing_of(&self.cache_scope, &owner)
            {
                self.fence.record_owned(&self.cache_scope, &target, &uid, Some(owner), asked);
                uids.extend(above);
                return Ok(uids);
            }
            let above = match controller {
                Some(owner) => self.owner(owner, target.namespace.as_deref()).await?,
                None => NamedOwner::Foreign,
            };
            let controller = controller.filter(|_| !matches!(above, NamedOwner::Foreign));
            if whose == LabelOwner::Ours {
                self.fence.record_owned(
                    &self.cache_scope,
                    &target,
                    &uid,
                    controller.map(|owner| owner.uid.as_str().into()),
                    asked,
                );
            }
            let NamedOwner::There(next) = above else { return Ok(uids) };
            seen = *next;
        }
        let why = format!("more than {MAX_OWNER_DEPTH} objects own each other in a chain, or in a circle");
        Err(QuestionError::passing(&why).about(&seen.target))
    }
}

/// The uids in owner references.
pub(super) fn uids_of<'a>(owners: impl IntoIterator<Item = &'a Owner>) -> Vec<Uid> {
    owners.into_iter().map(|owner| owner.uid.as_str().into()).collect()
}

/// Why a write to an object is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum DenyReason<'a> {
    /// This shard has it.
    Has(&'a str),
    /// The proxy's shard has released it.
    Released,
    /// It may have, which is not remembered.
    MayBeReleased,
    /// It is drained, and was so before this hold on the Lease, as far as is known.
    Draining,
}

/// The refusal of a write.
pub(super) fn deny(target: &Target, why: DenyReason<'_>) -> Refusal {
    let why = match why {
        DenyReason::Has(shard) => format!("it belongs to shard '{shard}'"),
        DenyReason::Released => "this shard has released it, and another one takes it".to_owned(),
        DenyReason::MayBeReleased => {
            "this shard may have released it: the proxy was restarted, or had to forget what it released".to_owned()
        }
        DenyReason::Draining => "it is to leave this shard, and was when this shard took its Lease".to_owned(),
    };
    Refusal::Moved { object: Box::new(named(target)), why }
}
