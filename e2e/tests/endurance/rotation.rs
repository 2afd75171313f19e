//! Credentials that are rotated under a running proxy: authorities, certificates, keys, tokens.

use std::{fs, path::Path, time::Duration};

use http::Request;
use kube::Client;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use ringside_e2e::eventually::eventually;
use serde_json::{Value, json};

use super::{
    ground::{DEADLINE, Ground, NAMESPACE, Proxy, Surroundings},
    http2::Http2,
};

const SHARD: &str = "rotation";
/// A token's file is read each minute.
const TOKEN_DEADLINE: Duration = Duration::from_secs(90);

type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) async fn certificates_and_authorities_are_rotated_while_the_proxy_runs(ground: Ground) -> Ground {
    let (dir, plane) = (ground.folder.path().to_owned(), ground.control_plane.dir().to_owned());
    let old = fs::read_to_string(ground.control_plane.ca_path()).unwrap();
    let new = authority();
    // The API server takes clients of both from now on; it follows its own files.
    fs::write(plane.join("ca.crt"), format!("{old}{}", new.pem())).unwrap();
    let file = |name: &str| dir.join(name);
    fs::write(file("ca"), &old).unwrap();
    let [first, second] = ["first", "second"].map(|name| pair(&new, name));
    write_pair(&dir, &first);
    let kubeconfig = file("rotation.kubeconfig");
    write_kubeconfig(&ground, &kubeconfig, &json!({"client-certificate": "crt", "client-key": "key"}));
    let proxy = Proxy::start(&ground, SHARD, &kubeconfig, &Surroundings::default()).await;
    let client = proxy.client().await;
    assert_eq!(user(&client).await, "first");
    let mut watch = Http2::new(&proxy).watch().await;

    // Half written files change nothing but the log.
    fs::write(file("ca"), &old[..old.len() / 2]).unwrap();
    until_logged(&proxy, "can't be used; going on").await;
    assert_eq!(user(&client).await, "first");

    // The API server has a new certificate, of a new authority. Who was connected stays so; the bundle follows.
    let serving = pair(&new, "kube-apiserver");
    fs::write(plane.join("server.key"), &serving.1).unwrap();
    fs::write(plane.join("server.crt"), &serving.0).unwrap();
    fs::write(file("ca"), new.pem()).unwrap();
    until_logged(&proxy, "new connections use them").await;
    // A certificate without its key is half written too.
    fs::write(file("crt"), &second.0).unwrap();
    until_logged(&proxy, "KeyMismatch").await;
    assert_eq!(user(&client).await, "first");
    fs::write(file("key"), &second.1).unwrap();
    until_user(&client, "second", DEADLINE).await;

    // A watch that was opened before all of that goes on.
    let objects = kube::Api::namespaced(client, NAMESPACE);
    objects.create(&Default::default(), &super::ground::config_map(SHARD, "after-rotation", 0)).await.unwrap();
    watch.until("after-rotation", DEADLINE).await;
    proxy.until_ready().await;
    ground
}

pub(crate) async fn a_token_is_rotated_while_the_proxy_runs(ground: &Ground) {
    let [old, new] = [ground.identity("token-old").await, ground.identity("token-new").await];
    let token = |identity: &ringside_e2e::shard_identity::ShardIdentity| {
        let kubeconfig: Value = serde_json::from_slice(&fs::read(identity.kubeconfig()).unwrap()).unwrap();
        kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
    };
    let file = ground.folder.path().join("token");
    fs::write(&file, token(&old)).unwrap();
    fs::copy(ground.control_plane.ca_path(), ground.folder.path().join("ca")).unwrap();
    let kubeconfig = ground.folder.path().join("token.kubeconfig");
    write_kubeconfig(ground, &kubeconfig, &json!({"tokenFile": "token"}));
    let proxy = Proxy::start(ground, "token-old", &kubeconfig, &Surroundings::default()).await;
    let client = proxy.client().await;
    assert_eq!(pod(&client).await, "token-old");
    fs::write(&file, token(&new)).unwrap();
    let taken_up = eventually("the new token is used", TOKEN_DEADLINE, || async {
        let pod = pod(&client).await;
        if pod == "token-new" { Ok(()) } else { Err(pod) }
    });
    taken_up.await.unwrap();
}

fn write_kubeconfig(ground: &Ground, path: &Path, user: &Value) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": ground.control_plane.url(), "certificate-authority": "ca"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
    });
    fs::write(path, config.to_string()).unwrap();
}

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "another authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key, for a client who may do anything, or for the API server.
fn pair(authority: &Authority, name: &str) -> (String, String) {
    let mut params = CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned)).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

fn write_pair(dir: &Path, (certificate, key): &(String, String)) {
    fs::write(dir.join("crt"), certificate).unwrap();
    fs::write(dir.join("key"), key).unwrap();
}

async fn until_logged(proxy: &Proxy, text: &str) {
    let logged = eventually("the proxy says so", DEADLINE, || async {
        let log = fs::read_to_string(proxy.process.log()).unwrap();
        if log.contains(text) { Ok(()) } else { Err(proxy.process.log_tail()) }
    });
    logged.await.unwrap();
}

async fn until_user(client: &Client, wanted: &str, within: Duration) {
    let changed = eventually("the new certificate is used", within, || async {
        let user = user(client).await;
        if user == wanted { Ok(()) } else { Err(user) }
    });
    changed.await.unwrap();
}

/// Whom the API server takes the proxy for.
async fn user(client: &Client) -> String {
    review(client).await["username"].as_str().unwrap().to_owned()
}

async fn pod(client: &Client) -> String {
    review(client).await["extra"]["authentication.kubernetes.io/pod-name"][0].as_str().unwrap().to_owned()
}

async fn review(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("content-type", "application/json").body(review.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap()["status"]["userInfo"].take()
}
