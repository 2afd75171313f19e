//! Published controllers, unmodified, with nothing to report: each from one unsharded leader to shards that come, go and die. What
//! the API server wrote down about their writes is judged.

mod draft;
mod objects;
mod scenario;

use ringside_e2e::{case, live::Group, toolchain::Operator};

/// The cases.
pub(crate) fn group() -> Group {
    let cert_manager = case!(scenario::cert_manager_goes_to_shards)
        .needs(Operator::CertManager.into())
        .costs("four minutes, and a build of cert-manager")
        .alone();
    Group::new("published", vec![cert_manager])
}
