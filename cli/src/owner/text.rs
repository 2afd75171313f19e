//! The answer as one screen.

use super::report::{Report, State};
use crate::output::wrap;

/// Renders the answer, one line a fact.
pub(super) fn screen(report: &Report) -> String {
    let state = match report.state {
        State::Assigned => "assigned",
        State::Draining => "moving",
        State::Unassigned => "NO OWNER",
        State::Outside => "outside the ring",
    };
    let mut text = format!("{} {}: {state} (ring {})\n", report.resource, report.object, report.ring);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&wrap(&format!("{name:<9}  "), &value));
        }
    };
    let owner = report.owner.as_ref().map(|owner| match &report.owner_state {
        Some(state) => format!("{owner} ({state})"),
        None => owner.clone(),
    });
    line("owner", owner);
    let by = report.by.as_deref().unwrap_or_default();
    line("since", report.since.as_ref().map(|since| format!("{since}, written by {by}")));
    line("why", Some(report.why.clone()));
    line("next", report.next.as_ref().map(|next| format!("{next} is next in line")));
    line("children", report.children.map(|it| format!("{} of {} with it", it.with_it, it.all)));
    line("move", report.move_id.clone());
    let waits = report.waits_for.clone().unwrap_or_else(|| "nothing".to_owned());
    line("waits for", (report.state != State::Outside).then_some(waits));
    for event in &report.events {
        line("event", Some(event.clone()));
    }
    text
}
