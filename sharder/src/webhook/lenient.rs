//! What of a review's JSON is read although something about it is odd.
//!
//! The API server writes reviews by its own types, so none of this is to be expected. But a client that creates an
//! object must not be told of it.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

/// What is written as an object, or none where null stands. Left to itself, serde reads a struct from a list as well, which
/// no patch of ours would fit.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    from.deserialize_any(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(Some)
    }
}

/// A text, or nothing where something else stands.
fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Labels, without those that are no text.
pub(super) fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let labels: Option<BTreeMap<String, &RawValue>> = Option::deserialize(from)?;
    Ok(labels.map(|labels| labels.into_iter().filter_map(|(key, raw)| Some((key, text(raw)?))).collect()))
}

/// The uid of the request, from as much of a review as there is, or can be read: it is the first that the API server writes,
/// and without it no answer counts.
pub(super) fn uid(beginning: &[u8]) -> Option<String> {
    let mut uid = None;
    // That it breaks off is to be expected.
    let _ = Into { path: &["request", "uid"], found: &mut uid }
        .deserialize(&mut serde_json::Deserializer::from_slice(beginning));
    uid
}

/// Looks for the text at the end of a path of keys. Of keys that stand there twice the last counts, as in Go.
struct Into<'a> {
    path: &'static [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Into<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        *self.found = None;
        if self.path.is_empty() {
            *self.found = text(<&RawValue>::deserialize(from)?);
            return Ok(());
        }
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Into<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (key, rest) = self.path.split_first().ok_or_else(|| A::Error::custom("the path has ended"))?;
        while let Some(next) = entries.next_key::<String>()? {
            if next == *key {
                entries.next_value_seed(Into { path: rest, found: &mut *self.found })?;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_uid_is_found_wherever_the_review_breaks_off_behind_it() {
        let review =
            r#"{"kind":"AdmissionReview","request":{"uid":"u-\u0031","kind":{"kind":"X"},"object":{"uid":"no"}}}"#;
        let known = review.find("\",\"kind\":{").unwrap() + 1;
        for end in 0..=review.len() {
            let expected = (end >= known).then(|| "u-1".to_owned());
            assert_eq!(uid(&review.as_bytes()[..end]), expected, "{}", &review[..end]);
        }
    }

    #[test]
    fn what_stands_there_twice_counts_as_it_stands_last() {
        for (review, expected) in [
            (r#"{"request":{"uid":"a","uid":"b"}}"#, Some("b")),
            (r#"{"request":{"uid":"a","uid":null}}"#, None),
            (r#"{"request":{"uid":"a"},"request":{}}"#, None),
            (r#"{"request":{"uid":"a"},"request":null}"#, None),
            (r#"{"request":{"uid":{"uid":"a"}}}"#, None),
            (r#"{"object":{"request":{"uid":"a"}}}"#, None),
            (r#"[{"request":{"uid":"a"}}]"#, None),
        ] {
            assert_eq!(uid(review.as_bytes()).as_deref(), expected, "{review}");
        }
    }
}
