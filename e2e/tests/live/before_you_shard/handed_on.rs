//! What a controller reads of its API server, and hands on: token, address and CA.

use std::{fs, path::Path};

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewStatus},
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use ringside_e2e::{eventually::eventually, manifests, system::Shard};
use serde_json::{Value, json};

use super::{DEADLINE, NAME, World, through};

const ACCOUNT: &str = "website-controller";
const AUDIENCE: &str = "vault";
/// Where every namespace has the API server's CA. Here no controller manager publishes it.
const ROOT_CA: &str = "kube-root-ca.crt";

/// What a controller needs that asks for a token.
const ASKS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: asks-for-tokens, namespace: before-you-shard}
rules:
- {apiGroups: [''], resources: [serviceaccounts/token], resourceNames: [website-controller], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: asks-for-tokens, namespace: before-you-shard}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: asks-for-tokens}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: before-you-shard}]
";

pub(super) async fn token(world: &World) {
    let [shard, _] = world.shards();
    let token = fs::read_to_string(shard.access().join("token")).unwrap();
    // As Vault does, and whatever else asks the API server who that is.
    let status = review(world, &token, &[]).await;
    assert_ne!(status.authenticated, Some(true), "{status:?}");
    assert!(status.error.is_some() && status.user.unwrap_or_default().username.is_none());
    let asked = by(&world.kubeconfig(), &world.kubeconfig(), &token).await.apiserver_version().await;
    assert!(matches!(&asked, Err(kube::Error::Api(status)) if status.code == 401), "the API server itself: {asked:?}");

    let token = requested(world, shard, &[AUDIENCE]).await;
    let status = review(world, &token, &[AUDIENCE]).await;
    assert_eq!(status.authenticated, Some(true), "{status:?}");
    assert_eq!(status.user.unwrap().username, Some(format!("system:serviceaccount:{NAME}:{ACCOUNT}")));
}

/// A token of the pod's account, asked for through the proxy.
async fn requested(world: &World, shard: &Shard, audiences: &[&str]) -> String {
    manifests::apply(&world.client(), &manifests::parse(ASKS).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = through(shard).await;
    let request = serde_json::from_value(json!({"spec": {"audiences": audiences}})).unwrap();
    // The API server learns of new rights by a watch of its own.
    let token = eventually("the API server issues a token", DEADLINE, || async {
        let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
        answer.map(|answer| answer.status.unwrap().token).map_err(|error| error.to_string())
    });
    token.await.unwrap()
}

async fn review(world: &World, token: &str, audiences: &[&str]) -> TokenReviewStatus {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let reviews: Api<TokenReview> = Api::all(world.client());
    let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review).unwrap()).await;
    answer.unwrap().status.unwrap()
}

pub(super) async fn address(world: &World) {
    let [shard, _] = world.shards();
    let kubeconfig = shard.kubeconfig();
    let server = read(&kubeconfig)["clusters"][0]["cluster"]["server"].clone();
    assert_eq!(server, json!(format!("https://{}", shard.address())));
    let real = fs::read_to_string(world.system.control_plane().ca_path()).unwrap();
    assert_ne!(fs::read_to_string(shard.access().join("ca.crt")).unwrap(), real);
    // Another pod has a right of its own, and was given this CA.
    let token = requested(world, shard, &[]).await;
    let asked = by(&world.kubeconfig(), &kubeconfig, &token).await.apiserver_version().await;
    let refused = asked.unwrap_err();
    assert!(!matches!(refused, kube::Error::Api(_)), "no answer is believed: {refused:?}");
    by(&world.kubeconfig(), &world.kubeconfig(), &token).await.apiserver_version().await.unwrap();

    // What to give it instead can be read through the proxy, by name.
    let map = json!({"metadata": {"name": ROOT_CA}, "data": {"ca.crt": real}});
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), NAME);
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let published = through::<ConfigMap>(shard).await.get(ROOT_CA).await.unwrap().data.unwrap();
    assert_eq!(published["ca.crt"], real);
}

/// A client of the server of one kubeconfig, by the CA of another.
async fn by(server: &Path, trusted: &Path, token: &str) -> Client {
    let (mut config, trusted) = (read(server), read(trusted));
    let ca = "certificate-authority-data";
    config["clusters"][0]["cluster"][ca] = trusted["clusters"][0]["cluster"][ca].clone();
    config["users"][0]["user"] = json!({"token": token});
    let config = Kubeconfig::from_yaml(&config.to_string()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Both kinds of kubeconfig are written as JSON.
fn read(kubeconfig: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap()
}
