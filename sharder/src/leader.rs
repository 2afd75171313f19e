//! What only one replica does at a time: Lease states, ring status, webhook configurations, assignment, rebalancing.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use kube::Client;
use ringside_ring::RingName;
use ringside_runtime::{
    clock::SharedClock,
    explain::explain,
    heartbeat::Heartbeats,
    lease::{self, LeaseParams},
    shutdown::Shutdown,
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinError, JoinSet},
};

use crate::{
    admin::{Register, Registered},
    cleanup::departed::{Departed, Leaving},
    client_config::{ClientConfig, Trust},
    config::Injector,
    faults::Faults,
    fence::{self, Fences, Keeper},
    injector::{self, pods},
    leases::{Leases, keep_states},
    leftovers::{Leftovers, withdraw},
    metrics::Metrics,
    mutating_policies::{self, Support},
    namespaces::Namespaces,
    notices::Notices,
    pauses::Pauses,
    probe::{self, Home, WebhookModes},
    reconcile::{Known, Tools, distribute},
    snapshot::{Snapshot, Snapshots},
    status::{Told, reconcile},
    verdict::Verdicts,
    webhook::Creates,
    writes::{AllWrites, Writes},
};

/// What leading needs.
#[derive(Clone)]
pub(crate) struct Leader {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) leases: Leases,
    pub(crate) namespaces: Namespaces,
    pub(crate) fences: Fences,
    pub(crate) notices: Notices,
    /// The writes to objects.
    pub(crate) writes: AllWrites,
    pub(crate) metrics: Metrics,
    /// Where its tasks show that they are polled.
    pub(crate) heartbeats: Heartbeats,
    /// Whether what the webhook labels comes to be.
    pub(crate) creates: Creates,
    pub(crate) snapshots: watch::Receiver<Option<Arc<Snapshots>>>,
    pub(crate) client_config: Arc<ClientConfig>,
    /// Who vouches for the webhook's certificate.
    pub(crate) trust: watch::Receiver<Option<Trust>>,
    /// How the proxy is added to pods, if it is.
    pub(crate) injector: Option<Injector>,
    pub(crate) sync_period: Duration,
    pub(crate) departed: Departed,
    /// Whether the API server reaches the webhook.
    pub(crate) reach: Verdicts,
    /// Whether the API server is told to ask it.
    pub(crate) modes: WebhookModes,
    /// Whether it enforces MutatingAdmissionPolicies, and what else has to be known for that.
    pub(crate) mutating: Verdicts,
    pub(crate) support: watch::Sender<Option<Support>>,
    /// Where it is told what it is doing.
    pub(crate) doing: Register,
}

/// Runs for leadership by `election` until the shutdown, and leads whenever it is won.
pub(crate) async fn campaign(
    leader: Leader,
    election: Client,
    terms: LeaseParams,
    clock: SharedClock,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    // The Lease is released after the work was stopped, not at the same time.
    let stopped = Shutdown::new();
    let identity = terms.holder.clone();
    let (lease_handle, keeper) = lease::keep(election, terms, clock, stopped.clone());
    let terms_of_office = async {
        while !shutdown.is_triggered() {
            tokio::select! {
                () = lease_handle.until_held() => {}
                () = shutdown.wait() => break,
            }
            tracing::info!(identity, "became leader");
            leader.metrics.leads();
            leader.doing.leads(true);
            // Dropping the work stops it at its next await, wherever it is: every write tests what it relies on.
            let mut rings = JoinSet::new();
            tokio::select! {
                never = leader.lead(&mut rings) => match never {},
                () = lease_handle.until_lost() => tracing::warn!(identity, "lost leadership"),
                () = shutdown.wait() => {}
            }
            // A task that is being polled at this moment goes on to its next await, and may begin a write before that.
            rings.abort_all();
            while let Some(ended) = rings.join_next().await {
                unless_panicked(ended);
            }
            leader.metrics.no_leader();
            leader.doing.leads(false);
            // The next leader, who may be this one, reads what they write.
            leader.writes.ended().await;
        }
        stopped.trigger();
    };
    tokio::select! {
        // Also while another replica leads.
        never = leader.departed.follow(leader.snapshots.clone()) => match never {},
        _ = async { tokio::join!(keeper, terms_of_office) } => {}
    }
    Ok(())
}

/// A bug must not leave a ring without its sharder silently: the process ends.
fn unless_panicked(ended: Result<Infallible, JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// A ring's tasks; dropping it stops them.
struct Running {
    ring: RingName,
    metrics: Metrics,
    snapshots: watch::Sender<Arc<Snapshot>>,
    task: AbortHandle,
    _registered: Registered,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        self.metrics.ring_gone(&self.ring);
    }
}

impl Leader {
    async fn lead(&self, rings: &mut JoinSet<Infallible>) -> Infallible {
        self.catch_up().await;
        let states = keep_states(self.client.clone(), self.leases.clone(), self.metrics.clone(), self.notices.clone());
        tokio::select! {
            never = states => never,
            never = self.notices.write() => never,
            never = mutating_policies::follow(&self.client, self.sync_period, &self.support) => never,
            never = self.probe() => never,
            never = self.rings(rings) => never,
        }
    }

    /// Keeps what belongs to the sharder as a whole: the probes that tell of the API server what only a write tells, and the
    /// injector.
    async fn probe(&self) -> Infallible {
        let (clients, period) = ((&self.client, &self.watches), self.sync_period);
        let home = &Home::find(&self.client, &self.client_config.namespace).await;
        let (config, trust) = (&self.client_config, self.trust.clone());
        let webhook = probe::webhook::look(clients, home, (config, trust), period, (&self.reach, &self.modes));
        let validating = probe::policies::validating(clients, home, self.snapshots.clone(), period, &self.fences);
        let mutating = probe::policies::mutating(clients, home, self.support.subscribe(), period, &self.mutating);
        let injector = injector::keep(clients, home, (config, self.trust.clone()), period, self.injector.as_ref());
        // Each keeps objects by watches, which makes it large: in a debug build the whole of it is on the stack many times.
        let (webhook, validating, mutating) = (Box::pin(webhook), Box::pin(validating), Box::pin(mutating));
        let injector = Box::pin(injector);
        tokio::select! {
            never = webhook => never,
            never = validating => never,
            never = mutating => never,
            never = injector => never,
        }
    }

    /// Reads all Leases once: this replica's watch may be behind, and until now nothing depended on it but new objects.
    async fn catch_up(&self) {
        let mut pauses = Pauses::new();
        while let Err(error) = self.leases.refresh(&self.client).await {
            tracing::warn!(error = %explain(&error), "can't list the Leases of shards; leading has to wait");
            pauses.next().await;
        }
    }

    /// A task a ring, so that one ring's work never waits for another's, and one for each that has gone.
    async fn rings(&self, tasks: &mut JoinSet<Infallible>) -> Infallible {
        let mut latest = self.snapshots.clone();
        let mut departed = self.departed.changes();
        let mut leaving: BTreeMap<RingName, Leaving> = BTreeMap::new();
        let mut running: BTreeMap<RingName, Running> = BTreeMap::new();
        loop {
            let snapshots = latest.borrow_and_update().clone().unwrap_or_default();
            running.retain(|ring, _| snapshots.contains_key(ring));
            for (ring, snapshot) in snapshots.iter() {
                match running.get(ring) {
                    Some(running) => running.snapshots.send_replace(snapshot.clone()),
                    None => {
                        let before = leaving.remove(ring);
                        running.insert(ring.clone(), self.start(ring, snapshot, before, tasks));
                        continue;
                    }
                };
            }
            for (ring, resources) in
                departed.borrow_and_update().iter().filter(|(ring, _)| !running.contains_key(*ring))
            {
                let begin = || Leaving::begin(&self.client, &self.writes, &self.departed, (ring, resources));
                leaving.entry(ring.clone()).or_insert_with(begin);
            }
            tokio::select! {
                // The sender lives in `self`.
                _ = departed.changed() => {}
                changed = latest.changed() => if changed.is_err() {
                    // Its sender ends only with the process.
                    std::future::pending::<()>().await;
                },
                Some(ended) = tasks.join_next() => unless_panicked(ended),
            }
        }
    }

    fn start(
        &self,
        ring: &RingName,
        snapshot: &Arc<Snapshot>,
        before: Option<Leaving>,
        tasks: &mut JoinSet<Infallible>,
    ) -> Running {
        let (snapshots, latest) = watch::channel(snapshot.clone());
        let objects = snapshot.status.as_ref().and_then(|status| status.objects.as_ref());
        let since = objects.and_then(|objects| objects.unassigned_since.as_ref()).map(|since| since.0.into());
        let (known, faults) = (Known::after(since), Faults::default());
        let (leftovers, asked) = (Leftovers::default(), Verdicts::default());
        let (found, uninjected) = watch::channel(None);
        let told = Told {
            client: self.client.clone(),
            watches: self.watches.clone(),
            client_config: self.client_config.clone(),
            trust: self.trust.clone(),
            faults: faults.clone(),
            leftovers: leftovers.clone(),
            fences: self.fences.clone(),
            known: known.clone(),
            creates: self.creates.clone(),
            reach: self.reach.clone(),
            modes: self.modes.clone(),
            asked: asked.clone(),
            support: self.support.subscribe(),
            mutating: self.mutating.clone(),
            leases: self.leases.clone(),
            injects: self.injector.is_some(),
            uninjected,
            notices: self.notices.clone(),
            metrics: self.metrics.clone(),
            period: self.sync_period,
        };
        let told = reconcile(told, latest.clone());
        let keeper = Keeper {
            client: self.client.clone(),
            watches: self.watches.clone(),
            leases: self.leases.clone(),
            fences: self.fences.clone(),
            period: self.sync_period,
        };
        let fenced = fence::keep(keeper, latest.clone());
        let withdrawn = withdraw(self.client.clone(), self.writes.clone(), leftovers, latest.clone());
        let uninjected = self.clone().look_at_pods(latest.clone(), found);
        let registered = self.doing.begin(ring, &known);
        let (tools, writes, mut latest) = (self.tools(asked), Writes::among(&self.writes), latest);
        let distributed = async move { distribute(&tools, &writes, &mut latest, &known, &faults).await };
        let work = async move {
            if let Some(before) = before {
                before.stop().await;
            }
            tokio::select! {
                never = told => never,
                never = fenced => never,
                never = withdrawn => never,
                never = uninjected => never,
                never = distributed => never,
            }
        };
        let (heartbeats, name) = (self.heartbeats.clone(), format!("the work on ring '{ring}'"));
        let work = Box::pin(work);
        let task = tasks.spawn(async move { heartbeats.follow(name, work).await });
        Running { ring: ring.clone(), metrics: self.metrics.clone(), snapshots, task, _registered: registered }
    }

    /// What the work on a ring needs, where `reach` tells whether the API server asks the webhook about it.
    fn tools(&self, reach: Verdicts) -> Tools {
        Tools {
            client: self.client.clone(),
            watches: self.watches.clone(),
            leases: self.leases.clone(),
            namespaces: self.namespaces.clone(),
            fences: self.fences.clone(),
            notices: self.notices.clone(),
            metrics: self.metrics.clone(),
            heartbeats: self.heartbeats.clone(),
            reach,
        }
    }

    /// Looks for Pods without the proxy, where there is an injector.
    async fn look_at_pods(
        self,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        found: watch::Sender<Option<pods::Uninjected>>,
    ) -> Infallible {
        if self.injector.is_none() {
            return std::future::pending().await;
        }
        pods::look(&self.client, (&self.leases, &self.namespaces), &snapshots, &found).await
    }
}
