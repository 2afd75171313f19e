//! What a proxy has to live through: many watches, readers that don't read, connections that die without a word, API
//! servers that hang and restart, credentials that are rotated.
//!
//! Most cases wait for most of their time, so all of them run at once.
#![allow(clippy::unwrap_used)]

mod addresses;
mod follower;
mod ground;
mod http2;
mod load_balancer;
mod many;
mod network;
mod page;
mod restarts;
mod rotation;
mod silent;
mod websocket;

use std::{
    io::Write as _,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use ringside_e2e::in_cluster;
use tokio::runtime::Runtime;

use self::{
    ground::{Ground, LogsOnPanic},
    page::Page,
};

/// What there is to say against a case on this machine.
type Obstacle = fn() -> Option<String>;

/// Cases that leave the control plane as it is, and so share one.
type Sharing = for<'a> fn(&'a Ground) -> BoxFuture<'a, ()>;
const SHARING: [(&str, Obstacle, Sharing); 9] = [
    ("five_hundred_watches_see_an_event", none, |ground| Box::pin(many::five_hundred_watches_see_an_event(ground))),
    ("readers_that_never_read_delay_nobody", none, |ground| {
        Box::pin(many::readers_that_never_read_delay_nobody(ground))
    }),
    ("a_server_that_is_gone_behind_a_live_connection_is_noticed", none, |ground| {
        Box::pin(silent::a_server_that_is_gone_behind_a_live_connection_is_noticed(ground))
    }),
    ("a_watch_by_websocket_is_asked_for_signs_of_life", none, |ground| {
        Box::pin(silent::a_watch_by_websocket_is_asked_for_signs_of_life(ground))
    }),
    ("a_server_without_http2_that_hangs_is_noticed", none, |ground| {
        Box::pin(silent::a_server_without_http2_that_hangs_is_noticed(ground))
    }),
    ("what_no_question_reaches_stays_silent", none, |ground| {
        Box::pin(silent::what_no_question_reaches_stays_silent(ground))
    }),
    ("packets_that_vanish_are_noticed", network::unavailable, |ground| {
        Box::pin(silent::packets_that_vanish_are_noticed(ground))
    }),
    ("a_token_is_rotated_while_the_proxy_runs", none, |ground| {
        Box::pin(rotation::a_token_is_rotated_while_the_proxy_runs(ground))
    }),
    ("an_address_that_swallows_everything_costs_a_moment", addresses::unavailable, |ground| {
        Box::pin(addresses::an_address_that_swallows_everything_costs_a_moment(ground))
    }),
];

/// Cases that stop their API servers, or change what those are started with.
type Owning = fn(Ground) -> BoxFuture<'static, Ground>;
const OWNING: [(&str, Obstacle, Owning); 4] = [
    ("clients_recover_from_an_api_server_that_hangs_and_restarts", none, |ground| {
        Box::pin(restarts::clients_recover_from_an_api_server_that_hangs_and_restarts(ground))
    }),
    ("certificates_and_authorities_are_rotated_while_the_proxy_runs", none, |ground| {
        Box::pin(rotation::certificates_and_authorities_are_rotated_while_the_proxy_runs(ground))
    }),
    ("what_a_kubelet_projects_is_rotated_while_the_proxy_runs", in_cluster::unavailable, |ground| {
        Box::pin(rotation::what_a_kubelet_projects_is_rotated_while_the_proxy_runs(ground))
    }),
    ("one_of_two_api_servers_is_killed_or_hangs", addresses::unavailable, |ground| {
        Box::pin(addresses::one_of_two_api_servers_is_killed_or_hangs(ground))
    }),
];

fn none() -> Option<String> {
    None
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let runtime = Arc::new(Runtime::new().unwrap());
    let page = Arc::new(Page::default());
    let trials = trials(&runtime, &page);
    // By default there would be as many as processors.
    arguments.test_threads = arguments.test_threads.or(Some(trials.len()));
    let seen = libtest_mimic::run(&arguments, trials);
    let whole = seen.num_filtered_out == 0 && seen.num_ignored == 0 && !seen.has_failed() && !arguments.list;
    let settle = Trial::test("docs/compatibility.md says what was seen", move || page.settle().map_err(Failed::from));
    let settled = libtest_mimic::run(&arguments, vec![settle.with_ignored_flag(!whole)]);
    if seen.has_failed() { seen.exit_code() } else { settled.exit_code() }
}

fn trials(runtime: &Arc<Runtime>, page: &Arc<Page>) -> Vec<Trial> {
    let trial = |name, obstacle, case| trial(page, name, obstacle, case);
    let shared = Arc::new(Mutex::new(Weak::new()));
    let sharing = SHARING.map(|(name, obstacle, case)| {
        let (shared, runtime) = (shared.clone(), runtime.clone());
        let run = move || {
            let ground = one_for_all(&shared, &runtime);
            let _logs = LogsOnPanic(&ground);
            runtime.block_on(case(&ground));
        };
        trial(name, obstacle, Box::new(run))
    });
    let owning = OWNING.map(|(name, obstacle, case)| {
        let runtime = runtime.clone();
        trial(name, obstacle, Box::new(move || drop(runtime.block_on(async { case(Ground::start().await).await }))))
    });
    let own_system = {
        let runtime = runtime.clone();
        let run = move || runtime.block_on(restarts::operators_recover_from_an_api_server_that_restarts());
        trial("operators_recover_from_an_api_server_that_restarts", none, Box::new(run))
    };
    sharing.into_iter().chain(owning).chain([own_system]).collect()
}

fn trial(page: &Arc<Page>, name: &'static str, obstacle: Obstacle, case: Box<dyn FnOnce() + Send>) -> Trial {
    let page = Arc::clone(page);
    Trial::ignorable_test(name, move || {
        if let Some(why) = obstacle() {
            return Ok(Completion::ignored_with(why));
        }
        case();
        page.saw(name);
        Ok(Completion::Completed)
    })
}

/// The control plane of those that are at it; gone with the last of them.
fn one_for_all(shared: &Mutex<Weak<Ground>>, runtime: &Runtime) -> Arc<Ground> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let ground = Arc::new(runtime.block_on(Ground::start()));
        *shared = Arc::downgrade(&ground);
        ground
    })
}

/// A figure, for whoever looks at the output.
fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "    {line}");
}
