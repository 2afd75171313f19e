//! Leases by who may do little: a user with rights on Leases in one other namespace, and a replica whose token was stolen.

use std::{collections::BTreeSet, path::Path};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use ringside_e2e::{
    control_plane::client_of,
    eventually::eventually,
    manifests,
    plain_shard::LEASE_RING,
    ring_status::{condition, until_status},
    system::{Settings, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::RingLabels;
use serde_json::json;

use super::{DEADLINE, client_as};
use crate::planes::{Keeps, plane};

const RING: &str = "foreign";
const ELSEWHERE: &str = "foreign-user";
const OBJECTS: usize = 20;

/// What Kubernetes' role `edit` has of it.
const USER: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: foreign-user}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: user, namespace: foreign-user}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: user, namespace: foreign-user}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: foreign-user}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: user}
subjects: [{kind: ServiceAccount, name: user, namespace: foreign-user}]
";

pub(super) async fn foreign_leases_change_nothing() {
    let mut system = System::on(&plane(Keeps::Both).await, RING, Settings::default()).await.unwrap();
    system.start_ring().await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.share_out(&Workload::idle("site", OBJECTS).within(RING), DEADLINE).await.unwrap();
    let admin = system.control_plane().client();
    manifests::apply(&admin, &manifests::parse(USER).unwrap()).await.unwrap();
    let own: Api<Lease> = Api::namespaced(admin.clone(), RING);
    let before = admitted(&own).await;

    let user = client_as(&system, ELSEWHERE, "user").await;
    let foreign: Api<Lease> = Api::namespaced(user, ELSEWHERE);
    for name in ["shard-0", "ghost"] {
        foreign.create(&PostParams::default(), &held(name)).await.unwrap();
    }
    let ring = RING.parse().unwrap();
    let told = until_status(&admin, &ring, "the Leases are told, with their namespace", DEADLINE, |status| {
        let condition = condition(status, "LeasesValid")?;
        let names_it = condition.message.contains(&format!("'{ELSEWHERE}'"));
        if condition.status == "False" && names_it { Ok(status.clone()) } else { Err(condition.message.clone()) }
    });
    let status = told.await.unwrap();
    assert_eq!((status.shards, status.available_shards), (2, 2));
    assert_eq!(status.shard_namespaces, Some(vec![RING.to_owned()]));
    assert_eq!(admitted(&own).await, before, "no instance was shut");
    let key = RingLabels::of(&ring).shard;
    let websites = Api::<Website>::namespaced(admin, RING).list_metadata(&ListParams::default()).await.unwrap();
    let owners: BTreeSet<_> =
        websites.into_iter().map(|it| it.metadata.labels.unwrap_or_default().remove(&key).unwrap()).collect();
    assert_eq!(owners.into_iter().collect::<Vec<_>>(), ["shard-0", "shard-1"]);

    a_replica_writes_its_own_lease_alone(system.dir(), &own).await;
    // Behind its proxy it works on, while all that went on.
    system.share_out(&Workload::idle("later", OBJECTS).within(RING), DEADLINE).await.unwrap();
    system.check().unwrap();
}

/// The Lease of a shard that holds it.
fn held(name: &str) -> Lease {
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 15});
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {LEASE_RING: RING}}, "spec": spec})).unwrap()
}

/// The instance that is admitted under each name.
async fn admitted(leases: &Api<Lease>) -> Vec<Option<String>> {
    let leases = leases.list(&ListParams::default().labels(LEASE_RING)).await.unwrap();
    let admitted = |it: Lease| it.metadata.annotations.unwrap_or_default().remove("ringside.dev/admitted");
    leases.into_iter().map(admitted).collect()
}

/// With the token of the pod `shard-0`.
async fn a_replica_writes_its_own_lease_alone(dir: &Path, own: &Api<Lease>) {
    let thief = client_of(&dir.join("shard-0.kubeconfig")).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(thief, RING);
    let released = eventually("a write meets no renewal", DEADLINE, || async {
        let mut other = own.get("shard-1").await.map_err(|error| error.to_string())?;
        other.spec.get_or_insert_default().holder_identity = Some(String::new());
        match leases.replace("shard-1", &PostParams::default(), &other).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Err(status.message),
            answer => Ok(answer),
        }
    });
    let refused = |answer: kube::Result<Lease>| {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("ringside-shard-leases") && error.contains("this is pod \"shard-0\""), "{error}");
    };
    refused(released.await.unwrap());
    refused(leases.create(&PostParams::default(), &held("ghost")).await);
    // A Lease of another kind that gains the label.
    let mut lock = held("lock");
    lock.metadata.labels = None;
    let mut lock = leases.create(&PostParams::default(), &lock).await.unwrap();
    lock.metadata.labels = held("lock").metadata.labels;
    refused(leases.replace("lock", &PostParams::default(), &lock).await);
    // One that names the pod of its token, as of a shard that shards itself under another name.
    let mut named = held("another-name");
    named.metadata.labels.get_or_insert_default().insert("ringside.dev/token-pod".to_owned(), "shard-0".to_owned());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    leases.create(&dry_run, &named).await.unwrap();
    let mine = own.get("shard-0").await.unwrap();
    leases.replace("shard-0", &dry_run, &mine).await.unwrap();
}
