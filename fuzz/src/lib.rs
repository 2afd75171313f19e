//! The bodies of the fuzz targets: each takes an input, and panics when a promise is broken.
//!
//! The tests of `proxy/` and `sharder/` include these files too, and [`replay`] runs them.

pub mod inject;
pub mod proxy;
pub mod replay;
pub mod review;

use ringside_inject::uninject;
use ringside_sharder::fuzzing::Webhook;
