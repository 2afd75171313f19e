//! Measurements: what each of them, a program under `src/bin`, needs to tell its result.

pub mod names;
pub mod sharder;
mod table;

pub use table::Table;
