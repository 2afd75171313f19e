//! Go programs of our own: the sample operator, and what runs in test pods.

use std::path::{Path, PathBuf};

use super::{
    Environment, ToolchainError,
    cache::{self, Locked},
    go::Go,
};

/// Builds the sample operator from `operator/`. Go's build cache knows whether there is anything to do.
pub fn operator(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    build(environment, "operator", ".", "website-operator", "the sample operator")
}

/// Builds the operator that shards itself.
pub fn own_shard(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    build(environment, "operator", "./shard", "website-shard", "the operator that shards itself")
}

/// Builds the sharder that is not ours.
pub fn other_sharder(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    build(environment, "operator", "./sharder", "small-sharder", "the sharder that is not ours")
}

/// Builds what takes part in leader elections by the code of client-go and controller-runtime.
pub fn elector(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    build(environment, "operator", "./elector", "elector", "the Go program that takes part in elections")
}

/// Builds the program of test pods from `guest/`.
pub fn guest(environment: &Environment) -> Result<PathBuf, ToolchainError> {
    build(environment, "guest", ".", "guest", "the program of test pods")
}

fn build(
    environment: &Environment,
    module: &str,
    package: &str,
    program: &str,
    wanted: &str,
) -> Result<PathBuf, ToolchainError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(module);
    let go = Go::find(environment, folder, wanted, "")?.without_c();
    let locked = Locked::acquire(cache::folder(environment, module))?;
    go.build(package, "-s -w", &locked.staging()?.join(program))?;
    locked.publish(program)
}
