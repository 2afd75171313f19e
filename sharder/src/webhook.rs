//! The admission webhook: objects get their shard in the write that creates them, and keep it in writes that would drop it.
//!
//! Every replica answers it. [`server`] speaks TLS and HTTP on so many [`connections`], [`body`] and [`request`] read what is asked, also where it is
//! odd ([`lenient`]), [`reviewer`] and [`review`] decide by what [`owner_reads`] finds, [`created`] looks whether what is labelled comes to be, [`injector`] adds the proxy to pods, [`certificates`] and [`identity`] see to the certificate, [`farewell`] to the
//! end.

mod body;
pub(crate) mod certificates;
mod connections;
mod created;
mod farewell;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod identity;
pub(crate) mod injector;
mod lenient;
mod owner_reads;
mod request;
mod response;
mod review;
pub(crate) mod reviewer;
pub(crate) mod server;

pub(crate) use body::Room;
pub(crate) use created::Creates;
pub(crate) use identity::ServingIdentity;
pub(crate) use injector::Injector;
