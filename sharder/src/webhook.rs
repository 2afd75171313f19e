//! The admission webhook: objects get their shard in the write that creates them, and keep it in writes that would drop it.
//!
//! Every replica answers it. [`server`] speaks TLS and HTTP, [`request`] reads what is asked, [`review`] decides,
//! [`certificates`] and [`identity`] see to the certificate.

pub(crate) mod certificates;
mod identity;
mod request;
mod response;
mod review;
pub(crate) mod server;

pub(crate) use identity::ServingIdentity;
