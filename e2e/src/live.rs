//! The runner of live tests: one program, in which each case gets the share of the machine that it needs.
//!
//! A case panics when it fails. Some cost more than a change is worth: these are left to `--include-ignored`.
//! What cases need is built before the first of them. How many run at once follows from the cores and from how late the
//! machine's timers fire. A case that failed while they fired late is run once more, alone; where they did not, a failure is a
//! failure. A broken assertion is run again too, as most are about what is so after a time; that of a strict case, which is
//! about what may never happen, is not. The end of the output tells what came of all.

mod ability;
mod admission;
mod case;
mod fixture;
mod lateness;
mod verdict;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    panic::{AssertUnwindSafe, resume_unwind},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::LocalBoxFuture};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::{runtime::Handle, time::timeout};

pub use self::{
    ability::Ability,
    case::{Case, Group, Weight},
    fixture::Shared,
};
use self::{
    admission::Admission,
    lateness::{LATE, Sensor},
    verdict::{Machine, Outcome, Verdict},
};
use crate::{
    process::keep_all_logs,
    toolchain::{self, Environment, Need, say},
};

/// A case that is still at it hangs.
const CASE_TIMEOUT: Duration = Duration::from_secs(900);

/// What the trials share.
struct Stage {
    handle: Handle,
    admission: Admission,
    sensor: Sensor,
    /// The cases of each group that have not ended, and those that have passed.
    open: Mutex<BTreeMap<&'static str, Open>>,
    verdict: Mutex<Verdict>,
    /// Whether cases run that cost too much for every change.
    all: bool,
    /// What is not on this machine, and how to install it.
    missing: BTreeMap<Need, String>,
    /// What could not be built.
    broken: BTreeMap<Need, String>,
    /// Drops what groups share.
    renews: fn(),
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
    name: &'a str,
    outcome: Outcome,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.stage.end(self.group, self.name, self.outcome);
    }
}

/// Cases, and what the process' arguments ask of them.
pub struct Runner {
    arguments: Arguments,
    cases: Vec<(&'static str, Case)>,
    open: BTreeMap<&'static str, Open>,
    /// As in [`Stage`].
    all: bool,
    missing: BTreeMap<Need, String>,
    /// Known once all is prepared.
    broken: Option<BTreeMap<Need, String>>,
    renews: fn(),
}

impl Runner {
    /// Reads the process' arguments.
    #[must_use]
    pub fn of_process(groups: Vec<Group>) -> Self {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(Some(Admission::most(cores())));
        let all = arguments.include_ignored || arguments.ignored;
        let (mut cases, mut open) = (Vec::new(), BTreeMap::new());
        for group in groups {
            let (ends, settles) = (group.ends, group.settles);
            open.insert(group.name, Open { left: group.cases.len(), whole: true, ends, settles });
            cases.extend(group.cases.into_iter().map(|case| (group.name, case)));
        }
        // Those that need the machine for themselves come last, so that nothing waits behind them.
        cases.sort_by_key(|(_, case)| case.weight == Weight::Alone);
        let (missing, renews) = (BTreeMap::new(), || {});
        let mut runner = Self { arguments, cases, open, all, missing, broken: None, renews };
        let environment = Environment::of_process();
        let obstacle = |need: Need| need.obstacle(&environment).map(|obstacle| (need, obstacle));
        runner.missing = runner.needs().into_iter().filter_map(obstacle).collect();
        runner
    }

    /// The same, which calls this before a case runs again: the place to drop what groups share.
    #[must_use]
    pub fn renews(self, renews: fn()) -> Self {
        Self { renews, ..self }
    }

    /// The cases that are asked for and are of this tier.
    fn asked(&self) -> impl Iterator<Item = &Case> {
        let asked = |(group, case): &&(&str, Case)| {
            let trial = Trial::test(format!("{group}::{}", case.name), || Ok(()));
            let trial = trial.with_ignored_flag(case.has_ignored_flag(self.all));
            !self.arguments.list && !self.arguments.is_filtered_out(&trial) && !case.is_second_tier(self.all)
        };
        self.cases.iter().filter(asked).map(|(_, case)| case)
    }

    fn needs(&self) -> BTreeSet<Need> {
        self.asked().flat_map(|case| case.needs.iter().copied()).collect()
    }

    /// Whether a case will run. Without one, nothing has to be prepared.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.asked().any(|case| case.left_out(self.all, &self.missing).is_none())
    }

    /// Builds and fetches what the cases need, and says what it is at. Blocks.
    pub fn prepare(&mut self) {
        let needs = if self.has_work() { self.needs() } else { BTreeSet::new() };
        let needs: Vec<_> = needs.into_iter().filter(|need| !self.missing.contains_key(need)).collect();
        let (environment, mut broken) = (Environment::of_process(), BTreeMap::new());
        for (index, need) in needs.iter().enumerate() {
            say(format_args!("preparing {} of {}: {need}", index + 1, needs.len()));
            if let Err(error) = need.prepare(&environment) {
                say(format_args!("can't prepare {need}: {error:#}"));
                broken.insert(*need, format!("{error:#}"));
            }
        }
        self.broken = Some(broken);
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
    pub fn run_in(mut self, handle: &Handle) -> ExitCode {
        if self.broken.is_none() {
            self.prepare();
        }
        toolchain::seal();
        let Self { arguments, cases, open, all, missing, broken, renews } = self;
        let stage = Arc::new(Stage {
            handle: handle.clone(),
            admission: Admission::new(cores()),
            sensor: Sensor::start(),
            open: Mutex::new(open),
            verdict: Mutex::default(),
            all,
            missing,
            broken: broken.unwrap_or_default(),
            renews,
        });
        let begin = Instant::now();
        let follower = handle.spawn(follow(Arc::clone(&stage)));
        let trials = cases.into_iter().map(|(group, case)| stage.trial(group, case));
        let conclusion = libtest_mimic::run(&arguments, trials.collect());
        follower.abort();
        let settled = libtest_mimic::run(&arguments, stage.pages(&arguments));
        if !arguments.list {
            stage.say_verdict(begin.elapsed());
        }
        if conclusion.has_failed() { conclusion.exit_code() } else { settled.exit_code() }
    }
}

fn cores() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Lets as many cases run at once as leave the machine in time.
async fn follow(stage: Arc<Stage>) {
    loop {
        let begin = Instant::now();
        tokio::time::sleep(admission::INTERVAL).await;
        stage.admission.follow(stage.sensor.worst_since(begin));
    }
}

impl Stage {
    fn verdict(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trial(self: &Arc<Self>, group: &'static str, case: Case) -> Trial {
        let (name, stage) = (format!("{group}::{}", case.name), Arc::clone(self));
        let ignored = case.has_ignored_flag(self.all);
        let shown = name.clone();
        Trial::ignorable_test(name, move || stage.play(group, &shown, case)).with_ignored_flag(ignored)
    }

    fn play(&self, group: &'static str, name: &str, mut case: Case) -> Result<Completion, Failed> {
        let mut end = EndGuard { stage: self, group, name, outcome: Outcome::Failed };
        if let Some(reason) = case.left_out(self.all, &self.missing) {
            end.outcome = Outcome::Ignored;
            *self.verdict().ignored.entry(reason.clone()).or_default() += 1;
            return Ok(Completion::ignored_with(reason));
        }
        if let Some(fault) = case.needs.iter().find_map(|need| self.broken.get(need)) {
            return Err(fault.into());
        }
        self.handle.block_on(async {
            let Some(run) = (case.run)() else { return Ok(()) };
            let (panic, late) = match self.attempt(name, case.weight, || (), run).await {
                (Attempt::Ended(result), _) => return result,
                (Attempt::Panicked(panic), late) => (panic, late),
            };
            let may_be_load = late >= LATE && (!case.is_strict || missed_deadline(&*panic));
            let again = if may_be_load { (case.run)() } else { None };
            let Some(run) = again else { resume_unwind(panic) };
            // What the first attempt left in what the group shares is no ground for the second.
            let (second, _) = self.attempt(name, Weight::Alone, || self.begin_anew(group), run).await;
            let passed = matches!(second, Attempt::Ended(Ok(())));
            let outcome = if passed { Outcome::Passed } else { Outcome::Failed };
            self.verdict().again.push((name.to_owned(), late, outcome));
            match second {
                Attempt::Ended(result) => result,
                Attempt::Panicked(panic) => resume_unwind(panic),
            }
        })?;
        end.outcome = Outcome::Passed;
        Ok(Completion::Completed)
    }

    /// Drops what the cases of a group share, and what groups share: the next one that needs it starts it.
    fn begin_anew(&self, group: &str) {
        (self.renews)();
        let ends = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(group).map(|open| open.ends);
        if let Some(ends) = ends {
            ends();
        }
    }

    /// Runs the case once, with this share of the machine, and `prepare` before it. Returns how late timers were, too.
    async fn attempt(
        &self,
        name: &str,
        weight: Weight,
        prepare: impl FnOnce(),
        run: LocalBoxFuture<'static, ()>,
    ) -> (Attempt, Duration) {
        let _permit = self.admission.admit(weight).await;
        prepare();
        let begin = Instant::now();
        let played = AssertUnwindSafe(timeout(CASE_TIMEOUT, run)).catch_unwind().await;
        self.verdict().took.push((begin.elapsed(), name.to_owned()));
        let attempt = match played {
            Ok(ended) => Attempt::Ended(ended.map_err(|_| format!("it has not ended after {CASE_TIMEOUT:?}"))),
            Err(panic) => Attempt::Panicked(panic),
        };
        (attempt, self.sensor.worst_since(begin))
    }

    fn end(&self, group: &'static str, name: &str, outcome: Outcome) {
        let ends = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = open.get_mut(group) else { return };
            open.left -= 1;
            open.whole &= outcome == Outcome::Passed;
            (open.left == 0).then_some(open.ends)
        };
        match outcome {
            Outcome::Passed => self.verdict().passed += 1,
            Outcome::Ignored => {}
            Outcome::Failed => {
                self.verdict().failed.push(name.to_owned());
                keep_all_logs();
            }
        }
        if let Some(ends) = ends {
            let _in_runtime = self.handle.enter();
            ends();
        }
    }

    fn say_verdict(&self, took: Duration) {
        let late = [50, 1, 0].map(|above| self.sensor.percentile(above));
        let machine = Machine { cores: cores(), late, at_once: self.admission.range(), took };
        let mut text = String::new();
        let _infallible = self.verdict().say(&mut text, &machine);
        let _no_reader = write!(std::io::stderr(), "\n{text}");
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
