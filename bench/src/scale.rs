//! How many changes a second a controller carries, by how many replicas share them; and what its users feel while replicas
//! come and go.
//!
//! A reconcile costs time, most of which is waited for, as with a controller that calls other services. So the replicas are the
//! bound, and not this machine.

mod adoption;
mod arrangement;
mod capacity;
mod changes;
mod latency;
mod load;
mod plot;
mod report;
mod usage;

pub use self::{
    adoption::{Part, adopt},
    arrangement::{GRACE, Running, Shape},
    capacity::{Climb, Limit, find},
    changes::{Course, Event, Felt, go_through},
    report::{adoption, capacity, changes},
};
