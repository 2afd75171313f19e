//! What only a real node shows: pods, their containers and their tokens. One node for all cases, as far as they don't
//! start their own. Where there can be none, all are ignored, and it is said why.
#![allow(clippy::unwrap_used)]

mod audit;
mod cases;
mod deployed;
mod lifecycle;
mod once;
mod streams;

use std::{io::Write as _, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use ringside_e2e::{
    compatibility::{Ledger, Section, Task, table},
    control_plane::Options,
    node::{Node, Requirements, with_node},
    toolchain::{self, Environment, RingsidePrograms},
};
use tokio::{runtime::Handle, sync::RwLock};

use self::{
    cases::Case,
    deployed::{Deployed, kopf::Interpreter},
    once::Once,
    streams::Streams,
};

/// How many cases run at once: most of them wait.
const THREADS: usize = 8;

/// What is written of the page about compatibility.
const SECTION: Section = Section { name: "pods", test: "node" };

/// What the cases share.
pub(crate) struct Shared {
    pub(crate) node: Node,
    programs: RingsidePrograms,
    /// What kopf runs with, where it is.
    pub(crate) python: Option<Interpreter>,
    /// Sharder and shards in pods, for the cases that need them.
    deployed: Once<Deployed>,
    /// A pod and ways to it, for the cases about streams.
    streams: Once<Streams>,
    /// Written by who restarts the kubelet: that ends the streams that it serves.
    pub(crate) kubelet: RwLock<()>,
}

impl Shared {
    /// The system in pods, installed by the first case that asks.
    pub(crate) async fn deployed(&self) -> &Deployed {
        self.deployed.get(Deployed::install(&self.node)).await
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    // Nothing to run, and no node needed for that.
    if arguments.list || trials(|_, _| Ok(Completion::Completed)).iter().all(|trial| arguments.is_filtered_out(trial)) {
        return ignore_all(&arguments, "");
    }
    if let Err(missing) = Requirements::check() {
        return ignore_all(&arguments, &missing.to_string());
    }
    // Before the network is one without a way to registries.
    let environment = Environment::of_process();
    let programs = toolchain::ringside(&environment).unwrap();
    let python = toolchain::without_python(&environment).is_none().then(Interpreter::of_machine);
    let options = Options { audit: true, ..Options::default() };
    let conclusions = with_node(options, async |node| {
        let (deployed, streams) = (Once::new(), Once::new());
        let shared = Arc::new(Shared { node, programs, python, deployed, streams, kubelet: RwLock::new(()) });
        tokio::task::block_in_place(|| run(&arguments, &shared))
    });
    let [seen, settled] = conclusions.unwrap();
    if seen.has_failed() { seen.exit_code() } else { settled.exit_code() }
}

/// Runs the cases, and when none was left out and none has failed, sees to it that the page says what was seen.
fn run(arguments: &Arguments, shared: &Arc<Shared>) -> [Conclusion; 2] {
    let ledger = Arc::new(Ledger::default());
    let (handle, of_cases, noted) = (Handle::current(), Arc::clone(shared), Arc::clone(&ledger));
    let trials = trials(move |place, case| {
        handle.block_on((case.run)(Arc::clone(&of_cases)));
        if let Some(row) = case.row() {
            noted.note(place, row);
        }
        Ok(Completion::Completed)
    });
    let seen = libtest_mimic::run(arguments, trials);
    if seen.has_failed() {
        let _ = writeln!(std::io::stderr(), "the logs are kept in {:?}", shared.node.keep_logs());
    }
    let whole = seen.num_filtered_out == 0 && !seen.has_failed();
    let settle = move || SECTION.settle(&table(&ledger.rows()), Task::of_process()).map_err(Failed::from);
    let page = Trial::test("docs/compatibility.md says what was seen", settle).with_ignored_flag(!whole);
    [seen, libtest_mimic::run(arguments, vec![page])]
}

fn trials<F>(run: F) -> Vec<Trial>
where
    F: Fn(usize, Case) -> Result<Completion, Failed> + Clone + Send + 'static,
{
    let trial = |(place, case): (usize, Case)| {
        let run = run.clone();
        Trial::ignorable_test(case.name, move || match (case.obstacle)() {
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => run(place, case),
        })
    };
    cases::all().into_iter().enumerate().map(trial).collect()
}

fn ignore_all(arguments: &Arguments, why: &str) -> ExitCode {
    let why = why.to_owned();
    libtest_mimic::run(arguments, trials(move |_, _| Ok(Completion::ignored_with(&why)))).exit_code()
}
