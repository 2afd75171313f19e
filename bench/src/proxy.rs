//! What the proxy costs beside its alternatives, before one API server that is none: `cargo bench-proxy`.

mod certificates;
mod client;
mod configuration;
mod haproxy;
mod loads;
mod machine;
mod measure;
mod memory;
mod nginx;
mod relay;
mod report;
mod serve;
mod started;
mod upstream;
mod ways;

pub use self::{
    certificates::Certificates,
    loads::{Encoding, Load, Protocol},
    machine::machine,
    measure::{Figures, Measured, Plan, measure},
    relay::relay,
    report::report,
    upstream::{Shape, upstream},
    ways::Way,
};
