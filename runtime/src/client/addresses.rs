//! Which of the API server's addresses to try first.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use parking_lot::Mutex;
use tokio::net::lookup_host;

/// What is remembered of a name's addresses: the one that answered last, for all connections alike. With several API
/// servers behind one name a process thus tends to stay with one of them, and its reads seldom jump between two that have
/// come differently far: one that takes longer than the next one's turn to come loses it.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    worked: Mutex<Option<IpAddr>>,
}

impl Addresses {
    /// The addresses of `host`, in the order in which to try them.
    pub(super) async fn of(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut found: Vec<_> = lookup_host((host, port)).await?.collect();
        self.order(&mut found);
        Ok(found)
    }

    /// The one that worked goes first; the others stay in the resolver's order.
    fn order(&self, found: &mut [SocketAddr]) {
        let worked = *self.worked.lock();
        found.sort_by_key(|address| Some(address.ip()) != worked);
    }

    /// A connection to this address was made, TLS included.
    pub(super) fn worked(&self, address: SocketAddr) {
        *self.worked.lock() = Some(address.ip());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_worked_is_tried_first_and_the_rest_as_the_resolver_says() {
        let addresses = Addresses::default();
        let [a, b, c] = ["192.0.2.1:443", "192.0.2.2:443", "[2001:db8::1]:443"].map(|it| it.parse().unwrap());
        let mut found = vec![a, b, c];
        addresses.order(&mut found);
        assert_eq!(found, [a, b, c]);
        addresses.worked(b);
        addresses.order(&mut found);
        assert_eq!(found, [b, a, c]);
    }
}
