//! Tries every order of events, as it should be and with each mistake.
#![allow(clippy::print_stdout, reason = "how much was tried is part of the result")]

use std::{num::NonZero, thread::available_parallelism, time::Instant};

use ringside_model::{Budget, Case, Handover, Mistake};
use stateright::{Checker, HasDiscoveries, Model};

/// Tries everything, or everything until a promise is broken; returns the broken promises, with the shortest way there.
fn broken(name: &str, case: Case) -> Vec<String> {
    let started = Instant::now();
    let finish = if case.mistake.is_some() { HasDiscoveries::Any } else { HasDiscoveries::All };
    let threads = available_parallelism().map_or(1, NonZero::get);
    let checker = Handover::of(case).checker().threads(threads).finish_when(finish).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, the farthest {depth} steps away, {:?}", started.elapsed());
    let discoveries = checker.discoveries();
    discoveries.into_iter().map(|(promise, path)| format!("{promise}: {:#?}", path.into_actions())).collect()
}

/// Two shards at work, and a third that joins.
fn joining(budget: Budget) -> Case {
    Case { budget, ..Case::default() }
}

/// Two shards and one object, for what takes time and so has many more orders.
fn two(budget: Budget) -> Case {
    Case { budget, joins: false, objects: 1, ..Case::default() }
}

macro_rules! holds {
    ($($name:ident: $case:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(broken(stringify!($name), $case), Vec::<String>::new());
        }
    )*};
}

mod as_it_should_be {
    use super::*;

    holds! {
        a_shard_joins: joining(Budget::default());
        writes_are_late: joining(Budget { writes: 1, ..Budget::default() });
        labels_are_stripped: joining(Budget { strips: 1, ..Budget::default() });
        the_webhook_assigns_at_once: Case { children: false, ..joining(Budget { strips: 1, ..Budget::default() }) };
        others_write_the_object: joining(Budget { touches: 1, ..Budget::default() });
        a_watch_ends: joining(Budget { cuts: 1, ..Budget::default() });
        messages_are_lost: joining(Budget { losses: 1, ..Budget::default() });
        a_reconcile_sleeps: joining(Budget { wakes: 1, ..Budget::default() });
        an_acknowledgement_is_late: Case { late_acknowledgement: true, ..joining(Budget::default()) };
        a_shard_ends_in_order_and_begins_again: two(Budget { releases: 1, restarts: 1, ..Budget::default() });
        time_passes: two(Budget { ticks: 3, ..Budget::default() });
    }
}

macro_rules! finds {
    ($($name:ident: $mistake:ident, $case:expr;)*) => {$(
        #[test]
        fn $name() {
            let case = Case { mistake: Some(Mistake::$mistake), ..$case };
            assert_ne!(broken(stringify!($name), case), Vec::<String>::new(), "the mistake is not found");
        }
    )*};
}

mod mistakes {
    use super::*;

    finds! {
        the_webhook_places_what_loses_its_label:
            WebhookPlacesWhatLosesItsLabel, joining(Budget { strips: 1, ..Budget::default() });
        initial_events_count: InitialEventsCount, joining(Budget { cuts: 1, ..Budget::default() });
        renew_time_is_taken_for_a_clock: RenewTimeAsClock, two(Budget::default());
        a_renewal_counts_from_its_answer: ValidFromAnswer, two(Budget { ticks: 4, ..Budget::default() });
        the_shards_clock_stops: ClockStops, two(Budget { ticks: 3, pauses: 1, ..Budget::default() });
        a_late_acknowledgement_is_for_another_drain:
            OneDrainValue, Case { late_acknowledgement: true, ..joining(Budget::default()) };
        views_are_not_waited_for: ViewsIgnored, joining(Budget::default());
        writes_are_not_waited_for: WritesIgnored, joining(Budget { writes: 1, ..Budget::default() });
        there_is_no_grace: NoGrace, joining(Budget::default());
        the_fence_stays_open: NoFence, joining(Budget { wakes: 1, ..Budget::default() });
        lists_may_be_old: OldLists, joining(Budget { cuts: 1, catch_ups: 1, ..Budget::default() });
        a_watch_that_ended_is_forgotten: EndedWatchForgotten, joining(Budget { cuts: 1, ..Budget::default() });
        objects_are_moved_unclaimed: MovedUnclaimed, two(Budget { releases: 1, restarts: 1, ..Budget::default() });
        a_lease_is_taken_untested: LeaseTakenUntested, two(Budget { ticks: 3, ..Budget::default() });
    }
}
