//! What only a real node shows: pods, their containers and their tokens. One node for all cases, as far as they don't
//! start their own. Where there can be none, all are ignored, and it is said why.
#![allow(clippy::unwrap_used)]

mod audit;
mod deployed;
mod lifecycle;
mod streams;

use std::{future::Future, io::Write as _, pin::Pin, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Trial};
use ringside_e2e::{
    control_plane::Options,
    node::{Node, Requirements, with_node},
    toolchain::{self, Environment, RingsidePrograms},
};
use tokio::{
    runtime::Handle,
    sync::{OnceCell, RwLock},
};

use self::{deployed::Deployed, streams::Streams};

/// How many cases run at once: most of them wait.
const THREADS: usize = 8;

type Case = fn(Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the cases share.
pub(crate) struct Shared {
    pub(crate) node: Node,
    programs: RingsidePrograms,
    /// Sharder and shards in pods, for the cases that need them.
    deployed: OnceCell<Deployed>,
    /// A pod and ways to it, for the cases about streams.
    streams: OnceCell<Streams>,
    /// Written by who restarts the kubelet: that ends the streams that it serves.
    pub(crate) kubelet: RwLock<()>,
}

impl Shared {
    /// The system in pods, installed by the first case that asks.
    pub(crate) async fn deployed(&self) -> &Deployed {
        self.deployed.get_or_init(|| Deployed::install(&self.node)).await
    }
}

/// A case under the name of its function.
macro_rules! case {
    ($($name:ident)::+) => {
        (concat!($("::", stringify!($name)),+).trim_start_matches("::"), |shared| Box::pin($($name)::+(shared)))
    };
}

fn cases() -> Vec<(&'static str, Case)> {
    vec![
        case!(deployed::token::a_rotated_token_is_used_and_the_lease_kept),
        case!(deployed::sharing::replicas_share_the_work),
        case!(deployed::sharing::a_controller_with_nothing_but_the_in_cluster_folder_has_its_share),
        case!(deployed::changes::a_rolling_update_leaves_every_object_owned),
        case!(deployed::changes::a_deleted_pod_ends_in_order_and_lets_go_of_its_lease),
        case!(deployed::confinement::runs_as_confined_as_its_manifest_says),
        case!(streams::exec::output_and_exit_code_are_the_same),
        case!(streams::exec::a_command_that_is_not_there_is_refused_alike),
        case!(streams::exec::much_input_arrives_whole_and_its_end_is_seen),
        case!(streams::exec::much_output_arrives_whole),
        case!(streams::exec::much_goes_both_ways_at_once),
        case!(streams::exec::each_protocol_is_spoken),
        case!(streams::terminal::a_terminal_has_the_size_of_ours_and_follows_it),
        case!(streams::attach::input_reaches_it_and_its_output_comes_back),
        case!(streams::logs::logs_are_the_same),
        case!(streams::port_forward::much_comes_back_whole),
        case!(streams::port_forward::the_end_that_the_pod_makes_is_seen_after_all_it_sent),
        case!(streams::ends::with_its_client),
        case!(streams::ends::with_the_proxy),
        case!(streams::ends::with_the_lease),
        case!(lifecycle::gone_after_sigkill_of_the_owner),
        case!(lifecycle::gone_after_an_interrupt),
        case!(lifecycle::without_root_one_line_says_so),
    ]
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    if let Err(missing) = Requirements::check() {
        return ignore_all(&arguments, &missing.to_string());
    }
    // Nothing to run, and no node needed for that.
    if arguments.list || trials(|_| Ok(Completion::Completed)).iter().all(|trial| arguments.is_filtered_out(trial)) {
        return ignore_all(&arguments, "");
    }
    // Before the network is one without a way to registries.
    let programs = toolchain::ringside(&Environment::of_process()).unwrap();
    let options = Options { audit: true, ..Options::default() };
    with_node(options, async |node| {
        let (deployed, streams) = (OnceCell::new(), OnceCell::new());
        let shared = Arc::new(Shared { node, programs, deployed, streams, kubelet: RwLock::new(()) });
        let (handle, of_cases) = (Handle::current(), Arc::clone(&shared));
        let trials = trials(move |case| {
            handle.block_on(case(Arc::clone(&of_cases)));
            Ok(Completion::Completed)
        });
        let conclusion = tokio::task::block_in_place(|| libtest_mimic::run(&arguments, trials));
        if conclusion.has_failed() {
            let _ = writeln!(std::io::stderr(), "the logs are kept in {:?}", shared.node.keep_logs());
        }
        conclusion.exit_code()
    })
    .unwrap()
}

fn trials<F>(run: F) -> Vec<Trial>
where
    F: Fn(Case) -> Result<Completion, libtest_mimic::Failed> + Clone + Send + 'static,
{
    let trial = |(name, case): (&str, Case)| {
        let run = run.clone();
        Trial::ignorable_test(name, move || run(case))
    };
    cases().into_iter().map(trial).collect()
}

fn ignore_all(arguments: &Arguments, why: &str) -> ExitCode {
    let why = why.to_owned();
    libtest_mimic::run(arguments, trials(move |_| Ok(Completion::ignored_with(&why)))).exit_code()
}
