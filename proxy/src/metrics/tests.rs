#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::{
    admin::{Health, Probe},
    clock::TokioClock,
};

use super::*;
use crate::{
    access::Handout,
    controller::Mode,
    election::hold::tests::Server,
    fence::{About, Guard, Moving, Target},
    views::fixtures,
};

fn live() -> Live {
    let (views, check) = (Views::new(), Health::new().check("controller", Probe::Note));
    Live {
        controller: Controller::new(Mode::Always, Duration::from_secs(15), views.clone(), false, check),
        views,
        drains: Drains::new(),
        fence: Fence::new(false),
        budget: Budget::default(),
        gaps: Gaps::new(Handout::to("/dev/null".into()), 0, Health::new().check("gap", Probe::Controller)),
        hold: Arc::new(Server::default().hold()),
        tenure: Arc::default(),
        clock: Clock(Arc::new(TokioClock::start())),
    }
}

/// Everything that there is, with a value for each, after something has happened.
fn text(happens: impl FnOnce(&Fence, &Views)) -> String {
    let (metrics, live) = (Metrics::default(), live());
    metrics.answered(Verb::Get, StatusCode::OK);
    metrics.refused("not_ours");
    metrics.unseen("subresource");
    metrics.foreign("passed");
    metrics.unlabelled("labelled");
    happens(&live.fence, &live.views);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics.registry(live)).unwrap();
    text
}

fn things() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "things".into() }
}

fn drained(fence: &Fence, uid: String) -> Guard {
    let object = Moving { resource: things(), namespace: None, name: uid.clone(), uid: uid.into() };
    fence.drained(object, &"7".parse().unwrap(), Duration::ZERO, 0)
}

#[tokio::test(start_paused = true)]
async fn what_there_is_is_what_the_documentation_names() {
    let text = text(|_, _| {});
    let there: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../docs/read-the-metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    let named = rows.filter(|name| name.starts_with("ringside_proxy_"));
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
        (0..1_030).for_each(|n| fence.adopts(&target(n.to_string())));
    });
    for (memory, entries, evictions) in [
        ("moved_objects", 4_096, 4),
        ("leaving_objects", 4_096, 4),
        ("lingering_writes", 4_096, 4),
        ("adopted_objects", 1_024, 6),
    ] {
        for line in [format!("{memory} {entries}.0"), format!("{memory}_evictions_total {evictions}")] {
            let line = format!("ringside_proxy_{line}");
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}
