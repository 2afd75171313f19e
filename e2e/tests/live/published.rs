//! Published controllers, unmodified, with nothing to report: each from one unsharded leader to shards that come, go and die. What
//! the API server wrote down about their writes is judged.

mod draft;
mod objects;
mod scenario;

use ringside_e2e::{
    case,
    live::{Case, Group},
    toolchain::Operator,
};

/// The cases.
pub(crate) fn group() -> Group {
    let case = |name, operator: Operator, cost| {
        let case = case!(name, scenario::of(operator));
        case.needs(operator.into()).costs(cost).alone()
    };
    let cases: Vec<Case> = vec![
        case("cert_manager_goes_to_shards", Operator::CertManager, "four minutes, and a build of cert-manager"),
        case("external_secrets_goes_to_shards", Operator::ExternalSecrets, "three minutes, and a long build"),
    ];
    Group::new("published", cases)
}
