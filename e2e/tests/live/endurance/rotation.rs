//! Credentials that are rotated under a running proxy: authorities, certificates, keys, tokens.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use http::Request;
use kube::Client;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use ringside_e2e::{
    compatibility::client::{Endpoint, Http},
    eventually::eventually,
    in_cluster,
    proxy::Proxy,
    shard_identity::ShardIdentity,
};
use serde_json::{Value, json};

use super::{
    clients::{Client as Controller, Upgraded},
    fixture::{DEADLINE, Fixture, NAMESPACE, program},
};

const SHARD: &str = "rotation";
/// A token's file is read each minute.
const TOKEN_DEADLINE: Duration = Duration::from_secs(90);

type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) async fn certificates_and_authorities_are_rotated_while_the_proxy_runs(fixture: Fixture) -> Fixture {
    let (dir, plane) = (fixture.folder.path().to_owned(), fixture.control_plane.dir().to_owned());
    let old = fs::read_to_string(fixture.control_plane.ca_path()).unwrap();
    let new = authority();
    // The API server takes clients of both from now on; it follows its own files.
    fs::write(plane.join("ca.crt"), format!("{old}{}", new.pem())).unwrap();
    let file = |name: &str| dir.join(name);
    fs::write(file("ca"), &old).unwrap();
    let [first, second] = ["first", "second"].map(|name| pair(&new, name));
    write_pair(&dir, &first);
    let kubeconfig = file("rotation.kubeconfig");
    write_kubeconfig(&fixture, &kubeconfig, &json!({"client-certificate": "crt", "client-key": "key"}));
    let proxy = fixture.proxy_with(SHARD, &kubeconfig).await;
    let client = proxy.client().await.unwrap();
    assert_eq!(user(&client).await, "first");
    let mut watch = Controller::new(&proxy).await.watch("application/json").await;

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
    objects.create(&Default::default(), &super::fixture::config_map(SHARD, "after-rotation", 0)).await.unwrap();
    watch.until("after-rotation", DEADLINE).await;
    proxy.until_ready().await.unwrap();
    fixture
}

pub(crate) async fn a_token_is_rotated_while_the_proxy_runs(fixture: &Fixture) {
    let [old, new] = [fixture.identity("token-old").await, fixture.identity("token-new").await];
    let file = fixture.folder.path().join("token");
    fs::write(&file, token(&old)).unwrap();
    fs::copy(fixture.control_plane.ca_path(), fixture.folder.path().join("ca")).unwrap();
    let kubeconfig = fixture.folder.path().join("token.kubeconfig");
    write_kubeconfig(fixture, &kubeconfig, &json!({"tokenFile": "token"}));
    let proxy = fixture.proxy_with("token-old", &kubeconfig).await;
    let client = proxy.client().await.unwrap();
    assert_eq!(pod(&client).await, "token-old");
    fs::write(&file, token(&new)).unwrap();
    let taken_up = eventually("the new token is used", TOKEN_DEADLINE, || async {
        let pod = pod(&client).await;
        if pod == "token-new" { Ok(()) } else { Err(pod) }
    });
    taken_up.await.unwrap();
}

/// As in a pod: authorities and token come by one folder, and a kubelet replaces both at once.
pub(crate) async fn what_a_kubelet_projects_is_rotated_while_the_proxy_runs(fixture: Fixture) -> Fixture {
    let (dir, plane) = (fixture.folder.path().to_owned(), fixture.control_plane.dir().to_owned());
    let address = fixture.address();
    let [old, new] = ["projected-old", "projected-new"];
    let [old_token, new_token] = [token(&fixture.identity(old).await), token(&fixture.identity(new).await)];
    let authorities = fs::read_to_string(fixture.control_plane.ca_path()).unwrap();
    let mut projected = Projected::at(dir.join("serviceaccount"));
    projected.replace(&authorities, &old_token);
    let proxy = fixture.start_proxy(old, in_cluster::command(program(), &projected.folder, address)).await;
    let client = proxy.client().await.unwrap();
    assert_eq!(pod(&client).await, old);
    let mut watch = Controller::new(&proxy).await.watch("application/json").await;

    let authority = authority();
    let serving = pair(&authority, "kube-apiserver");
    fs::write(plane.join("server.key"), &serving.1).unwrap();
    fs::write(plane.join("server.crt"), &serving.0).unwrap();
    let new_authority = dir.join("new-authority");
    fs::write(&new_authority, authority.pem()).unwrap();
    let trusting = Endpoint::new(address, &new_authority, "").unwrap();
    let served = eventually("the API server has its new certificate", DEADLINE, || async {
        trusting.connect(Http::One).await.map(drop).map_err(|error| error.to_string())
    });
    served.await.unwrap();
    projected.replace(&authority.pem(), &new_token);
    until_logged(&proxy, "new connections use them").await;
    // It has a connection of its own to the API server.
    Upgraded::watch(&proxy).await;
    let taken_up = eventually("the new token is used", TOKEN_DEADLINE, || async {
        let pod = pod(&client).await;
        if pod == new { Ok(()) } else { Err(pod) }
    });
    taken_up.await.unwrap();
    fixture.create(old, "after-projection", 0).await;
    watch.until("after-projection", DEADLINE).await;
    proxy.until_ready().await.unwrap();
    fixture
}

/// A folder that is kept as a kubelet keeps what it projects into a pod: the names are links through `..data`, which leads
/// to another folder at once (`pkg/volume/util/atomic_writer.go` of Kubernetes).
struct Projected {
    folder: PathBuf,
    number: usize,
}

impl Projected {
    fn at(folder: PathBuf) -> Self {
        fs::create_dir(&folder).unwrap();
        for name in ["ca.crt", "namespace", "token"] {
            symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
        }
        Self { folder, number: 0 }
    }

    fn replace(&mut self, authorities: &str, token: &str) {
        let before = self.folder.join(format!("..{}", self.number));
        self.number += 1;
        let (name, link) = (format!("..{}", self.number), self.folder.join("..data_tmp"));
        let folder = self.folder.join(&name);
        fs::create_dir(&folder).unwrap();
        for (name, content) in [("ca.crt", authorities), ("namespace", NAMESPACE), ("token", token)] {
            fs::write(folder.join(name), content).unwrap();
        }
        symlink(&name, &link).unwrap();
        fs::rename(&link, self.folder.join("..data")).unwrap();
        if before.exists() {
            fs::remove_dir_all(before).unwrap();
        }
    }
}

/// The token of a Pod.
fn token(identity: &ShardIdentity) -> String {
    let kubeconfig: Value = serde_json::from_slice(&fs::read(identity.kubeconfig()).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

fn write_kubeconfig(fixture: &Fixture, path: &Path, user: &Value) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": fixture.control_plane.url(), "certificate-authority": "ca"}}],
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
