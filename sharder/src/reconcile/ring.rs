//! What the work on one ring shares.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use kube::Client;
use ringside_ring::{
    RingLabels, ShardName,
    cluster_ring::GroupResource,
    decide::{Action, Covered},
};
use ringside_runtime::heartbeat::Heartbeats;
use tokio::sync::watch;

use super::{
    Known,
    children::Refused,
    family::Root,
    first_pass::FirstPasses,
    judge::{Judge, Watching},
    kinds::kinds_of,
    takeover::Takeovers,
    told::Told,
};
use crate::{
    failed_moves::Cause,
    faults::Faults,
    fence::Fences,
    index::{self, Index, Kind, Mark, ResourceId, Role, Selected, Shard, SharedLists, Slot, Source, Sources},
    leases::Leases,
    lock::{Mutex, rank},
    metrics::Metrics,
    namespaces::Namespaces,
    notices::Notices,
    queue::moves::Moves,
    resources::{Object, Resource},
    snapshot::{Main, Place, Snapshot},
    target::Target,
    verdict::Verdicts,
    writes::{Answers, Writes},
};

/// The feeds of a ring.
type SharedSources = Arc<Mutex<Sources, { rank::SOURCES }>>;

/// What the work on a ring needs of the rest of the sharder.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) leases: Leases,
    pub(crate) namespaces: Namespaces,
    pub(crate) fences: Fences,
    pub(crate) notices: Notices,
    pub(crate) metrics: Metrics,
    pub(crate) heartbeats: Heartbeats,
    /// Whether the API server asks the webhook about the ring.
    pub(crate) reach: Verdicts,
}

/// One ring, for as long as its resources and namespaces are the same.
pub(super) struct Ring {
    pub(super) tools: Tools,
    pub(super) labels: RingLabels,
    pub(super) judge: Arc<Judge>,
    pub(super) index: Arc<Index>,
    pub(super) kinds: Vec<Kind>,
    pub(super) sources: SharedSources,
    /// Lists of children that several families wait for.
    pub(super) lists: SharedLists,
    pub(super) moves: Moves,
    pub(super) writes: Writes,
    pub(super) told: Told,
    /// Tells when a root got its first shard.
    pub(super) first_shards: watch::Sender<()>,
    pub(super) takeovers: Takeovers,
    pub(super) first_passes: FirstPasses,
    /// The roots to which a write had no answer: the index may show them as they were before.
    unsure: Mutex<HashSet<Slot>>,
}

/// An object as the index shows it, and what is next for it.
pub(super) struct Seen {
    pub(super) resource: ResourceId,
    /// None where it has to be read.
    pub(super) target: Option<Target>,
    /// Its uid, as far as the index has it, its namespace and its name.
    pub(super) known: Target,
    /// The namespace by whose labels it is selected.
    pub(super) selected_by: String,
    pub(super) selected: Selected,
    pub(super) what: What,
}

/// What an object is, as far as that makes a difference.
pub(super) enum What {
    Root {
        main: Main,
        covered: Covered,
        action: Action<ShardName>,
    },
    /// A child that its shard has been asked to release for long.
    Held {
        main: Main,
    },
    /// It follows no object of the ring, or one that is not known.
    Stray {
        is_lone: bool,
    },
}

impl Ring {
    pub(super) fn new(
        tools: &Tools,
        snapshot: &Arc<Snapshot>,
        writes: &Writes,
        known: &Known,
        faults: &Faults,
    ) -> Self {
        let (kinds, labels) = (kinds_of(snapshot), snapshot.labels.clone());
        let moves = (known.drains.clone(), known.failed_moves.clone());
        let judge = Judge::new(snapshot.clone(), &kinds, moves, tools.fences.clone(), faults.clone());
        let judge = Arc::new(judge);
        let (namespaces, selector) = (tools.namespaces.clone(), snapshot.namespaces.clone());
        let selection = Box::new(move |namespace: &str| namespaces.is_selected(&selector, namespace));
        let index = Index::new(
            kinds.clone(),
            (labels.clone(), snapshot.groups.clone()),
            selection,
            Box::new(Watching(judge.clone())),
        );
        let sources =
            Sources::new(index.clone(), tools.watches.clone(), tools.leases.went_back(), tools.heartbeats.clone());
        let sources = Arc::new(Mutex::new(sources));
        let answers = Shown { index: index.clone(), sources: sources.clone(), kinds: kinds.clone() };
        Self {
            writes: writes.telling(Arc::new(answers)),
            told: Told::new(snapshot.ring.clone(), faults.clone()),
            tools: tools.clone(),
            labels,
            judge,
            index,
            kinds,
            sources,
            lists: SharedLists::default(),
            moves: Moves::default(),
            takeovers: Takeovers::default(),
            first_passes: FirstPasses::default(),
            unsure: Mutex::default(),
            first_shards: watch::Sender::new(()),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.tools.client
    }

    pub(super) fn resource(&self, id: ResourceId) -> &Arc<Resource> {
        &self.kinds[usize::from(id.0)].resource
    }

    /// A write to a root had no answer: it is read before it is decided about again.
    pub(super) fn unsure(&self, slot: Slot) {
        self.unsure.lock().insert(slot);
    }

    pub(super) fn is_unsure(&self, slot: Slot) -> bool {
        self.unsure.lock().contains(&slot)
    }

    /// It was read.
    pub(super) fn is_sure(&self, slot: Slot) {
        self.unsure.lock().remove(&slot);
    }

    /// The numbers of the resources in the index.
    pub(super) fn ids(&self) -> impl Iterator<Item = ResourceId> + use<> {
        (0_u8..).map(ResourceId).take(self.kinds.len())
    }

    /// The number of a resource in the index.
    pub(super) fn id(&self, resource: &GroupResource) -> Option<ResourceId> {
        id_of(&self.kinds, resource)
    }

    /// Looks up what is known of an object.
    pub(super) fn see(&self, slot: Slot) -> Option<Seen> {
        self.index.read(|objects| {
            let object = objects.get(slot)?;
            let what = match object.role() {
                Role::Root { .. } => {
                    let main = self.judge.main(object.resource())?.clone();
                    let covered = self.judge.covers(object, &main);
                    What::Root { covered, action: self.judge.decide(objects, slot)?, main }
                }
                Role::Lone { certain } => What::Stray { is_lone: certain },
                Role::Waiting => What::Stray { is_lone: false },
                Role::Child { .. } => {
                    object.drain()?;
                    What::Held { main: self.judge.main(object.resource())?.clone() }
                }
            };
            let known = Target {
                uid: object.uid().unwrap_or_default(),
                namespace: Some(object.namespace()).filter(|namespace| !namespace.is_empty()).map(str::to_owned),
                name: object.name().to_owned(),
                ..Target::default()
            };
            Some(Seen {
                resource: object.resource(),
                target: object.target(),
                known,
                selected_by: object.selected_by().to_owned(),
                selected: object.selected(),
                what,
            })
        })
    }

    /// The object of a slot as it is now; none when it is gone, or another one has its name.
    pub(super) async fn read(
        &self,
        (resource, slot): (ResourceId, Slot),
        (namespace, name): (Option<&str>, &str),
    ) -> Result<Option<Target>, kube::Error> {
        let kind = self.resource(resource);
        let api = kind.api();
        let found = kind.objects_as(&api, self.client(), namespace).get_opt(name).await;
        let Some(found) = kind.answered(&api, found)? else { return Ok(None) };
        self.index.refresh(resource, &found.metadata);
        let uid = found.metadata.uid.as_deref().unwrap_or_default();
        let is_it = self.index.read(|objects| objects.find(resource, uid).is_some_and(|it| it.slot == slot));
        Ok(is_it.then(|| Target::of(&found.metadata, &self.labels)))
    }

    /// What is next for a root as it was read; nothing where it is none any more.
    pub(super) fn next_of(&self, main: &Main, target: &Target, covered: Covered) -> Action<ShardName> {
        let place = self.id(&main.resource.id).and_then(|resource| {
            self.index.read(|objects| {
                let object = objects.find(resource, &target.uid)?;
                let Role::Root { point: key } = object.role() else { return None };
                Some(Place { key, group: object.group() })
            })
        });
        place.map_or(Action::Keep, |place| self.judge.next_of(main, (target, place), covered))
    }

    /// The shard that gets a root that is going `to` another one, and of which children are refused. Of several that have some it is
    /// the one that the root `left`.
    pub(super) fn receiver_beside(
        &self,
        root: &Root,
        to: ShardName,
        left: Option<&str>,
        refused: &[Refused],
    ) -> ShardName {
        let view = self.judge.view();
        let group = self.index.read(|objects| objects.get(root.slot).map(index::Object::group)).unwrap_or_default();
        let view = view.view(group);
        let Some(meant) = view.ring().id(to.as_str()) else { return to };
        let mut having: Vec<_> = refused.iter().filter_map(|refused| refused.child.shard.as_deref()).collect();
        having.sort_by_key(|shard| left != Some(*shard));
        let gets = view.receiver_beside(meant, having.into_iter().map(|shard| view.holder(Some(shard))));
        view.ring().name(gets).cloned().unwrap_or(to)
    }

    /// What a move of a root may fail at: the shard that has it, and the resources of its children.
    pub(super) fn causes(&self, slot: Slot, from: &str) -> Vec<Cause> {
        let of_children =
            self.child_resources(slot).into_iter().map(|kind| Cause::Children(self.resource(kind).id.clone()));
        of_children.chain([Cause::Shard(from.to_owned())]).collect()
    }

    fn child_resources(&self, slot: Slot) -> BTreeSet<ResourceId> {
        self.index.read(|objects| {
            let members = objects.followers(slot).into_iter();
            members.filter_map(|member| Some(objects.get(member.slot)?.resource())).collect()
        })
    }

    /// Decides about all roots of these resources again.
    pub(super) fn sort(&self, resources: impl Fn(ResourceId) -> bool) {
        self.index.walk(|object| {
            if matches!(object.role(), Role::Root { .. }) && resources(object.resource()) {
                self.judge.sort(object);
            }
        });
    }

    /// The watch that shows the objects of a resource in a namespace, and what lists of them are taken into.
    pub(super) fn source(&self, resource: ResourceId, namespace: Option<&str>) -> Source {
        self.sources.lock().source(resource, namespace.unwrap_or_default())
    }

    /// Whether all lists have ended once: what the index does not show does not exist.
    pub(super) fn is_complete(&self) -> bool {
        self.sources.lock().are_listed(|_| true)
    }

    /// The same of one resource, and of those above and below it: its families are known as a whole.
    pub(super) fn is_listed(&self, id: ResourceId) -> bool {
        let kind = |id: ResourceId| &self.kinds[usize::from(id.0)];
        self.sources.lock().are_listed(|of| Kind::is_akin((id, kind(id)), (of, kind(of))))
    }

    /// The same of all that can be listed at the moment.
    pub(super) fn has_listed_what_it_can(&self) -> bool {
        self.sources.lock().are_listed(|of| !self.judge.is_unwatched(of))
    }

    /// Whether an object is known to drain, or to be without a shard.
    pub(super) fn is_moving(&self, resource: &GroupResource, uid: &str) -> bool {
        let Some(id) = self.id(resource) else { return false };
        let is_moving = |object: index::Object<'_>| object.drain().is_some() || object.shard() == Shard::Unassigned;
        self.index.read(|objects| objects.find(id, uid).is_some_and(is_moving))
    }

    /// The namespaces that are selected now.
    pub(super) fn selected_namespaces(&self) -> BTreeSet<String> {
        self.tools.namespaces.selected(&self.judge.view().namespaces)
    }
}

fn id_of(kinds: &[Kind], resource: &GroupResource) -> Option<ResourceId> {
    let at = kinds.iter().position(|kind| kind.resource.id == *resource)?;
    u8::try_from(at).ok().map(ResourceId)
}

/// Takes what the API server answers into the index.
struct Shown {
    index: Arc<Index>,
    sources: SharedSources,
    kinds: Vec<Kind>,
}

impl Answers for Shown {
    fn shown(&self, resource: &Resource, object: &Object, wrote: Option<Mark>) {
        let Some(id) = id_of(&self.kinds, &resource.id) else { return };
        self.index.refresh(id, &object.metadata);
        let version = object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        if let (Some(began), Some(version)) = (wrote, version) {
            self.sources.lock().progress(id, namespace).for_each(|progress| progress.wrote(began, version));
        }
    }

    fn gone(&self, resource: &Resource, uid: &str) {
        if let Some(id) = id_of(&self.kinds, &resource.id) {
            self.index.remove(id, uid);
        }
    }
}
