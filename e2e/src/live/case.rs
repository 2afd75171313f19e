//! A case, and the group that it belongs to.

use std::collections::BTreeMap;

use futures::future::LocalBoxFuture;

use super::Ability;
use crate::toolchain::Need;

/// The share of the machine that a case needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It waits for most of its time.
    Waits,
    /// Controllers work in it all the time.
    Works,
    /// It asserts how long something takes, and so runs alone.
    Alone,
}

/// Begins what a case does, which panics when it fails. `None` when it can't be begun again.
type Run = Box<dyn FnMut() -> Option<LocalBoxFuture<'static, ()>> + Send>;

/// A case: its name, and what it does.
pub struct Case {
    pub(super) name: String,
    pub(super) weight: Weight,
    pub(super) is_strict: bool,
    pub(super) needs: Vec<Need>,
    cost: Option<&'static str>,
    obstacle: Box<dyn Fn() -> Option<String> + Send>,
    pub(super) run: Run,
}

impl Case {
    /// A case that mostly waits, and can be run everywhere. The last part of a path is its name.
    pub fn new(path: &str, run: impl Fn() -> LocalBoxFuture<'static, ()> + Send + 'static) -> Self {
        Self::of(path, Box::new(move || Some(run())))
    }

    /// The same, of what can be begun once.
    pub fn once(path: &str, run: impl FnOnce() -> LocalBoxFuture<'static, ()> + Send + 'static) -> Self {
        let mut run = Some(run);
        Self::of(path, Box::new(move || run.take().map(|run| run())))
    }

    fn of(path: &str, run: Run) -> Self {
        let name = path.rsplit("::").next().unwrap_or(path).trim().to_owned();
        let needs = Need::BASE.to_vec();
        Self { name, weight: Weight::Waits, is_strict: false, needs, cost: None, obstacle: Box::new(|| None), run }
    }

    /// The same, in which controllers work all the time.
    #[must_use]
    pub fn works(self) -> Self {
        Self { weight: Weight::Works, ..self }
    }

    /// The same, about what may never happen. A broken assertion is not run again.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }

    /// The same with the machine for itself.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { weight: Weight::Alone, ..self }
    }

    /// The same, of which this is prepared before the first case.
    #[must_use]
    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// The same, left to `--include-ignored` for this cost.
    #[must_use]
    pub fn costs(self, cost: &'static str) -> Self {
        Self { cost: Some(cost), ..self }
    }

    /// The same, ignored where there is something to say against it.
    #[must_use]
    pub fn unless(self, obstacle: fn() -> Option<String>) -> Self {
        let before = self.obstacle;
        Self { obstacle: Box::new(move || before().or_else(obstacle)), ..self }
    }

    /// The same, ignored where API servers can't do this.
    #[must_use]
    pub fn asks_for(self, ability: Ability) -> Self {
        let before = self.obstacle;
        Self { obstacle: Box::new(move || before().or_else(|| ability.obstacle())), ..self }
    }

    /// Whether `--ignored` is to find it. Without `all` it runs as any other, to say why it is left out.
    pub(super) const fn has_ignored_flag(&self, all: bool) -> bool {
        all && self.cost.is_some()
    }

    /// Whether it costs too much for every change, where not `all` are asked for.
    pub(super) const fn is_second_tier(&self, all: bool) -> bool {
        self.cost.is_some() && !all
    }

    /// The reason why it does not run, where there is one. What is missing of needs is known.
    pub(super) fn left_out(&self, all: bool, missing: &BTreeMap<Need, String>) -> Option<String> {
        match self.cost {
            Some(cost) if !all => Some(format!("left to --include-ignored: {cost}")),
            _ => {
                let missing = self.needs.iter().find_map(|need| missing.get(need).cloned());
                missing.or_else(|| (self.obstacle)()).map(|obstacle| format!("can't run here: {obstacle}"))
            }
        }
    }
}

/// Cases with something in common: a subject, or a fixture.
pub struct Group {
    pub(super) name: &'static str,
    pub(super) cases: Vec<Case>,
    pub(super) ends: fn(),
    pub(super) settles: Option<fn() -> Result<(), String>>,
}

impl Group {
    /// A group of this name.
    #[must_use]
    pub const fn new(name: &'static str, cases: Vec<Case>) -> Self {
        Self { name, cases, ends: || {}, settles: None }
    }

    /// The same, of cases that all are strict ([`Case::strict`]).
    #[must_use]
    pub fn strict(self) -> Self {
        Self { cases: self.cases.into_iter().map(Case::strict).collect(), ..self }
    }

    /// Calls this when its last case has ended: the place to drop a fixture.
    #[must_use]
    pub fn ends(self, ends: fn()) -> Self {
        Self { ends, ..self }
    }

    /// Calls this at the end, where every case has passed: the place to compare a page with what was seen.
    #[must_use]
    pub fn settles(self, settles: fn() -> Result<(), String>) -> Self {
        Self { settles: Some(settles), ..self }
    }
}

/// A [`Case`] of a function, or of a name and an expression with a future.
#[macro_export]
macro_rules! case {
    ($run:path) => {
        $crate::live::Case::new(stringify!($run), || Box::pin($run()))
    };
    ($name:expr, $run:expr) => {
        $crate::live::Case::new($name, move || {
            Box::pin(async move {
                $run.await;
            })
        })
    };
}
