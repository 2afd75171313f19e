//! Puts the label into an object in protobuf: by second metadata behind it, of the label alone.
//!
//! Decoders merge a message that comes twice, those of Kubernetes included, so nothing that is there is written again.

use bytes::Bytes;
use prost::Message;

use super::is_a_condition;
use crate::wire::{self, AnyMetadata, Metadata};

pub(super) fn with_label(body: &Bytes, key: &str, value: &str) -> Option<Bytes> {
    let mut unknown = wire::unwrap(body)?;
    let sent = AnyMetadata::decode(unknown.raw.clone()).ok()?.metadata?;
    if !is_a_condition(&sent.resource_version) || sent.labels.contains_key(key) {
        return None;
    }
    let labels = [(key.to_owned(), value.to_owned())].into();
    let label = AnyMetadata { metadata: Some(Metadata { labels, ..Metadata::default() }) };
    unknown.raw = [&unknown.raw[..], &label.encode_to_vec()].concat().into();
    Some(wire::enveloped(&unknown))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use http::{HeaderMap, header};
    use proptest::prelude::*;

    use super::*;
    use crate::request::representation::PROTOBUF;

    /// An object as Go writes it: of its strings, the empty ones too, and with what is not read here.
    #[derive(Clone, PartialEq, Message)]
    struct Secret {
        #[prost(message, optional, tag = "1")]
        metadata: Option<Whole>,
        #[prost(btree_map = "string, bytes", tag = "2")]
        data: BTreeMap<String, Vec<u8>>,
        #[prost(string, optional, tag = "3")]
        kind: Option<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Whole {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "6")]
        resource_version: Option<String>,
        #[prost(int64, optional, tag = "7")]
        generation: Option<i64>,
        #[prost(btree_map = "string, string", tag = "11")]
        labels: BTreeMap<String, String>,
        #[prost(string, repeated, tag = "14")]
        finalizers: Vec<String>,
    }

    fn labelled(body: &Bytes) -> Option<Bytes> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, PROTOBUF.parse().unwrap())]);
        super::super::with_label(&headers, body, "k", "me")
    }

    fn secret(version: Option<&str>, labels: &[(&str, &str)]) -> Secret {
        let metadata = Whole {
            name: Some("a".into()),
            resource_version: version.map(str::to_owned),
            generation: Some(3),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            finalizers: vec!["x/y".into()],
        };
        Secret { metadata: Some(metadata), data: [("k".into(), vec![0, 255])].into(), kind: Some(String::new()) }
    }

    fn enveloped(secret: &Secret) -> Bytes {
        wire::wrap("v1", "Secret", secret)
    }

    #[test]
    fn a_label_that_lacks_is_put_in_and_nothing_else_changes() {
        for labels in [&[][..], &[("b", "c")], &[("b", "c"), ("kk", "")]] {
            let object = secret(Some("7"), labels);
            let labelled = wire::unwrap(&labelled(&enveloped(&object)).unwrap()).unwrap();
            let type_meta = labelled.type_meta.unwrap();
            assert_eq!((&*type_meta.api_version, &*type_meta.kind), ("v1", "Secret"));
            assert!(labelled.raw.starts_with(&object.encode_to_vec()));
            let with = secret(Some("7"), &[labels, &[("k", "me")]].concat());
            assert_eq!(Secret::decode(labelled.raw), Ok(with));
        }
    }

    #[test]
    fn what_has_it_or_replaces_any_version_stays() {
        for (version, labels) in [
            (Some("7"), &[("k", "other")][..]),
            (Some("7"), &[("k", "")]),
            (Some(""), &[]),
            (Some("0"), &[]),
            (None, &[]),
        ] {
            assert_eq!(labelled(&enveloped(&secret(version, labels))), None, "{version:?} {labels:?}");
        }
    }

    #[test]
    fn what_is_not_read_for_sure_stays() {
        let whole = enveloped(&secret(Some("7"), &[]));
        for body in [
            Bytes::new(),
            wire::MAGIC.into(),
            whole.slice(..whole.len() - 1),
            whole.slice(1..),
            enveloped(&Secret::default()),
            Bytes::from(r#"{"metadata":{"resourceVersion":"7"}}"#),
        ] {
            assert_eq!(labelled(&body), None, "{}", body.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_stays_or_gets_the_label_and_nothing_else(
            garbage in prop::collection::vec(any::<u8>(), 0..40),
            at in any::<prop::sample::Index>(),
            framed in 0..3,
        ) {
            let whole = enveloped(&secret(Some("7"), &[("b", "c")]));
            let at = at.index(whole.len());
            let body: Bytes = match framed {
                0 => garbage.into(),
                1 => [wire::MAGIC, &garbage].concat().into(),
                _ => [&whole[..at], &garbage, &whole[at..]].concat().into(),
            };
            let Some(labelled) = labelled(&body) else { return Ok(()) };
            let [before, after] = [&body, &labelled].map(|it| wire::unwrap(it).unwrap());
            prop_assert_eq!(before.type_meta, after.type_meta);
            let [mut before, after] = [before.raw, after.raw].map(|raw| AnyMetadata::decode(raw).unwrap());
            before.metadata.as_mut().unwrap().labels.insert("k".into(), "me".into());
            prop_assert_eq!(before, after);
        }
    }
}
