//! All cases, a room for each part of the API.

use super::table::Case;

mod aggregated;
mod discovery;
mod errors;
mod heads;
mod large;
mod lists;
mod refusals;
mod representations;
mod transport;
mod upgrades;
mod watches;
mod writes;

/// The table, in the order of the page.
pub(crate) fn all() -> Vec<Case> {
    let rooms = [
        transport::cases(),
        heads::cases(),
        representations::cases(),
        lists::cases(),
        watches::cases(),
        upgrades::cases(),
        writes::cases(),
        large::cases(),
        errors::cases(),
        discovery::cases(),
        aggregated::cases(),
        refusals::cases(),
    ];
    rooms.into_iter().flatten().collect()
}
