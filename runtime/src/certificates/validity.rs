//! From when until when a certificate is valid.

use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, BERReaderSeq, Tag, parse_der, tags};

/// Longer than a pod lives, or a cluster without an upgrade.
const LONG: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Certificates are valid from before they are made, since clocks differ.
const BEFORE: Duration = Duration::from_secs(60 * 60);

/// A time in which a certificate is valid, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
}

/// Why it can't be told how long a certificate is valid.
#[derive(Debug, thiserror::Error)]
#[error("it is no certificate in PEM: {0}")]
pub struct ReadValidity(String);

impl Validity {
    /// For so long that no user thinks of its end.
    pub fn long(now: Timestamp) -> Self {
        Self::lasting(now, LONG)
    }

    /// From now on for so long, and from a while ago.
    pub fn lasting(now: Timestamp, for_so_long: Duration) -> Self {
        Self { from: now - BEFORE, until: now + for_so_long }
    }

    /// The same, but with an end that is not after `until`.
    #[must_use]
    pub fn within(self, until: Timestamp) -> Self {
        Self { until: self.until.min(until), ..self }
    }

    /// Whether that is a time in it.
    pub fn contains(&self, moment: Timestamp) -> bool {
        (self.from..=self.until).contains(&moment)
    }

    /// How long it lasts from that time on.
    pub fn left(&self, moment: Timestamp) -> Duration {
        Duration::try_from(self.until.duration_since(moment)).unwrap_or_default()
    }

    /// Of a certificate in PEM.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(pem: &[u8]) -> Result<Self, ReadValidity> {
        let der = CertificateDer::from_pem_slice(pem).map_err(|error| ReadValidity(error.to_string()))?;
        parse_der(&der, certificate).map_err(|error| ReadValidity(error.to_string()))
    }
}

/// RFC 5280, 4.1: a certificate is a sequence, of which the first part, a sequence too, has the validity in it.
fn certificate(reader: BERReader<'_, '_>) -> ASN1Result<Validity> {
    reader.read_sequence(|reader| {
        let validity = reader.next().read_sequence(|reader| {
            let version = Tag::context(0);
            reader.read_optional(|reader| reader.read_tagged(version, raw))?;
            // Serial number, the signature's algorithm, and the issuer.
            for _ in 0..3 {
                reader.next().read_der()?;
            }
            let validity =
                reader.next().read_sequence(|reader| Ok(Validity { from: moment(reader)?, until: moment(reader)? }))?;
            rest(reader)?;
            Ok(validity)
        })?;
        rest(reader)?;
        Ok(validity)
    })
}

/// RFC 5280, 4.1.2.5: in one form until 2049, in another from then on.
fn moment(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<Timestamp> {
    let reader = reader.next();
    let seconds = match reader.lookahead_tag()? {
        tags::TAG_UTCTIME => reader.read_utctime()?.datetime().unix_timestamp(),
        _ => reader.read_generalized_time()?.datetime().unix_timestamp(),
    };
    Timestamp::from_second(seconds).map_err(|_| ASN1Error::new(ASN1ErrorKind::Invalid))
}

/// Whatever comes next, as it is.
fn raw(reader: BERReader<'_, '_>) -> ASN1Result<Vec<u8>> {
    reader.read_der()
}

/// A sequence must be read to its end.
fn rest(reader: &mut BERReaderSeq<'_, '_>) -> ASN1Result<()> {
    while reader.read_optional(raw)?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::certificates::Authority;

    #[test]
    fn what_is_made_says_how_long_it_is_valid_before_2050_and_after() {
        let authority = Authority::new("authority").unwrap();
        for now in [1_800_000_000, 2_500_000_000, 3_000_000_000] {
            let now = Timestamp::from_second(now).unwrap();
            let validity = Validity::lasting(now, Duration::from_secs(90));
            let certificate = authority.certificate(validity).unwrap();
            assert_eq!(Validity::of(certificate.as_bytes()).unwrap(), validity);
            let pair = authority.sign("server", ["localhost".to_owned()], validity.within(now)).unwrap();
            let read = Validity::of(pair.certificate.as_bytes()).unwrap();
            assert_eq!(read, Validity { until: now, ..validity });
            assert!(read.contains(now) && !read.contains(now + Duration::from_secs(1)));
            assert_eq!(validity.left(now), Duration::from_secs(90));
            assert_eq!(read.left(now + Duration::from_secs(1)), Duration::ZERO);
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let pem = Authority::new("authority").unwrap().certificate(Validity::long(Timestamp::now())).unwrap();
        let half = &pem[..pem.len() / 2];
        let body = "-----BEGIN CERTIFICATE-----\nMAMCAQU=\n-----END CERTIFICATE-----\n";
        for bad in ["", "nonsense", half, body] {
            assert!(Validity::of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
