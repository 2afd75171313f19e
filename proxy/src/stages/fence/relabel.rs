//! Children that come without label: the webhook is asked about them once more.
//!
//! The webhook labels a child in the write that creates it (DESIGN, "Children"). Where the API server could not ask it
//! in that moment the write passes all the same, and the child has no shard: its owner's controller does not see it,
//! would create it again and be refused, and the sharder, which watches no children, finds it with its next look at all
//! of them. The proxy of a controller that created it can tell by the answer, and so can that of one that creates it
//! again. So the proxy writes to the child what changes nothing, and the API server asks the webhook about that.
//!
//! One that is there before it is created, and has no controller either, was made by hand or restored. It gets this shard's
//! label, so that the owner's controller sees it, and can adopt it as it would without shards.
//!
//! Both are writes like the controller's own: counted, and not sent once the child's owner was released.

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::{Response, StatusCode};
use ringside_ring::{
    labels::ADOPTION,
    patch::{Seen, assign},
};
use ringside_runtime::contained::contained;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};
use tokio_util::task::TaskTracker;

use super::{
    ask::{JSON_PATCH, QuestionError},
    detached::DetachedWrites,
    ownership_check::{LabelOwner, OwnershipCheck},
};
use crate::{
    body::Body,
    fence::{About, CachedOwner, Target, Uid},
    metadata::{self, MAX_OBJECT, Metadata, Owner},
    stages::admit::Admitted,
};

/// How many are cared for at once. Of more the webhook was not asked about all: the sharder notices that, and looks for them.
const MAX_RELABELED: usize = 64;
/// How long to wait before each time that it is tried. After all of them an API server that can't ask has been noticed by the
/// sharder, which tries it every ten seconds.
const PAUSES: [Duration; 8] = {
    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    [ms(0), ms(100), ms(300), ms(600), ms(1000), ms(2000), ms(4000), ms(8000)]
};

/// No try begins later than this: as long as all pauses together, and what tries take that are answered at once.
const LAST_TRY_AFTER: Duration = Duration::from_secs(20);

/// Those who are cared for. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Relabeler(Arc<Relabeling>);

#[derive(Debug)]
struct Relabeling {
    places: Arc<Semaphore>,
}

impl Default for Relabeler {
    fn default() -> Self {
        Self(Arc::new(Relabeling { places: Arc::new(Semaphore::new(MAX_RELABELED)) }))
    }
}

/// A child that was just created.
struct Child {
    target: Target,
    uid: String,
    above: Above,
}

/// Who is above an object that is created.
pub(super) struct Above {
    /// Its owner, as the object names it; several only where it is to have more than one controller.
    pub(super) owners: Vec<Owner>,
    /// The objects of the ring among these, and those above them.
    pub(super) uids: Vec<Uid>,
}

impl Relabeler {
    /// The answer to a write under owners of the ring, as it came; if it says that this created a child without label, that is
    /// cared for from now on. So is one that is there already and has none, where the write was to create it by this name: its
    /// owner's controller does not see it.
    pub(super) async fn look(
        &self,
        answer: Response<Body>,
        (mut target, named, above): (Target, Option<String>, Above),
        check: OwnershipCheck,
        around: (Admitted, DetachedWrites),
    ) -> Response<Body> {
        if above.uids.is_empty() {
            return answer;
        }
        match (answer.status(), named) {
            (StatusCode::CREATED, _) => {
                let (head, body) = answer.into_parts();
                let (whole, body) = check.questions.budget.peek(body, MAX_OBJECT).await;
                let created = whole.ok().flatten().and_then(|whole| metadata::of_answer(&head.headers, &whole).ok());
                if let Some(Metadata { name: Some(name), uid: Some(uid), .. }) =
                    created.filter(|created| check.whose(created) == LabelOwner::NoShard)
                {
                    target.name = Some(name);
                    self.relabel(Child { target, uid, above }, check, around);
                }
                Response::from_parts(head, body)
            }
            (StatusCode::CONFLICT, Some(name)) => {
                target.name = Some(name);
                if !matches!(check.fence.cached_owner(&check.cache_scope, &target), CachedOwner::Ours(_)) {
                    self.care_if_there(target, above, check, around);
                }
                answer
            }
            _ => answer,
        }
    }

    fn relabel(&self, child: Child, check: OwnershipCheck, around: (Admitted, DetachedWrites)) {
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            self.0.left(&child.target, &check, "too many others have none");
            return;
        };
        let (relabeling, tasks) = (self.0.clone(), around.1.tasks.clone());
        begin(async move { relabeling.until_labelled(child, &check, &tasks).await }, place, around);
    }

    /// One that is the shard's already is known from here on, and not asked about with each write that is to create it.
    fn care_if_there(&self, target: Target, above: Above, check: OwnershipCheck, around: (Admitted, DetachedWrites)) {
        // The client that creates it will do so again.
        let Ok(place) = self.0.places.clone().try_acquire_owned() else { return };
        let (relabeling, tasks) = (self.0.clone(), around.1.tasks.clone());
        let relabel = async move {
            let asked = check.fence.asking();
            let Ok(Some(there)) = check.ask(&target).await else { return };
            let Some(uid) = there.uid.clone() else { return };
            let Ok(owners) = check.followed(there.owners(), target.namespace.as_deref()).await else { return };
            let controller = owners.first().map(|owner| Uid::from(owner.uid.as_str()));
            match (controller, check.whose(&there)) {
                // One that is placed by itself gets a shard of its own.
                (None, LabelOwner::NoShard) if check.cache_scope.policy.is_main(&target.resource) => {}
                (None, LabelOwner::NoShard) => {
                    relabeling.offer(&Child { target, uid, above }, &there, &check, &tasks).await;
                }
                (Some(controller), _) if !above.uids.contains(&controller) => {}
                (controller @ Some(_), LabelOwner::Ours) => {
                    check.fence.record_owned(&check.cache_scope, &target, &uid.into(), controller, asked);
                }
                (Some(_), LabelOwner::NoShard) => {
                    relabeling.until_labelled(Child { target, uid, above }, &check, &tasks).await;
                }
                _ => {}
            }
        };
        begin(relabel, place, around);
    }
}

/// It has its place until it ends, and ends with the shard's term.
fn begin(
    relabel: impl Future<Output = ()> + Send + 'static,
    place: OwnedSemaphorePermit,
    (admitted, detached): (Admitted, DetachedWrites),
) {
    let (over, abort) = (admitted.over(), detached.abort);
    tokio::spawn(contained(async move {
        tokio::select! {
            () = relabel => {}
            _ = over => {}
            () = abort.cancelled() => {}
        }
        drop(place);
    }));
}

impl Relabeling {
    /// Tries until it has a label. A try is waited for when the proxy ends, and none is begun then.
    async fn until_labelled(&self, child: Child, check: &OwnershipCheck, tasks: &TaskTracker) {
        let Child { target, above, .. } = &child;
        // The webhook does not label what belongs to no family of the ring.
        let mut last = match check.follows(target, &above.owners).await {
            Ok(true) => None,
            Ok(false) => return,
            Err(failed) => return self.left(target, check, failed.why()),
        };
        let started = Instant::now();
        for pause in PAUSES {
            sleep(pause).await;
            if started.elapsed() > LAST_TRY_AFTER {
                break;
            }
            // Who works on its owner next finds it when it is to create it.
            if tasks.is_closed() || check.fence.is_leaving(&above.uids) {
                return;
            }
            match tasks.track_future(write(&child, check, None)).await {
                Ok(Some(now)) if check.whose(&now) == LabelOwner::NoShard => last = None,
                Ok(Some(_)) => {
                    check.questions.metrics.unlabelled("labelled");
                    let Target { resource, namespace, name } = target;
                    tracing::debug!(%resource, namespace, name, "a child that came without label has one");
                    return;
                }
                Ok(None) => return,
                Err(failed) => {
                    let lasts = failed.is_forbidden();
                    last = Some(failed);
                    if lasts {
                        break;
                    }
                }
            }
        }
        self.left(target, check, last.as_ref().map_or("the webhook does not label it", QuestionError::why));
    }

    /// Gives an object without controller this shard's label. Once: who creates it will do so again.
    async fn offer(&self, child: &Child, there: &Metadata, check: &OwnershipCheck, tasks: &TaskTracker) {
        let Child { target, uid, above } = child;
        if !matches!(check.follows(target, &above.owners).await, Ok(true))
            || tasks.is_closed()
            || check.fence.is_leaving(&above.uids)
            || check.fence.has_moved(uid)
        {
            return;
        }
        let seen = Seen {
            uid,
            resource_version: there.resource_version.as_deref().unwrap_or_default(),
            ownership: check.labels.ownership(there.labels.as_ref()),
            has_labels: there.labels.is_some(),
        };
        let patch = serde_json::json!(assign(&check.labels, &seen, &check.cache_scope.term.shard)).to_string();
        match tasks.track_future(write(child, check, Some(patch))).await {
            Ok(Some(now)) if check.whose(&now) == LabelOwner::Ours => {
                check.questions.metrics.unlabelled("adoptable");
                let Target { resource, namespace, name } = target;
                tracing::info!(%resource, namespace, name, "labelled an existing object for its owner's controller to adopt");
            }
            Ok(Some(_)) => {
                self.left(target, check, "admission takes the shard's label off an object without controller");
            }
            Ok(None) => {}
            Err(failed) => self.left(target, check, failed.why()),
        }
    }

    /// Leaves the child to the sharder: no controller sees it. In an outage that is all children: the log names one of
    /// a resource.
    fn left(&self, Target { resource, namespace, name }: &Target, check: &OwnershipCheck, why: &str) {
        check.questions.metrics.unlabelled("left");
        tracing::warn!(
            %resource, child = name, in_namespace = namespace, why,
            "a child has no label, so its controller does not see it; others may have none too"
        );
    }
}

/// Writes a JSON patch to the child, or what changes nothing; returns its metadata after that. None if it is gone, or not to be
/// written to any more.
async fn write(
    Child { target, uid, above }: &Child,
    check: &OwnershipCheck,
    patch: Option<String>,
) -> Result<Option<Metadata>, QuestionError> {
    let write_guard = check.fence.enter(About { target: Some(target.clone()), uids: HashSet::new() });
    if write_guard.check_and_add(&above.uids).is_err() {
        return Ok(None);
    }
    match patch {
        None => check.questions.touch((target, uid), &check.version, &write_guard).await,
        Some(patch) => check.questions.patch(target, &check.version, (ADOPTION, JSON_PATCH, patch), &write_guard).await,
    }
}
