//! Measurements: what each of them, a program under `src/bin`, needs to tell its result.

mod aims;
pub mod names;
mod processes;
mod progress;
pub mod proxy;
pub mod scale;
pub mod sharder;
mod table;

pub use aims::Aims;
pub use processes::load;
pub use progress::say;
pub use table::Table;

/// Bytes.
const MEGABYTE: f64 = 1e6;
