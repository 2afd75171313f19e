//! One name, two addresses, and one of them of no use.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use ringside_e2e::{control_plane::AnotherApiServer, proxy::Proxy};
use serde_json::Value;

use super::{
    clients::{Client, End, NAMES, Upgraded},
    fixture::{DEADLINE, NOTICED_WITHIN, config_map, create, objects_by},
    follower::Follower,
    report,
};
use crate::proxies::Proxies;

/// The name, in a hosts file that only the proxy sees.
const NAME: &str = "api.test";
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
async fn proxy(fixture: &Proxies, shard: &str) -> Proxy {
    let identity = fixture.identity(shard).await;
    let address = fixture.control_plane.address();
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(identity.kubeconfig()).unwrap()).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{NAME}:{}", address.port()).into();
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "localhost".into();
    fs::write(identity.kubeconfig(), kubeconfig.to_string()).unwrap();
    let hosts = fixture.control_plane.dir().join("hosts");
    fs::write(&hosts, format!("{} localhost {NAME}\n{} {NAME}\n", address.ip(), AnotherApiServer::ADDRESS)).unwrap();
    let mut command = unshare(&hosts, &fixture.program);
    command.arg("--kubeconfig").arg(identity.kubeconfig());
    fixture.start_proxy(shard, command).await
}

/// The slowest of some requests that need a connection to the API server each: what is upgraded has its own.
async fn slowest(proxy: &Proxy) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..CONNECTIONS {
        let start = Instant::now();
        Upgraded::refused(proxy).await;
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

pub(crate) async fn one_of_two_api_servers_is_killed_or_hangs(mut fixture: Proxies) {
    let another = fixture.control_plane.start_another_api_server().await.unwrap();
    let proxy = proxy(&fixture, "two").await;
    let client = Client::new(&proxy).await;
    let objects = objects_by(&proxy).await;
    let follower = Follower::start(objects.clone()).await;

    let watch = client.watch(NAMES).await;
    fixture.control_plane.stop_api_server().await.unwrap();
    let beside_killed = slowest(&proxy).await;
    objects.create(&Default::default(), &config_map("two", "beside-killed", 0)).await.unwrap();
    follower.until_seen("beside-killed", DEADLINE).await;
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);

    let watch = client.watch(NAMES).await;
    fixture.control_plane.start_api_server().await.unwrap();
    another.process().pause().unwrap();
    let paused = Instant::now();
    // It is the address that worked last, and its kernel accepts connections.
    let beside_hanging = slowest(&proxy).await;
    create(&fixture, "two", "beside-hanging", 0).await;
    // What is sent now gets its answer once the connection is given up.
    assert!(client.text("/version").await.contains("gitVersion"));
    let noticed = paused.elapsed();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    follower.until_seen("beside-hanging", DEADLINE).await;
    report(&format!(
        "one of two API servers killed: the slowest new connection {beside_killed:?}; hanging: {beside_hanging:?}, \
         connections that it had noticed after {noticed:?}"
    ));
    assert!(beside_killed < PROMPT && beside_hanging < PROMPT, "{beside_killed:?} {beside_hanging:?}");
    assert!(noticed < NOTICED_WITHIN, "{noticed:?}");
    another.process().resume().unwrap();
    proxy.until_ready().await.unwrap();
}
