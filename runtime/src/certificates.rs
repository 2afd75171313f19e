//! Certificates of our own: an authority, and what it signs for a server.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

mod validity;

pub use rcgen::Error as CertificateError;

pub use self::validity::{ReadValidity, Validity};

/// Who signs: a name and a key. A certificate of it that was made before is as good as one that is made now.
#[derive(Debug)]
pub struct Authority {
    name: &'static str,
    key: KeyPair,
}

/// A server's certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingPair {
    /// The certificate alone: the authority signs it itself.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// One with a new key.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new(name: &'static str) -> Result<Self, CertificateError> {
        Ok(Self { name, key: KeyPair::generate()? })
    }

    /// The one that had this key before, in PEM.
    ///
    /// # Errors
    /// When it is no key.
    pub fn with_key(name: &'static str, key: &str) -> Result<Self, CertificateError> {
        Ok(Self { name, key: KeyPair::from_pem(key)? })
    }

    /// Its key, in PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// Its own certificate, in PEM, for clients to trust.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn certificate(&self, validity: Validity) -> Result<String, CertificateError> {
        Ok(self.parameters(validity)?.self_signed(&self.key)?.pem())
    }

    /// A pair for a server that is reached by these host names and addresses.
    ///
    /// # Errors
    /// When one of them is none, or the pair can't be made.
    pub fn sign(
        &self,
        server: &'static str,
        names: impl IntoIterator<Item = String>,
        validity: Validity,
    ) -> Result<ServingPair, CertificateError> {
        let mut parameters = parameters(server, names.into_iter().collect(), validity)?;
        parameters.use_authority_key_identifier_extension = true;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &Issuer::new(self.parameters(validity)?, &self.key))?;
        Ok(ServingPair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    fn parameters(&self, validity: Validity) -> Result<CertificateParams, CertificateError> {
        let mut parameters = parameters(self.name, Vec::new(), validity)?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(parameters)
    }
}

fn parameters(
    common_name: &str,
    names: Vec<String>,
    validity: Validity,
) -> Result<CertificateParams, CertificateError> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, common_name);
    let since_1970 = |moment: Timestamp| {
        date_time_ymd(1970, 1, 1) + Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default())
    };
    parameters.not_before = since_1970(validity.from);
    parameters.not_after = since_1970(validity.until);
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    };

    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// Whether a client that trusts `ca` would accept the pair, under that name, so many days after `NOW`.
    fn accepted(ca: &str, pair: &ServingPair, name: &'static str, day: u64) -> bool {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(ca)).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(NOW + day * 24 * 60 * 60));
        let name = ServerName::try_from(name).unwrap();
        verifier.verify_server_cert(&der(&pair.certificate), &[], &name, &[], at).is_ok()
    }

    #[test]
    fn a_pair_is_good_for_its_names_and_its_time_by_whatever_certificate_of_its_authority() {
        let now = Validity::long(Timestamp::UNIX_EPOCH + Duration::from_secs(NOW));
        let authority = Authority::new("authority").unwrap();
        let before = authority.certificate(now).unwrap();
        let again = Authority::with_key("authority", &authority.key()).unwrap();
        let pair = again.sign("server", ["localhost", "::1"].map(str::to_owned), now).unwrap();
        for (name, day, good) in [
            ("localhost", 0, true),
            ("::1", 0, true),
            ("localhost", 9 * 365, true),
            ("127.0.0.1", 0, false),
            ("localhost", 11 * 365, false),
        ] {
            assert_eq!(accepted(&before, &pair, name, day), good, "{name} {day}");
        }
        let other = Authority::new("authority").unwrap().certificate(now).unwrap();
        assert!(!accepted(&other, &pair, "localhost", 0));
    }
}
