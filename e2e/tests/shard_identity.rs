//! A shard in tests is who it says: the API server itself names its Pod.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use k8s_openapi::api::{authentication::v1::SelfSubjectReview, coordination::v1::Lease};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    eventually::eventually,
    manifests,
    shard_identity::ShardIdentity,
};

const ROLES: &str = "
{apiVersion: v1, kind: ServiceAccount, metadata: {name: shard, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shard, namespace: default}
rules: [{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shard, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shard}
subjects: [{kind: ServiceAccount, name: shard, namespace: default}]
";

#[tokio::test]
async fn the_token_is_bound_to_the_pod() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    manifests::apply(&control_plane.client(), &manifests::parse(ROLES).unwrap()).await.unwrap();
    let shard =
        ShardIdentity::create(&control_plane, "default", "shard", "shard-0", control_plane.dir()).await.unwrap();

    let kubeconfig = Kubeconfig::read_from(shard.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = review.status.unwrap().user_info.unwrap();
    let extra = user.extra.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:shard"));
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], ["shard-0"]);
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], [shard.uid()]);

    // Its rights are those of its ServiceAccount; the first look may come before the authorizer knows them.
    let leases: Api<Lease> = Api::namespaced(client.clone(), shard.namespace());
    eventually("leases can be listed", Duration::from_secs(10), || async {
        leases.list(&ListParams::default()).await.map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    let elsewhere: Api<Lease> = Api::namespaced(client, "kube-system");
    assert!(elsewhere.list(&ListParams::default()).await.is_err());
}
