//! What a client is told that lists and watches by hand, and did neither while objects moved.
//!
//! As kopf does it, whose lists do not show it what is gone. It may list right after a drain, before the proxy itself knows
//! of that: then its watch ends with 410, and it lists again.

use futures::future::join_all;
use ringside_e2e::eventually::eventually;
use serde_json::json;

use crate::{
    handover::{
        fixture::{Fixture, SOON},
        watches::{FORMATS, Format, STREAMING, Watch},
    },
    proxies::Proxies,
};

/// How often each format is tried: whether a client or the proxy is first after a drain is a matter of chance.
const ROUNDS: usize = 3;

/// What the clients here work on. So they hold nothing of the other tests after they have gone.
const APP: &str = "kopf";

/// One that keeps what it knows across lists, one that replaces it: told apart by their selectors.
const LISTS: &str = "labelSelector=app%3Dkopf";
const STREAMS: &str = "labelSelector=app+in+(kopf)";

/// A client in one of the formats.
#[derive(Clone, Copy)]
struct Client<'a> {
    fixture: &'a Fixture,
    format: Format,
}

impl Client<'_> {
    /// Lists, then watches from there.
    async fn watches(&self) -> Watch {
        let (_, list) = self.fixture.list(&format!("{LISTS}&limit=1")).await;
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        Watch::open(self.fixture, &format!("resourceVersion={from}&{LISTS}"), self.format).await
    }

    async fn streams(&self) -> Watch {
        Watch::open(self.fixture, &format!("{STREAMING}&{STREAMS}"), self.format).await
    }
}

/// Reads a watch until it has this event, and whenever it is told to list again makes another in its place. Counts what
/// all of them showed deleted.
async fn deleted_before(client: Client<'_>, mut watch: Watch, names: &[&str], last: &str) -> Vec<usize> {
    let mut counts = vec![0; names.len()];
    loop {
        let sought = format!("the watch shows {last}, or ends");
        let shown = eventually(&sought, SOON, || async {
            if watch.shows(last).await || watch.has_ended() { Ok(()) } else { Err("not yet".to_owned()) }
        });
        shown.await.unwrap();
        for (count, name) in counts.iter_mut().zip(names) {
            *count += watch.count("DELETED", name).await;
        }
        if watch.shows(last).await {
            return counts;
        }
        assert_eq!(watch.count("ERROR", "list again").await, 1, "it ends so that its client lists");
        watch = client.watches().await;
    }
}

/// What is drained, and moves on, while a client does not watch is the first that it is told when it does, once; of what is its
/// own still, or again, it is told nothing, and nothing is told who begins by a streaming list.
pub(crate) async fn a_client_is_told_once_what_moved_while_it_did_not_watch(world: &Proxies) {
    are_told_once(world, &FORMATS[..1]).await;
}

pub(crate) async fn a_client_of_any_format_is_told_once_what_moved(world: &Proxies) {
    are_told_once(world, &FORMATS[1..]).await;
}

async fn are_told_once(world: &Proxies, formats: &[Format]) {
    let told = formats.iter().map(|&format| async move {
        let fixture = &Fixture::start(world, &format!("misses-{}", format.0)).await;
        for round in 0..ROUNDS {
            is_told_once(Client { fixture, format }, &format!("{}-{round}", format.0)).await;
        }
    });
    join_all(told).await;
}

async fn is_told_once(client: Client<'_>, what: &str) {
    let fixture = client.fixture;
    let name = |which: &str| format!("{which}-{what}");
    let (moves, stays, back) = (name("moves"), name("stays"), name("back"));
    for name in [&moves, &stays, &back] {
        fixture.create_for(name, APP).await;
    }
    let (lists, streams) = (client.watches().await, client.streams().await);
    streams.until_shows("initial-events-end").await;
    lists.ends().await;
    streams.ends().await;
    fixture.drain(&back, "move-1").await;
    fixture.label(&back, &json!({&fixture.labels.drain: null})).await;
    fixture.drain(&moves, "move-1").await;

    let (lists, streams) = (client.watches().await, client.streams().await);
    let sentinel = name("sentinel");
    let goes_on = async {
        fixture.until_let_go(&moves).await;
        fixture.label(&moves, &json!({&fixture.labels.shard: "another"})).await;
        fixture.create_for(&sentinel, APP).await;
    };
    let names = [&*moves, &*stays, &*back];
    let (told, ()) = tokio::join!(deleted_before(client, lists, &names, &sentinel), goes_on);
    assert_eq!(told, [1, 0, 0], "{what}: moved, its own, its own again");
    streams.until_shows(&sentinel).await;
    assert_eq!(streams.count("DELETED", "").await, 0, "{what}: who replaces what it knew");

    let again = client.watches().await;
    let sentinel = name("another");
    fixture.create_for(&sentinel, APP).await;
    assert_eq!(deleted_before(client, again, &[&moves], &sentinel).await, [0], "it was told");
}
