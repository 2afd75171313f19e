//! The status of rings as tables.

use ringside_ring::{Controller, cluster_ring::Fence};

use super::{
    moves,
    report::{Problem, Report, RingReport, Safe},
};
use crate::output::{Table, wrap};

/// Renders rings, and the replicas and problems of the one that was named.
pub(super) fn table(report: &Report) -> String {
    if report.rings.is_empty() {
        return "no rings: `ringside ring init NAMESPACE/DEPLOYMENT` writes one".to_owned();
    }
    let mut table = Table::new(["RING", "READY", "REPLICAS", "OBJECTS", "NO OWNER", "MOVING", "FENCE", "WORST"]);
    for ring in &report.rings {
        table.row(row(ring));
    }
    let mut text = table.render();
    for ring in &report.rings {
        let Some(replicas) = &ring.replicas else { continue };
        let mut table =
            Table::new(["REPLICA", "STATE", "WEIGHT", "OBJECTS", "SHARE", "MOVING OUT", "VERSION", "SAFE TO DELETE"]);
        for it in replicas {
            let state = match it.controller {
                Controller::Working => it.state.to_owned(),
                Controller::Leaving => format!("{}, leaving", it.state),
                Controller::Absent => format!("{}, idle", it.state),
            };
            let weight = if it.drained { "drained" } else { &it.weight };
            table.row([
                it.name.clone(),
                state,
                weight.to_owned(),
                said(it.objects),
                it.share.map_or("-".to_owned(), |share| format!("{share} %")),
                said(it.moving_out),
                said(it.version.clone()),
                safe(it.safe_to_delete).to_owned(),
            ]);
        }
        text.push('\n');
        text.push_str(&table.render());
        for Problem { condition, reason, message, seconds, fault } in &ring.problems {
            let mark = if *fault { "x " } else { "! " };
            text.push('\n');
            text.push_str(&wrap(mark, &format!("{condition} is False for {seconds} s ({reason}): {message}")));
        }
    }
    if let Some(doing) = &report.moves {
        let names: Vec<_> = report.rings.iter().map(|ring| ring.name.clone()).collect();
        text.push('\n');
        text.push_str(&moves::text(doing, &names));
    }
    text
}

fn row(ring: &RingReport) -> [String; 8] {
    let objects = ring.objects.as_ref();
    let with_age = |count: i64, seconds: Option<i64>| match seconds.filter(|_| count > 0) {
        Some(seconds) => format!("{count} ({seconds}s)"),
        None => count.to_string(),
    };
    [
        ring.name.clone(),
        ring.ready.map_or("-", |ready| if ready { "True" } else { "False" }).to_owned(),
        match ring.all_replicas {
            Some(all) => format!("{}/{all}", ring.available_replicas),
            None => ring.available_replicas.to_string(),
        },
        said(objects.map(|it| it.all)),
        said(objects.map(|it| with_age(it.without_owner, it.without_owner_seconds))),
        said(objects.map(|it| with_age(it.moving, it.moving_seconds))),
        match ring.fence {
            Fence::Proxy => "Proxy".to_owned(),
            Fence::ApiServer => "APIServer".to_owned(),
        },
        said(ring.problems.first().map(|it| &it.condition)),
    ]
}

fn safe(safe: Safe) -> &'static str {
    match safe {
        Safe::Yes => "yes",
        Safe::HasNone => "yes, has none",
        Safe::LastOne => "no, no other works",
    }
}

fn said(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::report::{Objects, ReplicaReport};

    #[test]
    fn rings_replicas_and_problems_fit_the_terminal() {
        let replica = ReplicaReport {
            name: "website-controller-7d9f4c8b6d-k2x8q".into(),
            namespace: "default".into(),
            state: "ready",
            controller: Controller::Absent,
            weight: "0".into(),
            drained: true,
            objects: Some(141),
            share: Some(34),
            moving_out: None,
            version: Some("0.1.0".into()),
            safe_to_delete: Safe::LastOne,
        };
        let problem = Problem {
            condition: "DrainsInTime".into(),
            reason: "R".into(),
            message: "word ".repeat(40),
            seconds: 3,
            fault: true,
        };
        let ring = RingReport {
            name: "websites".into(),
            healthy: false,
            ready: Some(true),
            available_replicas: 3,
            all_replicas: Some(3),
            objects: Some(Objects {
                all: 412,
                without_owner: 0,
                without_owner_seconds: None,
                moving: 14,
                moving_seconds: Some(3),
            }),
            fence: Fence::ApiServer,
            problems: vec![problem],
            replicas: Some(vec![replica]),
        };
        let text = table(&Report { rings: vec![ring], moves: None });
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(
            text.contains("websites  True   3/3       412      0         14 (3s)  APIServer  DrainsInTime"),
            "{text}"
        );
        assert!(
            text.contains("ready, idle  drained  141      34 %   -           0.1.0    no, no other works"),
            "{text}"
        );
        assert!(text.contains("\nx DrainsInTime is False for 3 s (R): word"), "{text}");
    }
}
