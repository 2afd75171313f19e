//! One name, two addresses, and one of them of no use.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use ringside_e2e::{control_plane::AnotherApiServer, proxy::Proxy};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{
    clients::{Client, End, NAMES, Upgraded},
    fixture::{DEADLINE, Fixture, config_map, objects_by, program},
    follower::Follower,
    load_balancer::LoadBalancer,
    report,
};

/// The name, in a hosts file that only the proxy sees.
const NAME: &str = "api.test";
const FIRST: &str = "127.0.0.1";
/// What is promised of a peer that hangs.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
/// So many are made to see how long one takes.
const CONNECTIONS: u64 = 10;
/// For a request beside an address that is of no use. Without other load it is a quarter of a second.
const PROMPT: Duration = Duration::from_secs(5);

/// Why the proxy can't be shown a hosts file of its own.
pub(crate) fn unavailable() -> Option<String> {
    let tried = unshare(Path::new("/etc/hosts"), Path::new("true")).output();
    let works = tried.as_ref().is_ok_and(|output| output.status.success());
    (!works).then(|| "no mount namespace can be made here (unshare --mount)".to_owned())
}

/// A program that is shown that hosts file.
fn unshare(hosts: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", r#"mount --bind "$0" /etc/hosts && exec "$@""#]).arg(hosts).arg(program);
    command
}

/// A proxy that knows the API server by a name with both addresses.
async fn proxy(fixture: &Fixture, shard: &str, port: u16) -> Proxy {
    let identity = fixture.identity(shard).await;
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(identity.kubeconfig()).unwrap()).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{NAME}:{port}").into();
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
    fs::write(identity.kubeconfig(), kubeconfig.to_string()).unwrap();
    let hosts = fixture.folder.path().join(format!("{shard}.hosts"));
    fs::write(&hosts, format!("{FIRST} localhost {NAME}\n{} {NAME}\n", AnotherApiServer::ADDRESS)).unwrap();
    let mut command = unshare(&hosts, program());
    command.arg("--kubeconfig").arg(identity.kubeconfig());
    fixture.start_proxy(shard, command).await
}

/// The slowest of some requests that need a connection to the API server each: what is upgraded has its own.
async fn slowest(proxy: &Proxy) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..CONNECTIONS {
        let start = Instant::now();
        Upgraded::watch(proxy).await;
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

pub(crate) async fn one_of_two_api_servers_is_killed_or_hangs(mut fixture: Fixture) -> Fixture {
    let another = fixture.control_plane.start_another_api_server().await.unwrap();
    let port = fixture.control_plane.url().parse::<http::Uri>().unwrap().port_u16().unwrap();
    let proxy = proxy(&fixture, "two", port).await;
    let client = Client::new(&proxy).await;
    let follower = Follower::start(objects_by(&proxy).await).await;
    let objects = objects_by(&proxy).await;

    let watch = client.watch(NAMES).await;
    fixture.control_plane.stop_api_server().await.unwrap();
    let slowest_beside_killed = slowest(&proxy).await;
    objects.create(&Default::default(), &config_map("two", "beside-killed", 0)).await.unwrap();
    follower.until_seen("beside-killed", DEADLINE).await;
    assert!(slowest_beside_killed < PROMPT, "{slowest_beside_killed:?}");
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);

    let watch = client.watch(NAMES).await;
    fixture.control_plane.start_api_server().await.unwrap();
    another.process().pause().unwrap();
    let paused = Instant::now();
    // It is the address that worked last, and its kernel accepts connections.
    let slowest_beside_hanging = slowest(&proxy).await;
    assert!(slowest_beside_hanging < PROMPT, "{slowest_beside_hanging:?}");
    fixture.create("two", "beside-hanging", 0).await;
    // What is sent now gets its answer once the connection is given up.
    assert!(client.text("/version").await.contains("gitVersion"));
    assert!(paused.elapsed() < NOTICED_WITHIN, "{:?}", paused.elapsed());
    let noticed = paused.elapsed();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    follower.until_seen("beside-hanging", DEADLINE).await;
    report(&format!(
        "one of two API servers killed: the slowest new connection {slowest_beside_killed:?}; hanging: \
         {slowest_beside_hanging:?}, connections that it had noticed after {noticed:?}"
    ));
    another.process().resume().unwrap();
    proxy.until_ready().await.unwrap();
    fixture
}

pub(crate) async fn an_address_that_swallows_everything_costs_a_moment(fixture: &Fixture) {
    let hole = Hole::dig().await;
    let listener = TcpListener::bind((AnotherApiServer::ADDRESS, hole.address.port())).await.unwrap();
    let balancer = LoadBalancer::on(listener, fixture.address());
    let proxy = proxy(fixture, "hole", hole.address.port()).await;
    let client = Client::new(&proxy).await;
    assert!(client.text("/version").await.contains("gitVersion"));
    let first = slowest(&proxy).await;
    // The connections that there are say nothing any more; every request needs a new one.
    let before = balancer.accepted();
    balancer.freeze();
    let frozen = Instant::now();
    let again = slowest(&proxy).await;
    assert!(client.text("/version").await.contains("gitVersion"));
    let noticed = frozen.elapsed();
    let follower = Follower::start(objects_by(&proxy).await).await;
    fixture.create("hole", "through", 0).await;
    follower.until_seen("through", DEADLINE).await;
    report(&format!(
        "beside an address that swallows everything: the slowest new connection {first:?}, and {again:?} once those that \
         there were are dead, which was noticed after {noticed:?}"
    ));
    assert!(first < PROMPT && again < PROMPT, "{first:?} {again:?}");
    assert!(noticed < NOTICED_WITHIN, "{noticed:?}");
    assert!(balancer.accepted() - before > CONNECTIONS, "{before} before, {} now", balancer.accepted());
}

/// A port that answers no SYN: of a listener whose queue is full, the kernel drops them.
struct Hole {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Hole {
    async fn dig() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((FIRST.parse::<std::net::Ipv4Addr>().unwrap(), 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // One more than the backlog fits in; the next waits for ever.
        while let Ok(connected) = tokio::time::timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
            queue.push(connected.unwrap());
            assert!(queue.len() < 16, "the queue has no end");
        }
        Self { address, _listener: listener, _queue: queue }
    }
}
