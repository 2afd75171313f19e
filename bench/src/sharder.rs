//! What a ring of many objects costs a sharder, on a real control plane.

mod ground;
mod make;
mod meter;

pub use self::{ground::Ground, make::Make, meter::Cost};
