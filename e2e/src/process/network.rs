//! Networks of a process's own.

use std::{fs::File, io, os::fd::AsFd as _, path::Path};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Moves the calling thread into the network namespace that a file such as `/proc/1/ns/net` stands for: with it the threads
/// and processes that it starts from now on. A socket stays in the network that it was made in.
pub fn enter_network(namespace: &Path) -> io::Result<()> {
    let network = File::open(namespace)?;
    Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
}
