//! What every replica observes, leader or not.

use std::{convert::Infallible, sync::Arc};

use kube::Client;
use ringside_runtime::{admin::Check, clock::SharedClock, shutdown::Shutdown, tasks::Tasks};
use tokio::sync::watch;

mod maintain;

use crate::{
    config::Config,
    fence::{self, Fences},
    leases::{self, Leases},
    metrics::Metrics,
    namespaces::Namespaces,
    resources, rings,
    rolls::{self, Rolls},
    snapshot::Snapshots,
};
use maintain::{Sources, maintain};

/// Clients with the timeouts of what they are for.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) requests: Client,
    /// For watches, which may be silent for longer.
    pub(crate) watches: Client,
    /// For the Lease of the election.
    pub(crate) election: Client,
}

/// The results of the observation.
pub(crate) struct Observed {
    pub(crate) leases: Leases,
    pub(crate) namespaces: Namespaces,
    pub(crate) fences: Fences,
    pub(crate) snapshots: watch::Receiver<Option<Arc<Snapshots>>>,
    pub(crate) clock: SharedClock,
}

/// Starts the watches, and what is made of them; `synced` passes once there is something to work with.
pub(crate) fn observe(
    tasks: &mut Tasks,
    config: &Config,
    (clients, clock): (&Clients, SharedClock),
    metrics: &Metrics,
    synced: Check,
    shutdown: &Shutdown,
) -> Observed {
    let watches = || clients.watches.clone();
    let leases = Leases::new(clock.clone()).where_granted(config.tokens_per_shard).serving(config.kinds);
    let (namespaces, follow_namespaces) = Namespaces::follow(watches());
    let (fences, follow_fences) = fence::follow(watches());
    let shard_rolls = Rolls::new(clock.clone());
    let (rings, rings_changed, follow_rings) = rings::follow(&watches(), config.kinds);
    let (publish_catalog, catalog) = watch::channel(Arc::default());
    let (publish, snapshots) = watch::channel(None);
    let lookup = resources::follow(
        (clients.requests.clone(), watches()),
        (rings.clone(), rings_changed.clone()),
        publish_catalog,
        config.sync_period,
    );
    let sources = Sources {
        rings,
        rings_changed,
        leases: leases.clone(),
        rolls: shard_rolls.clone(),
        fences: fences.clone(),
        namespaces: namespaces.clone(),
        catalog,
        tokens_per_shard: config.tokens_per_shard,
        metrics: metrics.clone(),
    };
    let follow_rolls = rolls::follow(clients.requests.clone(), leases.clone(), shard_rolls);
    tasks.spawn("the watch on rings", until(shutdown, follow_rings));
    tasks.spawn("the watch on Leases", until(shutdown, leases::follow(watches(), leases.clone())));
    let ask_rights = leases::ask(clients.requests.clone(), leases.clone());
    tasks.spawn("the look at the rights on Leases", until(shutdown, ask_rights));
    tasks.spawn("the look at the Pods of shards", until(shutdown, follow_rolls));
    tasks.spawn("the watch on namespaces", until(shutdown, follow_namespaces));
    tasks.spawn("the watch on fences", until(shutdown, follow_fences));
    tasks.spawn("the look-up of resources", until(shutdown, lookup));
    tasks.spawn("the snapshots of rings", until(shutdown, maintain(sources, publish, synced)));
    Observed { leases, namespaces, fences, snapshots, clock }
}

/// A task that is simply dropped at the shutdown.
pub(crate) fn until(
    shutdown: &Shutdown,
    task: impl Future<Output = Result<(), Infallible>> + Send + 'static,
) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
    let shutdown = shutdown.clone();
    async move {
        tokio::select! {
            ended = task => ended,
            () = shutdown.wait() => Ok(()),
        }
    }
}

#[cfg(test)]
impl Clients {
    /// The same client for everything.
    pub(crate) fn all(client: &Client) -> Self {
        Self { requests: client.clone(), watches: client.clone(), election: client.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use clap::Parser as _;
    use http::{Method, StatusCode};
    use ringside_runtime::{
        admin::{Health, Probe},
        clock::TokioClock,
    };
    use tokio::time::sleep;

    use super::*;
    use crate::{config::Options, fixtures::FakeApi};

    #[tokio::test(start_paused = true)]
    async fn a_replica_is_not_ready_before_it_has_seen_rings_leases_and_namespaces() {
        let refusals = [
            ("/clusterrings", StatusCode::FORBIDDEN),
            // Without the CustomResourceDefinition.
            ("/clusterrings", StatusCode::NOT_FOUND),
            ("/leases", StatusCode::FORBIDDEN),
            ("/namespaces", StatusCode::FORBIDDEN),
        ];
        for (hidden, status) in refusals {
            let (api, health, shutdown, mut tasks) = (FakeApi::default(), Health::new(), Shutdown::new(), Tasks::new());
            api.intercept(move |asked, _| {
                (asked.method == Method::GET && asked.path.ends_with(hidden)).then_some(status)
            });
            let clients = Clients::all(&api.client());
            let clock = Arc::new(TokioClock::start());
            let config = Config::try_from(Options::parse_from(["ringside-sharder"])).unwrap();
            let synced = health.check("caches", Probe::Ready);
            let observed = observe(&mut tasks, &config, (&clients, clock), &Metrics::default(), synced, &shutdown);
            sleep(Duration::from_secs(120)).await;
            assert_eq!(health.failures(Probe::Ready), ["caches: not there yet"], "{hidden} {status}");
            assert!(observed.snapshots.borrow().is_none(), "{hidden}");

            api.intercept(|_, _| None);
            sleep(Duration::from_secs(120)).await;
            assert_eq!(health.failures(Probe::Ready), Vec::<String>::new(), "{hidden}");
            shutdown.trigger();
        }
    }
}
