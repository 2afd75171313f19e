//! The table of cases, and how it is run.

use std::{
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use futures::{FutureExt as _, future::BoxFuture};
use libtest_mimic::{Arguments, Failed, Trial};
use ringside_e2e::compatibility::{Ledger, Outcome, Row, Section, Task, table};
use ringside_runtime::logging::{self, Format};
use tokio::{runtime::Runtime, time::timeout};

use super::{cases, changes, ground::Ground};

/// Cases mostly wait, for a watch to end or for the API server: many may do so at once.
const AT_ONCE: usize = 12;
/// Most take a second or two; the longest reads 100 MB. A machine may be busy elsewhere.
const LONGEST: Duration = Duration::from_secs(120);
const SECTION: Section = Section { name: "protocol", test: "compatibility" };

type Run = Box<dyn FnOnce(Arc<Ground>, String) -> BoxFuture<'static, Result<Outcome>> + Send>;

/// A part of the API, which is a table of the page.
pub(crate) struct Part {
    pub(crate) title: &'static str,
    pub(crate) cases: Vec<Case>,
}

/// A line of the table.
pub(crate) struct Case {
    behaviour: String,
    representation: String,
    run: Run,
}

/// A case that is given the ground and a mark of its own.
pub(crate) fn case<F>(
    behaviour: &str,
    representation: &str,
    run: impl FnOnce(Arc<Ground>, String) -> F + Send + 'static,
) -> Case
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    let run: Run = Box::new(move |ground, mark| run(ground, mark).boxed());
    Case { behaviour: behaviour.to_owned(), representation: representation.to_owned(), run }
}

/// What the trials share: the ground is made by the first of them, so that a list of names needs none.
struct Stage {
    runtime: Runtime,
    ground: OnceLock<Option<Arc<Ground>>>,
    /// For each part what was seen.
    parts: Vec<(&'static str, Ledger)>,
}

impl Stage {
    fn ground(&self) -> Result<Arc<Ground>> {
        let mut fault = None;
        let start = || self.runtime.block_on(Ground::start()).map_err(|error| fault = Some(error)).ok();
        let ground = self.ground.get_or_init(start).clone();
        ground.ok_or_else(|| fault.unwrap_or_else(|| anyhow!("nothing to stand on; another case says why")))
    }

    fn play(&self, part: usize, place: usize, case: Case) -> Result<()> {
        let ground = self.ground()?;
        // Short, and the same in each run: it is also the audit id.
        let running = (case.run)(ground, format!("case-{part}-{place}"));
        let bounded = async { timeout(LONGEST, running).await.context("it does not come to an end") };
        let outcome = self.runtime.block_on(bounded)??;
        let Case { behaviour, representation, .. } = case;
        self.parts[part].1.note(place, Row { behaviour, representation, outcome });
        Ok(())
    }

    fn page(&self) -> String {
        let parts = self.parts.iter().map(|(title, ledger)| format!("### {title}\n\n{}\n", table(&ledger.rows())));
        parts.chain([changes::page()]).collect()
    }
}

/// Runs the cases that the arguments name, and when these are all, settles the page.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match perform(arguments) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, "the cases can't be run");
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: &Arguments) -> Result<ExitCode> {
    // What was compared twice, and why.
    logging::init(Format::Text, logging::parse_filter("warn")?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    let (mut parts, mut cases) = (Vec::new(), Vec::new());
    for (part, Part { title, cases: its }) in cases::all().into_iter().enumerate() {
        parts.push((title, Ledger::default()));
        cases.extend(its.into_iter().enumerate().map(|(place, case)| (part, place, case)));
    }
    let stage = Arc::new(Stage { runtime, ground: OnceLock::new(), parts });
    let trials = cases.into_iter().map(|(part, place, case)| {
        let stage = stage.clone();
        let name = format!("{}: {}", case.behaviour, case.representation);
        Trial::test(name, move || stage.play(part, place, case).map_err(|error| Failed::from(format!("{error:#}"))))
    });
    let at_once = Arguments { test_threads: arguments.test_threads.or(Some(AT_ONCE)), ..arguments.clone() };
    let seen = libtest_mimic::run(&at_once, trials.collect());
    let whole = seen.num_filtered_out == 0 && !seen.has_failed() && !arguments.list;
    let settling = stage.clone();
    let settle = move || {
        let own = settling.ground().and_then(|ground| ground.note_own_requests());
        own.and_then(|()| changes::all_seen()).map_err(|error| Failed::from(format!("{error:#}")))?;
        SECTION.settle(&settling.page(), Task::of_process()).map_err(Failed::from)
    };
    let page = Trial::test("docs/compatibility.md says what was seen", settle).with_ignored_flag(!whole);
    let settled = libtest_mimic::run(arguments, vec![page]);
    Ok(if seen.has_failed() { seen.exit_code() } else { settled.exit_code() })
}
