//! The Secret that the certificates are in.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::core::ObjectMeta;
use ringside_runtime::certificates::ServingPair;

use super::{Certificates, Signer};

/// Its name.
pub(super) const SECRET_NAME: &str = "ringside-sharder-webhook";
/// The names that the serving certificate is good for.
const NAMES_ANNOTATION: &str = "ringside.dev/certificate-names";

/// All authorities that clients are to trust, the one that signs first; so a user can take it as it is.
const TRUSTED: &str = "ca.crt";
const SIGNER_KEY: &str = "ca.key";
const NEXT: &str = "next-ca.crt";
const NEXT_KEY: &str = "next-ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Why what is in the Secret can't be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    /// It is not there, or no text.
    #[error("'{0}' is missing or is no text")]
    Missing(&'static str),
    /// What is signed with the key is not trusted by the certificate.
    #[error("'{0}' and '{1}' are not the certificate of an authority and its key")]
    Authority(&'static str, &'static str),
}

/// A Secret with the certificates, in the place of the one that is there.
pub(super) fn write(certificates: &Certificates, stored: ObjectMeta) -> Secret {
    let mut metadata = stored;
    metadata.name = Some(SECRET_NAME.to_owned());
    metadata.managed_fields = None;
    let names = certificates.names.iter().cloned().collect::<Vec<_>>().join(",");
    metadata.annotations.get_or_insert_default().insert(NAMES_ANNOTATION.to_owned(), names);
    let Certificates { signer, next, pair, .. } = certificates;
    let mut data: BTreeMap<_, Vec<u8>> = BTreeMap::from([
        (TRUSTED, certificates.bundle()),
        (SIGNER_KEY, signer.key.clone().into()),
        (CERTIFICATE, pair.certificate.clone().into()),
        (KEY, pair.key.clone().into()),
    ]);
    if let Some(next) = next {
        data.extend([(NEXT, next.certificate.clone().into()), (NEXT_KEY, next.key.clone().into())]);
    }
    let data = data.into_iter().map(|(name, pem)| (name.to_owned(), ByteString(pem))).collect();
    Secret { metadata, data: Some(data), ..Secret::default() }
}

/// The Secret before there is anything in it.
pub(super) fn empty() -> Secret {
    let metadata = ObjectMeta { name: Some(SECRET_NAME.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

/// What the Secret holds. What is served may be nonsense: it is made again then.
pub(super) fn read(secret: &Secret, now: Timestamp) -> Result<Certificates, Nonsense> {
    let get = |name: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(name));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        text.filter(|text| !text.trim().is_empty()).ok_or(Nonsense::Missing(name))
    };
    let whole = |signer: Signer, names: (&'static str, &'static str)| {
        if signer.is_whole(now) { Ok(signer) } else { Err(Nonsense::Authority(names.0, names.1)) }
    };
    let mut trusted = split(&get(TRUSTED)?);
    if trusted.is_empty() {
        return Err(Nonsense::Authority(TRUSTED, SIGNER_KEY));
    }
    let signer = whole(Signer { certificate: trusted.remove(0), key: get(SIGNER_KEY)? }, (TRUSTED, SIGNER_KEY))?;
    let next = match (get(NEXT), get(NEXT_KEY)) {
        (Ok(certificate), Ok(key)) => Some(whole(Signer { certificate, key }, (NEXT, NEXT_KEY))?),
        _ => None,
    };
    trusted.retain(|pem| next.as_ref().is_none_or(|next| next.certificate != *pem));
    let names = secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(NAMES_ANNOTATION));
    let names = names.map(|names| names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect());
    let pair = ServingPair { certificate: get(CERTIFICATE).unwrap_or_default(), key: get(KEY).unwrap_or_default() };
    Ok(Certificates { signer, next, retired: trusted, pair, names: names.unwrap_or_default() })
}

/// The certificates of a bundle, as they stand there.
fn split(bundle: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    bundle.split_inclusive(END).filter(|pem| pem.ends_with(END)).map(str::to_owned).collect()
}
