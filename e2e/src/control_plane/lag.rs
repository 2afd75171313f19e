//! What stands between an API server and etcd, so that the API server can be held in the past.

use std::{io, net::SocketAddr, time::Duration};

use crate::line::{Line, Passing};

/// A line to etcd. What etcd sends can be held back: then the API server knows nothing newer, and answers what it may
/// answer from memory with the past. Not for longer than etcd's clients wait for a sign of life, which is 30 s
/// (`keepaliveTime` of k8s.io/apiserver).
#[derive(Debug)]
pub struct Lag(Line);

impl Lag {
    pub(super) async fn before(etcd: SocketAddr) -> io::Result<Self> {
        Ok(Self(Line::to(etcd).await?))
    }

    pub(super) fn port(&self) -> u16 {
        self.0.address().port()
    }

    /// From now on the API server learns nothing.
    pub fn hold(&self) {
        self.0.set(Passing::Questions);
    }

    /// From now on it learns everything so much later, and what it asks takes twice as long.
    pub fn delay(&self, by: Duration) {
        self.0.set(Passing::Late(by));
    }

    /// It learns what it missed.
    pub fn release(&self) {
        self.0.set(Passing::Everything);
    }
}
