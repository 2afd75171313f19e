//! No CBOR is left in `Accept`, and everything else is. The input: its lines.

use http::{HeaderMap, HeaderValue, header};
use ringside_proxy::request::representation::refuse_cbor;

fn entries(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let lines = headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes);
    let entries = lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    entries.filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether the negotiation of an API server takes it for CBOR: it trims blanks everywhere, and a slash at the end.
fn is_cbor(entry: &[u8]) -> bool {
    let essence = entry.split(|byte| *byte == b';').next().unwrap_or_default();
    let parts: Vec<&[u8]> = essence.split(|byte| *byte == b'/').map(<[u8]>::trim_ascii).collect();
    let subtype = parts.get(1).copied().unwrap_or_default();
    parts.first() == Some(&&b"application"[..]) && [&b"cbor"[..], b"cbor-seq"].contains(&subtype)
}

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(line) = HeaderValue::from_bytes(line) {
            headers.append(header::ACCEPT, line);
        }
    }
    let before = entries(&headers);
    refuse_cbor(&mut headers);
    let after = entries(&headers);
    assert!(!after.iter().any(|entry| is_cbor(entry)));
    let left: Vec<_> =
        before.into_iter().filter(|entry| !entry.to_ascii_lowercase().windows(4).any(|it| it == b"cbor")).collect();
    // An entry that only mentions CBOR, in a parameter say, may go or stay.
    let certain: Vec<_> = after.iter().filter(|entry| left.contains(entry)).cloned().collect();
    assert!(certain == left || (left.is_empty() && after == [b"application/x-nothing".to_vec()]));
}
