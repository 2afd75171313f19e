//! Connections to the API server that die without a word.

use std::{sync::Arc, time::Instant};

use futures::future::join_all;
use http::StatusCode;
use ringside_e2e::relay::{Offer, Part, Relay, Script};
use tokio::time::timeout;

use super::{
    clients::{CLOSED, Client, End, NAMES, NAMES_IN_PROTOBUF, Upgraded, Watch, objects},
    fixture::{DEADLINE, LONG_LEASE, NOTICED_WITHIN, PATIENCE, create, left, objects_by},
    follower::Follower,
    load_balancer::LoadBalancer,
    network::{Network, OUTSIDE, publish},
    report,
};
use crate::proxies::Proxies;

/// The protocols of sessions in pods, and what is said in them before the silence.
const SESSIONS: [&str; 2] = ["websocket", "SPDY/3.1"];
const SAID: &[u8] = b"a prompt";

const LARGE_OBJECTS: usize = 12;
const LARGE: usize = 900 << 10;

/// Watches in all forms end in order, a list with an error, and the Lease is kept: the proxy gives up the connections, and not
/// the shard.
pub(crate) async fn a_server_that_is_gone_behind_a_live_connection_is_noticed(fixture: &Proxies) {
    let balancer = LoadBalancer::start(fixture.control_plane.address()).await;
    let proxy = fixture.proxy_by("frozen", &balancer.url(), &["--lease-duration=60s"]).await;
    for index in 0..LARGE_OBJECTS {
        create(fixture, "frozen", &format!("frozen-{index}"), LARGE).await;
    }
    let follower = Follower::start(objects_by(&proxy).await).await;
    let client = Client::new(&proxy).await;
    let watches = [client.watch(NAMES).await, client.watch(NAMES_IN_PROTOBUF).await, Watch::by_http1(&proxy).await];
    let mut websocket = Upgraded::watch(&proxy).await;
    websocket.ping().await;
    let list = client.get(&objects(""), "application/json").await;
    balancer.freeze();
    let frozen = Instant::now();
    create(fixture, "frozen", "after", 0).await;
    let ends = watches.into_iter().map(|watch| watch.end(PATIENCE));
    let (ends, rest) = tokio::join!(join_all(ends), websocket.rest(PATIENCE));
    for end in ends {
        assert_eq!(end, End::InOrder, "the client opens the next watch from where it is");
    }
    // The client sees nothing of what the API server is asked, and did not answer.
    assert_eq!(rest, CLOSED, "{:?}", String::from_utf8_lossy(&rest));
    report(&format!("a server gone behind a live connection: noticed after {:?}", frozen.elapsed()));
    // Half a list never looks like a whole one.
    assert!(timeout(PATIENCE, list.end()).await.expect("the list goes on for ever").is_err());
    follower.until_seen("after", DEADLINE).await;
    proxy.until_ready().await.unwrap();
    let log = std::fs::read_to_string(proxy.process.log()).unwrap();
    assert!(!log.contains("shard Lease lost"), "the Lease has a connection that is given up early enough");
}

/// At first one of several servers dies: what is asked on a new connection another one answers, and in a session nothing is
/// asked, so both stay silent, the gaps of the page. Then none answers.
pub(crate) async fn a_server_without_http2_that_hangs_is_noticed(fixture: &Proxies) {
    let relay = Relay::start(&fixture.control_plane, Offer::Http1).await.unwrap();
    begin_sessions(&relay);
    let balancer = LoadBalancer::start(relay.address()).await;
    let unasked = fixture.proxy_by("unasked", &balancer.url(), LONG_LEASE).await;
    let mut watch = Client::new(&unasked).await.watch(NAMES).await;
    let mut sessions = join_all(SESSIONS.map(|protocol| Upgraded::exec(&unasked, protocol, SAID))).await;
    balancer.freeze();
    create(fixture, "unasked", "unasked-meanwhile", 0).await;
    let silent = join_all(sessions.iter_mut().map(|session| session.nothing(NOTICED_WITHIN)));
    tokio::join!(silent, watch.nothing(NOTICED_WITHIN));

    let proxy = fixture.proxy_by("hung", &balancer.url(), LONG_LEASE).await;
    let follower = Follower::start(objects_by(&proxy).await).await;
    let client = Client::new(&proxy).await;
    let (watch, by_http1) = (client.watch(NAMES).await, Watch::by_http1(&proxy).await);
    let mut past = Watch::past(balancer.connect().await, fixture).await;
    balancer.hang();
    let hung = Instant::now();
    create(fixture, "hung", "hung-meanwhile", 0).await;
    let answer = timeout(NOTICED_WITHIN, client.get("/version", "application/json"));
    let (answer, watch, by_http1) = tokio::join!(answer, watch.end(NOTICED_WITHIN), by_http1.end(NOTICED_WITHIN));
    assert_eq!((watch, by_http1), (End::InOrder, End::InOrder));
    assert!(answer.expect("who waits for an answer is told").head.status.is_server_error());
    report(&format!("a server without HTTP/2 that hangs: noticed after {:?}", hung.elapsed()));
    past.nothing(left(hung)).await;
    balancer.freeze();
    follower.until_seen("hung-meanwhile", DEADLINE).await;
}

/// No pod runs here: what a session in one begins with is said by script, and then nothing more.
fn begin_sessions(relay: &Relay) {
    for protocol in SESSIONS {
        let begins = Script::new(StatusCode::SWITCHING_PROTOCOLS).header("connection", "Upgrade");
        let begins = begins.header("upgrade", protocol).bytes(SAID).part(Part::Break(Arc::default()));
        relay.answer(protocol, begins);
    }
}

pub(crate) async fn packets_that_vanish_are_noticed(fixture: &Proxies) {
    let network = Arc::new(Network::create(fixture).await);
    let inside = network.listen(format!("{OUTSIDE}:0").parse().unwrap()).await;
    let address = inside.local_addr().unwrap();
    let relay = Relay::start(&fixture.control_plane, Offer::Both).await.unwrap();
    let _balancer = LoadBalancer::on(inside, relay.address());
    begin_sessions(&relay);
    let identity = fixture.identity("vanished").await;
    identity.connect_to(&fixture.control_plane, &format!("https://{address}")).unwrap();
    let mut command = network.command(&fixture.program);
    command.args(LONG_LEASE).arg("--kubeconfig").arg(identity.kubeconfig());
    let proxy = fixture.begin("vanished", command);
    for port in [proxy.port, proxy.admin_port] {
        publish(&network, port).await;
    }
    proxy.until_ready().await.unwrap();
    let follower = Follower::start(objects_by(&proxy).await).await;
    let watches = [Client::new(&proxy).await.watch(NAMES).await, Watch::by_http1(&proxy).await];
    let websocket = Upgraded::watch(&proxy).await;
    let sessions = join_all(SESSIONS.map(|protocol| Upgraded::exec(&proxy, protocol, SAID))).await;
    let mut past = Watch::past(network.connect(address).await.unwrap(), fixture).await;

    network.cut();
    let cut = Instant::now();
    create(fixture, "vanished", "meanwhile", 0).await;
    let (ends, rest, sessions) = tokio::join!(
        join_all(watches.map(|watch| watch.end(NOTICED_WITHIN))),
        websocket.rest(NOTICED_WITHIN),
        join_all(sessions.into_iter().map(|session| session.rest(NOTICED_WITHIN))),
    );
    report(&format!("packets that vanish: noticed after {:?}", cut.elapsed()));
    assert_eq!(ends, [End::InOrder, End::InOrder]);
    assert!(rest.ends_with(CLOSED), "{rest:?}");
    assert!(sessions.iter().all(Vec::is_empty), "{sessions:?}");
    past.nothing(left(cut)).await;
    network.mend();
    follower.until_seen("meanwhile", DEADLINE).await;
}
