//! What must happen to the certificates next, as a function of what they say and of the time.
//!
//! A served certificate is renewed well before its end. An authority has a successor long before its own: the successor
//! is trusted first, and signs only when every API server can know of it. The one before stays trusted until its end,
//! and so outlives all that it has signed. No replica serves what an API server does not trust yet, or does not any
//! more.

use std::collections::BTreeSet;

use jiff::Timestamp;
use ringside_runtime::certificates::{Authority, CertificateError, ServingPair, Validity};

use super::{AUTHORITY, Certificates, Lifetimes, Signer, check::accepted};

/// A step, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There was nothing to go on from.
    Made,
    /// Another certificate is served.
    Renewed,
    /// Another authority is trusted as well.
    Announced,
    /// That one signs from now on.
    Succeeded,
    /// One that has ended is no longer trusted.
    Ended,
}

/// What certificates are needed.
#[derive(Clone, Debug)]
pub(super) struct Need {
    pub(super) names: BTreeSet<String>,
    pub(super) lifetimes: Lifetimes,
}

impl Certificates {
    /// A new authority, and what it signs.
    pub(super) fn make(need: &Need, now: Timestamp) -> Result<Self, CertificateError> {
        let signer = Signer::make(need.lifetimes, now)?;
        let names = need.names.clone();
        let pair = signer.sign(&names, need.lifetimes, now)?;
        Ok(Self { signer, next: None, retired: Vec::new(), pair, names })
    }

    /// The next step, and what there is after it; none for now. `settled`: every API server can know of the next authority.
    pub(super) fn step(
        &self,
        need: &Need,
        settled: bool,
        now: Timestamp,
    ) -> Result<Option<(Change, Self)>, CertificateError> {
        let lifetimes = need.lifetimes;
        let has_ended = |pem: &String| Validity::of(pem.as_bytes()).is_ok_and(|validity| validity.until < now);
        if self.retired.iter().any(has_ended) {
            let retired = self.retired.iter().filter(|pem| !has_ended(pem)).cloned().collect();
            return Ok(Some((Change::Ended, Self { retired, ..self.clone() })));
        }
        let signs = self.signer.validity().filter(|validity| validity.contains(now));
        match (&self.next, signs) {
            (Some(next), signs) if settled || signs.is_none() => {
                let signer = next.clone();
                let retired = [self.signer.certificate.clone()].into_iter().chain(self.retired.clone()).collect();
                let pair = signer.sign(&self.names, lifetimes, now)?;
                let after = Self { signer, next: None, retired, pair, names: self.names.clone() };
                return Ok(Some((Change::Succeeded, after)));
            }
            (None, None) => return Ok(Some((Change::Made, Self::make(need, now)?))),
            (None, Some(validity)) if validity.left(now) < lifetimes.succession() => {
                let next = Some(Signer::make(lifetimes, now)?);
                return Ok(Some((Change::Announced, Self { next, ..self.clone() })));
            }
            _ => {}
        }
        if self.is_good_for(need, now) {
            return Ok(None);
        }
        let names: BTreeSet<_> = self.names.union(&need.names).cloned().collect();
        let pair = self.signer.sign(&names, lifetimes, now)?;
        Ok(Some((Change::Renewed, Self { pair, names, ..self.clone() })))
    }

    /// Whether what is served may be so for a while.
    fn is_good_for(&self, need: &Need, now: Timestamp) -> bool {
        let Ok(validity) = Validity::of(self.pair.certificate.as_bytes()) else { return false };
        // One that ends with its authority can't be made to last any longer.
        let last = self.signer.validity().is_some_and(|signer| signer.until <= validity.until);
        let lasts = validity.left(now) >= need.lifetimes.renewal() || last;
        lasts && accepted(&self.signer.certificate, &self.pair, &need.names, now)
    }

    /// The same, where what this authority has signed is trusted, too.
    pub(super) fn trusting(&self, other: &Signer) -> Self {
        let mut retired = self.retired.clone();
        if !self.trusted().any(|pem| pem == other.certificate) {
            retired.push(other.certificate.clone());
        }
        Self { retired, ..self.clone() }
    }
}

impl Signer {
    fn make(lifetimes: Lifetimes, now: Timestamp) -> Result<Self, CertificateError> {
        let authority = Authority::new(AUTHORITY)?;
        let certificate = authority.certificate(Validity::lasting(now, lifetimes.authority()))?;
        Ok(Self { certificate, key: authority.key() })
    }

    fn sign(
        &self,
        names: &BTreeSet<String>,
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<ServingPair, CertificateError> {
        let validity = Validity::lasting(now, lifetimes.serving());
        let validity = self.validity().map_or(validity, |own| validity.within(own.until));
        Authority::with_key(AUTHORITY, &self.key)?.sign("ringside-sharder", names.iter().cloned(), validity)
    }
}
