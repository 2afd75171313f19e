//! The whole proxy in front of an API server that is not one: its start, its end, and what can be wrong with its input.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use ringside_proxy::{Command, Config, RunError, run_until};
use ringside_runtime::shutdown::Shutdown;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tempfile::TempDir;
use tokio::{net::TcpSocket, task::JoinHandle, time::timeout};

mod fake;
#[path = "run/outage.rs"]
mod outage;

/// How long anything may take that is only a matter of a few round trips.
const DEADLINE: Duration = Duration::from_secs(15);

type Http = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

struct Proxy {
    folder: TempDir,
    shutdown: Shutdown,
    ended: JoinHandle<Result<(), RunError>>,
    listen: SocketAddr,
    admin: SocketAddr,
}

/// Returns a local address that the kernel gives to no other socket until this process ends. A listener that asks for
/// it by its number gets it, as `SO_REUSEADDR` holds on both sides and this side does not listen.
fn free_address() -> SocketAddr {
    static HELD: parking_lot::Mutex<Vec<TcpSocket>> = parking_lot::Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    HELD.lock().push(socket);
    address
}

fn config(folder: &TempDir, listen: SocketAddr, admin: SocketAddr, more: &[&str]) -> Config {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut arguments = vec!["ringside-proxy".to_owned(), "--ring=example".to_owned()];
    arguments.push(format!("--kubeconfig={}", path("upstream")));
    arguments.push(format!("--access-dir={}", path("access")));
    arguments.push(format!("--listen={listen}"));
    arguments.push(format!("--admin-listen={admin}"));
    arguments.extend(more.iter().map(|it| (*it).to_owned()));
    match Command::parse(arguments.into_iter().map(OsString::from), Some("host".to_owned())).unwrap() {
        Command::Run(config) => *config,
        Command::Probe(_) | Command::Leave(_) => unreachable!("not asked for"),
    }
}

impl Proxy {
    fn start(folder: TempDir, more: &[&str]) -> Self {
        Self::start_at(free_address(), folder, more)
    }

    fn start_at(listen: SocketAddr, folder: TempDir, more: &[&str]) -> Self {
        let (admin, shutdown) = (free_address(), Shutdown::new());
        let config = config(&folder, listen, admin, more);
        let ended = tokio::spawn(run_until(config, shutdown.clone()));
        Self { folder, shutdown, ended, listen, admin }
    }

    fn access(&self, name: &str) -> PathBuf {
        self.folder.path().join("access").join(name)
    }

    /// What `/readyz` says, as soon as it says something that `wanted` accepts.
    async fn readiness(&self, wanted: impl Fn(&str) -> bool) -> String {
        let admin: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let last = parking_lot::Mutex::new(String::new());
        let asked = timeout(DEADLINE, async {
            loop {
                if let Ok(answer) = admin.get(format!("http://{}/readyz", self.admin).parse().unwrap()).await {
                    *last.lock() = text(answer).await;
                    if wanted(&last.lock()) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        asked.await.unwrap_or_else(|_| panic!("readiness stayed '{}'", last.lock()));
        last.into_inner()
    }

    fn client(&self, http2: bool) -> Http {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.access("ca.crt")).unwrap()).unwrap();
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_only();
        let connector = if http2 { builder.enable_http2().build() } else { builder.enable_http1().build() };
        Client::builder(TokioExecutor::new()).http2_only(http2).build(connector)
    }

    async fn get(&self, client: &Http, path: &str) -> Response<Incoming> {
        self.get_at(client, &format!("https://localhost:{}", self.listen.port()), path).await
    }

    async fn get_at(&self, client: &Http, server: &str, path: &str) -> Response<Incoming> {
        let token = fs::read_to_string(self.access("token")).unwrap();
        let request = Request::get(format!("{server}{path}"));
        client
            .request(request.header("authorization", format!("Bearer {token}")).body(Empty::new()).unwrap())
            .await
            .unwrap()
    }
}

/// Whether the proxy serves its controller. What that controller lacks is said on other lines.
fn is_ready(text: &str) -> bool {
    text.starts_with("ok\n")
}

async fn text(answer: Response<Incoming>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn a_controller_is_served_by_http_1_and_2_and_the_lease_outlives_its_last_request() {
    for http2 in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let api = fake::start(&folder.path().join("upstream")).await;
        api.lock().ring.send_replace(Some(fake::ring("things")));
        let proxy = Proxy::start(folder, &[]);
        proxy.readiness(is_ready).await;
        let client = proxy.client(http2);
        assert_eq!(proxy.get(&client, "/apis/x.io/v1/things").await.status(), StatusCode::OK);
        let mut asked = api.lock().requests.clone().into_iter();
        let narrowed = asked.rfind(|asked| asked.contains("/apis/x.io/v1/things")).unwrap();
        assert!(
            narrowed.contains(
                "labelSelector=shard.alpha.sharding.timebertt.dev%2Fclusterring-50d858e0-example%3Dshard-0%2C%21"
            ),
            "{narrowed}"
        );

        let watch = proxy.get(&client, "/apis/x.io/v1/things?watch=1").await;
        proxy.shutdown.trigger();
        let another = proxy.client(http2);
        assert_eq!(proxy.get(&another, "/version").await.status(), StatusCode::OK, "the controller is still there");
        assert!(!proxy.ended.is_finished());
        let held = |api: &fake::Shared| api.lock().lease.clone().unwrap()["spec"]["holderIdentity"].clone();
        assert_eq!(held(&api), "shard-0");
        drop((watch, client, another));
        timeout(DEADLINE, proxy.ended).await.unwrap().unwrap().unwrap();
        assert_eq!(held(&api), "");
    }
}

#[tokio::test]
async fn a_restarted_proxy_is_the_same_to_its_controller() {
    let folder = tempfile::tempdir().unwrap();
    let api = fake::start(&folder.path().join("upstream")).await;
    api.lock().ring.send_replace(Some(fake::ring("things")));
    let first = Proxy::start(folder, &[]);
    first.readiness(is_ready).await;
    let client = first.client(false);
    let secret = |token: String| token.split_once('.').unwrap().0.to_owned();
    let token = secret(fs::read_to_string(first.access("token")).unwrap());
    first.shutdown.trigger();
    timeout(DEADLINE, first.ended).await.unwrap().unwrap().unwrap();
    let second = Proxy::start(first.folder, &[]);
    second.readiness(is_ready).await;
    assert_eq!(secret(fs::read_to_string(second.access("token")).unwrap()), token);
    // The client trusts the certificate that it was given at first.
    assert_eq!(second.get(&client, "/version").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_ring_that_is_unknown_or_forbidden_is_named_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let api = fake::start(&folder.path().join("upstream")).await;
    api.lock().may_read_ring = false;
    let proxy = Proxy::start(folder, &[]);
    proxy
        .readiness(|text| text.contains("may not read ClusterRing 'example'") && text.contains("service account"))
        .await;
    api.lock().may_read_ring = true;
    proxy.readiness(|text| text.contains("there is no ClusterRing 'example'")).await;
    let refused = proxy.get(&proxy.client(false), "/apis/x.io/v1/things").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(refused).await.contains("there is no ClusterRing 'example'"));
    api.lock().ring.send_replace(Some(fake::ring("things")));
    proxy.readiness(is_ready).await;
}

#[tokio::test]
async fn an_absent_api_server_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    fake::write_kubeconfig(&folder.path().join("upstream"), free_address());
    let proxy = Proxy::start(folder, &[]);
    let says = proxy.readiness(|text| text.contains("ClusterRing 'example' yet")).await;
    assert!(says.contains("Connection refused") && says.contains("which pod this is"), "{says}");
    let refused = proxy.get(&proxy.client(true), "/version").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(refused).await.contains("can't be reached"));
    assert!(!proxy.ended.is_finished());
}

#[tokio::test]
async fn it_can_listen_on_ipv6_alone_and_on_whatever_port_is_free_and_its_kubeconfig_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let _api = fake::start(&folder.path().join("upstream")).await;
    let proxy = Proxy::start_at("[::1]:0".parse().unwrap(), folder, &[]);
    proxy.readiness(|text| text.contains("there is no ClusterRing")).await;
    let kubeconfig: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(proxy.access("kubeconfig")).unwrap()).unwrap();
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap();
    assert!(server.starts_with("https://[::1]:") && !server.ends_with(":0"), "{server}");
    assert_eq!(proxy.get_at(&proxy.client(true), server, "/version").await.status(), StatusCode::OK);
}

/// What a kubelet runs, with the environment of the container.
async fn probe(which: &str, admin: SocketAddr) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ringside-proxy"));
    command.args(["probe", which, "--timeout=10s"]).env_clear().env("RINGSIDE_ADMIN_LISTEN", admin.to_string());
    let output = command.output().await.unwrap();
    assert_eq!(output.stdout, b"");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_probe_says_by_its_exit_code_and_a_line_a_fault_how_the_proxy_is() {
    let folder = tempfile::tempdir().unwrap();
    let api = fake::start(&folder.path().join("upstream")).await;
    let proxy = Proxy::start(folder, &[]);
    proxy.readiness(|text| text.contains("ring: there is no ClusterRing")).await;
    let (code, says) = probe("ready", proxy.admin).await;
    assert_eq!(code, Some(1), "{says}");
    assert!(says.lines().any(|line| line.starts_with("ring: there is no ClusterRing 'example'")), "{says}");
    assert!(says.lines().all(|line| line.contains(": ")), "{says}");
    assert_eq!(probe("live", proxy.admin).await, (Some(0), String::new()));
    // Its Lease is held, and the kubeconfig is there: the controller may start.
    assert_eq!(probe("started", proxy.admin).await, (Some(0), String::new()));
    api.lock().ring.send_replace(Some(fake::ring("things")));
    proxy.readiness(is_ready).await;
    assert_eq!(probe("ready", proxy.admin).await, (Some(0), String::new()));
    let unused = free_address();
    let (code, says) = probe("live", unused).await;
    assert_eq!(code, Some(1));
    assert!(says.contains(&unused.to_string()) && says.contains("--admin-listen"), "{says}");
}

#[tokio::test]
async fn what_can_never_work_ends_the_proxy_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let _api = fake::start(&folder.path().join("upstream")).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let run = |config| async { run_until(config, Shutdown::new()).await.unwrap_err().to_string() };
    let port = run(config(&folder, taken.local_addr().unwrap(), free_address(), &[])).await;
    assert!(port.contains("--listen") && port.contains("choose another address"), "{port}");
    let contradiction = run(config(&folder, free_address(), free_address(), &["--shard-name=other"])).await;
    assert!(
        contradiction.contains("--shard-name says 'other'") && contradiction.contains("pod 'shard-0'"),
        "{contradiction}"
    );
    fs::write(folder.path().join("file"), "").unwrap();
    let mut twice = config(&folder, free_address(), free_address(), &[]);
    twice.access_dir = folder.path().join("file");
    let text = run(twice).await;
    assert!(text.contains("--access-dir"), "{text}");
    let mut nowhere = config(&folder, free_address(), free_address(), &[]);
    nowhere.kubeconfig = Some(folder.path().join("missing"));
    assert!(run(nowhere).await.contains("missing"));
}

/// The program by itself, with these options; its log comes by its standard error.
fn program(folder: &TempDir, more: &[&str]) -> tokio::process::Child {
    command(folder, more).spawn().unwrap()
}

fn command(folder: &TempDir, more: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_ringside-proxy"));
    command.arg("--ring=example").arg("--kubeconfig").arg(folder.path().join("upstream")).arg("--access-dir");
    command.arg(folder.path().join("access")).args(more).env_clear();
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// As kubectl reads the environment: only what NO_PROXY leaves to a proxy can't be reached.
#[tokio::test]
async fn a_proxy_in_the_environment_stops_only_what_no_proxy_does_not_name() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443", "insecure-skip-tls-verify": true}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "", "namespace": "ns"}}],
    });
    fs::write(folder.path().join("upstream"), kubeconfig.to_string()).unwrap();
    for (no_proxy, starts) in [("127.0.0.1,.svc", false), ("192.0.2.0/24", true)] {
        let mut command = command(&folder, &["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]);
        let mut program = command.env("HTTPS_PROXY", "http://127.0.0.1:9").env("NO_PROXY", no_proxy).spawn().unwrap();
        let started = async {
            while !folder.path().join("access/kubeconfig").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = tokio::select! {
            ended = program.wait() => !ended.unwrap().success(),
            started = timeout(DEADLINE, started) => started.is_err(),
        };
        assert_eq!(ended, !starts, "{no_proxy}");
        let _ = program.start_kill();
        let output = program.wait_with_output().await.unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert_eq!(says.contains("add 192.0.2.1 to NO_PROXY"), !starts, "{says}");
    }
}

/// Where a process listens, by the system's own table.
fn listening(process: u32) -> BTreeSet<SocketAddr> {
    /// `TCP_LISTEN` of the kernel.
    const LISTEN: &str = "0A";
    let links =
        fs::read_dir(format!("/proc/{process}/fd")).unwrap().filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    let sockets: BTreeSet<String> = links.map(|it| it.display().to_string()).collect();
    let table = |name: &str| fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let lines = table("tcp") + &table("tcp6");
    let entry = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (address, state, inode) = (*columns.get(1)?, *columns.get(3)?, *columns.get(9)?);
        (state == LISTEN && sockets.contains(&format!("socket:[{inode}]"))).then(|| parse(address))
    };
    lines.lines().filter_map(entry).collect()
}

/// As the kernel writes it: words of the machine's order, and the port as a number.
fn parse(text: &str) -> SocketAddr {
    let (address, port) = text.split_once(':').unwrap();
    let words =
        address.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).unwrap(), 16).unwrap());
    let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    let ip: IpAddr = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(&bytes[..]).unwrap().into(),
    };
    (ip, u16::from_str_radix(port, 16).unwrap()).into()
}

#[tokio::test]
async fn only_loopback_is_listened_on_unless_told_otherwise_with_a_warning_that_says_what_it_means() {
    let folder = tempfile::tempdir().unwrap();
    let _api = fake::start(&folder.path().join("upstream")).await;
    for (listen, admin, warnings) in [
        ("127.0.0.1:0", "127.0.0.1:0", &[][..]),
        ("0.0.0.0:0", "127.0.0.1:0", &["--listen 0.0.0.0:0 is not a loopback address: a client that reaches it"][..]),
        (
            "127.0.0.1:0",
            "0.0.0.0:0",
            &["--admin-listen 0.0.0.0:0 is not a loopback address: a client that reaches it"][..],
        ),
    ] {
        let _ = fs::remove_dir_all(folder.path().join("access"));
        let mut program = program(&folder, &["--listen", listen, "--admin-listen", admin]);
        let seen = timeout(DEADLINE, async {
            loop {
                // Written once it listens, and has said so.
                if folder.path().join("access/kubeconfig").exists() {
                    return listening(program.id().unwrap());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let seen = seen.await.expect("it does not start");
        let ips: Vec<_> = seen.iter().map(|it| it.ip().to_string()).collect();
        let mut wanted = [listen, admin].map(|it| it.trim_end_matches(":0").to_owned());
        wanted.sort();
        assert_eq!(ips, wanted, "{seen:?}");
        program.start_kill().unwrap();
        let output = program.wait_with_output().await.unwrap();
        let log = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        let warned: Vec<_> = log.lines().filter(|line| line.contains("is not a loopback address")).collect();
        assert_eq!(warned.len(), warnings.len(), "{log}");
        for (line, warning) in warned.iter().zip(warnings) {
            assert!(line.contains("WARN") && line.contains(warning), "{line}");
        }
    }
}
