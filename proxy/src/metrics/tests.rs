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
    election::hold::tests::Server,
    fence::{Guard, Moving},
};

fn live() -> Live {
    Live {
        views: Views::new(),
        drains: Drains::new(),
        fence: Fence::new(false),
        gaps: Gaps::new(Handout::to("/dev/null".into()), 0, Health::new().check("gap", Probe::Controller)),
        hold: Arc::new(Server::default().hold()),
        tenure: Arc::default(),
        clock: Clock(Arc::new(TokioClock::start())),
    }
}

/// Everything that there is, with a value for each, and a fence that has let something go.
fn text(fence: impl FnOnce(&Fence)) -> String {
    let (metrics, live) = (Metrics::default(), live());
    metrics.answered(Verb::Get, StatusCode::OK);
    metrics.refused("not_ours");
    metrics.unseen("subresource");
    fence(&live.fence);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &metrics.registry(live)).unwrap();
    text
}

fn drained(fence: &Fence, uid: String) -> Guard {
    let resource = GroupResource { group: "x.io".into(), resource: "things".into() };
    let object = Moving { resource, namespace: None, name: uid.clone(), uid: uid.into() };
    fence.drained(object, &"7".parse().unwrap(), Duration::ZERO)
}

#[tokio::test(start_paused = true)]
async fn what_there_is_is_what_the_documentation_names() {
    let text = text(|_| {});
    let there: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let page = include_str!("../../../docs/read-the-metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    let named = rows.filter(|name| name.starts_with("ringside_proxy_"));
    let named: BTreeSet<&str> = named.map(|name| name.strip_suffix("_total").unwrap_or(name)).collect();
    assert_eq!(there, named);
}

#[tokio::test(start_paused = true)]
async fn what_the_fence_remembers_and_forgets_is_counted() {
    let text = text(|fence| (0..4_100).for_each(|n| drop(drained(fence, format!("uid-{n}")))));
    for line in ["ringside_proxy_moved_objects 4096.0", "ringside_proxy_moved_objects_evictions_total 4"] {
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }
}
