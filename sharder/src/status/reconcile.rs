//! Tells the API server and the users about a ring: what belongs to it in the cluster, and its status. The leader does this.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::{api::admissionregistration::v1::MutatingWebhookConfiguration, jiff::Timestamp};
use kube::{Api, Client, core::DynamicObject, discovery::ApiResource};
use ringside_ring::{ShardName, cluster_ring::ClusterRingStatus};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    conditions::{
        Finding, admitted, children_written, controlled, controllers, fenced_by, in_time, injected, leased, moves,
        reached, stable, status, weighed, without_injector, worked_on,
    },
    figures::{Figures, figures},
    filtered::Filtered,
    label_policy::{Protection, protect},
    report::Report,
    webhook_configuration::{asks, webhook_configuration},
};
use crate::{
    client_config::{ClientConfig, Trust},
    faults::Faults,
    fence::{self, Fences},
    injector::pods::Uninjected,
    keep::{
        ACTED_ON, Kept, Standing,
        additions::{added, keep_foreign},
    },
    leases::Leases,
    leftovers::Leftovers,
    metrics::{Metrics, RingFigures},
    mutating_policies::Support,
    news::tell,
    notices::Notices,
    probe::{WebhookMode, WebhookModes},
    reconcile::Known,
    snapshot::Snapshot,
    verdict::{Verdict, Verdicts},
    webhook::Creates,
};

/// How long the webhook may be without a certificate until users are told: another replica may be making it.
const CERTIFIED: Duration = Duration::from_secs(10);

/// How often what is counted is looked at, for metrics and conditions: no request comes of it.
const LOOK: Duration = Duration::from_secs(2);
/// What telling about a ring needs.
pub(crate) struct Told {
    pub(crate) client: Client,
    /// The client for watches, which may be silent for longer.
    pub(crate) watches: Client,
    pub(crate) client_config: Arc<ClientConfig>,
    /// Who vouches for the webhook's certificate; none while there is no certificate.
    pub(crate) trust: watch::Receiver<Option<Trust>>,
    /// What is refused to those who distribute the objects.
    pub(crate) faults: Faults,
    /// What the ring names no more.
    pub(crate) leftovers: Leftovers,
    pub(crate) fences: Fences,
    pub(crate) known: Known,
    pub(crate) creates: Creates,
    /// Whether the API server reaches the webhook, and whether it is configured to ask it about this ring.
    pub(crate) reach: Verdicts,
    pub(crate) asked: Verdicts,
    /// Whether it is told to.
    pub(crate) modes: WebhookModes,
    /// What has to be known for the policy that keeps the labels, and whether the API server enforces it.
    pub(crate) support: watch::Receiver<Option<Support>>,
    pub(crate) mutating: Verdicts,
    pub(crate) leases: Leases,
    /// Whether the sharder adds the proxy to Pods, and those without it.
    pub(crate) injects: bool,
    pub(crate) uninjected: watch::Receiver<Option<Uninjected>>,
    pub(crate) notices: Notices,
    pub(crate) metrics: Metrics,
    pub(crate) period: Duration,
}

/// Keeps what belongs to one ring, and its status.
pub(crate) async fn reconcile(told: Told, snapshots: watch::Receiver<Arc<Snapshot>>) -> Infallible {
    let name = snapshots.borrow().ring.made_for();
    let clients = (&told.client, &told.watches);
    let kind = ApiResource::erase::<MutatingWebhookConfiguration>(&());
    let (webhook, keeper) = Kept::new(clients, &kind, name.clone(), told.period);
    let keeper = keeper.keeping_foreign(keep_foreign);
    // Where that can't be read, nothing is lost by asking.
    let stored = Api::<DynamicObject>::all_with(told.client.clone(), &kind).get_opt(&name).await;
    let before = match stored {
        Ok(stored) if !stored.as_ref().is_some_and(asks) => WebhookMode::Disabled,
        _ => WebhookMode::Enabled,
    };
    let protection = watch::Sender::default();
    tokio::select! {
        never = keeper.run() => never,
        never = protect(&told, &name, snapshots.clone(), &protection) => never,
        never = report_on(&told, (&webhook, before), protection.subscribe(), snapshots) => never,
    }
}

/// How the webhook's configuration stands, where its certificate `is_overdue` or is not.
fn standing_of(webhook: &Kept, is_overdue: bool) -> Standing {
    let standing = webhook.standing();
    if standing == Standing::Pending && is_overdue { without_certificate() } else { standing }
}

/// Says how everything should be, and reports how it stands.
async fn report_on(
    told: &Told,
    (webhook, before): (&Kept, WebhookMode),
    mut protection: watch::Receiver<Option<Protection>>,
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
) -> Infallible {
    let mut fenced = told.fences.changes();
    let (mut reach, mut mutating) = (told.reach.subscribe(), told.mutating.subscribe());
    let (mut modes, mut withdrawn) = (told.modes.subscribe(), told.leftovers.changes());
    let mut webhook_stands = webhook.changes();
    let (mut trust, mut uninjected) = (told.trust.clone(), told.uninjected.clone());
    let (mut report, mut filtered, begun) = (Report::new(told), Filtered::default(), Instant::now());
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        withdrawn.borrow_and_update();
        fenced.borrow_and_update();
        reach.borrow_and_update();
        mutating.borrow_and_update();
        webhook_stands.borrow_and_update();
        uninjected.borrow_and_update();
        let mode = Some(*modes.borrow_and_update()).filter(|mode| *mode != WebhookMode::AsStored).unwrap_or(before);
        // Not before the resources are known: the API server learns each configuration again.
        if let (Some(trust), false) = (&*trust.borrow_and_update(), snapshot.pending) {
            webhook.want(Some(webhook_configuration(&snapshot, &told.client_config, trust, mode)));
        }
        let protected = protection.borrow_and_update().clone();
        let is_overdue = trust.borrow().is_none() && begun.elapsed() >= CERTIFIED;
        let standing = standing_of(webhook, is_overdue);
        if let Some(asked) = asked(&standing, &told.reach.borrow()) {
            tell(&told.asked, asked);
        }
        report.announcer.members(&snapshot);
        let figures =
            figures(&snapshot, told.known.distribution(&snapshot), (&told.known.drains, &told.known.failed_moves));
        report.announcer.overdue(&snapshot, &figures.overdue);
        report.announcer.refused(&snapshot, &told.faults);
        if let (Some(protected), false) = (protected, standing == Standing::Pending) {
            let before = report.stored(&snapshot);
            let protected = protected.finding(&told.mutating.borrow());
            let wanted = status_of((&snapshot, before.as_ref()), told, &standing, protected, &figures);
            let filtered_now = Some(filtered.of(&snapshot, before.as_ref(), &told.known));
            let wanted = ClusterRingStatus { filtered: filtered_now, ..wanted };
            let measured = RingFigures { joining_since: filtered.joining(), ..figures.measured };
            report.make((&snapshot, before), wanted, measured).await;
        }
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                // The ring is gone: the caller is about to stop this.
                std::future::pending::<()>().await;
            },
            // Its sender ends only with the process.
            Ok(()) = trust.changed() => {}
            // The senders live in `told`, `webhook` and the caller, so these fail never.
            _ = withdrawn.changed() => {}
            _ = fenced.changed() => {}
            _ = reach.changed() => {}
            _ = modes.changed() => {}
            _ = mutating.changed() => {}
            _ = webhook_stands.changed() => {}
            _ = protection.changed() => {}
            // Its sender lives as long as the ring's other tasks.
            Ok(()) = uninjected.changed() => {}
            _ = look.tick() => {}
        }
    }
}

/// As of a request that is bad whenever it is sent: there is none that could be.
fn without_certificate() -> Standing {
    Standing::Refused { code: Some(400), why: "it has no certificate; the sharder's log says why".to_owned() }
}

/// Whether the API server asks the webhook about a ring: it needs its configuration for that, and to reach it. Nothing where it
/// is left open what was known before.
fn asked(configuration: &Standing, reach: &Verdict) -> Option<Verdict> {
    let away = |why: &str| Some(Some(Err(why.to_owned())));
    match configuration {
        Standing::InPlace { object, .. } if !asks(object) => away("it is out of the way until it is in reach"),
        Standing::InPlace { object, .. } if !added(object).is_empty() => away("others have narrowed its configuration"),
        Standing::InPlace { since, .. } if since.elapsed() >= ACTED_ON => Some(reach.clone()),
        // An API server takes a moment until it acts on it. Who has just begun to lead can't tell whether it was there before.
        Standing::InPlace { .. } => away("its configuration was written a moment ago"),
        Standing::Disturbed { .. } => away("another client changed or deleted its configuration"),
        Standing::Edited { why } | Standing::NotOurs { why } => away(why),
        Standing::Absent => away("it has no configuration"),
        // What is refused for a moment only may be there all the same.
        Standing::Refused { code, why } if lasts(*code) => away(why),
        Standing::Refused { .. } | Standing::Pending => None,
    }
}

/// Whether what is refused so is refused until a user changes something.
pub(super) fn lasts(code: Option<u16>) -> bool {
    matches!(code, Some(400..=407 | 410..=428))
}

/// The status as everything stands.
fn status_of(
    (snapshot, before): (&Snapshot, Option<&ClusterRingStatus>),
    told: &Told,
    webhook: &Standing,
    protected: Option<Finding>,
    figures: &Figures,
) -> ClusterRingStatus {
    let mut problems = Vec::new();
    if let Standing::Refused { why, .. } | Standing::NotOurs { why } = webhook {
        problems.push(format!("the webhook can't be configured: {why}"));
    }
    problems.extend(told.faults.of(snapshot));
    problems.extend(told.creates.faults(&snapshot.ring));
    problems.extend(told.leases.unmade(&snapshot.ring));
    let unheard = snapshot.long_unheard(Instant::now());
    if !unheard.is_empty() {
        let unaware = told.leases.unaware(&snapshot.ring, snapshot.generation);
        let unaware: Vec<_> = unaware.iter().map(ShardName::as_str).collect();
        problems.push(format!(
            "objects of {} are assigned to no shard until these have read that the ring names it: {}; see the condition LeasesValid, and the logs of their proxies",
            unheard.join(", "), unaware.join(", ")
        ));
    }
    let fence = told.fences.report(snapshot);
    if let fence::Report::Impossible(fault) = &fence {
        problems.push(fault.clone());
    }
    let (reach, (all_told, shared)) = (told.reach.borrow().clone(), told.leases.shared_names(&snapshot.ring));
    let findings = [
        Some(worked_on(snapshot)),
        Some(moves(snapshot)),
        reached(reach.as_ref(), webhook),
        Some(in_time(snapshot, &figures.overdue)),
        Some(children_written(&figures.refused_children)),
        Some(weighed(&told.leases.weight_faults(&snapshot.ring))),
        Some(leased(&told.leases.faults(&snapshot.ring))),
        figures.lone.as_ref().map(controlled),
        admitted(before, (all_told, &shared)),
        Some(stable(snapshot)),
        controllers(&told.leases.absent(&snapshot.ring)),
        injected(told.uninjected.borrow().as_ref()),
        protected,
        fenced_by(&fence),
    ];
    // To the second, as it is stored.
    let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    let status = status(snapshot, before, &problems, findings.into_iter().flatten(), figures.objects.clone(), now);
    let status = if told.injects { status } else { without_injector(status) };
    let shard_namespaces = told.leases.namespaces(&snapshot.ring).map(|all| all.into_iter().collect());
    ClusterRingStatus { resources: told.leftovers.record(snapshot), shard_namespaces, ..status }
}

#[cfg(test)]
mod tests;
