//! What upstream's sharder took in an earlier run of this program, for a run without it.

use super::{
    aims::Aims,
    ground::Outcome,
    measure::Measured,
    report::{PROCESSOR_TO_UPSTREAM, TIME_TO_UPSTREAM, each, milliseconds},
};

/// A phase of upstream at f1d25b3 (2026-06, after 0.13), 3,000 x (1 + 1), client-side limits lifted.
struct Figures {
    phase: &'static str,
    ours: fn(&Measured) -> &Outcome,
    /// Milliseconds until the last child, for each move.
    time: f64,
    /// Milliseconds of the API server's processor time for each move.
    processor: f64,
}

const FIGURES: [Figures; 2] = [
    Figures { phase: "join", ours: |one| &one.joined, time: 10.4, processor: 13.5 },
    Figures { phase: "leave", ours: |one| &one.left, time: 10.4, processor: 13.5 },
];
/// R in that run, and what a bare patch took of the API server's processor time, in milliseconds.
const PER_SECOND: f64 = 1_000.0;
const BARE: f64 = 1.0;

/// Ours against those figures, as they would be where bare patches cost what they cost here.
pub fn against_figures(aims: &mut Aims, run: &str, ours: &Measured) {
    aims.not_measured(&format!("{run}upstream's sharder"), "needs --upstream CHECKOUT; its earlier figures instead");
    for Figures { phase, ours: of, time, processor } in FIGURES {
        let Outcome { moves, spent, .. } = of(ours);
        let expected = time * PER_SECOND / ours.bare.per_second;
        let what = format!("{run}{phase}: time to upstream's figures, by R");
        aims.at_most(&what, each(moves.took(), moves) / expected, TIME_TO_UPSTREAM, "times");
        let expected = processor * milliseconds(ours.bare.api_server) / BARE;
        let what = format!("{run}{phase}: API server CPU to upstream's figures, by a bare patch's");
        aims.at_most(&what, each(spent.api_server, moves) / expected, PROCESSOR_TO_UPSTREAM, "times");
    }
}
