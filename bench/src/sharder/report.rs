//! The lines that a run prints: figures, what they are to be, and the alternative's beside them.

use std::time::Duration;

use ringside_e2e::checker::percentile;

use super::{
    ground::Outcome,
    large::Led,
    leader::LeaderChange,
    measure::{GRACE, Measured},
    moves::Moves,
    objects::Shape,
};
use crate::{Aims, MEGABYTE};

/// Lists a move, at most.
const LISTS: f64 = 0.05;
/// Of R over the writes of a move, at least.
const JOIN_RATE: f64 = 0.5;
const LEAVE_RATE: f64 = 0.6;
/// From the drain to the next owner, at most, in milliseconds.
const DRAINED: [(usize, f64); 2] = [(50, 15.0), (99, 50.0)];
/// A join with a grace, beyond that, to one without.
const WITH_GRACE: f64 = 1.3;
/// The API server's processor time, against as many bare patches as a move has writes.
const PROCESSOR: f64 = 1.4;
/// What the sharder may have resident with 100,000 objects and 200,000 children, and so with fewer.
const RESIDENT: f64 = 65.0;
const CORES_AT_REST: f64 = 0.01;
/// Of a replica that does not lead.
const STANDBY: f64 = 20.0;
/// What it may have resident with 1,000,000 objects and 2,000,000 children, and so with fewer.
const RESIDENT_LARGE: f64 = 450.0;
/// After a change of the leader, in seconds.
const FIRST_DECISION: f64 = 2.0;
const COMPLETE: f64 = 15.0;
/// Against upstream: the time until all is done, and the API server's processor time for each move.
const TIME_TO_UPSTREAM: f64 = 0.8;
const PROCESSOR_TO_UPSTREAM: f64 = 1.0;

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn each(time: Duration, moves: &Moves) -> f64 {
    milliseconds(time) / moves.count.max(1) as f64
}

/// Writes that a move has where a shard joins: the drain, its acknowledgement, the next owner, and one for each child. The
/// webhook answers an acknowledgement with the next owner where no child has to be moved before.
fn writes_of_move(children: usize) -> f64 {
    if children == 0 { 2.0 } else { 3.0 + children as f64 }
}

/// What is aimed at for ours.
pub fn report(aims: &mut Aims, run: &str, ours: &Measured) {
    aims.told(&format!("{run}R, bare patches from {} connections", super::CONNECTIONS), ours.bare.per_second, "/s");
    let (children, rate) = (ours.shape.children, ours.bare.per_second);
    let what = |phase: &str, figure: &str| format!("{run}{phase}: {figure}");
    let phase = "assigned from nothing";
    costs(aims, &what(phase, ""), &ours.assigned);

    let (phase, joined) = ("join", &ours.joined);
    costs(aims, &what(phase, ""), joined);
    let writes = joined.moves.each(joined.moves.writes);
    aims.at_most(&what(phase, "writes a move"), writes, writes_of_move(children), "");
    aims.at_most(&what(phase, "lists a move"), joined.moves.each(joined.moves.lists), LISTS, "");
    aims.at_most(&what(phase, "gets a move"), joined.moves.each(joined.moves.gets), 0.0, "");
    aims.at_least(&what(phase, "moves a second"), joined.moves.per_second(), JOIN_RATE * rate / writes, "/s");
    for (percent, most) in DRAINED {
        let time = percentile(&joined.moves.drained, percent).unwrap_or_default();
        let figure = format!("drain to next owner, {percent}th of 100");
        aims.at_most(&what(phase, &figure), milliseconds(time), most, "ms");
    }
    aims.told(&what(phase, "a child apart from its owner, longest"), milliseconds(joined.moves.apart), "ms");
    let bare = PROCESSOR * writes_of_move(children).max(3.0) * milliseconds(ours.bare.api_server);
    let used = each(joined.spent.api_server, &joined.moves);
    aims.at_most(&what(phase, "API server CPU a move"), used, bare, "ms");

    if let Some(later) = &ours.joined_with_grace {
        let phase = "join with a grace";
        costs(aims, &what(phase, ""), later);
        let most = GRACE.as_secs_f64() + WITH_GRACE * joined.moves.took().as_secs_f64();
        aims.at_most(&what(phase, "all of it"), later.moves.took().as_secs_f64(), most, "s");
        for (percent, most) in DRAINED {
            let time = percentile(&later.moves.drained, percent).unwrap_or_default().saturating_sub(GRACE);
            let figure = format!("drain to next owner beyond the grace, {percent}th of 100");
            aims.at_most(&what(phase, &figure), milliseconds(time), most, "ms");
        }
    }

    for (phase, taken) in [("leave", &ours.left), ("death", &ours.died)] {
        costs(aims, &what(phase, ""), taken);
        let moves = &taken.moves;
        let (writes, least) = (moves.each(moves.writes + moves.lease_writes), moves.each(2) + 1.0 + children as f64);
        aims.at_most(&what(phase, "writes a takeover, with those to the Lease"), writes, least, "");
        aims.at_most(&what(phase, "lists a takeover"), moves.each(moves.lists), LISTS, "");
        if phase == "leave" {
            aims.at_least(&what(phase, "moves a second"), moves.per_second(), LEAVE_RATE * rate / writes, "/s");
        }
        aims.told(&what(phase, "API server CPU a takeover"), each(taken.spent.api_server, moves), "ms");
    }

    aims.told(&format!("{run}balance of {} shards, max/mean", ours.shards), ours.assigned.max_to_mean, "");
    aims.told(&format!("{run}balance of {} shards, max/mean", ours.shards + 1), joined.max_to_mean, "");
    let (rested, lists) = &ours.rested;
    aims.at_most(&format!("{run}sharder resident after that"), rested.resident as f64 / MEGABYTE, RESIDENT, "MB");
    let time = rested.took.as_secs_f64().max(1e-3);
    let minutes = time / 60.0;
    aims.at_most(&format!("{run}at rest: cores"), rested.sharder.as_secs_f64() / time, CORES_AT_REST, "");
    aims.at_most(&format!("{run}at rest: lists a minute"), *lists as f64 / minutes, 0.0, "");
    aims.told(&format!("{run}at rest: kB a minute"), rested.bytes as f64 / 1e3 / minutes, "kB");
}

/// What is aimed at where the leader changes.
pub fn changed_leader(aims: &mut Aims, run: &str, change: &LeaderChange) {
    let what = |figure: &str| format!("{run}leader change: {figure}");
    aims.at_most(&what("standby resident"), change.standby as f64 / MEGABYTE, STANDBY, "MB");
    aims.at_most(
        &what("first object given to another shard"),
        change.first_decision.as_secs_f64(),
        FIRST_DECISION,
        "s",
    );
    aims.at_most(&what("all objects are known"), change.complete.as_secs_f64(), COMPLETE, "s");
}

/// What is aimed at where a ring is too large for etcd here.
pub fn led_large(aims: &mut Aims, led: &Led) {
    let Shape { objects, children } = led.shape;
    let what = |figure: &str| format!("{objects} x (1 + {children}) are led: {figure}");
    let each = (led.most.saturating_sub(led.before)) as f64 / (objects * (1 + children)).max(1) as f64;
    aims.at_most(&what("most resident"), led.most as f64 / MEGABYTE, RESIDENT_LARGE, "MB");
    aims.told(&what("resident once nothing is listed"), led.after as f64 / MEGABYTE, "MB");
    aims.told(&what("resident before there is a ring"), led.before as f64 / MEGABYTE, "MB");
    aims.told(&what("bytes an object"), each, "");
    aims.told(&what("all objects are known"), led.known.as_secs_f64(), "s");
    aims.told(&what("sharder CPU until then"), led.used.as_secs_f64(), "s");
    aims.told(&what("sharder CPU until nothing is listed"), led.used_in_all.as_secs_f64(), "s");
    aims.told(&what("how often each was sent"), led.sent, "times");
}

/// What a phase took, and what it cost.
fn costs(aims: &mut Aims, phase: &str, outcome: &Outcome) {
    let moves = &outcome.moves;
    aims.told(&format!("{phase}moves"), moves.count as f64, "");
    aims.told(&format!("{phase}last object"), moves.last_root.as_secs_f64(), "s");
    aims.told(&format!("{phase}last child"), moves.last_child.as_secs_f64(), "s");
    aims.told(&format!("{phase}sharder CPU a move"), each(outcome.spent.sharder, moves), "ms");
    aims.told(&format!("{phase}sharder kB a move"), outcome.spent.bytes as f64 / 1e3 / moves.count.max(1) as f64, "kB");
}

/// Ours against the alternative's, measured in the same run.
pub fn beside(aims: &mut Aims, run: &str, ours: &Measured, theirs: &Measured) {
    let both = |of: fn(&Measured) -> &Outcome| (of(ours), of(theirs));
    let phases = [
        ("join", both(|one| &one.joined), true),
        ("leave", both(|one| &one.left), true),
        ("death", both(|one| &one.died), false),
    ];
    for (phase, (ours, theirs), has_aim) in phases {
        let (own, other) = (&ours.moves, &theirs.moves);
        aims.told(&format!("{run}{phase}, upstream: moves"), other.count as f64, "");
        aims.told(&format!("{run}{phase}, upstream: last object"), other.last_root.as_secs_f64(), "s");
        aims.told(&format!("{run}{phase}, upstream: last child"), other.last_child.as_secs_f64(), "s");
        let processor = (each(ours.spent.api_server, own), each(theirs.spent.api_server, other));
        aims.told(&format!("{run}{phase}, upstream: API server CPU a move"), processor.1, "ms");
        aims.told(&format!("{run}{phase}, upstream: sharder CPU a move"), each(theirs.spent.sharder, other), "ms");
        let apart = milliseconds(other.apart);
        aims.told(&format!("{run}{phase}, upstream: a child apart from its owner, longest"), apart, "ms");
        let took = own.took().as_secs_f64() / other.took().as_secs_f64().max(1e-3);
        let lines =
            [("time", took, TIME_TO_UPSTREAM), ("API server CPU", processor.0 / processor.1, PROCESSOR_TO_UPSTREAM)];
        for (figure, ratio, most) in lines {
            let what = format!("{run}{phase}: {figure} to upstream's");
            if has_aim { aims.at_most(&what, ratio, most, "times") } else { aims.told(&what, ratio, "times") }
        }
    }
    for (percent, _) in DRAINED {
        let time = percentile(&theirs.joined.moves.drained, percent).unwrap_or_default();
        let what = format!("{run}join, upstream: drain to next owner, {percent}th of 100");
        aims.told(&what, milliseconds(time), "ms");
    }
    let resident = theirs.rested.0.resident as f64 / MEGABYTE;
    aims.told(&format!("{run}upstream: sharder resident after that"), resident, "MB");
    for (shards, outcome) in [(theirs.shards, &theirs.assigned), (theirs.shards + 1, &theirs.joined)] {
        aims.told(&format!("{run}upstream: balance of {shards} shards, max/mean"), outcome.max_to_mean, "");
    }
}
