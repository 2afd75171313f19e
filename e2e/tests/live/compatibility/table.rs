//! The table of cases, and how it is run.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Result;
use futures::{FutureExt as _, future::BoxFuture};
use ringside_e2e::{
    compatibility::{Ledger, Outcome, Row, Section, Task, table},
    live::{self, Ability, Group, Shared},
};
use tokio::time::timeout;

use super::{cases, changes, client::Http, compare::Probe, fixture::Fixture};

/// Far more than a case takes on a busy machine, and far less than a watch lasts that is to go on ([`GOES_ON`]).
const LONGEST: Duration = Duration::from_secs(300);
/// What a watch says of itself that is to go on for longer than its case.
pub(crate) const GOES_ON: &str = "timeoutSeconds=3600";
const SECTION: Section = Section { name: "protocol", test: "live -- --include-ignored compatibility::" };
/// Why a case is of the second tier that shows what another shows.
const VARIANT: &str = "the same as in the first tier, in another form";

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
    costs: Option<&'static str>,
    asks_for: Option<Ability>,
    run: Run,
}

/// A case that is given a probe of its own, which takes the usual way.
pub(crate) fn case<F>(behaviour: &str, representation: &str, run: impl FnOnce(Probe) -> F + Send + 'static) -> Case
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    let (behaviour, representation) = (behaviour.to_owned(), representation.to_owned());
    Case {
        behaviour,
        representation,
        pair: USUAL,
        costs: None,
        asks_for: None,
        run: Box::new(move |probe| run(probe).boxed()),
    }
}

/// As Go's clients and the API server speak.
const USUAL: (Http, Http) = (Http::Two, Http::Two);

/// A case for each of these forms; all but the first are variants.
pub(crate) fn by_form<T, F>(
    behaviour: &str,
    forms: impl IntoIterator<Item = (impl AsRef<str>, T)>,
    run: impl Fn(Probe, T) -> F + Clone + Send + 'static,
) -> impl Iterator<Item = Case>
where
    T: Send + 'static,
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    forms.into_iter().enumerate().map(move |(place, (form, what))| {
        let run = run.clone();
        let case = case(behaviour, form.as_ref(), move |probe| run(probe, what));
        if place == 0 { case } else { case.variant() }
    })
}

/// A case for each version of HTTP on both sides; those but the usual ones are variants.
pub(crate) fn by_pair<F>(
    behaviour: &str,
    run: impl Fn(Probe) -> F + Clone + Send + 'static,
) -> impl Iterator<Item = Case>
where
    F: Future<Output = Result<Outcome>> + Send + 'static,
{
    Http::PAIRS.into_iter().map(move |pair| {
        let case = case(behaviour, &pair.0.towards(pair.1), run.clone()).by(pair);
        if pair == USUAL { case } else { case.variant() }
    })
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

    /// Of what all else stands on: takes it into the first tier where no side speaks HTTP/2, either.
    pub(crate) fn by_http1_throughout_too(self) -> Self {
        if self.pair == (Http::One, Http::One) { Self { costs: None, ..self } } else { self }
    }

    /// Ignores it where API servers can't do this.
    pub(crate) fn asks_for(self, ability: Ability) -> Self {
        Self { asks_for: Some(ability), ..self }
    }

    /// Leaves it to the second tier: another case shows the same in another form.
    pub(crate) fn variant(self) -> Self {
        self.costs(VARIANT)
    }

    /// Leaves it to the second tier for this cost.
    pub(crate) fn costs(self, cost: &'static str) -> Self {
        Self { costs: Some(cost), ..self }
    }
}

/// For each part of the API what was seen.
static SEEN: OnceLock<Vec<(&'static str, Ledger)>> = OnceLock::new();

/// Stays until the end: other proxies of the cases stand on it.
static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await.unwrap()).await
}

/// The cases. Each compares its row with the page. The whole page is compared where all have run, which needs both tiers.
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
    let Case { behaviour, representation, pair, costs, asks_for, run } = case;
    let name = format!("{behaviour}: {representation}");
    let case = live::Case::once(&name, move || {
        Box::pin(async move {
            let fixture = fixture().await;
            // Short, and the same in each run: it is also the audit id.
            let running = run(Probe::by(fixture.clone(), format!("case-{part}-{place}"), pair));
            let outcome = timeout(LONGEST, running).await.unwrap_or_else(|_| panic!("no end after {LONGEST:?}"));
            let outcome = outcome.unwrap_or_else(|error| panic!("{error:#}"));
            fixture.note_own_requests().unwrap_or_else(|error| panic!("{error:#}"));
            let row = Row { behaviour, representation, outcome };
            SECTION.check(&row, Task::of_process()).unwrap_or_else(|error| panic!("{error:#}"));
            SEEN.get().unwrap()[part].1.note(place, row);
        })
    });
    let case = match costs {
        Some(cost) => case.costs(cost),
        None => case,
    };
    match asks_for {
        Some(ability) => case.asks_for(ability),
        None => case,
    }
}

/// Compares the page with what was seen, or writes it.
fn settle() -> Result<(), String> {
    let parts = SEEN.get().into_iter().flatten();
    let parts = parts.map(|(title, ledger)| format!("### {title}\n\n{}\n", table(&ledger.rows())));
    let page: String = parts.chain([changes::page()]).collect();
    changes::all_seen().map_err(|error| format!("{error:#}"))?;
    SECTION.settle(&page, Task::of_process()).map_err(|error| error.to_string())
}
