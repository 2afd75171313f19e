//! The admin server: `/livez`, `/readyz`, `/metrics`, beside a controller `/startedz` and `/controllerz`, and what its process adds.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

pub use axum::Router;
use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use crate::{
    connection_limit::{ConnectionLimit, ConnectionPermit},
    contained::contained,
    heartbeat::Heartbeats,
    listen::accept,
    shutdown::Shutdown,
};

/// Connections at the same time: of a kubelet and of what collects metrics, a few each.
const CONNECTIONS: usize = 32;
/// How long a client may take for its request's head, and for all: a kubelet waits for as long as a pod may take to end.
const HEAD: Duration = Duration::from_secs(5);
const ALL: Duration = Duration::from_secs(3600);

/// Which probe a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/livez`: when it fails, the process should be restarted.
    Live,
    /// `/readyz`: when it fails, the process can't do its work at the moment. A failing live check fails it too.
    Ready,
    /// `/startedz`, where there is a check of it: passes for good once each of its checks has passed, as a startupProbe
    /// asks no longer then. Such a check is one of readiness too.
    Started,
    /// None: when it fails, that is said with readiness, which stays what it is.
    Note,
    /// `/controllerz`, where there is a check of it: when it fails, the controller beside the process should be restarted.
    Controller,
}

impl Probe {
    /// Where it is asked for.
    pub fn path(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready | Self::Note => "/readyz",
            Self::Started => "/startedz",
            Self::Controller => "/controllerz",
        }
    }
}

/// How it stands with a check.
#[derive(Clone, Debug)]
struct Checked {
    probe: Probe,
    result: Result<(), String>,
    /// Whether it has ever passed.
    passed: bool,
}

impl Checked {
    fn counts_for(&self, probe: Probe) -> bool {
        match probe {
            Probe::Ready => !matches!(self.probe, Probe::Controller | Probe::Note),
            Probe::Started => self.probe == Probe::Started && !self.passed,
            Probe::Live | Probe::Controller | Probe::Note => self.probe == probe,
        }
    }
}

type Checks = BTreeMap<&'static str, Checked>;

/// The checks behind the probes. A check fails until a caller has passed it.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<watch::Sender<Checks>>,
    heartbeats: Heartbeats,
}

impl Default for Health {
    fn default() -> Self {
        Self { checks: Arc::new(watch::Sender::new(Checks::new())), heartbeats: Heartbeats::default() }
    }
}

impl Health {
    /// No checks: live and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check; it fails until its owner says otherwise.
    pub fn check(&self, name: &'static str, probe: Probe) -> Check {
        self.checks.send_modify(|checks| {
            checks.insert(name, Checked { probe, result: Err("not there yet".to_owned()), passed: false });
        });
        Check { name, health: self.clone() }
    }

    fn has(&self, probe: Probe) -> bool {
        self.checks.borrow().values().any(|state| state.probe == probe)
    }

    /// Where tasks show that they are polled: `/livez` fails for one that stalls.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// What fails `probe`, as `name: reason`; empty when it passes.
    pub fn failures(&self, probe: Probe) -> Vec<String> {
        let fails = |(name, state): (&&str, &Checked)| {
            let reason = state.result.as_ref().err()?;
            state.counts_for(probe).then(|| format!("{name}: {reason}"))
        };
        let mut failures: Vec<_> = self.checks.borrow().iter().filter_map(fails).collect();
        if matches!(probe, Probe::Live | Probe::Ready) {
            let stalled = self.heartbeats.stalled().into_iter();
            failures.extend(stalled.map(|(task, age)| format!("{task}: has stood still for {} s", age.as_secs())));
        }
        failures
    }
}

/// One check, in the hands of the part that knows.
#[derive(Clone, Debug)]
pub struct Check {
    name: &'static str,
    health: Health,
}

impl Check {
    /// It is as it should be.
    pub fn pass(&self) {
        self.set(Ok(()));
    }

    /// It is not, and why.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(Err(reason.into()));
    }

    fn set(&self, result: Result<(), String>) {
        self.health.checks.send_modify(|checks| {
            if let Some(state) = checks.get_mut(self.name) {
                state.passed |= result.is_ok();
                state.result = result;
            }
        });
    }
}

#[derive(Clone)]
struct Admin {
    health: Health,
    registry: Arc<Registry>,
}

/// The routes, for a server of one's own or a test.
pub fn router(health: Health, registry: Arc<Registry>) -> Router {
    let mut probes = vec![Probe::Live, Probe::Ready];
    probes.extend([Probe::Started, Probe::Controller].into_iter().filter(|probe| health.has(*probe)));
    let router = probes.into_iter().fold(Router::new(), |router, of| {
        router.route(of.path(), get(move |State(admin): State<Admin>| async move { probe(&admin.health, of) }))
    });
    router
        .route("/metrics", get(|State(admin): State<Admin>| async move { metrics(&admin.registry) }))
        .with_state(Admin { health, registry })
}

/// Serves the routes, and others, until the shutdown. Then answers under way go on for as long as the process does.
///
/// # Errors
/// Never; the type is what a supervised task returns.
pub async fn serve(
    listener: TcpListener,
    (health, registry): (Health, Arc<Registry>),
    others: Router,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let (router, limit) = (router(health, registry).merge(others), ConnectionLimit::new(CONNECTIONS, CONNECTIONS));
    let serving = async {
        loop {
            let stream = accept(&listener).await;
            let permit = limit.admit().await;
            tokio::spawn(contained(connection(stream, router.clone(), permit)));
        }
    };
    tokio::select! {
        () = shutdown.wait() => Ok(()),
        () = serving => Ok(()),
    }
}

/// Answers one request: a connection that is kept would hold a place.
async fn connection(stream: TcpStream, router: Router, permit: ConnectionPermit) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::select! {
        _ = timeout(ALL, serving) => {}
        () = permit.revoked() => {}
    }
}

fn probe(health: &Health, probe: Probe) -> Response {
    let mut lines = health.failures(probe);
    let status = if lines.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if lines.is_empty() {
        lines.push("ok".to_owned());
    }
    if probe == Probe::Ready {
        lines.extend(health.failures(Probe::Note));
    }
    (status, lines.join("\n") + "\n").into_response()
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, (Health::new(), Arc::default()), Router::new(), Shutdown::new()));
        address
    }

    async fn connect(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.expect("it is reached")
    }

    #[tokio::test]
    async fn who_keeps_many_connections_open_keeps_no_probe_out() {
        let address = server().await;
        let mut idle = Vec::new();
        for _ in 0..3 * CONNECTIONS {
            idle.push(connect(address).await);
        }
        let mut probe = connect(address).await;
        probe.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is open");
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.expect("an answer, and the end of the connection");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let mut open = 0;
        for stream in &mut idle {
            open += usize::from(timeout(Duration::ZERO, stream.read_u8()).await.is_err());
        }
        assert!(open <= CONNECTIONS, "{open}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_closed_soon() {
        let address = server().await;
        for sent in ["", "GET /livez HTTP/1.1\r\n"] {
            let mut stream = connect(address).await;
            stream.write_all(sent.as_bytes()).await.expect("it is open");
            let closed = timeout(2 * HEAD, stream.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "{sent}");
        }
    }

    #[test]
    fn a_check_fails_until_it_passes_and_liveness_is_part_of_readiness() {
        let health = Health::new();
        assert!(health.failures(Probe::Ready).is_empty());
        let lease = health.check("lease", Probe::Ready);
        assert_eq!(health.failures(Probe::Ready), ["lease: not there yet"]);
        assert!(health.failures(Probe::Live).is_empty());
        lease.pass();
        assert!(health.failures(Probe::Ready).is_empty());
        health.check("gap", Probe::Live).fail("the controller must restart");
        assert_eq!(health.failures(Probe::Ready), ["gap: the controller must restart"]);
        assert_eq!(health.failures(Probe::Live), health.failures(Probe::Ready));
    }

    #[tokio::test(start_paused = true)]
    async fn task_that_stalls_fails_liveness() {
        let health = Health::new();
        let mut task = Box::pin(health.heartbeats().follow("the ring 'x'", std::future::pending::<()>()));
        assert!(futures::FutureExt::now_or_never(task.as_mut()).is_none());
        tokio::time::advance(crate::heartbeat::STALLED).await;
        for probe in [Probe::Live, Probe::Ready] {
            assert_eq!(health.failures(probe), ["the ring 'x': has stood still for 60 s"]);
        }
        assert_eq!(health.failures(Probe::Controller), [""; 0]);
    }

    #[test]
    fn what_has_started_stays_started_and_is_ready_only_while_all_checks_pass() {
        let health = Health::new();
        let (lease, drains) = (health.check("lease", Probe::Started), health.check("drains", Probe::Ready));
        assert_eq!(health.failures(Probe::Started), ["lease: not there yet"]);
        drains.fail("its watch has not started yet");
        lease.pass();
        assert_eq!(health.failures(Probe::Started), [""; 0], "readiness is no part of it");
        lease.fail("lost");
        assert_eq!(health.failures(Probe::Started), [""; 0]);
        assert_eq!(health.failures(Probe::Ready), ["drains: its watch has not started yet", "lease: lost"]);
    }
}
