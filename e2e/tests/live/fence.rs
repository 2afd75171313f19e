//! The proxy's fence before a real API server: what a controller is shown and may write by name, before a move, during it
//! and after it. The moves are made by hand, as a sharder makes them.

mod children;
mod fixture;
mod flight;
mod gaps;
mod names;

use fixture::Fixture;
use std::sync::Arc;

use ringside_e2e::{
    case,
    live::{Group, Shared},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "fence",
        vec![
            case!("what_was_handed_over_is_neither_shown_nor_written", names::handed_over(&*fixture().await)),
            case!("nothing_is_written_under_an_owner_that_was_handed_over", children::under(&*fixture().await)),
            case!("a_write_under_way_holds_the_acknowledgement", flight::slow_write(&*fixture().await)),
            case!("after_a_gap_in_the_lease_what_is_written_is_verified", gaps::lease(&*fixture().await)),
        ],
    )
    .strict()
    .ends(|| FIXTURE.end())
}

static FIXTURE: Shared<Fixture> = Shared::new();

async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || Fixture::start().await).await
}
