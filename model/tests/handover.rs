//! Tries every order of events, as it should be and with each mistake.
//!
//! `--include-ignored` runs the cases too that take longer than each change is worth, `RINGSIDE_MODEL=whole` also those that take
//! minutes each. `--nocapture` says how much each has tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    num::NonZero,
    process::ExitCode,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
    time::Instant,
};

use libtest_mimic::{Arguments, Completion, Trial};
use ringside_model::{
    Budget, CHILD_FIRST, Case, HELD, Handover, Mistake, NO_FOREIGN_WRITE, ONE_WORKS, ONE_WRITES, SETTLES,
};
use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};

/// The broken promises, each with the shortest way there.
type Broken = BTreeMap<&'static str, String>;

/// Tries everything.
fn try_all(name: &str, case: Case) -> Broken {
    let started = Instant::now();
    // In depth first: of those that are to be tried next few are kept, and of the others a number each.
    let checker = sought(case, HasDiscoveries::Any).spawn_dfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    tell(format_args!("{name}: {states} states, the longest way {depth} steps, {:?}", started.elapsed()));
    if checker.discoveries().is_empty() { Broken::new() } else { find(name, case, HasDiscoveries::Any) }
}

/// Tries everything until what is sought is found, from near to far.
fn find(name: &str, case: Case, what: HasDiscoveries) -> Broken {
    let started = Instant::now();
    let checker = sought(case, what).spawn_bfs().join();
    tell(format_args!("{name}: {} states until it is found, {:?}", checker.unique_state_count(), started.elapsed()));
    let discoveries = checker.discoveries();
    discoveries.into_iter().map(|(promise, path)| (promise, format!("{:#?}", path.into_actions()))).collect()
}

fn sought(case: Case, what: HasDiscoveries) -> CheckerBuilder<Handover> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    Handover::of(case).checker().threads(threads).finish_when(what)
}

/// What is tried as it should be, and the result.
type Tried = Mutex<Vec<(Case, Arc<OnceLock<Broken>>)>>;

/// What is broken as it should be: nothing, or the model or the system is wrong. Each case is tried once, whichever tests
/// ask for it.
fn broken_without_mistake(name: &str, case: Case) -> Broken {
    static TRIED: Tried = Mutex::new(Vec::new());
    let case = Case { mistake: None, ..case };
    let result = {
        let mut tried = TRIED.lock().expect("no thread panics here");
        let known = tried.iter().find(|(other, _)| *other == case).map(|(_, result)| result.clone());
        known.unwrap_or_else(|| {
            let new = Arc::default();
            tried.push((case, Arc::clone(&new)));
            new
        })
    };
    result.get_or_init(|| try_all(name, case)).clone()
}

/// Whether the mistake breaks this promise. In the second tier also whether nothing is broken without it: what is broken anyhow
/// "finds" any mistake.
fn finds(name: &str, case: Case, promise: &'static str) {
    let with = find(name, case, HasDiscoveries::AllOf(BTreeSet::from([promise])));
    assert!(with.contains_key(promise), "the mistake does not break the promise: {promise}; but {with:#?}");
    if Runs::InSecondTier.left_out().is_none() {
        assert_eq!(broken_without_mistake(&format!("{name}, without the mistake"), case), Broken::new());
    }
}

/// Of the second shard the renewals take no time.
const ONE: [bool; 3] = [false, true, false];

/// Two shards at work, and a third that joins.
fn joining(budget: Budget) -> Case {
    Case { budget, ..Case::default() }
}

/// The same with one object, where renewals take no time.
fn alone(budget: Budget) -> Case {
    Case { objects: 1, steady: [true; 3], ..joining(budget) }
}

/// Two shards and one object, for what takes time and so has many more orders.
fn two(budget: Budget) -> Case {
    Case { budget, joins: false, objects: 1, ..Case::default() }
}

/// Three shards at work on both objects, with time for one of them, and for one that dies.
fn three(budget: Budget) -> Case {
    Case { budget, all_work: true, steady: [true, true, false], ..Case::default() }
}

/// The same where the shard that dies or stands still is the only one that has time.
fn calm(budget: Budget) -> Case {
    Case { steady: [true; 3], ..three(budget) }
}

/// Two shards and one object behind the API server's fence; the renewals of one of them take no time.
fn fenced(budget: Budget) -> Case {
    Case { fence: true, steady: ONE, ..two(budget) }
}

/// One ends and begins again while another joins: takes minutes as it should be, and a moment until a mistake is found.
fn again_beside_a_newcomer() -> Case {
    alone(Budget { releases: 1, restarts: 1, ..Budget::default() })
}

/// The variable that asks for the cases that take minutes.
const SCOPE: &str = "RINGSIDE_MODEL";
/// Its value that does.
const WHOLE: &str = "whole";

/// Whether cases of the second tier run.
static ALL: AtomicBool = AtomicBool::new(false);

/// Whether to say how much was tried.
static TELLS: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    TELLS.store(arguments.nocapture, Ordering::Relaxed);
    ALL.store(arguments.include_ignored || arguments.ignored, Ordering::Relaxed);
    let trials = as_it_should_be::trials().into_iter().chain(mistakes::trials());
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

#[allow(clippy::print_stdout, reason = "how much was tried is part of the result")]
fn tell(tried: fmt::Arguments<'_>) {
    if TELLS.load(Ordering::Relaxed) {
        println!("{tried}");
    }
}

/// When a case runs.
#[derive(Clone, Copy)]
enum Runs {
    Always,
    /// As it takes longer than each change is worth.
    InSecondTier,
    /// As it takes this long.
    ByScope(&'static str),
}

impl Runs {
    fn left_out(self) -> Option<String> {
        let is_whole = env::var(SCOPE).as_deref() == Ok(WHOLE);
        match self {
            Self::InSecondTier if !is_whole && !ALL.load(Ordering::Relaxed) => {
                Some("left to --include-ignored: seconds of both cores".to_owned())
            }
            Self::ByScope(time) if !is_whole => Some(format!("takes {time}: {SCOPE}={WHOLE} runs it")),
            _ => None,
        }
    }
}

/// Makes the trial of a case that breaks nothing.
fn holds(name: &'static str, runs: Runs, case: fn() -> Case) -> Trial {
    Trial::ignorable_test(format!("as_it_should_be::{name}"), move || {
        if let Some(reason) = runs.left_out() {
            return Ok(Completion::ignored_with(reason));
        }
        assert_eq!(broken_without_mistake(name, case()), Broken::new());
        Ok(Completion::Completed)
    })
}

/// Makes a trial of each line; `in "TIME"` marks a case that takes minutes, `in 2` one of the second tier.
macro_rules! holds {
    (@runs 2) => { Runs::InSecondTier };
    (@runs $time:literal) => { Runs::ByScope($time) };
    (@runs) => { Runs::Always };
    ($($name:ident: $(in $runs:tt,)? $case:expr;)*) => {
        pub(super) fn trials() -> Vec<Trial> {
            vec![$(holds(stringify!($name), holds!(@runs $($runs)?), || $case)),*]
        }
    };
}

mod as_it_should_be {
    use super::*;

    holds! {
        a_shard_joins: joining(Budget::default());
        writes_are_late: in 2, joining(Budget { writes: 1, ..Budget::default() });
        labels_are_stripped: in 2, joining(Budget { strips: 1, ..Budget::default() });
        the_webhook_assigns_at_once: in 2, Case { children: false, ..joining(Budget { strips: 1, ..Budget::default() }) };
        the_webhook_is_silent: Case { children: false, ..joining(Budget { silences: 1, ..Budget::default() }) };
        the_webhook_of_a_replica_that_lags_answers: in 2,
            Case { children: false, replicas: 2, ..joining(Budget { silences: 1, ..Budget::default() }) };
        others_write_the_object: in 2, joining(Budget { touches: 1, ..Budget::default() });
        a_watch_ends: in 2, joining(Budget { cuts: 1, ..Budget::default() });
        messages_are_lost: joining(Budget { losses: 1, ..Budget::default() });
        a_reconcile_sleeps: joining(Budget { wakes: 1, ..Budget::default() });
        an_acknowledgement_is_late: Case { late_acknowledgement: true, ..joining(Budget::default()) };
        one_that_is_asked_ends_in_order: in 2, joining(Budget { releases: 1, ..Budget::default() });
        a_proxy_dies_alone: alone(Budget { proxies: 1, ..Budget::default() });
        a_proxy_dies_alone_while_a_write_is_late: in 2,
            alone(Budget { proxies: 1, writes: 1, ..Budget::default() });
        a_proxy_dies_alone_while_a_reconcile_sleeps: in 2,
            alone(Budget { proxies: 1, wakes: 1, ..Budget::default() });
        a_proxy_dies_alone_while_a_reconcile_sleeps_and_its_write_is_late: in 2,
            alone(Budget { proxies: 1, wakes: 1, writes: 1, ..Budget::default() });
        a_proxy_dies_alone_beside_two_objects_while_a_reconcile_sleeps_and_its_write_is_late: in "ten minutes",
            Case { objects: 2, ..alone(Budget { proxies: 1, wakes: 1, writes: 1, ..Budget::default() }) };
        of_three_shards_a_proxy_dies_alone_in_time: three(Budget { proxies: 1, ticks: 3, ..Budget::default() });
        more_time_passes: in 2, three(Budget { ticks: 5, ..Budget::default() });
        two_replicas_lead: in 2, Case { replicas: 2, ..joining(Budget { decisions: 1, ..Budget::default() }) };
        two_replicas_lead_in_time: in 2, Case { replicas: 2, ..three(Budget { decisions: 1, ticks: 3, ..Budget::default() }) };
        of_three_shards_one_dies: three(Budget { kills: 1, ticks: 3, ..Budget::default() });
        a_drain_is_taken_back: in 2, joining(Budget { forces: 1, ..Budget::default() });
        a_drain_is_taken_back_twice_while_a_message_is_lost:
            alone(Budget { forces: 2, losses: 1, ..Budget::default() });
        a_drain_is_taken_back_while_writes_are_late: in 2,
            alone(Budget { forces: 1, lates: 1, writes: 1, wakes: 1, ..Budget::default() });
        two_replicas_take_a_drain_back: in 2,
            Case { replicas: 2, ..joining(Budget { forces: 2, decisions: 1, ..Budget::default() }) };
        behind_the_fence_a_drain_is_forced_and_taken_back:
            Case { fence: true, ..alone(Budget { forces: 1, take_backs: 1, losses: 1, ..Budget::default() }) };
        behind_the_fence_a_drain_is_forced_and_taken_back_while_a_write_is_late: in 2,
            Case { fence: true, ..alone(Budget { forces: 1, take_backs: 1, lates: 1, ..Budget::default() }) };
        a_child_is_refused: alone(Budget { refusals: 1, ..Budget::default() });
        behind_the_fence_a_child_is_refused_in_a_forced_move:
            Case { fence: true, ..alone(Budget { forces: 1, refusals: 1, ..Budget::default() }) };
        a_child_is_refused_in_a_takeover:
            two(Budget { releases: 1, restarts: 1, lapses: 1, refusals: 1, ..Budget::default() });
        behind_the_fence_a_drain_is_forced: in 2, Case { fence: true, ..joining(Budget { forces: 1, writes: 1, ..Budget::default() }) };
        behind_the_fence_a_drain_is_forced_and_the_acknowledgement_is_late: in 2,
            Case { fence: true, late_acknowledgement: true, ..joining(Budget { forces: 1, writes: 1, ..Budget::default() }) };
        a_hold_runs_out_in_a_takeover: two(Budget { releases: 1, restarts: 1, lapses: 1, ..Budget::default() });
        a_hold_runs_out_while_a_write_is_late:
            two(Budget { releases: 1, restarts: 1, lapses: 1, lates: 1, ..Budget::default() });
        a_hold_is_renewed:
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, losses: 1, ..Budget::default() });
        a_hold_is_renewed_while_a_write_is_late:
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, lates: 1, ..Budget::default() });
        a_leader_is_followed_while_its_renewal_is_late:
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, successions: 1, ..Budget::default() });
        a_leader_is_followed_while_its_renewal_and_a_write_are_late: in 2,
            two(Budget { releases: 1, restarts: 1, lapses: 2, renewals: 2, lates: 1, successions: 1, ..Budget::default() });
        a_leader_is_followed_in_a_takeover:
            two(Budget { releases: 1, restarts: 1, lapses: 1, losses: 1, successions: 1, ..Budget::default() });
        a_leader_is_followed_while_its_write_is_late:
            two(Budget { releases: 1, restarts: 1, lates: 1, successions: 1, ..Budget::default() });
        two_replicas_take_over: in 2,
            Case { replicas: 2, ..two(Budget { releases: 1, restarts: 1, lapses: 1, decisions: 1, ..Budget::default() }) };
        a_shard_dies_and_comes_back_at_the_end_of_a_hold: in 2,
            Case { steady: ONE, ..two(Budget { kills: 1, restarts: 1, ticks: 3, lapses: 1, ..Budget::default() }) };
        writes_of_the_sharder_are_late: in 2, joining(Budget { lates: 1, ..Budget::default() });
        of_three_shards_one_ends_in_order_and_begins_again: three(Budget { releases: 1, restarts: 1, ..Budget::default() });
        one_ends_in_order_and_begins_again_while_another_joins: in "minutes", again_beside_a_newcomer();
        of_three_shards_one_ends_in_order_and_begins_again_and_messages_are_lost:
            calm(Budget { releases: 1, restarts: 1, losses: 2, ..Budget::default() });
        of_three_shards_one_stands_still: calm(Budget { pauses: 1, ticks: 3, ..Budget::default() });
        of_three_shards_one_dies_and_begins_again: calm(Budget { kills: 1, restarts: 1, ticks: 3, ..Budget::default() });
        of_three_shards_one_dies_between_two_replicas:
            Case { replicas: 2, ..calm(Budget { decisions: 1, kills: 1, ticks: 3, ..Budget::default() }) };
        behind_the_fence_of_three_shards_one_dies:
            Case { fence: true, ..calm(Budget { writes: 1, kills: 1, ticks: 3, ..Budget::default() }) };
        messages_of_three_shards_are_lost_in_time: three(Budget { losses: 1, ticks: 3, ..Budget::default() });
        one_joins_while_another_dies: in "minutes", Case { steady: [true; 3], ..joining(Budget { kills: 1, ticks: 3, ..Budget::default() }) };
        the_webhook_assigns_at_once_while_a_shard_dies: in "minutes",
            Case { children: false, steady: [true; 3], ..joining(Budget { kills: 1, ticks: 3, ..Budget::default() }) };
        reads_lag_while_a_shard_stands_still: in 2, calm(Budget { pauses: 1, ticks: 3, catch_ups: 1, ..Budget::default() });
        messages_are_lost_and_watches_end: in "minutes", joining(Budget { losses: 1, cuts: 1, ..Budget::default() });
        behind_the_fence_of_three_shards_one_dies_while_another_renews: in "minutes",
            Case { fence: true, ..three(Budget { writes: 1, kills: 1, ticks: 3, ..Budget::default() }) };
        reads_lag: in 2, joining(Budget { cuts: 1, catch_ups: 1, ..Budget::default() });
        behind_the_fence_writes_are_late: in 2,
            Case { fence: true, ..joining(Budget { writes: 1, wakes: 1, ..Budget::default() }) };
        behind_the_fence_the_webhook_leaves_it_to_the_sharder: in 2,
            Case { fence: true, children: false, ..joining(Budget { strips: 1, ..Budget::default() }) };
    }
}

macro_rules! finds {
    ($($name:ident: $mistake:ident, $promise:ident, $case:expr;)*) => {
    pub(super) fn trials() -> Vec<Trial> {
        let finders = [$(Trial::test(concat!("mistakes::", stringify!($name)), || {
            finds(stringify!($name), Case { mistake: Some(Mistake::$mistake), ..$case }, $promise);
            Ok(())
        })),*];
        let page = Trial::test("mistakes::each_mistake_has_its_row_in_the_docs", || {
            each_mistake_has_its_row_in_the_docs();
            Ok(())
        });
        finders.into_iter().chain([page]).collect()
    }

    /// A mistake that no test looks for does not compile.
    #[allow(unreachable_patterns, reason = "some are looked for in several cases")]
    fn is_looked_for(mistake: Mistake) -> bool {
        match mistake {
            $(Mistake::$mistake => true,)*
        }
    }

    fn each_mistake_has_its_row_in_the_docs() {
        assert!(is_looked_for(Mistake::NoFence));
        let page = include_str!("../../docs/dev/protections.md");
        $(
            let test = concat!("`handover` (model): `mistakes::", stringify!($name), "`");
            assert!(page.contains(test), "docs/dev/protections.md has no row for {test}");
        )*
    }
    };
}

mod mistakes {
    use super::*;

    finds! {
        the_webhook_places_what_loses_its_label:
            WebhookPlacesWhatLosesItsLabel, ONE_WORKS, joining(Budget { strips: 1, ..Budget::default() });
        initial_events_count: InitialEventsCount, ONE_WORKS, joining(Budget { cuts: 1, ..Budget::default() });
        renew_time_is_taken_for_a_clock:
            RenewTimeAsClock, ONE_WORKS, two(Budget { kills: 1, ticks: 3, ..Budget::default() });
        a_renewal_counts_from_its_answer:
            ValidFromAnswer, ONE_WORKS, Case { steady: ONE, ..two(Budget { ticks: 5, ..Budget::default() }) };
        the_shards_clock_stops:
            ClockStops, ONE_WORKS, Case { steady: ONE, ..two(Budget { pauses: 1, ticks: 3, ..Budget::default() }) };
        a_late_acknowledgement_is_for_another_drain:
            OneDrainValue, ONE_WORKS, Case { late_acknowledgement: true, ..joining(Budget::default()) };
        views_are_not_waited_for: ViewsIgnored, ONE_WORKS, joining(Budget::default());
        writes_are_not_waited_for: WritesIgnored, NO_FOREIGN_WRITE, joining(Budget { writes: 1, ..Budget::default() });
        there_is_no_grace: NoGrace, ONE_WORKS, joining(Budget::default());
        the_fence_stays_open: NoFence, ONE_WRITES, joining(Budget { wakes: 1, ..Budget::default() });
        lists_may_be_old: OldLists, ONE_WORKS, joining(Budget { cuts: 1, catch_ups: 1, ..Budget::default() });
        a_watch_that_ended_is_forgotten: EndedWatchForgotten, ONE_WORKS, joining(Budget { cuts: 1, ..Budget::default() });
        objects_are_taken_over_without_a_hold:
            TakenUnheld, ONE_WORKS, two(Budget { releases: 1, restarts: 1, ..Budget::default() });
        a_shard_does_not_wait_for_the_end_of_a_hold:
            HoldNotWaitedFor, ONE_WORKS, two(Budget { releases: 1, restarts: 1, ..Budget::default() });
        a_hold_has_no_end:
            HoldWithoutEnd, HELD, two(Budget { releases: 1, restarts: 1, lapses: 1, ..Budget::default() });
        a_takeovers_write_outlives_the_hold:
            TakeoverOutlivesHold, ONE_WORKS,
            two(Budget { releases: 1, restarts: 1, lapses: 1, ..Budget::default() });
        a_hold_is_released_while_a_write_is_late:
            ReleasedWhileLate, HELD, two(Budget { releases: 1, restarts: 1, lates: 1, ..Budget::default() });
        a_hold_is_released_between_child_and_object:
            ReleasedHalfway, CHILD_FIRST, two(Budget { releases: 1, restarts: 1, losses: 1, ..Budget::default() });
        a_renewal_counts_before_it_is_carried_out:
            RenewalTrusted, ONE_WORKS,
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, ..Budget::default() });
        a_late_write_counts_on_a_renewal:
            LateCountsOnRenewal, ONE_WORKS,
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, lates: 1, ..Budget::default() });
        a_late_renewal_takes_the_lease_of_a_shard:
            RenewalUntested, ONE_WORKS,
            two(Budget { releases: 1, restarts: 1, lapses: 1, renewals: 1, successions: 1, ..Budget::default() });
        a_leader_relies_on_anothers_hold:
            OthersHoldTrusted, HELD,
            two(Budget { releases: 1, restarts: 1, losses: 1, lapses: 1, ..Budget::default() });
        anothers_hold_is_released:
            OthersHoldReleased, HELD,
            Case {
                replicas: 2,
                children: false,
                ..two(Budget { releases: 1, restarts: 1, decisions: 1, ..Budget::default() })
            };
        a_name_without_lease_is_gone_at_once:
            NamelessIsGone, ONE_WORKS,
            Case { steady: ONE, ..two(Budget { deletions: 1, successions: 1, ticks: 3, ..Budget::default() }) };
        a_child_is_written_by_its_label_alone:
            ChildUntested, CHILD_FIRST, alone(Budget { releases: 1, lates: 1, ..Budget::default() });
        a_child_that_is_apart_stays_there:
            StraysLeft, SETTLES, two(Budget { releases: 1, restarts: 1, lapses: 1, ..Budget::default() });
        a_child_is_gathered_to_where_its_object_was:
            GatheredToThePast, CHILD_FIRST,
            Case { replicas: 2, ..joining(Budget { decisions: 1, ..Budget::default() }) };
        a_replica_forgets_what_it_wrote:
            OwnWritesForgotten, CHILD_FIRST, alone(Budget { releases: 1, ..Budget::default() });
        the_api_servers_fence_is_open:
            NoApiServerFence, NO_FOREIGN_WRITE, fenced(Budget { writes: 1, kills: 1, ticks: 3, ..Budget::default() });
        the_webhook_places_what_is_acknowledged:
            WebhookPlacesWhatLosesItsLabel, CHILD_FIRST, joining(Budget::default());
        what_has_no_owner_is_left_to_the_webhook:
            WebhookTrusted, SETTLES, Case { children: false, ..joining(Budget { silences: 1, ..Budget::default() }) };
        children_are_left_behind: ChildrenLeftBehind, CHILD_FIRST, joining(Budget::default());
        the_webhook_places_behind_the_fence:
            WebhookPlacesWhatLosesItsLabel, SETTLES, Case { fence: true, children: false, ..joining(Budget::default()) };
        objects_are_taken_by_force_without_the_fence:
            ForcedUnfenced, NO_FOREIGN_WRITE, joining(Budget { forces: 1, writes: 1, ..Budget::default() });
        a_drain_is_taken_back_once_its_child_has_moved:
            TakenBackApart, CHILD_FIRST,
            Case { fence: true, ..alone(Budget { forces: 1, take_backs: 1, losses: 1, ..Budget::default() }) };
        a_late_acknowledgement_is_for_a_drain_that_was_taken_back:
            OneDrainValue, ONE_WORKS, alone(Budget { forces: 1, ..Budget::default() });
        writes_of_before_a_restart_are_not_waited_for:
            WritesOfBeforeForgotten, NO_FOREIGN_WRITE,
            alone(Budget { proxies: 1, writes: 1, ..Budget::default() });
        a_proxy_that_begins_again_asks_about_nothing:
            RestartTrusts, ONE_WRITES, alone(Budget { proxies: 1, wakes: 1, ..Budget::default() });
        a_proxy_that_begins_again_trusts_what_is_nobodys:
            NobodysTrusted, NO_FOREIGN_WRITE, alone(Budget { proxies: 1, wakes: 1, writes: 1, ..Budget::default() });
        dropped_labels_count_as_an_acknowledgement:
            DroppedLabelsLetGo, ONE_WORKS, joining(Budget { strips: 1, ..Budget::default() });
        a_lease_is_taken_untested: LeaseTakenUntested, ONE_WORKS, two(Budget { kills: 1, ticks: 3, ..Budget::default() });
    }
}
