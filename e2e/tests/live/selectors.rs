//! Selectors, queries and paths mean to the proxy what they mean to the API server: whatever is asked of both is accepted
//! or refused alike, and of the ring's objects the proxy shows those of its shard, all of them and no others.
//!
//! The requests are generated from a fixed seed; `--include-ignored` asks many more, from a seed of their own. A
//! failure names the seed and the least request that shows it.

mod generate;
mod sides;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use generate::{WATCH, collection, encoded, method, namespaced_collection, path, query, selector, watch_flags};
use http::{Method, StatusCode};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use sides::{Answer, Content, Sides};
use tokio::runtime::Handle;

use ringside_e2e::{
    case,
    live::{Ability, Group},
};

/// The cases.
pub(crate) fn group() -> Group {
    let few = case!(the_proxy_reads_requests_as_the_api_server_does);
    let many = case!(the_proxy_reads_many_requests_as_the_api_server_does);
    Group::new("selectors", vec![few, many.costs("minutes: 15,000 generated requests")])
}

/// One request in each of the five kinds below.
const CASES: u32 = 200;
/// Of the ignored test.
const MANY: u32 = 3_000;
const SEED: u64 = 0x5e1e_c704;

async fn the_proxy_reads_requests_as_the_api_server_does() {
    all(CASES, SEED).await;
}

async fn the_proxy_reads_many_requests_as_the_api_server_does() {
    all(MANY, rand::random()).await;
}

async fn all(cases: u32, seed: u64) {
    let sides = Sides::start().await;
    let key = || sides.labels.shard.clone();
    let check = |name, requests: BoxedStrategy<(Method, String)>, exempt: Exempt| {
        tokio::task::block_in_place(|| run(&sides, name, cases, seed, &requests, exempt));
    };
    let lists = (collection(), encoded(selector(key())));
    let lists = lists.prop_map(|(path, selector)| (Method::GET, format!("{path}?labelSelector={selector}")));
    check("selectors of lists", lists.boxed(), none);
    let watches = (collection(), watch_flags(), encoded(selector(key())));
    let watches = watches.prop_map(|(path, flags, selector)| {
        (Method::GET, format!("{path}?{flags}&{WATCH}&labelSelector={selector}&labelSelector=app"))
    });
    // Elsewhere nothing says where the state ends that a watch begins with.
    if Ability::StreamingLists.is_there() {
        check("selectors of watches", watches.boxed(), none);
    }
    let deletes = (namespaced_collection(), encoded(selector(key())));
    let deletes =
        deletes.prop_map(|(path, selector)| (Method::DELETE, format!("{path}?dryRun=All&labelSelector={selector}")));
    check("selectors of deletions", deletes.boxed(), none);
    let queries = (collection(), query(key())).prop_map(|(path, query)| (Method::GET, format!("{path}?{query}")));
    check("queries", queries.boxed(), none);
    let paths = (method(), path()).prop_map(|(method, path)| {
        let query = if path.contains("watch") { format!("?watch=1&{WATCH}") } else { String::new() };
        (method, format!("{path}{query}"))
    });
    check("paths", paths.boxed(), unclean);
}

/// What may be refused although the API server does not refuse it, or in other words: why.
type Exempt = fn(&str) -> Option<&'static str>;

fn none(_: &str) -> Option<&'static str> {
    None
}

/// A path that servers before the API server may clean up, each in its own way. The API server answers most of them with
/// 404; it accepts `namespaces//configmaps`, which cleaned is another resource, and dots behind a subresource.
fn unclean(target: &str) -> Option<&'static str> {
    let path = target.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let path = path.replace("%2f", "/").replace("%2e", ".");
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    if segments.iter().any(|segment| matches!(*segment, "." | "..")) {
        Some("dot segments")
    } else if !matches!(segments[0], "api" | "apis") && segments.iter().any(|it| matches!(*it, "api" | "apis")) {
        Some("the API behind a prefix")
    } else {
        segments.contains(&"").then_some("empty segments")
    }
}

/// In a hundred requests: what the API server accepts and the proxy refuses, for one of the reasons above.
const EXEMPT: u32 = 2;

#[derive(Default)]
struct Counts {
    accepted: Cell<u32>,
    refused: Cell<u32>,
    /// By the proxy alone.
    exempt: Cell<u32>,
    /// What the proxy answers with another status, by reason and both statuses: how often, and an example.
    otherwise: RefCell<BTreeMap<String, (u32, String)>>,
}

fn run(sides: &Sides, name: &str, cases: u32, seed: u64, requests: &BoxedStrategy<(Method, String)>, exempt: Exempt) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let counts = Counts::default();
    let outcome = runner.run(requests, |(method, target)| {
        // What an HTTP client can't send is no request.
        prop_assume!(target.parse::<http::Uri>().is_ok() && target.starts_with('/'));
        let (direct, proxied) = Handle::current().block_on(sides.ask(&method, &target));
        if let Some(reason) =
            exempt(&target).filter(|_| direct.status != proxied.status && proxied.status == StatusCode::BAD_REQUEST)
        {
            counts.exempt.set(counts.exempt.get() + u32::from(direct.status.is_success()));
            let kind = format!("{reason}: {} by the API server, {} by the proxy", direct.status, proxied.status);
            counts.otherwise.borrow_mut().entry(kind).or_insert((0, target)).0 += 1;
            return Ok(());
        }
        let count = if direct.status.is_success() { &counts.accepted } else { &counts.refused };
        count.set(count.get() + 1);
        compare(sides, &direct, &proxied).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, (method, target))) => panic!("{name}, seed {seed:#x}: {method} {target}: {reason}"),
        Err(error) => panic!("{name}, seed {seed:#x}: {error}"),
    }
    let (accepted, refused) = (counts.accepted.get(), counts.refused.get());
    eprintln!("{name}: {accepted} accepted, {refused} refused, by both alike");
    for (kind, (count, example)) in counts.otherwise.into_inner() {
        eprintln!("  {count} with {kind}, such as {example}");
    }
    let exempt = counts.exempt.get();
    assert!(exempt <= cases * EXEMPT / 100, "{name}: {exempt} of {cases} requests are refused by the proxy alone");
    assert!(accepted > cases / 10, "{name}: only {accepted} of {cases} requests were accepted: what do they show?");
}

fn compare(sides: &Sides, direct: &Answer, proxied: &Answer) -> Result<(), String> {
    if direct.status != proxied.status {
        return Err(format!("the API server answers {}, the proxy {}", direct.status, proxied.status));
    }
    match (&direct.content, &proxied.content) {
        (Content::Objects(all), Content::Objects(shown)) => {
            let expected: Vec<_> = all.iter().filter(|it| !sides.is_in_ring(it) || sides.is_mine(it)).collect();
            if shown.iter().eq(expected.iter().copied()) { Ok(()) } else { Err(difference(&expected, shown)) }
        }
        (direct, proxied) if direct == proxied => Ok(()),
        (direct, proxied) => Err(format!("the API server shows {direct:?}, the proxy {proxied:?}")),
    }
}

fn difference(expected: &[&serde_json::Value], shown: &[serde_json::Value]) -> String {
    let name = |object: &serde_json::Value| {
        let metadata = &object["metadata"];
        format!("{}/{}", metadata["namespace"].as_str().unwrap_or(""), metadata["name"].as_str().unwrap_or(""))
    };
    let expected: Vec<_> = expected.iter().map(|object| name(object)).collect();
    let shown: Vec<_> = shown.iter().map(name).collect();
    format!("of the shard are {expected:?}, the proxy shows {shown:?}")
}
