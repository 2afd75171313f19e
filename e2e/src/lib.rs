//! Everything that is needed to see Ringside at work on a real Kubernetes API server: the control plane itself, shards
//! with a real identity, an unmodified operator, and a checker that decides whether any object was worked on twice at
//! once or forgotten. All of it without containers, but for a real node where pods are what is to be seen.

pub mod audit;
pub mod chaos;
pub mod checker;
pub mod churn;
pub mod collector;
pub mod compatibility;
pub mod control_plane;
pub mod demo;
pub mod eventually;
mod files;
pub mod helm;
pub mod in_cluster;
pub mod line;
pub mod live;
pub mod manifests;
pub mod node;
pub mod observer;
pub mod pages;
pub mod plain_shard;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod ring_status;
pub mod shard_identity;

pub mod system;
pub mod toolchain;
pub mod wall_clock;
pub mod website;
pub mod workload;
