//! Free loopback ports for servers that must be told their port before they start.

use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, TcpListener},
    sync::{LazyLock, Mutex, PoisonError},
};

use rand::RngExt as _;

/// Below the range from which the kernel takes the ports of outgoing connections (32768 and up by default): a server
/// that is stopped and started again on its port must not find a client's socket sitting there.
const RANGE: std::ops::Range<u16> = 15_000..32_000;

/// After this many ports in use one after the other the machine is out of ports, or loopback is out of order.
const ATTEMPTS: usize = 1000;

static HANDED_OUT: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port of 127.0.0.1 that no process listens on and that this process did not hand out before. Another process can
/// still take it: a server that finds its port taken is started again with another one.
pub fn free_port() -> io::Result<u16> {
    let mut handed_out = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..ATTEMPTS {
        let port = rand::rng().random_range(RANGE);
        if !handed_out.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            handed_out.insert(port);
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn never_hands_out_a_port_twice_and_each_can_be_bound() {
        let ports: HashSet<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 200);
        TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
    }
}
