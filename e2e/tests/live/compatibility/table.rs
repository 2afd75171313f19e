//! The table of cases, and how it is run.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Result;
use futures::{FutureExt as _, future::BoxFuture};
use ringside_e2e::{
    compatibility::{Ledger, Outcome, Row, Section, Task, table},
    live::{self, Group, Shared},
};
use tokio::time::timeout;

use super::{cases, changes, client::Http, compare::Probe, fixture::Fixture};

/// Most take a second or two; the longest reads 100 MB. A machine may be busy elsewhere.
const LONGEST: Duration = Duration::from_secs(120);
const SECTION: Section = Section { name: "protocol", test: "live" };

type Run = Box<dyn FnOnce(Probe) -> BoxFuture<'static, Result<Outcome>> + Send>;

/// A part of the API, which is a table of the page.
pub(crate) struct Part {
    pub(crate) title: &'static str,
    pub(crate) cases: Vec<Case>,
}

/// A line of the table.
pub(crate) struct Case {
    behaviour: String,
    representation: String,
    /// The versions of HTTP of the client and of the server behind the proxy.
    pair: (Http, Http),
    run: Run,
}

/// A case that is given a probe of its own, which takes the usual way.
pub(crate) fn case<F>(behaviour: &str, representation: &str, run: impl FnOnce(Probe) -> F + Send + 'static) -> Case
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    let (behaviour, representation) = (behaviour.to_owned(), representation.to_owned());
    Case { behaviour, representation, pair: (Http::Two, Http::Two), run: Box::new(move |probe| run(probe).boxed()) }
}

/// A case for each version of HTTP on both sides.
pub(crate) fn by_pair<F>(
    behaviour: &str,
    run: impl Fn(Probe) -> F + Clone + Send + 'static,
) -> impl Iterator<Item = Case>
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    Http::PAIRS.into_iter().map(move |pair| case(behaviour, &pair.0.towards(pair.1), run.clone()).by(pair))
}

impl Case {
    /// Sets the versions of HTTP of the client and of the server behind the proxy.
    pub(crate) fn by(self, pair: (Http, Http)) -> Self {
        Self { pair, ..self }
    }

    /// Sets that the client speaks HTTP/1.1.
    pub(crate) fn by_http1(self) -> Self {
        self.by((Http::One, Http::Two))
    }
}

/// For each part of the API what was seen.
static SEEN: OnceLock<Vec<(&'static str, Ledger)>> = OnceLock::new();

/// Stays until the end: the page is made from what it saw.
static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await.unwrap()).await
}

/// The cases.
pub(crate) fn group() -> Group {
    let (mut seen, mut group) = (Vec::new(), Vec::new());
    for (part, Part { title, cases }) in cases::all().into_iter().enumerate() {
        seen.push((title, Ledger::default()));
        group.extend(cases.into_iter().enumerate().map(|(place, case)| of_part(part, place, case)));
    }
    SEEN.get_or_init(|| seen);
    Group::new("compatibility", group).settles(settle)
}

fn of_part(part: usize, place: usize, case: Case) -> live::Case {
    let Case { behaviour, representation, pair, run } = case;
    let name = format!("{behaviour}: {representation}");
    live::Case::once(&name, move || {
        Box::pin(async move {
            // Short, and the same in each run: it is also the audit id.
            let running = run(Probe::by(fixture().await, format!("case-{part}-{place}"), pair));
            let outcome = timeout(LONGEST, running).await.unwrap_or_else(|_| panic!("no end after {LONGEST:?}"));
            let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}"));
            SEEN.get().unwrap()[part].1.note(place, Row { behaviour, representation, outcome });
        })
    })
}

/// Compares the page with what was seen, or writes it.
fn settle() -> Result<(), String> {
    let parts = SEEN.get().into_iter().flatten();
    let parts = parts.map(|(title, ledger)| format!("### {title}\n\n{}\n", table(&ledger.rows())));
    let page: String = parts.chain([changes::page()]).collect();
    FIXTURE.now().ok_or("the fixture is gone")?.note_own_requests().map_err(|error| format!("{error:#}"))?;
    changes::all_seen().map_err(|error| format!("{error:#}"))?;
    SECTION.settle(&page, Task::of_process()).map_err(|error| error.to_string())
}
