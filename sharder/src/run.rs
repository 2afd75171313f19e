//! Starts everything, in the order in which one thing needs another, and ends it.

use std::{collections::BTreeMap, convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use futures::future::join;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use prometheus_client::registry::Registry;
use ringside_ring::labels::LEASE_VERSION;
use ringside_runtime::{
    admin::{self, Check, Health, Probe},
    client::{ApiServer, ConnectError},
    clock::{Boottime, SharedClock},
    heartbeat::Heartbeats,
    lease::LeaseParams,
    logging,
    shutdown::Shutdown,
    tasks::{TaskFailed, Tasks},
};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    admin::Register,
    candidate::{ELECTION, free_from_who_is_gone, holder_of},
    cleanup::departed::Departed,
    client_config::{ClientConfig, Trust},
    config::{CertificateSource, Config},
    leader::{Leader, campaign},
    metrics::Metrics,
    notices::Notices,
    observe::{Clients, Observed, observe, until},
    probe::WebhookModes,
    verdict::Verdicts,
    webhook::{
        Creates, Injector, Room, ServingIdentity,
        certificates::{self, Lifetimes, follow_files, server_names},
        reviewer::Reviewer,
        server::{ENDS_WITHIN, serve},
    },
    writes::AllWrites,
};

/// How long a request may go without any byte of an answer. The API server gives up on its own after 34 s (CONTROL-PLANE, 13).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a watch may be silent before it is opened again: bookmarks come every 60 s (CONTROL-PLANE, 8), but none while nothing
/// of the kind has changed.
const WATCH_TIMEOUT: Duration = Duration::from_secs(75);
/// How long the replicas wait for a leader that does not renew.
const ELECTION_LEASE: Duration = Duration::from_secs(15);
/// How long everything has to end by itself: the webhook, and what then waits for the scheduler. Less than the kubelet's 30 s.
const SHUTDOWN_DEADLINE: Duration = ENDS_WITHIN.saturating_add(Duration::from_secs(5));
const _: () = assert!(SHUTDOWN_DEADLINE.as_secs() < 30);

/// Why the sharder ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A port is taken, or may not be used.
    #[error("can't listen on {address} ({source}); free the port, or choose another with {option}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The option that names it.
        option: &'static str,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It is not known where the API server is.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There can't be a TLS server.
    #[error("can't set up TLS for the webhook: {0}")]
    Tls(#[from] rustls::Error),
    /// The signal handlers can't be installed.
    #[error("can't handle signals: {0}")]
    Signals(io::Error),
    /// A part of the work failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

/// Runs the sharder until SIGTERM or SIGINT.
///
/// # Errors
/// When it can't start, or a part of it fails.
pub async fn run(config: Config) -> Result<(), RunError> {
    let _flushed = logging::init(config.log_format, config.log_filter.clone());
    let webhook = listen(config.webhook_listen, "--webhook-listen").await?;
    let admin = listen(config.admin_listen, "--admin-listen").await?;
    let server = ApiServer::find(config.kubeconfig.as_deref(), crate::AGENT)?;
    let shutdown = Shutdown::on_signals().map_err(RunError::Signals)?;
    tracing::info!(webhook = %config.webhook_listen, admin = %config.admin_listen, "sharder started");
    let mut tasks = Tasks::new();
    let connected = |writes: &AllWrites| connect(&server, writes);
    start(&mut tasks, config, connected, Arc::new(Boottime), (webhook, admin), &shutdown)?;
    tasks.spawn("following the credentials", server.follow(shutdown.clone()));
    tasks.run(&shutdown, SHUTDOWN_DEADLINE).await?;
    tracing::info!("sharder stopped");
    Ok(())
}

/// Starts all tasks at once: each waits for what it needs, and says why when that takes long.
fn start(
    tasks: &mut Tasks,
    config: Config,
    connected: impl FnOnce(&AllWrites) -> Result<Clients, RunError>,
    clock: SharedClock,
    (webhook, admin): (TcpListener, TcpListener),
    shutdown: &Shutdown,
) -> Result<(), RunError> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let writes = AllWrites::new(metrics.clone(), config.max_writes);
    let clients = connected(&writes)?;
    let health = Health::new();
    let heartbeats = health.heartbeats().clone();
    tasks.show_by(&heartbeats);
    let (certified, synced) = (health.check("webhook", Probe::Ready), health.check("caches", Probe::Ready));
    let doing = Register::default();
    let routes = doing.clone().route(writes.limiter().clone());
    tasks.spawn("the admin server", admin::serve(admin, (health, Arc::new(registry)), routes, shutdown.clone()));

    let observed = observe(tasks, &config, (&clients, clock), &metrics, synced, shutdown);
    let identity = ServingIdentity::measured(metrics.clone());
    let creates = Creates::default();
    let reviewer = Reviewer {
        client: clients.requests.clone(),
        leases: observed.leases.clone(),
        snapshots: observed.snapshots.clone(),
        metrics: metrics.clone(),
        room: Room::default(),
        owners: Arc::default(),
        creates: creates.clone(),
        injector: config.injector.as_ref().map(|injector| {
            let added = (&*injector.image, injector.resources.clone());
            Injector::new(clients.requests.clone(), observed.namespaces.clone(), added)
        }),
    };
    tasks.spawn("the webhook", serve(webhook, identity.acceptor()?, reviewer, shutdown.clone()));
    let trust = keep_certificate(tasks, &config, &clients.requests, (identity, certified), shutdown);
    let setup = Setup { config, clients, writes, metrics, heartbeats, creates, observed, trust, doing };
    tasks.spawn("the leader", setup.lead(shutdown.clone()));
    Ok(())
}

/// Spawns the task that keeps the webhook's certificate. Returns what vouches for it, once that is known.
fn keep_certificate(
    tasks: &mut Tasks,
    config: &Config,
    client: &Client,
    (identity, certified): (ServingIdentity, Check),
    shutdown: &Shutdown,
) -> watch::Receiver<Option<Trust>> {
    match &config.webhook_certificate {
        CertificateSource::Own { lifetime } => {
            let (trust, trusted) = watch::channel(None);
            let names = server_names(&config.namespace, config.webhook_url.as_ref().map(|url| url.host.as_str()));
            let keeper = certificates::Keeper::new(
                (client, &config.namespace),
                (names, Lifetimes(*lifetime)),
                (identity, certified),
                trust,
                Arc::new(Timestamp::now),
            );
            tasks.spawn("the webhook's certificates", until(shutdown, keeper.run()));
            trusted
        }
        CertificateSource::CertManager { folder, certificate } => {
            let followed = follow_files(folder.clone(), identity, certified);
            tasks.spawn("the webhook's certificates", until(shutdown, followed));
            watch::channel(Some(Trust::InjectedFrom(certificate.clone()))).1
        }
    }
}

/// What there is before the first snapshots.
struct Setup {
    config: Config,
    clients: Clients,
    writes: AllWrites,
    metrics: Metrics,
    heartbeats: Heartbeats,
    creates: Creates,
    observed: Observed,
    trust: watch::Receiver<Option<Trust>>,
    doing: Register,
}

impl Setup {
    /// Waits for the first snapshots, then runs for leadership: a leader without them could do nothing.
    async fn lead(self, shutdown: Shutdown) -> Result<(), Infallible> {
        let Self { config, clients, writes, metrics, heartbeats, creates, observed, trust, doing } = self;
        let mut snapshots = observed.snapshots.clone();
        let seen = async {
            // Fails only when the process ends.
            let _ = snapshots.wait_for(Option::is_some).await;
        };
        let candidate = async {
            let holder = holder_of(&clients.requests, &config.identity).await;
            free_from_who_is_gone(&clients.requests, &config.namespace, ELECTION, &holder).await;
            holder
        };
        let ((), holder) = tokio::select! {
            ready = join(seen, candidate) => ready,
            () = shutdown.wait() => return Ok(()),
        };
        let terms = LeaseParams {
            namespace: config.namespace.clone(),
            name: ELECTION.to_owned(),
            holder,
            duration: ELECTION_LEASE,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            facts: watch::channel([(LEASE_VERSION.to_owned(), Some(env!("CARGO_PKG_VERSION").to_owned()))].into()).1,
            // The next one acts at once after a graceful end.
            prompt: true,
        };
        let client_config = ClientConfig { namespace: config.namespace, url: config.webhook_url };
        let leader = Leader {
            notices: Notices::new(clients.requests.clone()),
            client: clients.requests,
            watches: clients.watches,
            leases: observed.leases,
            namespaces: observed.namespaces,
            fences: observed.fences,
            writes,
            metrics,
            heartbeats,
            creates,
            snapshots: observed.snapshots,
            client_config: Arc::new(client_config),
            trust,
            injector: config.injector,
            sync_period: config.sync_period,
            departed: Departed::default(),
            reach: Verdicts::default(),
            modes: WebhookModes::default(),
            mutating: Verdicts::default(),
            support: watch::Sender::default(),
            doing,
        };
        campaign(leader, clients.election, terms, observed.clock, shutdown).await
    }
}

fn connect(server: &ApiServer, writes: &AllWrites) -> Result<Clients, RunError> {
    let limiter = writes.limiter().clone();
    Ok(Clients {
        requests: server.client_telling(REQUEST_TIMEOUT, move |pause| limiter.throttled(&pause))?,
        watches: server.client_within(WATCH_TIMEOUT)?,
        election: server.lease_client(ELECTION_LEASE)?,
    })
}

async fn listen(address: SocketAddr, option: &'static str) -> Result<TcpListener, RunError> {
    ringside_runtime::listen::listen(address).await.map_err(|source| RunError::Listen { address, option, source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser as _;
    use ringside_runtime::{
        clock::TokioClock,
        logging::{Format, dispatch},
    };
    use serde_json::{Value, json};
    use tokio::time::sleep;
    use tracing::subscriber::NoSubscriber;
    use tracing_subscriber::fmt::writer::BoxMakeWriter;

    use super::*;
    use crate::{config::Options, fixtures::FakeApi};

    const RINGS: [&str; 3] = ["a", "b", "c"];

    /// An API server with these rings, of a resource of their own each.
    fn api_server() -> FakeApi {
        let api = FakeApi::live();
        let resource = |ring: &str, kind: &str| {
            json!({"name": format!("{ring}-{kind}s"), "singularName": "", "kind": kind, "namespaced": true,
                "verbs": ["get", "list", "watch", "patch"]})
        };
        let all: Vec<Value> = RINGS.iter().flat_map(|ring| [resource(ring, "root"), resource(ring, "leaf")]).collect();
        api.put("/api", json!({"versions": ["v1"]}));
        api.put("/api/v1", json!({"groupVersion": "v1", "resources": all}));
        api.put("/apis", json!({"groups": []}));
        api.put("/api/v1/namespaces/ringside-system", json!({"metadata": {"name": "ringside-system", "uid": "home"}}));
        for ring in RINGS {
            let controlled = json!([{"group": "", "resource": format!("{ring}-leafs")}]);
            let roots = json!({"group": "", "resource": format!("{ring}-roots"), "controlledResources": controlled});
            let path = format!("/apis/sharding.timebertt.dev/v1alpha1/clusterrings/{ring}");
            let ring = json!({
                "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
                "metadata": {"name": ring, "uid": ring, "generation": 1}, "spec": {"resources": [roots]},
            });
            api.put(&format!("{path}/status"), ring.clone());
            api.put(&path, ring);
        }
        api
    }

    /// A line for each thing that fails, in place of one for each attempt.
    #[tokio::test(start_paused = true)]
    async fn minute_without_api_server_is_thirty_lines_in_the_log_at_most() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = Config::try_from(Options::parse_from(["ringside-sharder"])).unwrap();
        let writer = BoxMakeWriter::new(Arc::new(file.reopen().unwrap()));
        // Beside another subscriber. Of one alone, an event that another test's thread meets first is off for all threads.
        let _other = tracing::Dispatch::new(NoSubscriber::new());
        let _logs = tracing::dispatcher::set_default(&dispatch(Format::Text, config.log_filter.clone(), writer, false));
        let (api, mut tasks, shutdown) = (api_server(), Tasks::new(), Shutdown::new());
        let connected = |_: &AllWrites| Ok(Clients::all(&api.client()));
        let any = || TcpListener::bind("127.0.0.1:0");
        let listeners = (any().await.unwrap(), any().await.unwrap());
        start(&mut tasks, config, connected, Arc::new(TokioClock::start()), listeners, &shutdown).unwrap();
        sleep(Duration::from_secs(120)).await;
        let before = std::fs::read_to_string(file.path()).unwrap();
        assert!(
            RINGS.iter().all(|ring| before.contains(&format!("reported the status of a ring ring={ring}"))),
            "{before}"
        );

        api.is_away(true);
        sleep(Duration::from_secs(60)).await;
        api.is_away(false);
        sleep(Duration::from_secs(60)).await;
        let log = std::fs::read_to_string(file.path()).unwrap().split_off(before.len());
        for part in ["lost leadership", "can't watch objects", "can't watch namespaces", "became leader"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        assert!(log.lines().count() <= 30, "{} lines: {log}", log.lines().count());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_the_option() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let fault = listen(address, "--webhook-listen").await.unwrap_err().to_string();
        assert!(fault.starts_with(&format!("can't listen on {address}")), "{fault}");
        assert!(fault.ends_with("free the port, or choose another with --webhook-listen"), "{fault}");
    }
}
