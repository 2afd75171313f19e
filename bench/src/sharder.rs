//! What a ring of many objects costs a sharder, on a real control plane.

mod bare;
mod fenced;
mod ground;
mod large;
mod leader;
mod measure;
mod meter;
mod moves;
mod objects;
mod refused;
mod report;
mod running;
mod upstream;

pub use self::{
    bare::{Bare, CONNECTIONS},
    fenced::leave_fenced,
    ground::{Ground, Outcome},
    large::{Led, lead_large},
    leader::{LeaderChange, change_leader},
    measure::{Measured, Plan, measure},
    meter::Spent,
    moves::Moves,
    objects::Shape,
    refused::join_beside_refused,
    report::{beside, changed_leader, led_large, report},
    running::Make,
    upstream::Upstream,
};
