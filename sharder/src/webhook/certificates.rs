//! The webhook's certificates: of an authority of our own, in a Secret that all replicas share ([`keep`]), or of cert-manager,
//! in files ([`files`]).
//!
//! Everything that is to be known about our own is in the certificates themselves: how long they are valid, who signed what
//! ([`check`]). So a new leader, a new version of the sharder, or a Secret from a backup goes on from there, and what must
//! happen next is a function of them and of the time ([`plan`]).

use std::{collections::BTreeSet, time::Duration};

use ringside_runtime::certificates::ServingPair;

mod check;
mod files;
mod keep;
mod plan;
mod published;
mod secret;

#[cfg(test)]
pub(super) mod tests;

pub(super) use self::check::{UnusableCertificate, certified};
pub(crate) use self::{
    files::follow_files,
    keep::{Keeper, server_names},
};

/// The name of every authority: a client tries all that it trusts of this name.
const AUTHORITY: &str = "ringside-sharder-ca";

/// An authority, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signer {
    certificate: String,
    key: String,
}

/// What all replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Certificates {
    /// Who signs.
    signer: Signer,
    /// Who will sign once every API server trusts it.
    next: Option<Signer>,
    /// Who has signed before, as PEM: trusted until their end, as certificates of theirs may be served until then.
    retired: Vec<String>,
    /// What is served.
    pair: ServingPair,
    /// The names that it is good for.
    names: BTreeSet<String>,
}

impl Certificates {
    /// All authorities that clients are to trust, as PEM, the one that signs first.
    fn trusted(&self) -> impl Iterator<Item = &str> {
        let next = self.next.iter().map(|next| next.certificate.as_str());
        [self.signer.certificate.as_str()].into_iter().chain(next).chain(self.retired.iter().map(String::as_str))
    }

    /// The same in one.
    fn bundle(&self) -> Vec<u8> {
        self.trusted().collect::<String>().into_bytes()
    }
}

/// How long certificates are valid, and what follows from that: parts of the lifetime of what is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes(pub(crate) Duration);

impl Lifetimes {
    /// Of what is served.
    fn serving(self) -> Duration {
        self.0
    }

    /// What is served is made again when less than this is left: a third, as cert-manager does.
    fn renewal(self) -> Duration {
        self.0 / 3
    }

    /// Of an authority. It must outlive all that it signs.
    fn authority(self) -> Duration {
        self.0 * 4
    }

    /// Another authority is made when less than this is left of the one that signs: time for every API server to hear of
    /// it, and for what is signed meanwhile to end before its authority does.
    fn succession(self) -> Duration {
        self.0 * 2
    }

    /// How long an authority has stood in all webhook configurations before it signs: an API server that lost its watch
    /// waits up to 30 s before the next (client-go's reflector), and until then trusts what it saw last.
    fn settling(self) -> Duration {
        Duration::from_secs(60).min(self.0 / 10)
    }

    /// How often the Secret is looked at.
    fn look(self) -> Duration {
        Duration::from_secs(60).min(self.0 / 60)
    }
}
