//! Which watches feed an index, and what they do to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Client;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use super::{Index, Mark, Origin, Part, Progress, ResourceId, feed::Feed};
use crate::resources::Object;

/// Namespaces that get a watch each. Of more, the whole cluster is watched.
const MAX_NAMESPACES: usize = 10;
/// Lists at once. Those of roots come first.
const PARALLEL_LISTS: usize = 2;

/// What a list or watch is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cluster,
    Namespace(Arc<str>),
}

impl Scope {
    /// The watches on a resource of which these namespaces matter.
    fn of(namespaced: bool, namespaces: &BTreeSet<String>) -> Vec<Self> {
        if !namespaced || namespaces.len() > MAX_NAMESPACES {
            return vec![Self::Cluster];
        }
        namespaces.iter().map(|namespace| Self::Namespace(namespace.as_str().into())).collect()
    }

    /// Its namespace, if it is one.
    pub(super) fn namespace(&self) -> Option<&str> {
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
}

impl Source {
    /// Takes in an object that exists; returns whether it is the ring's.
    pub(super) fn show(&self, object: &Object, from: Origin) -> bool {
        self.index.apply(self.resource, &object.metadata, from)
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
    lists: Arc<Semaphore>,
    running: BTreeMap<(ResourceId, Scope), Running>,
}

impl Sources {
    /// None yet.
    pub(crate) fn new(index: Arc<Index>, client: Client, went_back: watch::Receiver<()>) -> Self {
        Self { index, client, went_back, lists: Arc::new(Semaphore::new(PARALLEL_LISTS)), running: BTreeMap::new() }
    }

    /// Watches what the selected namespaces have, and what has labels of the ring elsewhere.
    ///
    /// Few namespaces are watched each by itself, and labels in others are unknown then: [`super::repair::list`] shows them.
    pub(crate) fn keep(&mut self, selected: &BTreeSet<String>) {
        let mut namespaces = selected.clone();
        let kinds = self.index.read(|objects| {
            namespaces.extend(objects.namespaces().map(str::to_owned));
            objects.kinds().to_vec()
        });
        let wanted: BTreeSet<_> = (0_u8..)
            .map(ResourceId)
            .zip(&kinds)
            .flat_map(|(id, kind)| Scope::of(kind.resource.namespaced, &namespaces).into_iter().map(move |of| (id, of)))
            .collect();
        self.running.retain(|source, _| wanted.contains(source));
        for (resource, scope) in wanted {
            let kind = &kinds[usize::from(resource.0)];
            let api = kind.resource.objects(&self.client, scope.namespace());
            let source = self.running.entry((resource, scope.clone()));
            source.or_insert_with(|| {
                let (index, progress) = (Arc::clone(&self.index), Arc::<Progress>::default());
                let labels = index.read(|objects| objects.labels().clone());
                let source = Source { index, resource, scope, progress: Arc::clone(&progress) };
                let feed = Feed::new(api, source, Arc::clone(&self.lists), self.went_back.clone());
                let feed = if kind.is_root { feed } else { feed.or_labelled(labels.shard) };
                let mode = feed.mode();
                let task = tokio::spawn(async move { match feed.run().await {} });
                Running { progress, mode, task }
            });
        }
    }

    /// The progress of the watch that shows the objects of a namespace.
    pub(crate) fn progress(&self, resource: ResourceId, namespace: &str) -> Option<Arc<Progress>> {
        let of = |scope| self.running.get(&(resource, scope)).map(|running| Arc::clone(&running.progress));
        of(Scope::Cluster).or_else(|| of(Scope::Namespace(namespace.into())))
    }

    /// How each part of a resource is watched.
    pub(crate) fn modes(&self, resource: ResourceId) -> impl Iterator<Item = (&Scope, Mode)> {
        let of_resource = self.running.iter().filter(move |((of, _), _)| *of == resource);
        of_resource.map(|((_, scope), running)| (scope, *running.mode.borrow()))
    }

    /// Whether every list has ended once, so that what is not in the index does not exist.
    pub(crate) fn are_complete(&self) -> bool {
        self.running.values().all(|running| running.progress.is_proven(Mark::default()))
    }
}
