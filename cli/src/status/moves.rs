//! What the leader of the sharder is doing now, as its admin server tells.

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use ringside_ring::lease::holder;
use ringside_sharder::{
    doing::{Doing, Move, OfRing, PATH, RefusedNow, WaitsFor},
    parts_of,
};

use crate::{
    cluster::ask_pod,
    output::{Table, seconds, wrap},
    rings::elections,
};

/// Asks the leader, by way of the API server, at this port of its Pod.
///
/// # Errors
/// When it can't be found or asked.
pub(super) async fn ask(client: &Client, port: u16) -> anyhow::Result<Doing> {
    let (namespace, pod) = elections(client).await?.iter().find_map(leader).context(
        "no replica of the sharder leads: see `kubectl get leases -A | grep ringside-sharder` and the Pods there",
    )?;
    ask_pod(client, (&namespace, &pod), port, PATH).await
}

/// The namespace and the name of the leader's Pod.
fn leader(lease: &Lease) -> Option<(String, String)> {
    let (pod, _) = parts_of(holder(lease.spec.as_ref())?)?;
    Some((lease.metadata.namespace.clone()?, pod.to_owned()))
}

/// Renders what it does about these rings.
pub(super) fn text(doing: &Doing, rings: &[String]) -> String {
    let mut text = format!("Writes under way: {} of {}.\n", doing.writes.under_way, doing.writes.limit);
    for name in rings {
        let Some(ring) = doing.rings.get(name) else {
            text.push_str(&format!("The leader does not work on ring '{name}' yet.\n"));
            continue;
        };
        text.push_str(&of_ring(name, ring));
    }
    text
}

fn of_ring(name: &str, ring: &OfRing) -> String {
    let OfRing { moving, between, places, oldest, takeovers, refused } = ring;
    let mut text =
        format!("\nRing {name}: {moving} objects move, {between} of them between two replicas, of {places} at once.\n");
    if !oldest.is_empty() {
        let mut table = Table::new(["OBJECT", "RESOURCE", "FROM", "WAITS FOR", "FOR"]);
        for Move { resource, object, from, waits_for, millis } in oldest {
            let waits_for = waits_for_text(*waits_for);
            table.row([object, resource, from, waits_for, &seconds(*millis)].map(str::to_owned));
        }
        text.push_str(&table.render());
    }
    for (shard, objects) in takeovers {
        text.push_str(&format!("{objects} objects of replica {shard}, which is gone, wait for its Lease.\n"));
    }
    for (resource, RefusedNow { objects, first, why }) in refused {
        let line = format!("{objects} objects of {resource} can't be labelled, such as '{first}': {why}");
        text.push_str(&wrap("x ", &line));
        text.push('\n');
    }
    text
}

/// What a move waits for, in the words of the table.
fn waits_for_text(waits_for: WaitsFor) -> &'static str {
    match waits_for {
        WaitsFor::Drain => "the drain label",
        WaitsFor::Grace => "the grace",
        WaitsFor::Release => "the release",
        WaitsFor::Shard => "the next replica",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_sharder::{ELECTION, doing::WritesNow};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_leaders_pod_is_in_the_name_of_the_holder() {
        let lease = |holder: &str| -> Lease {
            serde_json::from_value(json!({"metadata": {"name": ELECTION, "namespace": "ringside-system"}, "spec": {"holderIdentity": holder}})).unwrap()
        };
        let pod = ("ringside-system".to_owned(), "ringside-sharder-7d9f4c8b6d-k2x8q".to_owned());
        assert_eq!(leader(&lease("ringside-sharder-7d9f4c8b6d-k2x8q_5ec6ffd2")), Some(pod));
        assert_eq!(leader(&lease("")), None);
    }

    #[test]
    fn each_move_is_a_row_that_says_what_it_waits_for() {
        let of = |object: &str, waits_for, millis| Move {
            resource: "websites.web.example.com".into(),
            object: object.into(),
            from: "shard-0".into(),
            waits_for,
            millis,
        };
        let ring = OfRing {
            moving: 2,
            between: 1,
            places: 12,
            oldest: vec![of("default/a", WaitsFor::Release, 61_250), of("default/b", WaitsFor::Grace, 300)],
            takeovers: [("shard-3".to_owned(), 7)].into(),
            refused: [(
                "configmaps".to_owned(),
                RefusedNow { objects: 3, first: "default/c".into(), why: "denied".into() },
            )]
            .into(),
        };
        let doing = Doing {
            leads: true,
            writes: WritesNow { under_way: 4, limit: 16 },
            rings: [("websites".to_owned(), ring)].into(),
        };
        let text = text(&doing, &["websites".to_owned(), "other".to_owned()]);
        for part in [
            "Writes under way: 4 of 16.",
            "Ring websites: 2 objects move, 1 of them between two replicas, of 12 at once.",
            "default/a  websites.web.example.com  shard-0  the release  61.2s",
            "default/b  websites.web.example.com  shard-0  the grace    0.3s",
            "7 objects of replica shard-3, which is gone, wait for its Lease.",
            "x 3 objects of configmaps can't be labelled, such as 'default/c': denied",
            "The leader does not work on ring 'other' yet.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
