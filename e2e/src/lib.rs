//! Everything that is needed to see Ringside at work on a real Kubernetes API server, without containers: the
//! control plane itself, shards with a real identity, an unmodified operator, and a checker that decides whether
//! any object was worked on twice at once or forgotten.

pub mod checker;
pub mod collector;
pub mod compatibility;
pub mod control_plane;
pub mod demo;
pub mod eventually;
pub mod manifests;
pub mod observer;
pub mod ports;
pub mod process;
pub mod shard_identity;
pub mod system;
pub mod toolchain;
pub mod website;
pub mod workload;
