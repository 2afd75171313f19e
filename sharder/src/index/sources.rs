//! Which watches feed an index, and what they do to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Client;
use ringside_runtime::heartbeat::Heartbeats;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use super::{Index, Mark, Part, Progress, ResourceId, feed::Feed};
use crate::resources::Object;

/// Namespaces that get a watch each. Of more, the whole cluster is watched.
const MAX_NAMESPACES: usize = 10;
/// The same where the cluster is watched already: a number that changes by one or two changes nothing.
const MAX_NAMESPACES_AGAIN: usize = 5;
/// Lists at once. Those of roots come first.
const PARALLEL_LISTS: usize = 2;

/// What a list or watch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cluster,
    Namespace(Arc<str>),
}

impl Scope {
    /// The watches on a resource of which these namespaces matter, at most so many of them each by itself.
    fn of(namespaced: bool, namespaces: &BTreeSet<String>, most: usize) -> Vec<Self> {
        if !namespaced || namespaces.len() > most {
            return vec![Self::Cluster];
        }
        namespaces.iter().map(|namespace| Self::Namespace(namespace.as_str().into())).collect()
    }

    /// Its namespace, if it is one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }
}

/// How a controlled resource is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All its objects.
    All,
    /// Those with the shard label: the ring has few of them. The others are listed from time to time.
    Labelled,
}

impl Mode {
    /// By how many objects a list showed, and how many of them are the ring's.
    pub(super) fn of(listed: usize, kept: usize) -> Self {
        if kept * 4 >= listed { Self::All } else { Self::Labelled }
    }
}

/// One resource in one scope of an index: what feeds and other lists write to.
pub(crate) struct Source {
    pub(crate) index: Arc<Index>,
    pub(crate) resource: ResourceId,
    pub(crate) scope: Scope,
    pub(crate) progress: Arc<Progress>,
    /// Held from the begin of a list to its end: of two at once, one would take what the other showed for gone.
    pub(crate) listing: Arc<Listing>,
}

/// Of one resource, a list at a time.
pub(crate) type Listing = tokio::sync::Mutex<()>;

impl Source {
    /// Takes in an object that exists; returns whether it is the ring's.
    pub(super) fn show(&self, object: &Object) -> bool {
        self.index.apply(self.resource, &object.metadata)
    }

    /// The API server's time went back.
    pub(super) fn went_back(&self) {
        self.index.went_back(self.resource, &self.scope);
        self.progress.went_back();
    }

    /// An object does not exist any more, or is not watched any more.
    pub(super) fn remove(&self, object: &Object) {
        self.index.remove(self.resource, object.metadata.uid.as_deref().unwrap_or_default());
    }

    pub(super) fn begin(&self, part: Part) {
        self.index.begin(self.resource, &self.scope, part);
    }

    pub(super) fn end(&self, part: Part) {
        self.index.end(self.resource, &self.scope, part);
    }

    pub(super) fn listed(&self, began: Mark, version: &str) {
        self.progress.listed(began, version.parse().unwrap_or_default());
    }

    /// The watch has shown everything up to this version.
    pub(super) fn delivered(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.progress.delivered(version);
        }
    }

    pub(super) fn watched(&self, error: Option<&kube::Error>) {
        self.index.observer.watched(self.resource, error);
    }
}

/// A feed that runs until it is dropped.
struct Running {
    progress: Arc<Progress>,
    mode: watch::Receiver<Mode>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The feeds of one index.
pub(crate) struct Sources {
    index: Arc<Index>,
    client: Client,
    /// Tells when the API server's time went back.
    went_back: watch::Receiver<()>,
    heartbeats: Heartbeats,
    lists: Arc<Semaphore>,
    listing: Vec<Arc<Listing>>,
    running: BTreeMap<(ResourceId, Scope), Running>,
    has_begun: bool,
    /// Whether there are watches that others are about to take the place of.
    is_changing: bool,
    /// Whether all objects are watched of every resource.
    all: watch::Sender<bool>,
}

impl Sources {
    /// None yet.
    pub(crate) fn new(
        index: Arc<Index>,
        client: Client,
        went_back: watch::Receiver<()>,
        heartbeats: Heartbeats,
    ) -> Self {
        let listing = index.read(|objects| objects.kinds().iter().map(|_| Arc::default()).collect());
        Self {
            index,
            client,
            went_back,
            heartbeats,
            listing,
            lists: Arc::new(Semaphore::new(PARALLEL_LISTS)),
            running: BTreeMap::new(),
            has_begun: false,
            is_changing: false,
            all: watch::Sender::new(false),
        }
    }

    /// Watches what the selected namespaces have, and what has labels of the ring elsewhere.
    ///
    /// Few namespaces are watched each by itself, and labels in others are unknown then: [`super::repair::list`] shows them.
    pub(crate) fn keep(&mut self, selected: &BTreeSet<String>) {
        let mut namespaces = selected.clone();
        let kinds = self.index.read(|objects| {
            namespaces.extend(objects.namespaces().filter(|name| !name.is_empty()).map(str::to_owned));
            objects.kinds().to_vec()
        });
        let wanted: BTreeSet<_> = (0_u8..)
            .map(ResourceId)
            .zip(&kinds)
            .flat_map(|(id, kind)| {
                let is_of_cluster = self.running.contains_key(&(id, Scope::Cluster));
                let most = if is_of_cluster { MAX_NAMESPACES_AGAIN } else { MAX_NAMESPACES };
                Scope::of(kind.resource.namespaced, &namespaces, most).into_iter().map(move |of| (id, of))
            })
            .collect();
        self.has_begun = true;
        // What is watched is watched on until the list of what takes its place has ended.
        let is_listed = |source: &(ResourceId, Scope)| self.is_listed(source);
        let pending: BTreeSet<ResourceId> =
            wanted.iter().filter(|source| !is_listed(source)).map(|(id, _)| *id).collect();
        self.running.retain(|source, _| wanted.contains(source) || pending.contains(&source.0));
        self.is_changing = self.running.keys().any(|source| !wanted.contains(source));
        for (resource, scope) in wanted {
            let kind = &kinds[usize::from(resource.0)];
            let source = self.running.entry((resource, scope.clone()));
            source.or_insert_with(|| {
                let (index, progress) = (Arc::clone(&self.index), Arc::<Progress>::default());
                let labels = index.read(|objects| objects.labels().clone());
                let listing = Arc::clone(&self.listing[usize::from(resource.0)]);
                let source = Source { index, resource, scope, progress: Arc::clone(&progress), listing };
                let feed = Feed::new(
                    (kind.resource.clone(), self.client.clone()),
                    source,
                    Arc::clone(&self.lists),
                    self.went_back.clone(),
                );
                let feed = if kind.is_root { feed } else { feed.or_labelled(labels.shard, self.all.subscribe()) };
                let mode = feed.mode();
                let (heartbeats, name) = (self.heartbeats.clone(), format!("the watch on '{}'", kind.resource.id));
                let task = tokio::spawn(async move { match heartbeats.follow(name, feed.run()).await {} });
                Running { progress, mode, task }
            });
        }
    }

    /// Whether the first list of a feed has ended.
    fn is_listed(&self, source: &(ResourceId, Scope)) -> bool {
        self.running.get(source).is_some_and(|running| running.progress.is_proven(Mark::default()))
    }

    /// Whether [`Self::keep`] has to be called again soon.
    pub(crate) const fn are_changing(&self) -> bool {
        self.is_changing
    }

    /// The progress of the watches that show the objects of a namespace.
    pub(crate) fn progress(&self, resource: ResourceId, namespace: &str) -> impl Iterator<Item = &Progress> {
        let of = move |scope| self.running.get(&(resource, scope)).map(|running| &*running.progress);
        [Scope::Cluster, Scope::Namespace(namespace.into())].into_iter().filter_map(of)
    }

    /// Whether namespaced resources are watched in the whole cluster.
    pub(crate) fn are_of_cluster(&self) -> bool {
        let kinds = self.index.read(|objects| objects.kinds().to_vec());
        let namespaced = |id: &ResourceId| kinds.get(usize::from(id.0)).is_some_and(|kind| kind.resource.namespaced);
        let mut all = (0_u8..).map(ResourceId).take(kinds.len());
        all.all(|id| !namespaced(&id) || self.running.contains_key(&(id, Scope::Cluster)))
    }

    /// What lists of a resource in a namespace are taken into; an empty one: of any.
    pub(crate) fn source(&self, resource: ResourceId, namespace: &str) -> Source {
        let scopes = [Scope::Namespace(namespace.into()), Scope::Cluster].map(|scope| (resource, scope));
        let listed = scopes.iter().find(|source| self.is_listed(source));
        let known = listed.or_else(|| scopes.iter().find(|source| self.running.contains_key(source)));
        let scope = known.map_or(Scope::Cluster, |(_, scope)| scope.clone());
        let running = self.running.get(&(resource, scope.clone()));
        let progress = running.map(|running| Arc::clone(&running.progress)).unwrap_or_default();
        self.source_of(resource, scope, progress)
    }

    fn source_of(&self, resource: ResourceId, scope: Scope, progress: Arc<Progress>) -> Source {
        let listing = Arc::clone(&self.listing[usize::from(resource.0)]);
        Source { index: Arc::clone(&self.index), resource, scope, progress, listing }
    }

    /// The same for each watch that shows what an object has in its namespace, or in all where it has none itself.
    pub(crate) fn of(&self, resource: ResourceId, namespace: Option<&str>) -> Vec<Source> {
        if let Some(namespace) = namespace {
            return vec![self.source(resource, namespace)];
        }
        let of_resource = || self.running.keys().filter(|(of, _)| *of == resource);
        let cluster = (resource, Scope::Cluster);
        if self.is_listed(&cluster) || of_resource().next().is_none() {
            return vec![self.source(resource, "")];
        }
        of_resource().map(|(_, scope)| self.source(resource, scope.namespace().unwrap_or_default())).collect()
    }

    /// The progress of a watch that is to show what an object has, and whose first list has not ended.
    pub(crate) fn first_list(&self, resource: ResourceId, namespace: Option<&str>) -> Option<Arc<Progress>> {
        let scopes = self.of(resource, namespace).into_iter().map(|source| (resource, source.scope));
        let running = scopes.filter(|source| !self.is_listed(source)).find_map(|source| self.running.get(&source));
        running.map(|running| Arc::clone(&running.progress))
    }

    /// The watches of a resource that are of this mode.
    pub(crate) fn of_mode(&self, resource: ResourceId, mode: Mode) -> Vec<Source> {
        let is_of = |running: &Running| *running.mode.borrow() == mode;
        let of = self.running.iter().filter(|((of, _), running)| *of == resource && is_of(running));
        of.map(|((_, scope), running)| self.source_of(resource, scope.clone(), Arc::clone(&running.progress))).collect()
    }

    /// Whether children without label are to be watched of all resources: while the webhook is away, nothing else shows them.
    pub(crate) fn watch_all(&self, all: bool) {
        self.all.send_if_modified(|is_all| std::mem::replace(is_all, all) != all);
    }

    /// Whether the first lists of these resources have ended, so that what is not in the index does not exist.
    pub(crate) fn are_listed(&self, resources: impl Fn(ResourceId) -> bool) -> bool {
        let mut of_resources = self.running.iter().filter(|((id, _), _)| resources(*id));
        self.has_begun && of_resources.all(|(_, running)| running.progress.is_proven(Mark::default()))
    }
}
