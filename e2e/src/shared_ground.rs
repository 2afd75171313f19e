//! Cases of one test that stand on the same ground, which is started once, each a trial of its own. Where each has a ground of
//! its own the common one is nothing: as libtest's, but for how many run at once.

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Trial};
use tokio::runtime::Runtime;

/// A case: its name, and what it does on the ground.
#[derive(Debug)]
pub struct Case<G: 'static> {
    name: &'static str,
    obstacle: fn() -> Option<String>,
    run: for<'a> fn(&'a G) -> BoxFuture<'a, ()>,
}

impl<G> Clone for Case<G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G> Copy for Case<G> {}

impl<G> Case<G> {
    /// A case that can be run everywhere.
    #[must_use]
    pub const fn new(name: &'static str, run: for<'a> fn(&'a G) -> BoxFuture<'a, ()>) -> Self {
        Self { name, obstacle: || None, run }
    }

    /// The same, ignored where there is something to say against it.
    #[must_use]
    pub const fn unless(self, obstacle: fn() -> Option<String>) -> Self {
        Self { obstacle, ..self }
    }
}

/// Runs the cases that the process' arguments ask for, so many at once where these don't say.
///
/// # Panics
/// After a case that failed: a ground that goes with a panic leaves its logs.
pub fn run<G, F>(runtime: &Runtime, threads: Option<usize>, cases: &[Case<G>], start: fn() -> F) -> ExitCode
where
    G: Send + Sync + 'static,
    F: Future<Output = G> + 'static,
{
    // Started by the first case that runs: some only list the cases.
    let ground: Arc<OnceLock<G>> = Arc::default();
    let trial = |&case: &Case<G>| {
        let (ground, handle) = (Arc::clone(&ground), runtime.handle().clone());
        Trial::ignorable_test(case.name, move || {
            if let Some(reason) = (case.obstacle)() {
                return Ok(Completion::ignored_with(reason));
            }
            let ground = ground.get_or_init(|| handle.block_on(start()));
            handle.block_on((case.run)(ground));
            Ok(Completion::Completed)
        })
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(threads);
    let conclusion = libtest_mimic::run(&arguments, cases.iter().map(trial).collect());
    assert!(!conclusion.has_failed(), "the ground of these cases goes now");
    conclusion.exit_code()
}
