//! Keeps the objects of one ring with the shards that they belong to: assignment and rebalancing, anew for
//! every set of available shards.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::future::select_all;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

use crate::{
    assign::{Begun, Scope, assign},
    drains::Drains,
    faults::Faults,
    leader::Leader,
    namespaces::Selection,
    rebalance::{Due, Pass, passes},
    snapshot::Snapshot,
};

/// Namespaces that are relabelled together, by whoever rolls out a policy, make for one new beginning.
const RELABEL_PAUSE: Duration = Duration::from_secs(1);

/// Distributes the objects of one ring, for as long as this replica leads.
///
/// The work on a snapshot is dropped when the shards or the ring's spec change, requests in flight included: what they
/// were decided on has changed. Nothing is lost by that: every write tests what it relies on, the new
/// watches begin with all objects that are without owner, and whose children were sent ahead is remembered. For that reason it also begins anew once a period, unless a pass is
/// still due, which would never end otherwise, and when namespaces became the ring's: whatever was missed, for whatever
/// reason, is found then.
pub(crate) async fn distribute(
    leader: Leader,
    mut latest: watch::Receiver<Arc<Snapshot>>,
    drains: Drains,
    faults: Faults,
) -> Infallible {
    let (due, begun) = (Due::default(), Begun::default());
    let mut relabelled = leader.namespaces.changes();
    let mut selection = Selection::default();
    let mut period = interval_at(Instant::now() + leader.sync_period, leader.sync_period);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut previous: Option<Arc<Snapshot>> = None;
    loop {
        let snapshot = latest.borrow_and_update().clone();
        mark(&due, previous.as_deref(), &snapshot);
        if previous.as_deref().is_none_or(|previous| !previous.distributes_the_same(&snapshot)) {
            // Everything is looked through now.
            selection = leader.namespaces.selection(&snapshot.namespaces);
        }
        let mut anew: Option<Instant> = None;
        let mut work = std::pin::pin!(work_on(&leader, &snapshot, (&drains, &begun, &faults), &due));
        loop {
            tokio::select! {
                never = &mut work => match never {},
                changed = latest.changed() => {
                    if changed.is_err() {
                        // The ring is gone: whoever started this is about to stop it.
                        std::future::pending::<()>().await;
                    }
                    let new = latest.borrow_and_update().clone();
                    if !(new.distributes_the_same(&snapshot) && new.among_the_same(&snapshot)) {
                        break;
                    }
                }
                _ = period.tick() => if due.is_empty() {
                    anew = Some(Instant::now());
                },
                // The sender lives in `leader`.
                _ = relabelled.changed() => {
                    let now = leader.namespaces.selection(&snapshot.namespaces);
                    if now.gains_over(&selection) {
                        anew = anew.or_else(|| Some(Instant::now() + RELABEL_PAUSE));
                    }
                    selection = now;
                }
                () = sleep_until(anew.unwrap_or_else(Instant::now)), if anew.is_some() => {
                    mark_all(&due, &snapshot);
                    break;
                }
            }
        }
        previous = Some(snapshot.clone());
    }
}

/// The passes that a change makes necessary. When shards only went, the watch on unowned objects finds
/// theirs: no object of another shard moves then.
fn mark(due: &Due, previous: Option<&Snapshot>, snapshot: &Snapshot) {
    match previous {
        Some(previous) if previous.distributes_the_same(snapshot) => {
            if snapshot.adds_to(previous) {
                due.mark(snapshot.mains.iter().map(|main| main.resource.id.clone()), &[Pass::Objects]);
            }
        }
        _ => mark_all(due, snapshot),
    }
}

fn mark_all(due: &Due, snapshot: &Snapshot) {
    due.mark(snapshot.mains.iter().map(|main| main.resource.id.clone()), &[Pass::Objects, Pass::Children]);
}

/// Works until it is dropped.
async fn work_on(
    leader: &Leader,
    snapshot: &Arc<Snapshot>,
    (drains, begun, faults): (&Drains, &Begun, &Faults),
    due: &Due,
) -> Infallible {
    if snapshot.mains.is_empty() || snapshot.hash_ring.shards().is_empty() {
        // Nothing to distribute, or nobody to distribute to: objects stay as they are.
        faults.clear();
        return std::future::pending().await;
    }
    let resources = snapshot.mains.iter().map(|main| {
        let scope = Scope {
            client: leader.client.clone(),
            watches: leader.watches.clone(),
            snapshot: snapshot.clone(),
            main: main.clone(),
            leases: leader.leases.clone(),
            namespaces: leader.namespaces.clone(),
            drains: drains.clone(),
            begun: begun.clone(),
            faults: faults.clone(),
            metrics: leader.metrics.clone(),
        };
        Box::pin(async move {
            tokio::select! {
                never = assign(&scope) => never,
                never = passes(&scope, due) => never,
            }
        })
    });
    select_all(resources).await.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::StatusCode;
    use ringside_ring::lease::ShardState::{Dead, Ready};
    use serde_json::json;

    use super::*;
    use crate::{
        fixtures::FakeApi,
        leases::tests::held_by,
        metrics::Metrics,
        namespaces::Namespaces,
        rings::ClientConfig,
        snapshot::tests::{example_spec, ring, snapshot_of},
    };

    /// The passes that are due after a change from one snapshot to another.
    fn due_after(previous: Option<&Snapshot>, snapshot: &Snapshot) -> Vec<Pass> {
        let due = Due::default();
        mark(&due, previous, snapshot);
        due.of(&snapshot.mains[0].resource.id)
    }

    #[test]
    fn only_what_a_change_makes_necessary_is_looked_through() {
        let spec = ring(&example_spec());
        let two = snapshot_of(&spec, &[("a", Ready), ("b", Ready)]);
        let one = snapshot_of(&spec, &[("a", Ready), ("b", Dead)]);
        let other = snapshot_of(&spec, &[("a", Dead), ("b", Ready)]);
        assert_eq!(due_after(None, &two), [Pass::Objects, Pass::Children], "leadership begins");
        assert_eq!(due_after(Some(&one), &two), [Pass::Objects], "a shard joined");
        assert_eq!(due_after(Some(&two), &one), [], "a shard went: the watch finds its objects");
        assert_eq!(due_after(Some(&one), &other), [Pass::Objects], "one joined while another went");
        let mut all_namespaces = example_spec();
        all_namespaces["namespaceSelector"] = json!({});
        let wider = snapshot_of(&ring(&all_namespaces), &[("a", Ready), ("b", Ready)]);
        assert_eq!(due_after(Some(&two), &wider), [Pass::Objects, Pass::Children], "the spec changed");
    }

    /// How often the lists of all ConfigMaps began.
    fn passes(api: &FakeApi) -> usize {
        let lists = api.asked().into_iter().filter(|asked| asked.path.ends_with("/configmaps"));
        lists.filter(|asked| !asked.query.contains("watch")).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_takes_longer_than_the_period_is_not_broken_off() {
        let api = FakeApi::default();
        api.intercept(|asked, _| asked.path.ends_with("/secrets").then_some(StatusCode::SERVICE_UNAVAILABLE));
        let snapshot = Arc::new(snapshot_of(&ring(&example_spec()), &[("a", Ready), ("b", Ready)]));
        let client_config = ClientConfig { namespace: "sharding-system".into(), url: None, ca_bundle: Vec::new() };
        let (_all, snapshots) = watch::channel(None);
        let (namespaces, _not_followed) = Namespaces::follow(api.client());
        let leader = Leader {
            client: api.client(),
            watches: api.client(),
            leases: held_by(&["a", "b"]),
            namespaces,
            metrics: Metrics::default(),
            snapshots,
            client_config: Arc::new(client_config),
            sync_period: Duration::from_secs(60),
        };
        let drains = Drains::new(snapshot.ring.clone(), Metrics::default());
        let (_ring, latest) = watch::channel(snapshot);
        let task = tokio::spawn(async move { distribute(leader, latest, drains, Faults::default()).await });
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(passes(&api), 1, "the children are still due");
        api.intercept(|_, _| None);
        tokio::time::sleep(Duration::from_secs(130)).await;
        assert_eq!(passes(&api), 3, "two periods");
        task.abort();
    }
}
