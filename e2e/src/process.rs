//! Child processes, folders and cgroups that are gone when their owner is: dropped, panicked, interrupted or killed.
//!
//! The usual means (a parent-death signal) is set between fork and exec, which takes `unsafe`. So every owner process
//! has one guard: a few lines of shell on a pipe, which clean up when the pipe closes, however the owner ended.

mod cgroup;
mod child;
mod folder;
mod guard;
mod logs;
mod network;

pub use cgroup::Cgroup;
pub use child::{Process, ProcessError, memory};
pub use folder::{Folder, keep_all_logs};
pub use logs::keep as keep_logs;
pub use network::enter_network;
