//! What a proxy has to live through: many watches, readers that don't read, connections that die without a word, API
//! servers that hang and restart, credentials that are rotated.
//!
//! Most cases wait for most of their time, so all of them run at once.

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

use std::{io::Write as _, iter, sync::Arc};

use ringside_e2e::{
    case, in_cluster,
    live::{Group, Shared},
};

use self::fixture::Fixture;

/// The cases. They share a control plane, but for those that stop their API servers, or change what these start with.
pub(crate) fn group() -> Group {
    let cost = "two minutes, mostly of waiting";
    let costly = vec![
        case!("five_hundred_watches_see_an_event", many::five_hundred_watches_see_an_event(&*fixture().await)),
        case!("readers_that_never_read_delay_nobody", many::readers_that_never_read_delay_nobody(&*fixture().await)),
        case!(
            "a_watch_by_websocket_is_asked_for_signs_of_life",
            silent::a_watch_by_websocket_is_asked_for_signs_of_life(&*fixture().await)
        ),
        case!(
            "a_server_without_http2_that_hangs_is_noticed",
            silent::a_server_without_http2_that_hangs_is_noticed(&*fixture().await)
        ),
        case!(
            "what_no_question_reaches_stays_silent",
            silent::what_no_question_reaches_stays_silent(&*fixture().await)
        ),
        case!("packets_that_vanish_are_noticed", silent::packets_that_vanish_are_noticed(&*fixture().await))
            .unless(network::unavailable),
        case!(
            "a_token_is_rotated_while_the_proxy_runs",
            rotation::a_token_is_rotated_while_the_proxy_runs(&*fixture().await)
        ),
        case!(
            "an_address_that_swallows_everything_costs_a_moment",
            addresses::an_address_that_swallows_everything_costs_a_moment(&*fixture().await)
        )
        .unless(addresses::unavailable),
        case!(
            "clients_recover_from_an_api_server_that_hangs_and_restarts",
            restarts::clients_recover_from_an_api_server_that_hangs_and_restarts(Fixture::start().await)
        ),
        case!(
            "certificates_and_authorities_are_rotated_while_the_proxy_runs",
            rotation::certificates_and_authorities_are_rotated_while_the_proxy_runs(Fixture::start().await)
        ),
        case!(
            "what_a_kubelet_projects_is_rotated_while_the_proxy_runs",
            rotation::what_a_kubelet_projects_is_rotated_while_the_proxy_runs(Fixture::start().await)
        )
        .unless(in_cluster::unavailable),
        case!(
            "one_of_two_api_servers_is_killed_or_hangs",
            addresses::one_of_two_api_servers_is_killed_or_hangs(Fixture::start().await)
        )
        .unless(addresses::unavailable),
        case!(restarts::operators_recover_from_an_api_server_that_restarts).works(),
    ];
    // The shortest of those that show that a silent API server is noticed.
    let short = case!(
        "a_server_that_is_gone_behind_a_live_connection_is_noticed",
        silent::a_server_that_is_gone_behind_a_live_connection_is_noticed(&*fixture().await)
    );
    let costly = costly.into_iter().map(|case| case.costs(cost));
    let cases = iter::once(short).chain(costly).collect();
    Group::new("endurance", cases).ends(|| FIXTURE.end()).settles(page::settle)
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}

/// Shows a figure.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "    {line}");
}
