#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::clock::TokioClock;

use super::*;
use crate::{
    fence::{About, DrainGuard, Fence, Target},
    shard::Parts,
    views::{DrainingObject, Views, fixtures},
};

/// Everything that there is, with a value for each, after something has happened.
fn text(happens: impl FnOnce(&Fence, &Views)) -> String {
    let parts = Parts::of(&["--ring", "example", "--controller=always"], Arc::new(TokioClock::start()));
    let metrics = parts.shared.metrics.clone();
    metrics.answered(Verb::Get, StatusCode::OK);
    metrics.refused("not_ours");
    metrics.unseen("subresource");
    metrics.foreign("passed");
    metrics.unlabelled("labelled");
    metrics.arrived(true);
    happens(&parts.shared.fence, &parts.shared.views);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(
        &mut text,
        &metrics.registry(&parts.config.ring.clone(), Box::new(parts)),
    )
    .unwrap();
    text
}

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn drained(fence: &Fence, uid: String) -> DrainGuard {
    let object = DrainingObject { name: uid.clone(), uid: uid.into(), ..fixtures::drained(things(), None, 7) };
    fence.drained(Arc::new(object), Duration::ZERO, 0)
}

#[tokio::test(start_paused = true)]
async fn what_there_is_is_what_the_documentation_names() {
    let text = text(|_, _| {});
    let there: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../docs/src/metrics.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(|name| name.split('{').next());
    let named = names.filter(|name| name.starts_with("ringside_proxy_"));
    let named: BTreeSet<&str> = named.map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    assert_eq!(there, named);
}

#[tokio::test(start_paused = true)]
async fn each_memory_that_has_a_bound_is_counted_and_so_is_what_it_forgets() {
    let text = text(|fence, views| {
        let target = |name: String| Target { resource: things(), namespace: None, name: Some(name) };
        for n in 0..4_100 {
            drop(drained(fence, format!("uid-{n}")));
            views.leaves(&fixtures::leaving(things(), None, n));
            let written =
                fence.enter(About { target: Some(target(n.to_string())), uids: std::collections::HashSet::new() });
            written.sent();
        }
        (0..1_030).for_each(|n| fence.owner_changes(&target(n.to_string())));
    });
    for (memory, entries, evictions) in [
        ("moved_objects", 4_096, 4),
        ("leaving_objects", 4_096, 4),
        ("lingering_writes", 4_096, 4),
        ("adopted_objects", 1_024, 6),
    ] {
        let of_ring = "{ring=\"example\"}";
        for line in [format!("{memory}{of_ring} {entries}.0"), format!("{memory}_evictions_total{of_ring} {evictions}")]
        {
            let line = format!("ringside_proxy_{line}");
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}

/// Alerts and dashboards are by ring, and the address of a pod says nothing of it.
#[tokio::test(start_paused = true)]
async fn every_metric_carries_the_ring() {
    let text = text(|_, _| {});
    let without: Vec<_> =
        text.lines().filter(|line| !line.starts_with('#') && !line.contains(r#"ring="example""#)).collect();
    assert!(without.is_empty(), "{without:?}");
    let answered = r#"ringside_proxy_requests_total{ring="example",verb="read",outcome="ok"} 1"#;
    assert!(text.lines().any(|line| line == answered), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_rules_and_the_dashboard_name_only_what_there_is() {
    let text = text(|_, _| {});
    let there = text.lines().filter_map(|line| line.split_once('{')).map(|(name, _)| name).collect::<BTreeSet<_>>();
    for named in [
        include_str!("../../../deploy/monitoring/rules.yaml"),
        include_str!("../../../deploy/monitoring/dashboard.json"),
        include_str!("../../../docs/src/alerts.md"),
    ] {
        let words = named.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
        let ours: BTreeSet<_> = words.filter(|word| word.starts_with("ringside_proxy_")).collect();
        assert!(!ours.is_empty());
        assert!(ours.is_subset(&there), "{:?}", ours.difference(&there));
    }
}
