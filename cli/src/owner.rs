//! The command `owner`: which replica works on an object, since when, why, and what a move waits for; or what a proxy does.

use std::{collections::BTreeSet, num::NonZeroU32};

use anyhow::{anyhow, bail};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, Namespace},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{ListParams, PartialObjectMeta},
    core::DynamicObject,
};
use ringside_ring::{
    Ring, RingLabels, RingName,
    cluster_ring::GroupResource,
    partition::{group_of, owner_of},
    placement::DEFAULT_TOKENS_PER_SHARD,
};
use ringside_runtime::{
    discovery::{self, Served},
    explain::{code, explain},
};

use ringside_sharder::parse_tokens;

use crate::{
    cluster::Global,
    output::{Said, render},
    rings,
};

mod named;
mod proxy;
mod report;
mod text;

use self::report::{Children, Placed, Seen};

/// How many owners an object may have above each other.
const MAX_DEPTH: usize = 8;

/// The arguments of `owner`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The resource, as `kubectl` names it: `websites`, `website`, a short name, or `websites.web.example.com`.
    #[arg(required_unless_present = "proxy")]
    resource: Option<String>,
    /// The object, as NAME or NAMESPACE/NAME. RESOURCE/NAME in one word names it as well.
    object: Option<String>,
    /// In place of an object: what the proxy of this replica is doing now, its Pod as NAME or NAMESPACE/NAME.
    #[arg(long, value_name = "POD", conflicts_with_all = ["resource", "object", "ring"])]
    proxy: Option<String>,
    /// The ring, where several have the resource.
    #[arg(long)]
    ring: Option<RingName>,
    /// Tokens that a replica has on the hash ring: what the sharder has.
    #[arg(long, env = "RINGSIDE_TOKENS_PER_SHARD", value_name = "NUMBER", default_value_t = DEFAULT_TOKENS_PER_SHARD, value_parser = parse_tokens)]
    tokens_per_shard: NonZeroU32,
}

/// Says who works on an object; ends with 2 where no replica does, or a move is late.
///
/// # Errors
/// When the object or its ring can't be read.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let Arguments { resource, object, proxy, ring, tokens_per_shard } = arguments;
    let cluster = global.connect().await?;
    let client = &cluster.client;
    if let Some(pod) = proxy {
        let doing = proxy::ask(client, cluster.pod(&pod)).await?;
        let text = render(global.output, &doing, proxy::screen)?;
        return Ok(if doing.lease_lost.is_none() { Said::good(text) } else { Said::unhealthy(text) });
    }
    // clap asks for one where no proxy is named.
    let (resource, object) = named::object(&resource.unwrap_or_default(), object)?;
    let rings = match &ring {
        Some(name) => vec![rings::read(client, name).await?],
        None => rings::read_all(client).await?.into_values().flatten().collect(),
    };
    let shared: BTreeSet<_> = rings.iter().flat_map(|ring| ring.spec.all_resources()).collect();
    let meant = named::resources(client, &resource, &shared).await?;
    let Some((ring, id)) = ring_with(&rings, &meant)? else {
        let text = format!("outside: no ring has {}; rings share {}", listed(&meant), listed(&shared));
        return Ok(Said::good(text));
    };
    let served = discovery::resource(client, &id).await?;
    let (namespace, name) = cluster.split(&object);
    let namespace = served.namespaced.then_some(namespace);
    let metadata = get(client, &served, namespace, name).await?;
    let seen = Seen { tokens_per_shard, ..look(client, ring, id, (served, metadata)).await? };
    let report = seen.report(Timestamp::now());
    let text = render(global.output, &report, text::screen)?;
    Ok(if report.healthy { Said::good(text) } else { Said::unhealthy(text) })
}

fn listed(resources: &BTreeSet<GroupResource>) -> String {
    resources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The ring that has one of the resources that are meant, and that resource.
fn ring_with<'a>(
    rings: &'a [Ring],
    meant: &BTreeSet<GroupResource>,
) -> anyhow::Result<Option<(&'a Ring, GroupResource)>> {
    let found: Vec<_> = rings
        .iter()
        .flat_map(|ring| {
            ring.spec.all_resources().into_iter().filter(|id| meant.contains(id)).map(move |id| (ring, id))
        })
        .collect();
    if found.len() > 1 {
        let all: BTreeSet<_> = found
            .iter()
            .map(|(ring, id)| anyhow::Ok(format!("{id} of {}", ring.name()?)))
            .collect::<anyhow::Result<_>>()?;
        let all: Vec<_> = all.into_iter().collect();
        bail!("more than one is meant: name one with --ring, or with its group: {}", all.join(", "));
    }
    Ok(found.into_iter().next())
}

fn api(client: &Client, served: &Served, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace.filter(|_| served.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &served.api),
        None => Api::all_with(client.clone(), &served.api),
    }
}

async fn get(client: &Client, served: &Served, namespace: Option<&str>, name: &str) -> anyhow::Result<ObjectMeta> {
    let found = api(client, served, namespace).get_metadata(name).await;
    let found: PartialObjectMeta<_> = found.map_err(|error| match code(&error) {
        Some(404) => anyhow!("there is no {} {}/{name}", served.api.plural, namespace.unwrap_or_default()),
        _ => anyhow!("can't read {} {name}: {}", served.api.plural, explain(&error)),
    })?;
    Ok(found.metadata)
}

/// Reads all that the answer depends on. Events and children are left out where the user may not read them.
async fn look(
    client: &Client,
    ring: &Ring,
    id: GroupResource,
    (served, metadata): (Served, ObjectMeta),
) -> anyhow::Result<Seen> {
    let name = ring.name()?;
    let leases = rings::leases(client, &name).await?;
    let namespace = metadata.namespace.clone();
    let namespace_labels = match &namespace {
        Some(namespace) => {
            let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await;
            let found = found.map_err(|error| anyhow!("can't read namespace '{namespace}': {}", explain(&error)))?;
            Some(found.metadata.labels.unwrap_or_default())
        }
        None => None,
    };
    let root = root_of(client, ring, &id, (served, metadata.clone())).await?;
    let labels = RingLabels::of(&name);
    let children = match &root {
        Placed::Root { .. } => children(client, ring, &id, &metadata, &labels).await,
        _ => None,
    };
    let events = events(client, &name, &metadata).await;
    Ok(Seen {
        ring: ring.clone(),
        name,
        resource: id,
        tokens_per_shard: DEFAULT_TOKENS_PER_SHARD,
        metadata,
        root,
        namespace_labels,
        replicas: rings::replicas(ring, &leases),
        children,
        events,
    })
}

/// Follows the controllers of an object up to the root that it is placed by.
async fn root_of(
    client: &Client,
    ring: &Ring,
    id: &GroupResource,
    (served, metadata): (Served, ObjectMeta),
) -> anyhow::Result<Placed> {
    let mut all = Vec::new();
    for id in ring.spec.all_resources() {
        // One that is not served has no objects.
        if let Ok(served) = discovery::resource(client, &id).await {
            all.push((id, served));
        }
    }
    let (mut id, mut kind, mut metadata) = (id.clone(), served.api.kind, metadata);
    for depth in 0..MAX_DEPTH {
        let kind_of = |owner: &OwnerReference| {
            let is_it = |(id, served): &&(GroupResource, Served)| {
                id.group == group_of(&owner.api_version) && served.api.kind == owner.kind
            };
            all.iter().find(is_it)
        };
        let controller = owner(&metadata, |owner| kind_of(owner).is_some()).cloned();
        let above = controller.as_ref().and_then(|controller| Some((controller, kind_of(controller)?)));
        match above {
            Some((controller, (above, served))) if ring.spec.is_controlled(&id) => {
                metadata = get(client, served, metadata.namespace.as_deref(), &controller.name).await?;
                (id, kind) = (above.clone(), served.api.kind.clone());
            }
            _ if ring.spec.families().contains_key(&id) => {
                return Ok(if depth == 0 {
                    Placed::Root { kind }
                } else {
                    Placed::Below { resource: id, kind, root: Box::new(metadata) }
                });
            }
            _ => return Ok(Placed::Alone { controller: controller.map(|it| format!("{} {}", it.kind, it.name)) }),
        }
    }
    bail!("more than {MAX_DEPTH} owners above each other")
}

/// The owner that an object follows in its ring.
fn owner(metadata: &ObjectMeta, is_of_ring: impl Fn(&OwnerReference) -> bool) -> Option<&OwnerReference> {
    owner_of(metadata.owner_references.as_deref().unwrap_or_default(), is_of_ring).one()
}

/// How many objects below a root carry the same label; none where they may not be listed.
async fn children(
    client: &Client,
    ring: &Ring,
    id: &GroupResource,
    root: &ObjectMeta,
    labels: &RingLabels,
) -> Option<Children> {
    let (mut children, mut above) = (Children::default(), BTreeSet::from([root.uid.clone()?]));
    let shard = labels.ownership(root.labels.as_ref()).shard;
    for id in ring.spec.family(id) {
        let served = discovery::resource(client, &id).await.ok()?;
        let found = api(client, &served, root.namespace.as_deref()).list_metadata(&ListParams::default()).await.ok()?;
        for child in found.items {
            let owner = owner(&child.metadata, |owner| above.contains(&owner.uid));
            if owner.is_some_and(|owner| above.contains(&owner.uid)) {
                children.all += 1;
                children.with_it += usize::from(labels.ownership(child.metadata.labels.as_ref()).shard == shard);
                above.extend(child.metadata.uid);
            }
        }
    }
    Some(children)
}

/// Events on the object, and those on the ring that name it, the latest first.
async fn events(client: &Client, ring: &RingName, object: &ObjectMeta) -> Vec<Event> {
    let uid = object.uid.clone().unwrap_or_default();
    let of_object = (object.namespace.clone(), format!("involvedObject.uid={uid}"));
    let of_ring = (None, format!("involvedObject.kind={},involvedObject.name={}", ring.kind(), ring.name()));
    let lists = stream::iter([of_object, of_ring]).then(|(namespace, fields)| async move {
        let events: Api<Event> = Api::namespaced(client.clone(), namespace.as_deref().unwrap_or("default"));
        let found = events.list(&ListParams::default().fields(&fields)).await;
        found.map(|found| found.items).unwrap_or_default()
    });
    let mut events: Vec<Event> = lists.collect::<Vec<_>>().await.into_iter().flatten().collect();
    let is_about = |event: &Event| {
        let named = |it: &Option<String>| it.as_ref() == Some(&uid);
        named(&event.involved_object.uid) || event.related.as_ref().is_some_and(|related| named(&related.uid))
    };
    events.retain(is_about);
    events.sort_by_key(|event| std::cmp::Reverse(report::time_of(event)));
    events
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn ring(name: &str) -> Ring {
        serde_json::from_value(json!({
            "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": name},
            "spec": {"resources": [{"group": "web.example.com", "resource": "websites",
                "controlledResources": [{"group": "", "resource": "configmaps"}]}]},
        }))
        .unwrap()
    }

    #[test]
    fn ring_is_found_by_the_resource() {
        let one = [ring("a")];
        let found = |rings: &[Ring], group: &str, resource: &str| {
            let meant = GroupResource { group: group.to_owned(), resource: resource.to_owned() };
            ring_with(rings, &[meant].into()).map(|it| it.map(|(_, id)| id.to_string()))
        };
        let websites = ("web.example.com", "websites");
        assert_eq!(found(&one, websites.0, websites.1).unwrap().as_deref(), Some("websites.web.example.com"));
        assert_eq!(found(&one, "", "configmaps").unwrap().as_deref(), Some("configmaps"));
        assert_eq!(found(&one, "", "pods").unwrap(), None);
        let told = found(&[ring("a"), ring("b")], websites.0, websites.1).unwrap_err().to_string();
        assert!(told.contains("--ring") && told.contains("websites.web.example.com of b"), "{told}");
    }
}
