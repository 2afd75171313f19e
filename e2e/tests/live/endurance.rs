//! What a proxy has to live through: many watches, readers that don't read, connections that die without a word, API
//! servers that hang and restart, credentials that are rotated.

mod addresses;
mod clients;
mod fixture;
mod follower;
mod load_balancer;
mod many;
mod network;
mod page;
mod restarts;
mod rotation;
mod silent;

use std::{io::Write as _, sync::Arc};

use ringside_e2e::{
    case, in_cluster,
    live::{Ability, Group, Shared},
};

use crate::proxies::Proxies;

/// A case that shares the control plane.
macro_rules! shared {
    ($run:path) => {
        case!(stringify!($run), $run(&*fixture().await))
    };
}

/// A case that stops its API servers, or changes what these start with.
macro_rules! own {
    ($run:path) => {
        case!(stringify!($run), $run(fixture::start().await))
    };
}

/// The cases. Those that assert that a silence is noticed in time run alone.
pub(crate) fn group() -> Group {
    let costly = vec![
        shared!(many::five_hundred_watches_see_an_event),
        shared!(many::readers_that_never_read_delay_no_other),
        shared!(silent::a_server_without_http2_that_hangs_is_noticed).alone(),
        shared!(silent::packets_that_vanish_are_noticed).unless(network::unavailable).alone(),
        own!(restarts::clients_recover_from_an_api_server_that_hangs_and_restarts).alone(),
        own!(rotation::credentials_are_rotated_while_proxies_run).unless(in_cluster::unavailable),
        own!(addresses::one_of_two_api_servers_is_killed_or_hangs).unless(addresses::unavailable).alone(),
    ];
    let mut cases: Vec<_> = costly.into_iter().map(|case| case.costs("two minutes, mostly of waiting")).collect();
    cases.push(shared!(silent::a_server_that_is_gone_behind_a_live_connection_is_noticed));
    let cases = cases.into_iter().map(|case| case.asks_for(Ability::StreamingLists)).collect();
    Group::new("endurance", cases).ends(|| FIXTURE.end()).settles(page::settle)
}

static FIXTURE: Shared<Proxies> = Shared::new();

async fn fixture() -> Arc<Proxies> {
    FIXTURE.get(async || fixture::start().await).await
}

/// Shows a figure.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "    {line}");
}
