//! What only a real node shows: pods, their containers and their tokens. One node for all cases, as far as they don't
//! start their own. Where there can be none, all are ignored, and it is said why.
#![allow(clippy::unwrap_used)]

mod lifecycle;

use std::{future::Future, io::Write as _, pin::Pin, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Trial};
use ringside_e2e::{
    control_plane::Options,
    node::{Node, Requirements, with_node},
};
use tokio::runtime::Handle;

type Case = fn(Arc<Node>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A case under the name of its function.
macro_rules! case {
    ($($name:ident)::+) => {
        (concat!($("::", stringify!($name)),+).trim_start_matches("::"), |node| Box::pin($($name)::+(node)))
    };
}

fn cases() -> Vec<(&'static str, Case)> {
    vec![
        case!(lifecycle::gone_after_sigkill_of_the_owner),
        case!(lifecycle::gone_after_an_interrupt),
        case!(lifecycle::without_root_one_line_says_so),
    ]
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Err(missing) = Requirements::check() {
        return ignore_all(&arguments, &missing.to_string());
    }
    // Nothing to run, and no node needed for that.
    if arguments.list || trials(|_| Ok(Completion::Completed)).iter().all(|trial| arguments.is_filtered_out(trial)) {
        return ignore_all(&arguments, "");
    }
    let options = Options { audit: true, ..Options::default() };
    with_node(options, async |node| {
        let node = Arc::new(node);
        let handle = Handle::current();
        let shared = Arc::clone(&node);
        let trials = trials(move |case| {
            handle.block_on(case(Arc::clone(&shared)));
            Ok(Completion::Completed)
        });
        let conclusion = tokio::task::block_in_place(|| libtest_mimic::run(&arguments, trials));
        if conclusion.has_failed() {
            let _ = writeln!(std::io::stderr(), "the logs are kept in {:?}", node.keep_logs());
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
