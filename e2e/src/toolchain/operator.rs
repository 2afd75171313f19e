//! The sample operator, built from `operator/`.

use std::path::{Path, PathBuf};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    go::Go,
};

const PROGRAM: &str = "website-operator";

/// Builds the sample operator. Go's build cache knows whether there is anything to do.
pub fn operator(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("operator");
    let go = Go::find(environment, module, "the sample operator", "")?;
    let locked = Locked::acquire(cache::folder(environment, "operator"))?;
    go.build(".", "-s -w", &locked.staging()?.join(PROGRAM))?;
    locked.publish(PROGRAM)
}
