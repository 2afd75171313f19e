//! The resources that rings name, as the API server serves them, kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client,
    discovery::{ApiResource, verbs},
};
use ringside_ring::{PartitionKey, PlacedBy, Ring, cluster_ring::GroupResource, partition::group_of};
use tokio::sync::watch;

mod definitions;
mod object;

pub(crate) use object::Object;
use ringside_runtime::discovery::{self, LookUpError, Served};

use crate::rings::Rings;

/// How soon a resource that is not served is looked for again: its CustomResourceDefinition may come after the ring.
pub(crate) const RETRY: Duration = Duration::from_secs(5);
/// How soon it is looked again after a definition has changed, and how often: the API server takes a second or two to serve
/// what it says, or to serve it no more.
const SOON: Duration = Duration::from_secs(1);
const LOOKS: usize = 5;
/// Groups asked at once.
const PARALLEL_GROUPS: usize = 4;

/// A resource that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Its name in the ring.
    pub(crate) id: GroupResource,
    /// Its kind and version.
    pub(crate) api: ApiResource,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
}

impl Resource {
    /// The objects in `namespace`, or all of them.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<Object> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.api),
            None => Api::all_with(client.clone(), &self.api),
        }
    }

    /// Whether this is the resource of the object that a reference points to.
    pub(crate) fn is_named_by(&self, reference: &OwnerReference) -> bool {
        group_of(&reference.api_version) == self.id.group && reference.kind == self.api.kind
    }

    /// Whether a webhook may convert its objects: it is a custom resource, whose group has a dot.
    pub(crate) fn may_be_converted(&self) -> bool {
        self.id.group.contains('.')
    }

    /// The partition key of an object of this resource, of which all are placed by this.
    pub(crate) fn key(&self, object: &ObjectMeta, by: &PlacedBy) -> PartitionKey {
        let [namespace, name] = [&object.namespace, &object.name].map(|text| text.as_deref().unwrap_or_default());
        let usual = PartitionKey::of(&self.id.group, &self.api.kind, namespace, name);
        by.key(usual, namespace, object.labels.as_ref(), object.annotations.as_ref())
    }
}

/// Why a resource of a ring can't be worked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The API server does not know it.
    NotServed,
    /// It has no objects that can be listed, watched and patched.
    Verbs,
    /// The API server can't say.
    Unknown(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str("is not served by the API server; check its group and plural name"),
            Self::Verbs => f.write_str("can't be listed, watched and patched, so it can't be sharded"),
            Self::Unknown(why) => write!(f, "could not be looked up: {why}"),
        }
    }
}

/// What is known of the resources that rings name.
pub(crate) type Catalog = BTreeMap<GroupResource, Result<Arc<Resource>, Unusable>>;

/// Keeps the catalog of what the rings name: at once when they change, or the definition of a resource does, soon while
/// something is missing, and every `period`.
pub(crate) async fn follow(
    (client, watches): (Client, Client),
    (rings, mut changed): (Rings, watch::Receiver<()>),
    catalog: watch::Sender<Arc<Catalog>>,
    period: Duration,
) -> Result<(), Infallible> {
    let mut definitions = std::pin::pin!(definitions::changes(watches));
    // What a definition says is served a moment later.
    let mut soon = 0_usize;
    loop {
        changed.borrow_and_update();
        let names = wanted(&rings);
        let known = catalog.borrow().clone();
        let found = look_up(&client, &names, &known).await;
        let complete = found.values().all(Result::is_ok);
        let pause = [(soon > 0, SOON), (!complete, RETRY)].into_iter().find(|(applies, _)| *applies);
        let pause = pause.map_or(period, |(_, pause)| pause);
        soon = soon.saturating_sub(1);
        catalog.send_if_modified(|known| {
            let changed = **known != found;
            if changed {
                *known = Arc::new(found);
            }
            changed
        });
        let next = tokio::time::sleep(pause);
        tokio::pin!(next);
        loop {
            tokio::select! {
                () = &mut next => break,
                Some(changed) = definitions.next() => if names.iter().any(|name| changed.defines(name)) {
                    soon = LOOKS;
                    break;
                },
                // The sender ends only with the process. A ring's status changes more often than its spec.
                outcome = changed.changed() => match outcome {
                    Ok(()) if wanted(&rings) == names => {}
                    Ok(()) => break,
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }
}

/// The resources that the rings name, or have named until lately.
fn wanted(rings: &Rings) -> BTreeSet<GroupResource> {
    rings.all().iter().flat_map(|ring| concerned(ring)).collect()
}

/// The resources that a ring names, or has named until lately.
pub(crate) fn concerned(ring: &Ring) -> BTreeSet<GroupResource> {
    ring.spec.all_resources().into_iter().chain(labelled(ring)).collect()
}

/// The resources of which the ring's status says that their objects may have labels.
pub(crate) fn labelled(ring: &Ring) -> impl Iterator<Item = GroupResource> {
    let entries = ring.status.iter().flat_map(|status| &status.resources);
    entries.flat_map(|entry| entry.controlled_resources.iter().cloned().chain([entry.group_resource()]))
}

/// What the API server serves of these; of what it can't say it stands as it was `known`.
pub(crate) async fn look_up(client: &Client, names: &BTreeSet<GroupResource>, known: &Catalog) -> Catalog {
    let groups: BTreeSet<_> = names.iter().map(|name| name.group.clone()).collect();
    let groups: BTreeMap<_, _> = stream::iter(groups)
        .map(|group| async move {
            let found = discovery::group(client, &group).await;
            (group, found)
        })
        .buffer_unordered(PARALLEL_GROUPS)
        .collect()
        .await;
    let entry = |name: &GroupResource| {
        let group = groups.get(&name.group).ok_or_else(|| LookUpError::NotServed(name.clone()));
        match group.and_then(|found| found.as_ref().map_err(Clone::clone)).and_then(|group| group.find(name)) {
            Ok(served) => usable(name, served),
            Err(LookUpError::NotServed(_)) => Err(Unusable::NotServed),
            // A failing aggregated API server must not take away what is known to exist.
            Err(error @ LookUpError::NoAnswer(_)) => match known.get(name) {
                Some(Ok(resource)) => Ok(resource.clone()),
                _ => Err(Unusable::Unknown(error.to_string())),
            },
        }
    };
    names.iter().map(|name| (name.clone(), entry(name))).collect()
}

fn usable(name: &GroupResource, served: Served) -> Result<Arc<Resource>, Unusable> {
    if !served.supports(&[verbs::LIST, verbs::WATCH, verbs::PATCH]) {
        return Err(Unusable::Verbs);
    }
    Ok(Arc::new(Resource { id: name.clone(), api: served.api, namespaced: served.namespaced }))
}
