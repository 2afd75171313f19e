//! Credentials that change, and plugins that give them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use http::{Method, Request, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, KeyPair, generate_simple_self_signed};
use ringside_runtime::{
    client::{ApiServer, Body, NoAnswer},
    shutdown::Shutdown,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::watch,
    time::{advance, pause, resume, sleep, timeout},
};
use tower::ServiceExt;

use super::{
    Client, DEADLINE, Settings, USUAL, client, get, send,
    server::{Server, nothing},
};

/// As the API server's files are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// A server that knows all tokens but `bad`, and which it was shown.
async fn server() -> (Server, Arc<Mutex<Vec<String>>>) {
    let shown = Arc::<Mutex<Vec<String>>>::default();
    let seen = shown.clone();
    let server = Server::start(USUAL, move |request| {
        let token = request.headers().get(header::AUTHORIZATION).map(|it| it.to_str().unwrap().to_owned());
        let token = token.unwrap_or_default();
        let status = if token.ends_with("bad") { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
        seen.lock().push(token);
        std::future::ready(Some(nothing(status))).boxed()
    })
    .await;
    (server, shown)
}

/// A kubeconfig with a user like this.
fn kubeconfig(server: &Server, folder: &Path, user: &Value) -> PathBuf {
    let path = server.write_kubeconfig(folder);
    let mut content: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    content["users"][0]["user"] = user.clone();
    fs::write(&path, content.to_string()).unwrap();
    path
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            sleep(POLL).await;
        }
    };
    timeout(DEADLINE, reached).await.expect(what);
}

async fn the_files_are_looked_at() {
    // The look before may be under way: its timer is not set yet.
    sleep(POLL).await;
    pause();
    advance(LOOK_AGAIN).await;
    resume();
}

/// A credential plugin that prints what stands in a file, and notes each of its runs.
struct Plugin(TempDir);

impl Plugin {
    fn new(status: &Value) -> Self {
        let plugin = Self(tempfile::tempdir().unwrap());
        plugin.prints(status);
        plugin
    }

    fn prints(&self, status: &Value) {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        fs::write(self.0.path().join("prints"), credential.to_string()).unwrap();
    }

    /// Prints a secret, and says that something is wrong.
    fn fails(&self, how: &str) {
        fs::write(self.0.path().join("prints"), "my-secret").unwrap();
        fs::write(self.0.path().join("then"), how).unwrap();
    }

    fn user(&self) -> Value {
        let script = "cd \"$0\"; echo run >> runs; cat prints; if [ -f then ]; then . ./then; fi";
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script, self.0.path()], "interactiveMode": "Never",
        }})
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.0.path().join("runs")).unwrap().lines().count()
    }
}

fn token(valid: SignedDuration) -> Value {
    json!({"token": "from-plugin", "expirationTimestamp": (Timestamp::now() + valid).to_string()})
}

fn certificate(valid: SignedDuration) -> Value {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["x".to_owned()]).unwrap();
    json!({
        "clientCertificateData": cert.pem(), "clientKeyData": signing_key.serialize_pem(),
        "expirationTimestamp": (Timestamp::now() + valid).to_string(),
    })
}

#[tokio::test]
async fn credentials_that_the_server_does_not_accept_are_not_taken_up() {
    let (server, shown) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let user = |token: &str| kubeconfig(&server, folder.path(), &json!({"token": token}));
    let api_server = ApiServer::find(Some(&user("first")), "test").unwrap();
    let client: Client = api_server.transport().unwrap();
    let following = tokio::spawn(api_server.follow(Shutdown::new()));
    let last = || shown.lock().last().cloned().unwrap_or_default();
    assert_eq!(get(&client, "/").await.status(), StatusCode::OK);
    user("bad");
    the_files_are_looked_at().await;
    until("they are tried", || last() == "Bearer bad").await;
    assert_eq!(get(&client, "/").await.status(), StatusCode::OK);
    assert_eq!(last(), "Bearer first");
    user("second");
    the_files_are_looked_at().await;
    until("they are tried", || last() == "Bearer second").await;
    let taken_up = async {
        while {
            get(&client, "/").await;
            last() != "Bearer second"
        } {}
    };
    timeout(DEADLINE, taken_up).await.expect("what the server accepts is taken up");
    following.abort();
}

#[tokio::test]
async fn what_is_under_way_goes_on_when_credentials_change() {
    let (tell, told) = watch::channel(false);
    let server = Server::start(USUAL, move |request| {
        let (mut told, path) = (told.clone(), request.uri().path().to_owned());
        async move {
            if path == "/slow" {
                told.wait_for(|told| *told).await.unwrap();
            }
            Some(nothing(StatusCode::OK))
        }
        .boxed()
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let user = |token: &str| kubeconfig(&server, folder.path(), &json!({"token": token}));
    let api_server = ApiServer::find(Some(&user("first")), "test").unwrap();
    let client: Client = api_server.transport().unwrap();
    let following = tokio::spawn(api_server.follow(Shutdown::new()));
    let mut slow = Box::pin(get(&client, "/slow"));
    let before = async { until("it is under way", || server.requests() == 1).await };
    tokio::select! {
        _ = &mut slow => unreachable!("nothing lets it go on"),
        () = before => {}
    }
    user("second");
    the_files_are_looked_at().await;
    // One to try the new credentials, and one with them.
    let changed = async {
        while server.connections() < 3 {
            get(&client, "/").await;
        }
    };
    timeout(DEADLINE, changed).await.expect("new requests have a connection of their own");
    tell.send(true).unwrap();
    assert_eq!(slow.await.status(), StatusCode::OK);
    following.abort();
}

#[tokio::test]
async fn what_a_plugin_prints_is_told_to_no_caller() {
    let (server, _) = server().await;
    let folder = tempfile::tempdir().unwrap();
    // So short that it is asked for with each request.
    let plugin = Plugin::new(&token(SignedDuration::from_secs(30)));
    let path = kubeconfig(&server, folder.path(), &plugin.user());
    let client: Client = ApiServer::find(Some(&path), "test").unwrap().transport().unwrap();
    assert_eq!(get(&client, "/").await.status(), StatusCode::OK);
    for (how, said) in [("exit 3", "plugin failed (exit status: 3)"), ("true", "printed no ExecCredential")] {
        plugin.fails(how);
        let error = send(&client, Method::GET, "/").await.unwrap_err();
        assert!(matches!(error, NoAnswer::Unreachable(_)), "{error}");
        for text in [format!("{error} {error:?}"), ApiServer::find(Some(&path), "test").unwrap_err().to_string()] {
            assert!(text.contains(said) && !text.contains("secret"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_plugin_is_not_run_for_each_set_of_connections() {
    let (server, shown) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(&token(SignedDuration::from_hours(1)));
    let api_server = ApiServer::find(Some(&kubeconfig(&server, folder.path(), &plugin.user())), "test").unwrap();
    let runs = plugin.runs();
    for _ in 0..3 {
        let client: Client = api_server.transport().unwrap();
        get(&client, "/").await;
    }
    assert_eq!((plugin.runs(), shown.lock().last().unwrap().as_str()), (runs, "Bearer from-plugin"));
}

#[tokio::test]
async fn a_certificate_from_a_plugin_is_renewed_before_it_ends() {
    let (server, _) = server().await;
    let folder = tempfile::tempdir().unwrap();
    let plugin = Plugin::new(&certificate(SignedDuration::from_secs(30)));
    let api_server = ApiServer::find(Some(&kubeconfig(&server, folder.path(), &plugin.user())), "test").unwrap();
    let following = tokio::spawn(api_server.clone().follow(Shutdown::new()));
    let (runs, tried) = (plugin.runs(), server.requests());
    plugin.prints(&certificate(SignedDuration::from_hours(1)));
    the_files_are_looked_at().await;
    until("the new certificate is tried", || server.requests() > tried).await;
    // It is taken up when the answer has come, and then there is nothing to do for a while.
    let mut renewed = runs;
    let taken_up = async {
        while plugin.runs() != renewed {
            renewed = plugin.runs();
            the_files_are_looked_at().await;
        }
    };
    timeout(DEADLINE, taken_up).await.expect("it is taken up");
    assert!(renewed > runs);
    for _ in 0..3 {
        the_files_are_looked_at().await;
    }
    assert_eq!(plugin.runs(), renewed);
    following.abort();
}

/// The API server prefers a certificate to a token: the request would be done with the process's rights.
#[tokio::test]
async fn a_request_with_credentials_of_its_own_is_sent_with_none_of_the_process() {
    for settings in [USUAL, Settings { http2: false, ..USUAL }] {
        let shown = Arc::<Mutex<Vec<_>>>::default();
        let seen = shown.clone();
        let server = Server::start(settings, move |request| {
            seen.lock().push(request.headers().get(header::AUTHORIZATION).cloned());
            std::future::ready(Some(nothing(StatusCode::OK))).boxed()
        })
        .await;
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["x".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tls.crt"), cert.pem()).unwrap();
        fs::write(folder.path().join("tls.key"), signing_key.serialize_pem()).unwrap();
        let user = json!({"client-certificate": "tls.crt", "client-key": "tls.key", "token": "ours"});
        let path = kubeconfig(&server, folder.path(), &user);
        let client: Client = ApiServer::find(Some(&path), "test").unwrap().transport().unwrap();
        get(&client, "/").await;
        let certified = server.certified();
        assert!(certified > 0 && server.connections() == certified);
        for _ in 0..2 {
            let request =
                Request::get("/").header(header::AUTHORIZATION, "Bearer theirs").body(Body::default()).unwrap();
            client.clone().oneshot(request).await.unwrap();
        }
        assert!(server.connections() > certified && server.certified() == certified);
        get(&client, "/").await;
        let shown: Vec<_> = shown.lock().iter().map(|it| it.as_ref().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(shown, ["Bearer ours", "Bearer theirs", "Bearer theirs", "Bearer ours"]);
    }
}

/// As authorities of `openssl ecparam` and step-ca sign, and as cert-manager makes with `size: 521`.
#[tokio::test]
async fn each_curve_with_each_hash_is_verified() {
    for (name, certificate, key) in [
        ("P-256", include_str!("p256-sha512.crt"), include_str!("p256-sha512.key")),
        ("P-384", include_str!("p384-sha512.crt"), include_str!("p384-sha512.key")),
        ("P-521", include_str!("p521-sha512.crt"), include_str!("p521-sha512.key")),
    ] {
        let serve = |_, _| std::future::ready(()).boxed();
        let server = Server::listen_with_pem(certificate, key, true, serve).await;
        // The connection ends once it is secured.
        let error = send(&client(&server), Method::GET, "/").await.unwrap_err().to_string();
        assert!(server.connections() > 0, "{name}: {error}");
    }
}

/// What `openssl req -x509` makes, and what old authorities issue: kubectl takes both.
#[tokio::test]
async fn a_certificate_that_is_not_taken_is_named_with_the_remedy() {
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signing_key = KeyPair::generate().unwrap();
    let cert = parameters.self_signed(&signing_key).unwrap();
    let server =
        Server::listen_with(CertifiedKey { cert, signing_key }, true, |_, _| std::future::ready(()).boxed()).await;
    let error = send(&client(&server), Method::GET, "/").await.unwrap_err().to_string();
    assert!(error.contains("the API server's certificate") && error.contains("issue one with CA:FALSE"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tls.crt"), include_str!("version-1.crt")).unwrap();
    fs::write(folder.path().join("tls.key"), include_str!("version-1.key")).unwrap();
    let user = json!({"client-certificate": "tls.crt", "client-key": "tls.key"});
    let error = ApiServer::find(Some(&kubeconfig(&server, folder.path(), &user)), "test").unwrap_err().to_string();
    assert!(error.contains("the client certificate is of X.509 version 1: issue one of version 3"), "{error}");
}
