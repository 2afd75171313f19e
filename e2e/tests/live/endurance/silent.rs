//! Connections to the API server that die without a word.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::StatusCode;
use ringside_e2e::relay::{Offer, Part, Relay, Script};
use tokio::time::timeout;

use super::{
    clients::{CLOSED, Client, End, NAMES, NAMES_IN_PROTOBUF, Upgraded, Watch, objects},
    fixture::{DEADLINE, Fixture, command, objects_by, program},
    follower::Follower,
    load_balancer::LoadBalancer,
    network::{Network, OUTSIDE, publish},
    report,
};

/// What is promised.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// The protocols of sessions in pods, and what is said in them before the silence.
const SESSIONS: [&str; 2] = ["websocket", "SPDY/3.1"];
const SAID: &[u8] = b"a prompt";

/// So much is left of the time since then in which the proxy notices it, and nobody else does.
fn left(since: Instant) -> Duration {
    NOTICED_WITHIN.saturating_sub(since.elapsed())
}

const LARGE_OBJECTS: usize = 12;
const LARGE: usize = 900 << 10;

pub(crate) async fn a_server_that_is_gone_behind_a_live_connection_is_noticed(fixture: &Fixture) {
    let balancer = LoadBalancer::start(fixture.address()).await;
    let proxy = fixture.proxy_by("frozen", &balancer.url()).await;
    for index in 0..LARGE_OBJECTS {
        fixture.create("frozen", &format!("frozen-{index}"), LARGE).await;
    }
    let follower = Follower::start(objects_by(&proxy).await).await;
    let client = Client::new(&proxy).await;
    let (watch, by_http1) = (client.watch(NAMES).await, Watch::by_http1(&proxy).await);
    let protobuf = client.watch(NAMES_IN_PROTOBUF).await;
    let list = client.get(&objects(""), "application/json").await;
    let mut past = Watch::past(balancer.connect().await, fixture).await;
    balancer.freeze();
    let frozen = Instant::now();
    fixture.create("frozen", "after", 0).await;
    let ends = [watch.end(NOTICED_WITHIN), protobuf.end(NOTICED_WITHIN)];
    let (ends, by_http1) = tokio::join!(join_all(ends), by_http1.end(NOTICED_WITHIN));
    for end in ends.into_iter().chain([by_http1]) {
        assert_eq!(end, End::InOrder, "the client opens the next watch from where it is");
    }
    let noticed = frozen.elapsed();
    // Half a list never looks like a whole one.
    assert!(timeout(DEADLINE, list.end()).await.expect("the list goes on for ever").is_err());
    follower.until_seen("after", DEADLINE).await;
    let recovered = frozen.elapsed();
    report(&format!(
        "a server gone behind a live connection: noticed after {noticed:?}, followed again after {recovered:?}"
    ));
    proxy.until_ready().await.unwrap();
    assert!(!proxy_log_says_lost(&proxy.process), "the Lease has a connection that is given up early enough");
    drop(follower);
    past.nothing(left(frozen)).await;
}

pub(crate) async fn a_watch_by_websocket_is_asked_for_signs_of_life(fixture: &Fixture) {
    let balancer = LoadBalancer::start(fixture.address()).await;
    let proxy = fixture.proxy_by("pinged", &balancer.url()).await;
    let mut websocket = Upgraded::watch(&proxy).await;
    // The API server answers to pings, and the client sees nothing of it, but for what it asks itself.
    websocket.nothing(NOTICED_WITHIN).await;
    websocket.ping().await;
    fixture.create("pinged", "pinged-first", 0).await;
    websocket.until("pinged-first").await;
    websocket.nothing(NOTICED_WITHIN).await;
    let mut past = Watch::past(balancer.connect().await, fixture).await;
    balancer.freeze();
    let frozen = Instant::now();
    let rest = websocket.rest(NOTICED_WITHIN).await;
    report(&format!("a server gone behind a live connection: noticed by WebSocket after {:?}", frozen.elapsed()));
    assert_eq!(rest, CLOSED, "{:?}", String::from_utf8_lossy(&rest));
    let mut next = Upgraded::watch(&proxy).await;
    next.until("pinged-first").await;
    past.nothing(left(frozen)).await;
}

pub(crate) async fn a_server_without_http2_that_hangs_is_noticed(fixture: &Fixture) {
    let relay = Relay::start(&fixture.control_plane, Offer::Http1).await.unwrap();
    let balancer = LoadBalancer::start(relay.address()).await;
    let identity = fixture.identity_by("hung", &balancer.url()).await;
    let mut command = command();
    // So that it is not the Lease that ends the streams.
    command.arg("--lease-duration=120s").arg("--kubeconfig").arg(identity.kubeconfig());
    let proxy = fixture.start_proxy("hung", command).await;
    let follower = Follower::start(objects_by(&proxy).await).await;
    let (mut watch, by_http1) = (Client::new(&proxy).await.watch(NAMES).await, Watch::by_http1(&proxy).await);
    // A server that answers may be silent on a watch for as long as there is nothing to say.
    watch.nothing(NOTICED_WITHIN).await;
    let client = Client::new(&proxy).await;
    let mut past = Watch::past(balancer.connect().await, fixture).await;
    balancer.hang();
    let hung = Instant::now();
    fixture.create("hung", "hung-meanwhile", 0).await;
    let answer = timeout(NOTICED_WITHIN, client.get("/version", "application/json"));
    let (answer, watch, by_http1) = tokio::join!(answer, watch.end(NOTICED_WITHIN), by_http1.end(NOTICED_WITHIN));
    assert_eq!((watch, by_http1), (End::InOrder, End::InOrder));
    assert!(answer.expect("who waits for an answer is told").head.status.is_server_error());
    let noticed = hung.elapsed();
    past.nothing(left(hung)).await;
    balancer.freeze();
    follower.until_seen("hung-meanwhile", DEADLINE).await;
    let recovered = hung.elapsed();
    report(&format!(
        "a server without HTTP/2 that hangs: noticed after {noticed:?}, followed again after {recovered:?}"
    ));
}

/// The gaps of the page: in a session nothing is asked, and what is asked on another connection, another server answers. Past
/// the proxy it is the same.
pub(crate) async fn what_no_question_reaches_stays_silent(fixture: &Fixture) {
    let relay = Relay::start(&fixture.control_plane, Offer::Http1).await.unwrap();
    begin_sessions(&relay);
    let balancer = LoadBalancer::start(relay.address()).await;
    let identity = fixture.identity_by("unasked", &balancer.url()).await;
    let mut command = command();
    // So that it is not the Lease that ends the streams.
    command.arg("--lease-duration=120s").arg("--kubeconfig").arg(identity.kubeconfig());
    let proxy = fixture.start_proxy("unasked", command).await;
    let mut watch = Watch::of_nothing(&proxy).await;
    let sessions = SESSIONS.map(|protocol| Upgraded::exec(&proxy, protocol, SAID));
    let mut sessions = join_all(sessions).await;
    let mut past = Watch::past(balancer.connect().await, fixture).await;
    for protocol in SESSIONS {
        sessions.push(Upgraded::exec_past(balancer.connect().await, fixture, protocol, SAID).await);
    }
    balancer.freeze();
    fixture.create("unasked", "unasked-meanwhile", 0).await;
    let silent = sessions.iter_mut().map(|session| session.nothing(NOTICED_WITHIN));
    tokio::join!(join_all(silent), watch.nothing(NOTICED_WITHIN), past.nothing(NOTICED_WITHIN));
}

/// No pod runs here: what a session in one begins with is said by script, and then nothing more.
fn begin_sessions(relay: &Relay) {
    for protocol in SESSIONS {
        let begins = Script::new(StatusCode::SWITCHING_PROTOCOLS).header("connection", "Upgrade");
        let begins = begins.header("upgrade", protocol).bytes(SAID).part(Part::Break(Arc::default()));
        relay.answer(protocol, begins);
    }
}

pub(crate) async fn packets_that_vanish_are_noticed(fixture: &Fixture) {
    let network = Arc::new(Network::create(fixture).await);
    let inside = network.listen(format!("{OUTSIDE}:0").parse().unwrap()).await;
    let address = inside.local_addr().unwrap();
    let relay = Relay::start(&fixture.control_plane, Offer::Both).await.unwrap();
    let _balancer = LoadBalancer::on(inside, relay.address());
    begin_sessions(&relay);
    let identity = fixture.identity_by("vanished", &format!("https://{address}")).await;
    let mut command = network.command(program());
    // So that it is not the Lease that ends the streams: no connection works for longer than it would last.
    command.arg("--lease-duration=120s").arg("--kubeconfig").arg(identity.kubeconfig());
    let proxy = fixture.begin("vanished", command);
    for port in [proxy.port, proxy.admin_port] {
        publish(&network, port).await;
    }
    proxy.until_ready().await.unwrap();
    let follower = Follower::start(objects_by(&proxy).await).await;
    let (watch, websocket) = (Client::new(&proxy).await.watch(NAMES).await, Upgraded::watch(&proxy).await);
    let by_http1 = Watch::by_http1(&proxy).await;
    let sessions = join_all(SESSIONS.map(|protocol| Upgraded::exec(&proxy, protocol, SAID))).await;
    let mut past = Past::begin(fixture, &network, address).await;

    network.cut();
    let cut = Instant::now();
    fixture.create("vanished", "meanwhile", 0).await;
    let sessions = join_all(sessions.into_iter().map(|session| async move {
        let rest = session.rest(NOTICED_WITHIN).await;
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
        cut.elapsed()
    }));
    let (ended, by_http1, rest, sessions) = tokio::join!(
        async { (watch.end(NOTICED_WITHIN).await, cut.elapsed()) },
        by_http1.end(NOTICED_WITHIN),
        async { (websocket.rest(NOTICED_WITHIN).await, cut.elapsed()) },
        sessions,
    );
    assert_eq!((ended.0, by_http1), (End::InOrder, End::InOrder));
    assert!(rest.0.ends_with(CLOSED), "{:?}", rest.0);
    past.nothing(left(cut)).await;
    network.mend();
    follower.until_seen("meanwhile", DEADLINE).await;
    report(&format!(
        "packets that vanish: noticed after {:?}, by WebSocket after {:?}, of sessions after {sessions:?}; followed again \
         after {:?}",
        ended.1,
        rest.1,
        cut.elapsed()
    ));
}

/// A watch and sessions of who is in the network too, and goes past the proxy.
struct Past {
    watch: Watch,
    sessions: Vec<Upgraded>,
}

impl Past {
    async fn begin(fixture: &Fixture, network: &Network, address: SocketAddr) -> Self {
        let watch = Watch::past(network.connect(address).await.unwrap(), fixture).await;
        let mut sessions = Vec::new();
        for protocol in SESSIONS {
            let stream = network.connect(address).await.unwrap();
            sessions.push(Upgraded::exec_past(stream, fixture, protocol, SAID).await);
        }
        Self { watch, sessions }
    }

    /// Waits for so long, in which nothing may come, and no end either.
    async fn nothing(&mut self, within: Duration) {
        let silent = self.sessions.iter_mut().map(|session| session.nothing(within));
        tokio::join!(join_all(silent), self.watch.nothing(within));
    }
}

fn proxy_log_says_lost(process: &ringside_e2e::process::Process) -> bool {
    std::fs::read_to_string(process.log()).unwrap().contains("shard Lease lost")
}
