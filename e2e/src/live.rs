//! The runner of live tests: one program, in which each case gets the share of the machine that it needs.
//!
//! A case panics when it fails. Some cost more than a change is worth: these are left to `--include-ignored`.
//! A case that failed while others ran is run once more, alone: the machine may have been too busy. The end
//! of the output names those that passed only then. A broken assertion is run again too, as most are about what is so after a
//! time. Of a strict case, which is about what may never happen, it is not.

mod case;
mod fixture;

use std::{
    any::Any,
    collections::BTreeMap,
    io::Write as _,
    panic::{AssertUnwindSafe, resume_unwind},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::{runtime::Handle, sync::Semaphore, time::timeout};

pub use self::{
    case::{Case, Group, Weight},
    fixture::Shared,
};
use crate::process::keep_all_logs;

/// What all cases that run at once may weigh together, and so how many can.
const CAPACITY: u32 = 16;

/// A case that is still at it hangs.
const CASE_TIMEOUT: Duration = Duration::from_secs(900);

/// How many of the slowest cases are named at the end.
const NAMED_SLOWEST: usize = 15;

/// What the trials share.
struct Stage {
    handle: Handle,
    tokens: Semaphore,
    /// The cases of each group that have not ended, and those that have passed.
    open: Mutex<BTreeMap<&'static str, Open>>,
    seconds: Mutex<Vec<(Duration, String)>>,
    /// The cases that passed only when they ran alone.
    passed_alone: Mutex<Vec<String>>,
    /// Whether cases run that cost too much for every change.
    all: bool,
}

/// Writes what the cases of a group saw.
type Settle = fn() -> Result<(), String>;

/// A group while its cases run.
struct Open {
    left: usize,
    /// Whether each case so far ran, and passed.
    whole: bool,
    ends: fn(),
    settles: Option<Settle>,
}

/// What came of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// What came of one attempt at a case.
enum Attempt {
    Ended(Result<(), String>),
    Panicked(Box<dyn Any + Send>),
}

/// Whether it is the panic of an unwrapped [`TimedOut`](crate::eventually::TimedOut).
fn missed_deadline(panic: &(dyn Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|message| message.contains("TimedOut {"))
}

/// Notes the end of a case, also of one that panics.
struct EndGuard<'a> {
    stage: &'a Stage,
    group: &'static str,
    outcome: Outcome,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.stage.end(self.group, self.outcome);
    }
}

/// Cases, and what the process' arguments ask of them.
pub struct Runner {
    arguments: Arguments,
    cases: Vec<(&'static str, Case)>,
    open: BTreeMap<&'static str, Open>,
    /// As in [`Stage`].
    all: bool,
}

/// Runs the cases that the process' arguments ask for, and says which took longest.
///
/// # Panics
/// When there can be no runtime.
#[must_use]
pub fn run(groups: Vec<Group>) -> ExitCode {
    Runner::of_process(groups).run()
}

impl Runner {
    /// Reads the process' arguments.
    #[must_use]
    pub fn of_process(groups: Vec<Group>) -> Self {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(Some(CAPACITY as usize));
        let all = arguments.include_ignored || arguments.ignored;
        let (mut cases, mut open) = (Vec::new(), BTreeMap::new());
        for group in groups {
            let (ends, settles) = (group.ends, group.settles);
            open.insert(group.name, Open { left: group.cases.len(), whole: true, ends, settles });
            cases.extend(group.cases.into_iter().map(|case| (group.name, case)));
        }
        // Those that need the machine for themselves come last, so that nothing waits behind them.
        cases.sort_by_key(|(_, case)| case.weight == Weight::Alone);
        Self { arguments, cases, open, all }
    }

    /// Whether a case will run. Without one, nothing has to be prepared.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let runs = |(group, case): &(&str, Case)| {
            let trial = Trial::test(format!("{group}::{}", case.name), || Ok(()));
            let trial = trial.with_ignored_flag(case.has_ignored_flag(self.all));
            !self.arguments.is_filtered_out(&trial) && case.left_out(self.all).is_none()
        };
        !self.arguments.list && self.cases.iter().any(runs)
    }

    /// Runs the cases, in a runtime of their own.
    ///
    /// # Panics
    /// When there can be no runtime.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        self.run_in(runtime.handle())
    }

    /// Runs the cases in this runtime, from a thread that may block.
    #[must_use]
    pub fn run_in(self, handle: &Handle) -> ExitCode {
        let Self { arguments, cases, open, all } = self;
        let (handle, tokens) = (handle.clone(), Semaphore::new(CAPACITY as usize));
        let stage = Arc::new(Stage {
            handle,
            tokens,
            open: Mutex::new(open),
            seconds: Mutex::default(),
            passed_alone: Mutex::default(),
            all,
        });
        let trials = cases.into_iter().map(|(group, case)| stage.trial(group, case));
        let conclusion = libtest_mimic::run(&arguments, trials.collect());
        if !arguments.list {
            stage.name_slowest();
            stage.name_passed_alone();
        }
        let pages = stage.pages(&arguments);
        let settled = libtest_mimic::run(&arguments, pages);
        if conclusion.has_failed() { conclusion.exit_code() } else { settled.exit_code() }
    }
}

impl Stage {
    fn trial(self: &Arc<Self>, group: &'static str, case: Case) -> Trial {
        let (name, stage) = (format!("{group}::{}", case.name), Arc::clone(self));
        let ignored = case.has_ignored_flag(self.all);
        let shown = name.clone();
        Trial::ignorable_test(name, move || stage.play(group, &shown, case)).with_ignored_flag(ignored)
    }

    fn play(&self, group: &'static str, name: &str, mut case: Case) -> Result<Completion, Failed> {
        let mut end = EndGuard { stage: self, group, outcome: Outcome::Failed };
        if let Some(reason) = case.left_out(self.all) {
            end.outcome = Outcome::Ignored;
            return Ok(Completion::ignored_with(reason));
        }
        self.handle.block_on(async {
            let Some(run) = (case.run)() else { return Ok(()) };
            let panic = match self.attempt(name, case.weight, || (), run).await {
                Attempt::Ended(result) => return result,
                Attempt::Panicked(panic) => panic,
            };
            let may_be_load = case.weight != Weight::Alone && (!case.is_strict || missed_deadline(&*panic));
            let again = if may_be_load { (case.run)() } else { None };
            let Some(run) = again else { resume_unwind(panic) };
            // What the first attempt left in what the group shares is no ground for the second.
            match self.attempt(name, Weight::Alone, || self.begin_anew(group), run).await {
                Attempt::Ended(Err(hung)) => Err(hung),
                Attempt::Ended(Ok(())) => {
                    self.passed_alone.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
                    Ok(())
                }
                Attempt::Panicked(panic) => resume_unwind(panic),
            }
        })?;
        end.outcome = Outcome::Passed;
        Ok(Completion::Completed)
    }

    /// Drops what the cases of a group share: the next one that needs it starts it.
    fn begin_anew(&self, group: &str) {
        let ends = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(group).map(|open| open.ends);
        if let Some(ends) = ends {
            ends();
        }
    }

    /// Runs the case once, with this share of the machine, and `prepare` before it.
    async fn attempt(
        &self,
        name: &str,
        weight: Weight,
        prepare: impl FnOnce(),
        run: LocalBoxFuture<'static, ()>,
    ) -> Attempt {
        let _permit = self.tokens.acquire_many(weight.tokens()).await;
        prepare();
        let begin = Instant::now();
        let played = AssertUnwindSafe(timeout(CASE_TIMEOUT, run)).catch_unwind().await;
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.push((begin.elapsed(), name.to_owned()));
        match played {
            Ok(ended) => Attempt::Ended(ended.map_err(|_| format!("it has not ended after {CASE_TIMEOUT:?}"))),
            Err(panic) => Attempt::Panicked(panic),
        }
    }

    fn end(&self, group: &'static str, outcome: Outcome) {
        let ends = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = open.get_mut(group) else { return };
            open.left -= 1;
            open.whole &= outcome == Outcome::Passed;
            (open.left == 0).then_some(open.ends)
        };
        if outcome == Outcome::Failed {
            keep_all_logs();
        }
        if let Some(ends) = ends {
            let _in_runtime = self.handle.enter();
            ends();
        }
    }

    #[allow(clippy::print_stderr, reason = "what was measured")]
    fn name_slowest(&self) {
        let mut seconds = std::mem::take(&mut *self.seconds.lock().unwrap_or_else(PoisonError::into_inner));
        seconds.sort_unstable_by(|one, other| other.cmp(one));
        let mut stderr = std::io::stderr();
        for (took, name) in seconds.iter().take(NAMED_SLOWEST) {
            let _ = writeln!(stderr, "{:>7.1} s  {name}", took.as_secs_f64());
        }
    }

    #[allow(clippy::print_stderr, reason = "who reads a green run is to see what was close")]
    fn name_passed_alone(&self) {
        for name in std::mem::take(&mut *self.passed_alone.lock().unwrap_or_else(PoisonError::into_inner)) {
            eprintln!("passed only alone, as it failed beside others: {name}");
        }
    }

    /// The pages that groups write, of those of which every case has passed.
    fn pages(self: &Arc<Self>, arguments: &Arguments) -> Vec<Trial> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let written = open.iter().filter_map(|(name, open)| {
            let whole = open.left == 0 && open.whole && !arguments.list;
            open.settles.map(|settle| (*name, whole, settle))
        });
        let page = |(name, whole, settle): (&str, bool, Settle)| {
            let name = format!("{name}::its section of the page says what was seen");
            // Not by the flag of ignored tests: `--ignored` would run it.
            Trial::ignorable_test(name, move || match whole {
                true => settle().map(|()| Completion::Completed).map_err(Failed::from),
                false => Ok(Completion::ignored_with("not all of its cases have run")),
            })
        };
        written.map(page).collect()
    }
}

#[cfg(test)]
mod tests;
