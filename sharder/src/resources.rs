//! The resources that rings name, as the API server serves them, kept up to date.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api, Client,
    api::ListParams,
    discovery::{ApiResource, verbs},
};
use ringside_ring::{PartitionKey, PlacedBy, Ring, cluster_ring::GroupResource, partition::group_of};
use tokio::{sync::watch, time::timeout};

mod definitions;
mod object;
mod versions;

pub(crate) use object::Object;
use ringside_runtime::{
    discovery::{self, LookUpError, Served},
    explain::{code, explain},
};
use versions::Versions;

use crate::rings::Rings;

/// How soon a resource that is not served is looked for again: its CustomResourceDefinition may come after the ring.
pub(crate) const RETRY: Duration = Duration::from_secs(5);
/// How soon it is looked again after a definition has changed, and how often: the API server takes a second or two to serve
/// what it says, or to serve it no more.
const SOON: Duration = Duration::from_secs(1);
const LOOKS: usize = 5;
/// Groups asked at once.
const PARALLEL_GROUPS: usize = 4;
/// How long a version may take to show one object, and how soon one that did not is tried again.
const TRY: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// A resource that the API server serves. It is the same one in whatever version.
pub(crate) struct Resource {
    /// Its name in the ring.
    pub(crate) id: GroupResource,
    pub(crate) kind: String,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    versions: Versions,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.kind, self.namespaced) == (&other.id, &other.kind, other.namespaced)
    }
}

impl Eq for Resource {}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, namespaced: {})", self.id, self.kind, self.namespaced)
    }
}

impl Resource {
    /// A resource that is served in one version.
    pub(crate) fn new(id: GroupResource, api: ApiResource, namespaced: bool) -> Self {
        Self { id, kind: api.kind.clone(), namespaced, versions: Versions::new(vec![api]) }
    }

    /// Group, version, kind and plural name as they are asked for.
    pub(crate) fn api(&self) -> ApiResource {
        self.versions.used()
    }

    /// It is served in this version too.
    #[cfg(test)]
    pub(crate) fn also_serve(&self, version: &str) {
        let used = self.api();
        let (api_version, version) = (format!("{}/{version}", used.group), version.to_owned());
        self.versions.serve(&[used.clone(), ApiResource { api_version, version, ..used }]);
    }

    /// The objects in `namespace`, or all of them.
    pub(crate) fn objects(&self, client: &Client, namespace: Option<&str>) -> Api<Object> {
        self.objects_as(&self.api(), client, namespace)
    }

    /// The same in this version. What comes of it is told to [`Self::answered`].
    pub(crate) fn objects_as(&self, api: &ApiResource, client: &Client, namespace: Option<&str>) -> Api<Object> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, api),
            None => Api::all_with(client.clone(), api),
        }
    }

    /// A request in this version had this outcome: after a fault of the server, another version is asked for.
    pub(crate) fn answered<T>(&self, api: &ApiResource, outcome: Result<T, kube::Error>) -> Result<T, kube::Error> {
        outcome.inspect_err(|error| self.failed(api, error))
    }

    /// The same of one that failed.
    pub(crate) fn failed(&self, api: &ApiResource, error: &kube::Error) {
        if code(error).is_none_or(|code| code >= 500) {
            self.versions.leave(&api.version);
        }
    }

    /// Versions that can't be listed, as sentences.
    pub(crate) fn version_faults(&self) -> impl Iterator<Item = String> {
        let (id, used) = (self.id.clone(), self.api().version);
        self.versions.faults().into_iter().map(move |(version, why)| {
            format!(
                "resource '{id}' can't be listed as '{version}', so the sharder asks for '{used}': {why}; \
                 mend its conversion webhook, or serve '{version}' no longer"
            )
        })
    }

    /// Lists it in the versions in which it is not asked for otherwise; returns whether there is something to tell.
    async fn try_versions(&self, client: &Client) -> bool {
        let tries = self.versions.others().into_iter().map(|api| async move {
            let objects = self.objects_as(&api, client, None);
            let one = ListParams::default().limit(1);
            let why = match timeout(TRY, objects.list(&one)).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => explain(&error),
                Err(_) => format!("no answer within {} s", TRY.as_secs()),
            };
            Some((api.version, why))
        });
        let failed = join_all(tries).await.into_iter().flatten().collect();
        self.versions.tried(failed)
    }

    /// Whether this is the resource of the object that a reference points to.
    pub(crate) fn is_named_by(&self, reference: &OwnerReference) -> bool {
        group_of(&reference.api_version) == self.id.group && reference.kind == self.kind
    }

    /// Whether its objects can have a controller of this resource: one with a namespace controls nothing outside of that.
    pub(crate) fn may_follow(&self, controller: &Self) -> bool {
        self.namespaced || !controller.namespaced
    }

    /// The namespace by whose labels an object of this name is selected. A Namespace is by its own, as in the API server.
    pub(crate) fn selected_by<'a>(&self, namespace: Option<&'a str>, name: Option<&'a str>) -> Option<&'a str> {
        if is_namespaces(&self.id) { name } else { namespace }
    }

    /// Whether a webhook may convert its objects: it is a custom resource, whose group has a dot.
    pub(crate) fn may_be_converted(&self) -> bool {
        self.id.group.contains('.')
    }

    /// The partition key of an object of this resource, of which all are placed by this.
    pub(crate) fn key(&self, object: &ObjectMeta, by: &PlacedBy) -> PartitionKey {
        let [namespace, name] = [&object.namespace, &object.name].map(|text| text.as_deref().unwrap_or_default());
        let usual = PartitionKey::of(&self.id.group, &self.kind, namespace, name);
        by.key(usual, namespace, object.labels.as_ref(), object.annotations.as_ref())
    }
}

/// Whether Namespaces are the objects of this resource.
pub(crate) fn is_namespaces(id: &GroupResource) -> bool {
    id.group.is_empty() && id.resource == "namespaces"
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
        catalog.send_if_modified(|known| {
            let changed = **known != found;
            if changed {
                *known = Arc::new(found);
            }
            changed
        });
        let all = catalog.borrow().clone();
        let served = || all.values().flatten();
        if join_all(served().map(|resource| resource.try_versions(&client))).await.contains(&true) {
            catalog.send_modify(|_| {});
        }
        let is_failing = served().any(|resource| resource.versions.are_failing());
        let pauses = [(soon > 0, SOON), (!complete, RETRY), (is_failing, TRY_AGAIN)];
        let pause = pauses.into_iter().find(|(applies, _)| *applies).map_or(period, |(_, pause)| pause);
        soon = soon.saturating_sub(1);
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
        let group = group.and_then(|found| found.as_ref().map_err(Clone::clone));
        match group.and_then(|group| group.in_each_version(name)) {
            Ok(served) => usable(name, served, known.get(name)),
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

/// The resource in the versions that can be used. One that was `known` stays the same, with the version that it is asked for in.
fn usable(
    name: &GroupResource,
    mut served: Vec<Served>,
    known: Option<&Result<Arc<Resource>, Unusable>>,
) -> Result<Arc<Resource>, Unusable> {
    served.retain(|served| served.supports(&[verbs::LIST, verbs::WATCH, verbs::PATCH]));
    let first = served.first().ok_or(Unusable::Verbs)?;
    let new = Resource::new(name.clone(), first.api.clone(), first.namespaced);
    let resource = match known {
        Some(Ok(known)) if **known == new => known.clone(),
        _ => Arc::new(new),
    };
    // Those of one definition have kind and scope in common.
    served.retain(|served| (&served.api.kind, served.namespaced) == (&resource.kind, resource.namespaced));
    let apis: Vec<_> = served.into_iter().map(|served| served.api).collect();
    resource.versions.serve(&apis);
    Ok(resource)
}

#[cfg(test)]
mod tests;
