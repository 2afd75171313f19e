//! Go programs of our own: the sample operator, and what runs in test pods.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

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
    module: &'static str,
    package: &'static str,
    program: &str,
    wanted: &str,
) -> Result<PathBuf, ToolchainError> {
    /// What this process has built: each build reads hundreds of packages to find that there is nothing to do.
    static BUILT: Mutex<BTreeMap<(&str, &str), PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(&(module, package)) {
        return Ok(path.clone());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(module);
    let go = Go::find(environment, folder, wanted, "")?;
    let locked = Locked::acquire(cache::folder(environment, module))?;
    go.build(&[package], "-s -w", &locked.stage(program)?, program)?;
    let path = locked.publish(program)?;
    built.insert((module, package), path.clone());
    Ok(path)
}
