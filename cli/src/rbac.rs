//! The command `rbac`: prints the permissions that a ring needs beyond the sharder's manifest, for `kubectl apply`.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::Api;
use ringside_ring::{
    Ring, RingKind, RingName,
    rights::{Shards, rights},
};
use ringside_runtime::config::parse_namespace;
use serde_json::Value;

use crate::{
    cluster::{Cluster, Global},
    output::{Format, Said},
    rings::{self, Replica},
};

/// The arguments of `rbac`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// A ring of the cluster.
    #[arg(required_unless_present = "filename")]
    ring: Option<RingName>,
    /// File with the ring, instead of one of the cluster; `-` is the standard input.
    #[arg(long, short, value_name = "FILE", conflicts_with = "ring", requires = "shards")]
    filename: Option<PathBuf>,
    /// Namespace of replicas, and the ServiceAccount of their Pods where these have the proxy; may be repeated. Without it those
    /// of the ring's replicas.
    #[arg(long, value_name = "NAMESPACE[/SERVICE-ACCOUNT]", value_parser = parse_shards)]
    shards: Vec<Shards>,
    /// Namespace of the sharder.
    #[arg(long, value_name = "NAMESPACE", default_value = "ringside-system", value_parser = parse_namespace)]
    sharder_namespace: String,
}

fn parse_shards(text: &str) -> Result<Shards, String> {
    let Ok(shards) = text.parse::<Shards>();
    parse_namespace(&shards.namespace)?;
    Ok(shards)
}

/// Prints the objects.
///
/// # Errors
/// When the ring can't be read.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let Arguments { ring, filename, mut shards, sharder_namespace } = arguments;
    let ring = match (ring, filename) {
        (_, Some(file)) => read(&file)?,
        (Some(name), None) => {
            let cluster = global.connect().await?;
            let ring = rings::read(&cluster.client, &name).await?;
            if shards.is_empty() {
                shards = shards_of(&cluster, &name, &ring).await?;
            }
            ring
        }
        (None, None) => bail!("name a ring, or a file with --filename"),
    };
    Ok(Said::good(print(&ring, &sharder_namespace, &shards, global.output)?))
}

/// Where the ring's replicas are now, and as what they run.
async fn shards_of(cluster: &Cluster, name: &RingName, ring: &Ring) -> anyhow::Result<Vec<Shards>> {
    let leases = rings::leases(&cluster.client, name).await.context("name the replicas with --shards")?;
    let mut found = BTreeSet::new();
    for Replica { name, namespace, .. } in in_own_namespaces(ring, &leases)? {
        let pod = Api::<Pod>::namespaced(cluster.client.clone(), &namespace).get_opt(name.as_str()).await;
        let pod = pod.with_context(|| format!("can't read Pod {namespace}/{name}: name the replicas with --shards"))?;
        found.insert((namespace, pod.and_then(|pod| pod.spec?.service_account_name)));
    }
    if found.is_empty() {
        bail!("ring '{name}' has no replicas yet: name where they will be, with --shards NAMESPACE/SERVICE-ACCOUNT");
    }
    Ok(found.into_iter().map(|(namespace, account)| Shards { namespace, account }).collect())
}

/// The replicas of a ring in the namespaces that the ring names. A user may create Leases, and Pods, in a namespace of theirs: where
/// the ring names none, no Lease says who is to have rights.
fn in_own_namespaces(ring: &Ring, leases: &[Lease]) -> anyhow::Result<Vec<Replica>> {
    let namespaces: BTreeSet<_> = leases.iter().filter_map(Replica::of).map(|it| it.namespace).collect();
    let is_named = ring.shard_namespaces().is_some_and(|named| !named.is_empty());
    if is_named || namespaces.is_empty() {
        return Ok(rings::replicas(ring, leases));
    }
    let namespaces: Vec<_> = namespaces.into_iter().collect();
    bail!(
        "the ring names no namespaces of its own yet, and there are Leases of it in the namespaces {}: name those that are to have rights, with --shards NAMESPACE/SERVICE-ACCOUNT",
        namespaces.join(", ")
    )
}

fn read(file: &Path) -> anyhow::Result<Ring> {
    let is_stdin = file.as_os_str() == "-";
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = text.with_context(|| format!("can't read {}", file.display()))?;
    let object: Value = serde_saphyr::from_str(&text).with_context(|| format!("{} is no ring", file.display()))?;
    if RingKind::ALL.iter().all(|kind| object["kind"] != kind.names().kind) {
        bail!("{} is no ring: its kind is {}", file.display(), object["kind"]);
    }
    serde_json::from_value(object).with_context(|| format!("{} is no ring", file.display()))
}

fn print(ring: &Ring, sharder_namespace: &str, shards: &[Shards], format: Format) -> anyhow::Result<String> {
    let objects = rights(&ring.name()?, &ring.spec, sharder_namespace, shards);
    if format == Format::Json {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        return Ok(serde_json::to_string_pretty(&list)?);
    }
    Ok(objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn example(file: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/example").join(file)
    }

    fn objects(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    #[test]
    fn the_examples_roles_are_those_of_its_ring_and_the_controllers_own() {
        let deployed = objects(&fs::read_to_string(example("roles.yaml")).unwrap());
        let (printed, own): (Vec<_>, Vec<_>) = deployed
            .into_iter()
            .partition(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("ringside-")));
        let shards = [parse_shards("default/website-controller").unwrap()];
        let ring = read(&example("ring.yaml")).unwrap();
        let fresh = objects(&print(&ring, "ringside-system", &shards, Format::Table).unwrap());
        assert!(
            printed == fresh,
            "deploy/example/roles.yaml is out of date; replace its first part with the output of\n  \
             cargo run -p ringside-cli -- rbac -f deploy/example/ring.yaml --shards default/website-controller"
        );
        assert!(own.iter().all(|object| object["metadata"]["name"] == "website-controller"), "{own:?}");
    }

    /// Who may create Leases in one namespace must not get the rights of the ring by that.
    #[test]
    fn a_foreign_namespace_gets_no_rights_unnamed() {
        use crate::rings::tests::lease;
        let mut foreign = lease("b", "ready", &serde_json::json!({}));
        foreign.metadata.namespace = Some("foreign".to_owned());
        let leases = [lease("a", "ready", &serde_json::json!({})), foreign];
        let mut ring = Ring::default();
        let found = |ring: &Ring, leases: &[Lease]| {
            in_own_namespaces(ring, leases).map(|all| all.into_iter().map(|it| it.namespace).collect::<Vec<_>>())
        };
        let refused = |ring: &Ring, leases: &[Lease]| found(ring, leases).unwrap_err().to_string();
        assert!(refused(&ring, &leases).contains("default, foreign: name those"));
        // The ring has no replica of its own yet, before its sharder runs and while that counts no namespace.
        assert!(refused(&ring, &leases[1..]).contains("foreign: name those"));
        ring.status.get_or_insert_default().shard_namespaces = Some(Vec::new());
        assert!(refused(&ring, &leases[1..]).contains("foreign: name those"));
        assert_eq!(found(&ring, &[]).unwrap(), [""; 0]);
        ring.status.get_or_insert_default().shard_namespaces = Some(vec!["default".to_owned()]);
        assert_eq!(found(&ring, &leases).unwrap(), ["default"]);
        ring.spec.shard_namespaces = vec!["foreign".to_owned()];
        assert_eq!(found(&ring, &leases).unwrap(), ["foreign"]);
    }

    #[test]
    fn a_file_without_ring_is_refused_with_a_reason() {
        let fault = |file: PathBuf| format!("{:#}", read(&file).unwrap_err());
        assert!(fault(example("nothing.yaml")).starts_with("can't read "));
        assert!(fault(example("deployment.yaml")).contains(" is no ring: "));
    }

    #[test]
    fn json_is_one_list_for_kubectl() {
        let ring = read(&example("ring.yaml")).unwrap();
        let text = print(&ring, "x", &[parse_shards("a").unwrap()], Format::Json).unwrap();
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&"List".into(), 3));
    }

    #[test]
    fn a_namespace_that_can_not_be_is_refused() {
        assert!(parse_shards("A/x").is_err());
    }
}
