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
    fixture::{DEADLINE, config_map},
};
use crate::proxies::{NAMESPACE, Proxies};

/// Long enough for a moment without a connection.
const LEASE: &[&str] = &["--lease-duration=60s"];
/// A token's file is read each minute.
const TOKEN_DEADLINE: Duration = Duration::from_secs(90);

type Authority = CertifiedIssuer<'static, KeyPair>;

/// The API server gets a certificate of a new authority beneath two proxies: as in a pod, where a kubelet replaces authorities
/// and token at once, and by files that a kubeconfig names, which are written one after the other.
pub(crate) async fn credentials_are_rotated_while_proxies_run(fixture: Proxies) {
    let plane = &fixture.control_plane;
    let dir = plane.dir().join("rotation");
    fs::create_dir(&dir).unwrap();
    let [old_token, new_token] = [token(&fixture.identity("old").await), token(&fixture.identity("new").await)];
    let old = fs::read_to_string(plane.ca_path()).unwrap();
    let new = authority();
    // The API server takes clients of both from now on; it follows its own files.
    fs::write(plane.ca_path(), format!("{old}{}", new.pem())).unwrap();
    let write = |name: &str, content: &str| fs::write(dir.join(name), content).unwrap();
    let [first, second] = ["first", "second"].map(|name| pair(&new, name));
    for (name, content) in [("ca", &old), ("crt", &first.0), ("key", &first.1)] {
        write(name, content);
    }
    let by_files = fixture.start_proxy("files", fixture.command(&kubeconfig(&fixture, &dir), LEASE)).await;
    let mut projected = Projected::at(dir.join("serviceaccount"));
    projected.replace(&old, &old_token);
    let mut command = in_cluster::command(&fixture.program, &projected.folder, plane.address());
    command.args(LEASE);
    let in_pod = fixture.start_proxy("old", command).await;
    let (files, pod) = (by_files.client().await.unwrap(), in_pod.client().await.unwrap());
    assert_eq!((user(&files).await, pod_of(&pod).await), ("first".to_owned(), "old".to_owned()));
    let mut watches = Vec::new();
    for proxy in [&by_files, &in_pod] {
        watches.push(Controller::new(proxy).await.watch("application/json").await);
    }

    // Half written files change nothing but the log.
    write("ca", &old[..old.len() / 2]);
    until_logged(&by_files, "can't be used; going on").await;
    assert_eq!(user(&files).await, "first");

    let (serving, (certificate, key)) = (pair(&new, "kube-apiserver"), plane.server_pair());
    fs::write(key, serving.1).unwrap();
    fs::write(certificate, serving.0).unwrap();
    write("new-authority", &new.pem());
    let trusting = Endpoint::new(plane.address(), &dir.join("new-authority"), "").unwrap();
    let served = eventually("the API server has its new certificate", DEADLINE, || async {
        trusting.connect(Http::One).await.map(drop).map_err(|error| error.to_string())
    });
    served.await.unwrap();
    write("ca", &new.pem());
    projected.replace(&new.pem(), &new_token);
    for proxy in [&by_files, &in_pod] {
        until_logged(proxy, "new connections use them").await;
        // It has a connection of its own to the API server.
        Upgraded::watch(proxy).await;
    }
    // A certificate without its key is half written too.
    write("crt", &second.0);
    until_logged(&by_files, "KeyMismatch").await;
    assert_eq!(user(&files).await, "first");
    write("key", &second.1);
    until_is("the new certificate is used", "second", async || user(&files).await).await;
    until_is("the new token is used", "new", async || pod_of(&pod).await).await;

    // A watch that was opened before all of that goes on.
    for ((client, shard), watch) in [(files, "files"), (pod, "old")].into_iter().zip(&mut watches) {
        let name = format!("after-rotation-{shard}");
        let objects = kube::Api::namespaced(client, NAMESPACE);
        objects.create(&Default::default(), &config_map(shard, &name, 0)).await.unwrap();
        watch.until(&name).await;
    }
    for proxy in [&by_files, &in_pod] {
        proxy.until_ready().await.unwrap();
    }
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

/// A kubeconfig that names all else by files beside it.
fn kubeconfig(fixture: &Proxies, dir: &Path) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": fixture.control_plane.url(), "certificate-authority": "ca"}}],
        "users": [{"name": "u", "user": {"client-certificate": "crt", "client-key": "key"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
    });
    let path = dir.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
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

async fn until_logged(proxy: &Proxy, text: &str) {
    let logged = eventually("the proxy says so", DEADLINE, || async {
        let log = fs::read_to_string(proxy.process.log()).unwrap();
        if log.contains(text) { Ok(()) } else { Err(proxy.process.log_tail()) }
    });
    logged.await.unwrap();
}

async fn until_is(what: &str, wanted: &str, found: impl AsyncFn() -> String) {
    let changed = eventually(what, TOKEN_DEADLINE, || async {
        let found = found().await;
        if found == wanted { Ok(()) } else { Err(found) }
    });
    changed.await.unwrap();
}

/// Whom the API server takes the proxy for.
async fn user(client: &Client) -> String {
    review(client).await["username"].as_str().unwrap().to_owned()
}

async fn pod_of(client: &Client) -> String {
    review(client).await["extra"]["authentication.kubernetes.io/pod-name"][0].as_str().unwrap().to_owned()
}

async fn review(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("content-type", "application/json").body(review.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap()["status"]["userInfo"].take()
}
