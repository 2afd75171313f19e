//! `ringside-proxy`: an API server of its own for one controller, which shows it its shard of a ring.
//!
//! A request comes in by [`serve`], passes the [`stages`] from top to bottom, and leaves by [`upstream`]. Beside
//! that way: [`membership`] holds the shard Lease and with it the gate that requests pass, [`policy`] follows the
//! ring, [`handover`] releases drained objects, and reads from [`views`] what the controller can still see.
//! [`controller`] judges by them whether it works, and `leave` gives the shard's objects away before it ends.

use std::{net::SocketAddr, sync::Arc};

use futures::TryFutureExt;
use kube::Client;
use ringside_runtime::{
    admin::{self, Health, Probe},
    client::{ApiServer, ConnectError},
    clock::{Boottime, SharedClock},
    shutdown::Shutdown,
    tasks::{TaskFailed, Tasks},
};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub mod access;
pub mod body;
pub mod budget;
pub mod command;
pub mod config;
mod connection;
pub mod controller;
mod doing;
pub mod election;
pub mod fence;
pub mod frames;
pub mod gap;
pub mod handover;
pub mod labels;
mod leave;
mod measured;
pub mod membership;
pub mod metadata;
pub mod metrics;
pub mod peering;
pub mod policy;
pub mod request;
pub mod serve;
mod shard;
pub mod stages;
pub mod status;
pub mod upstream;
pub mod views;
mod wire;

pub use command::{Command, CommandError};
pub use config::Config;
use shard::Parts;

/// As the API server knows what the proxy asks of itself.
const AGENT: &str = concat!("ringside-proxy/", env!("CARGO_PKG_VERSION"));

/// Why the proxy can't run, or does not any more.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not known how to reach the API server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The access folder can't be used.
    #[error(transparent)]
    Access(#[from] access::AccessError),
    /// An address can't be listened on.
    #[error("can't listen on {address} ({flag}): {source}; choose another address or end what uses this one")]
    Listen {
        /// The option that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The threads can't be started.
    #[error("can't start threads: {0}")]
    Threads(#[source] std::io::Error),
    /// The signal handlers can't be installed.
    #[error("can't listen for signals: {0}")]
    Signals(#[source] std::io::Error),
    /// A part of the proxy ended.
    #[error(transparent)]
    Task(#[from] TaskFailed),
}

/// Runs the proxy until SIGTERM, by threads of its own.
///
/// # Errors
/// When it can't start, or a part of it fails.
pub fn run(config: Config) -> Result<(), RunError> {
    let mut threads = match config.threads.get() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = threads.worker_threads(config.threads.get()).enable_all().build().map_err(RunError::Threads)?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().map_err(RunError::Signals)?;
        run_until(config, shutdown).await
    })
}

/// Runs the proxy until `shutdown`.
///
/// # Errors
/// As [`run`].
pub async fn run_until(config: Config, shutdown: Shutdown) -> Result<(), RunError> {
    let api_server = ApiServer::find(config.kubeconfig.as_deref(), AGENT)?;
    let clients = (api_server.client()?, api_server.lease_client(config.lease_duration)?);
    run_with(config, api_server, clients, Arc::new(Boottime), shutdown).await
}

/// Runs the proxy until `shutdown`, by this clock. Its own requests use these clients; the second is for Leases.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    config: Config,
    api_server: ApiServer,
    (client, lease_client): (Client, Client),
    clock: SharedClock,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let upstream = upstream::Upstream::new(&api_server)?;
    let namespace = config.lease_namespace.clone().unwrap_or_else(|| api_server.default_namespace());
    let (listener, address) = listen("--listen", config.listen).await?;
    let (admin_listener, admin) = listen("--admin-listen", config.admin_listen).await?;
    config.exposed().iter().for_each(|exposed| tracing::warn!("{exposed}"));
    let access = access::prepare(&config.access_dir, address, &namespace)?;

    let (health, knowledge) = (Health::new(), policy::ring_state());
    let of_elections = (config.election_namespace.as_deref().unwrap_or(&namespace), lease_client.clone());
    let kept = election::Kept::new(access.handout.clone());
    let gaps = gap::GapDetector::new(access.handout, access.generation, health.check("gap", Probe::Controller));
    let locks_check = health.check("locks", Probe::Ready);
    let shared =
        shared((access.token, access.restarted, gaps, kept, locks_check), (of_elections, &clock), &knowledge, &config);
    let controller = controller(&config, &shared, access.restarted, &health);
    let (leave, of_ring) = (leave::Leave::new(config.drain_grace), (config.ring.clone(), namespace.clone()));
    let (fence, folder) = (shared.fence.clone(), config.access_dir.clone());
    let parts = Parts {
        config,
        shared: shared.clone(),
        drains: handover::Drains::new(),
        controller,
        lease_handle: Arc::default(),
        clock,
    };
    let routes = leave.routes(shared.token.clone()).merge(doing::route(parts.clone()));
    let registry = Arc::new(shared.metrics.registry(&of_ring.0, Box::new(parts.clone())));
    let server = server(listener, access.tls, leave.hurry(), &shared);
    let knowing = (knowledge.clone(), shared.newest.subscribe());
    let shard = shard::Shard {
        parts,
        namespace,
        instance: access.instance,
        client: client.clone(),
        lease_client,
        // The kubeconfig is written by now.
        check: health.check("lease", Probe::Started),
        admitted: health.check("admitted", Probe::Ready),
        drains_check: health.check("drains", Probe::Ready),
        left: server.left.clone(),
        knowledge: knowledge.subscribe(),
        leave,
    };
    let ring_check = health.check("ring", Probe::Ready);

    // Everything but the server goes on until the last request has ended. Then only the shard does: it releases what is
    // drained, and then the Lease.
    let (served, mut tasks) = (Shutdown::new(), Tasks::new());
    tasks.show_by(health.heartbeats());
    let (stack, until, after) = (stages::stack(&shared, upstream), shutdown.clone(), served.clone());
    tasks.spawn("the server", server.run(stack, until).map_ok(move |()| after.trigger()));
    tasks.spawn("the admin server", admin::serve(admin_listener, (health, registry), routes, served.clone()));
    tasks.spawn("following the ring", policy::follow(client, of_ring, knowing, ring_check, served.clone()));
    tasks.spawn("following the credentials", api_server.follow(served.clone()));
    tasks.spawn("the shard", shard.run(served));
    tracing::info!(%address, %admin, "ready for the controller to connect");
    tasks.run(&shutdown, serve::ENDS_WITHIN).await?;
    if fence.is_idle() {
        // So that the next one need not wait for what this one may have sent.
        access::ended_in_order(&folder)?;
    }
    Ok(())
}

fn server(listener: TcpListener, tls: ServerConfig, hurry: Shutdown, shared: &stages::Shared) -> serve::Server {
    serve::Server {
        listener,
        tls,
        upgraded: shared.upgraded.clone(),
        closing: shared.closing.clone(),
        abort: shared.abort.clone(),
        left: Shutdown::new(),
        hurry,
        patience: serve::Patience::default(),
    }
}

fn shared(
    (token, restarted, gaps, kept, locks_check): (access::Token, bool, gap::GapDetector, election::Kept, admin::Check),
    ((namespace, lease_client), clock): ((&str, Client), &SharedClock),
    knowledge: &tokio::sync::watch::Sender<policy::RingState>,
    config: &Config,
) -> stages::Shared {
    let ring = &config.ring;
    let locks = election::Locks::kept_in(namespace.to_owned(), kept).with_named(config.election_locks.clone());
    let elsewhere = match &config.election_namespace {
        Some(_) => election::Elsewhere::Nowhere,
        None => election::Elsewhere::NamingUs(config.hostname.clone()),
    };
    let locks = locks.with_check(locks_check).with_elsewhere(elsewhere);
    let peerings = Arc::new(peering::Peerings::new(ring));
    let hold = election::Hold::new(lease_client.clone(), ring, clock.clone());
    let presence = Arc::new(peering::RingPeer::new(lease_client, peerings.ring().to_owned()));
    stages::Shared {
        peerings,
        presence,
        token: Arc::new(token),
        foreign_tokens: config.foreign_tokens,
        gaps,
        gate: membership::Gate::new(),
        knowledge: knowledge.clone(),
        newest: tokio::sync::watch::Sender::default(),
        locks: Arc::new(locks),
        hold: Arc::new(hold),
        views: views::Views::new(),
        fence: fence::Fence::new(restarted),
        labels: Arc::new(ringside_ring::RingLabels::of(ring)),
        hides_labels: !config.show_labels,
        marks: config.deletion_timestamps,
        metrics: metrics::Metrics::default(),
        budget: budget::Budget::default(),
        upgraded: TaskTracker::new(),
        closing: CancellationToken::new(),
        abort: CancellationToken::new(),
    }
}

fn controller(config: &Config, shared: &stages::Shared, restarted: bool, health: &Health) -> controller::Controller {
    let check = health.check("controller", Probe::Note);
    controller::Controller::new(
        config.controller,
        config.lease_duration,
        (shared.views.clone(), shared.locks.waits().clone()),
        restarted,
        check,
    )
}

/// Listens on an address; returns it with the port that the system chose where that is 0.
async fn listen(flag: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), RunError> {
    let listener = ringside_runtime::listen::listen(address).await;
    let listener = listener.map_err(|source| RunError::Listen { flag, address, source })?;
    let address = listener.local_addr().unwrap_or(address);
    Ok((listener, address))
}
