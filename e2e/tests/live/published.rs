//! Published controllers, unmodified, with nothing to report: each from one unsharded leader to shards that come, go and die. What
//! the API server wrote down about their writes is judged.

mod cert_manager;
mod controller;
mod draft;
mod external_secrets;
mod objects;
mod scenario;

use ringside_e2e::{case, live::Group, toolchain::Operator};

/// The cases.
pub(crate) fn group() -> Group {
    let cert_manager = case!(scenario::cert_manager_goes_to_shards)
        .needs(Operator::CertManager.into())
        .costs("four minutes, and a build of cert-manager")
        .alone();
    let external_secrets = case!(scenario::external_secrets_goes_to_shards)
        .needs(Operator::ExternalSecrets.into())
        .costs("three minutes, and a build of external-secrets")
        .alone();
    Group::new("published", vec![cert_manager, external_secrets])
}
