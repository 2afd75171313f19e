//! In which form bodies come and go: `Accept`, `Content-Type`, `Content-Encoding`.

use http::{HeaderMap, HeaderValue, header};

/// A media type without its parameters, in lower case.
pub(crate) fn essence(entry: &str) -> String {
    entry.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether an API server may take a media type for CBOR: some take `application / cbor` and `application/cbor/` for it.
fn is_cbor(entry: &[u8]) -> bool {
    essence(&String::from_utf8_lossy(entry)).contains("cbor")
}

/// The entries of `Accept` as they stand, over all of its lines.
fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty())
}

/// What is accepted where nothing is left: no API server has it, so each says 406 where it negotiates, and nothing where it
/// does not.
pub(crate) const NOTHING: &str = "application/x-nothing";

/// Takes CBOR out of `Accept`, because the proxy can't find events in it (DESIGN, "Proxy: the request path").
///
/// What is left decides. client-go and every other client that knows CBOR accept JSON beside it.
pub fn refuse_cbor(headers: &mut HeaderMap) {
    refuse(headers, is_cbor);
}

/// Takes a form out of `Accept` where JSON is accepted as well. Returns whether it is not accepted, or not any more.
pub(crate) fn prefer_json(headers: &mut HeaderMap, other: &str) -> bool {
    let essence = |entry: &[u8]| essence(&String::from_utf8_lossy(entry));
    let is_json = |entry: &[u8]| Encoding::named(&essence(entry)) == Some(Encoding::Json);
    let accepts_json = accepted(headers).next().is_none() || accepted(headers).any(is_json);
    let is_other = |entry: &[u8]| essence(entry).contains(other);
    if accepts_json {
        refuse(headers, is_other);
    }
    !accepted(headers).any(is_other)
}

fn refuse(headers: &mut HeaderMap, is_refused: impl Fn(&[u8]) -> bool) {
    if !accepted(headers).any(&is_refused) {
        return;
    }
    let rest: Vec<_> = accepted(headers).filter(|entry| !is_refused(entry)).collect();
    // Parts of valid header values make a valid one.
    let rest = HeaderValue::from_bytes(&rest.join(&b','));
    let accept = rest.ok().filter(|rest| !rest.is_empty()).unwrap_or(HeaderValue::from_static(NOTHING));
    headers.insert(header::ACCEPT, accept);
}

/// Whether a body is CBOR, if there is one.
pub(crate) fn is_cbor_body(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|it| is_cbor(it.as_bytes()))
}

/// Whether a body is compressed.
pub(crate) fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// A form in which the proxy itself can write or read an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

/// As what the objects of an answer come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    #[default]
    Object,
    /// As metadata alone.
    Metadata,
    /// As rows of a table.
    Table,
}

impl Form {
    /// What the first entry of `Accept` that can be read asks for, which an API server gives that knows it.
    pub(crate) fn negotiated(headers: &HeaderMap) -> Self {
        let mut entries = accepted(headers).filter_map(|entry| std::str::from_utf8(entry).ok());
        let first = entries.find(|entry| Encoding::named(&essence(entry)).is_some());
        let parameters = first.into_iter().flat_map(|entry| entry.split(';').skip(1));
        match parameters.map(str::trim).find_map(|it| it.strip_prefix("as=")) {
            Some("PartialObjectMetadata") => Self::Metadata,
            Some("Table") => Self::Table,
            _ => Self::Object,
        }
    }
}

/// Whether the first entry of `Accept` that an object can be written in asks for YAML: JSON by another name, to who writes a
/// `Status`.
pub(crate) fn asks_for_yaml(headers: &HeaderMap) -> bool {
    let essences = accepted(headers).filter_map(|entry| std::str::from_utf8(entry).ok()).map(essence);
    let first = essences.into_iter().find(|essence| essence == YAML || Encoding::named(essence).is_some());
    first.as_deref() == Some(YAML)
}

pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON: &str = "application/json";

impl Encoding {
    /// The first form in `Accept` that an object can be written in.
    ///
    /// Entries with `as=` ask for something made from the object (a Table); they are passed over, as by a
    /// server that does not know them.
    pub(crate) fn negotiated(headers: &HeaderMap) -> Self {
        let plain = accepted(headers)
            .filter_map(|entry| std::str::from_utf8(entry).ok())
            .filter(|entry| !entry.split(';').skip(1).any(|it| it.trim().starts_with("as=")));
        plain.map(essence).find_map(|essence| Self::named(&essence)).unwrap_or(Self::Json)
    }

    /// The form of a body, by its `Content-Type`.
    pub(crate) fn of_body(headers: &HeaderMap) -> Option<Self> {
        let Some(value) = headers.get(header::CONTENT_TYPE) else { return Some(Self::Json) };
        Self::named(&essence(value.to_str().ok()?))
    }

    fn named(essence: &str) -> Option<Self> {
        match essence {
            JSON | "*/*" | "application/*" => Some(Self::Json),
            PROTOBUF => Some(Self::Protobuf),
            _ => None,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Protobuf => PROTOBUF,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn accept(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())])
    }

    #[test]
    fn cbor_is_negotiated_away_and_the_rest_stays_in_order() {
        let mut headers = accept("application/cbor, application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        headers.append(header::ACCEPT, "Application/CBOR-seq;q=0.9".parse().unwrap());
        refuse_cbor(&mut headers);
        assert_eq!(headers[header::ACCEPT], "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
        assert_eq!(headers.get_all(header::ACCEPT).iter().count(), 1);
        for odd in ["application/cbor", "application / cbor;q=1", ",application/cbor/", "application/CBOR-seq;a=\u{ff}"]
        {
            let mut only = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_bytes(odd.as_bytes()).unwrap())]);
            refuse_cbor(&mut only);
            assert_eq!(only[header::ACCEPT], NOTHING, "{odd}");
        }
    }

    #[test]
    fn json_is_preferred_where_it_is_accepted() {
        for (other, value, left) in [
            // As client-go asks for objects that have protobuf, and for metadata.
            ("protobuf", "application/vnd.kubernetes.protobuf,application/json", "application/json"),
            ("protobuf", "application/vnd.kubernetes.protobuf, */*", "*/*"),
            (
                "protobuf",
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            ),
            ("yaml", "application/yaml, text/html, application/*;q=0.1", "text/html,application/*;q=0.1"),
            ("yaml", "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"),
            ("yaml", "application/json", "application/json"),
            ("yaml", YAML, YAML),
        ] {
            let mut headers = accept(value);
            assert_eq!(prefer_json(&mut headers, other), left != YAML, "{value}");
            assert_eq!(headers[header::ACCEPT], left, "{value}");
        }
    }

    #[test]
    fn an_answer_of_ours_has_the_first_form_that_we_can_write() {
        assert_eq!(
            Encoding::negotiated(&accept("application/vnd.kubernetes.protobuf,application/json")),
            Encoding::Protobuf
        );
        assert_eq!(
            Encoding::negotiated(&accept("application/json;as=Table,application/vnd.kubernetes.protobuf")),
            Encoding::Protobuf
        );
        assert_eq!(Encoding::negotiated(&HeaderMap::new()), Encoding::Json);
        assert!(asks_for_yaml(&accept("text/html, application/yaml;q=0.9, application/json")));
        assert!(!asks_for_yaml(&accept("application/json, application/yaml")) && !asks_for_yaml(&HeaderMap::new()));
    }

    #[test]
    fn what_objects_come_as_is_what_the_first_entry_that_can_be_read_asks_for() {
        for (value, form) in [
            ("application/json", Form::Object),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form::Table),
            ("application/vnd.kubernetes.protobuf; as=PartialObjectMetadata; g=meta.k8s.io; v=v1", Form::Metadata),
            ("application/yaml,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form::Metadata),
            ("application/json,application/json;as=Table", Form::Object),
        ] {
            assert_eq!(Form::negotiated(&accept(value)), form, "{value}");
        }
        assert_eq!(Form::negotiated(&HeaderMap::new()), Form::Object);
    }

    #[test]
    fn compressed_and_cbor_bodies_are_noticed() {
        let with = |name, value: &str| HeaderMap::from_iter([(name, value.parse::<HeaderValue>().unwrap())]);
        assert!(is_cbor_body(&with(header::CONTENT_TYPE, "application/cbor; charset=x")));
        assert!(is_cbor_body(&with(header::CONTENT_TYPE, "application/apply-patch+cbor")));
        assert!(!is_cbor_body(&with(header::CONTENT_TYPE, "application/json")));
        assert!(is_compressed(&with(header::CONTENT_ENCODING, "gzip")));
        assert!(!is_compressed(&with(header::CONTENT_ENCODING, "identity")));
    }
}
