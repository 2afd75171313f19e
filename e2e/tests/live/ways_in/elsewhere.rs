//! A shard whose pod is in another namespace than `default`: its clients are there, too.

use std::{process::Command, time::Duration};

use kube::{
    Api,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    manifests,
    proxy::{Identity, Proxy},
    shard_identity::ShardIdentity,
    system::System,
    toolchain::{self, Environment},
    website::{Website, WebsiteSpec},
};
use ringside_ring::{ClusterRing, RingLabels, RingName, ShardName};

pub(crate) const NAMESPACE: &str = "elsewhere";
const RING: &str = "elsewhere";
const SHARD: &str = "shard-elsewhere";
const OBJECTS: usize = 3;
/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);

/// A ring of this namespace alone, and what a shard there may do.
const SETTING: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere}}
---
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: elsewhere}
spec:
  resources: [{group: web.example.com, resource: websites}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: elsewhere}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: website-controller, namespace: elsewhere}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: elsewhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: website-controller}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: elsewhere}]
";

/// Starts the shard, and returns its proxy when all objects of its namespace are its own, with what selects those.
pub(crate) async fn start(system: &System) -> (Proxy, String) {
    let control_plane = system.control_plane();
    let client = control_plane.client();
    manifests::apply(&client, &manifests::parse(SETTING).unwrap()).await.unwrap();
    let ring = Api::<ClusterRing>::all(client.clone()).get(RING).await.unwrap();
    system.allow(&ring, &[NAMESPACE]).await.unwrap();
    let identity =
        ShardIdentity::create(control_plane, NAMESPACE, "website-controller", SHARD, system.dir()).await.unwrap();
    let mut command = Command::new(toolchain::ringside(&Environment::of_process()).unwrap().proxy);
    command.arg("--kubeconfig").arg(identity.kubeconfig());
    let shard = Identity { ring: RING, shard: SHARD, namespace: NAMESPACE };
    let proxy = Proxy::start(command, shard, system.dir()).unwrap();
    proxy.until_ready().await.unwrap();

    let websites: Api<Website> = Api::namespaced(client, NAMESPACE);
    for index in 0..OBJECTS {
        let metadata = ObjectMeta { name: Some(format!("there-{index}")), ..ObjectMeta::default() };
        let website = Website { metadata, spec: WebsiteSpec::default(), status: None };
        websites.create(&PostParams::default(), &website).await.unwrap();
    }
    let (ring, shard): (RingName, ShardName) = (RING.parse().unwrap(), SHARD.parse().unwrap());
    let owned = RingLabels::of(&ring).owned_by(&shard);
    let assigned = eventually("the objects are the shard's", DEADLINE, || async {
        let found = websites.list(&ListParams::default().labels(&owned)).await.map_err(|error| error.to_string())?;
        if found.items.len() == OBJECTS { Ok(()) } else { Err(format!("{} of {OBJECTS}", found.items.len())) }
    });
    assigned.await.unwrap();
    (proxy, owned)
}
