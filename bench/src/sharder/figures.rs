//! What upstream's sharder took in an earlier measurement, for a run without it.

use super::{ground::Outcome, measure::Measured, report::each};
use crate::Aims;

/// A phase of upstream at f1d25b3 (2026-06, after 0.13), 3,000 x (1 + 1) on two cores, client-side limits lifted.
struct Figures {
    phase: &'static str,
    ours: fn(&Measured) -> &Outcome,
    /// Milliseconds until the last child, for each move.
    time: f64,
    /// Milliseconds of the API server's processor time for each move, where it was taken.
    processor: Option<f64>,
}

const FIGURES: [Figures; 2] = [
    // 731 moves in 6.9 to 8.3 s.
    Figures { phase: "join", ours: |one| &one.joined, time: 10.4, processor: Some(13.5) },
    // 724 in 6.8 to 8.2 s.
    Figures { phase: "leave", ours: |one| &one.left, time: 10.4, processor: None },
];

/// Ours against those figures. R was not taken with them, so they can't be scaled to this machine, and no aim is judged.
pub fn against_figures(aims: &mut Aims, run: &str, ours: &Measured) {
    aims.not_measured(&format!("{run}upstream's sharder"), "needs --upstream CHECKOUT");
    for Figures { phase, ours: of, time, processor } in FIGURES {
        let Outcome { moves, spent, .. } = of(ours);
        let what = |figure: &str| format!("{run}{phase}: {figure} to upstream's of an earlier day, not scaled");
        aims.told(&what("time a move"), each(moves.took(), moves) / time, "times");
        if let Some(processor) = processor {
            aims.told(&what("API server CPU a move"), each(spent.api_server, moves) / processor, "times");
        }
    }
}
