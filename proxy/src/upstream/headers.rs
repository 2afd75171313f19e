//! Headers that belong to one connection and must not cross the proxy (RFC 9110, section 7.6.1).

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Hop-by-hop headers, named by RFC 9110 and by practice. (`Trailer` is none: it tells who is behind the proxy too what
/// follows, section 6.6.2.)
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Removes them, together with those that `Connection` names; `upgrade` keeps the wish to upgrade.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap, upgrade: bool) {
    let protocol = headers.get(header::UPGRADE).filter(|_| upgrade).cloned();
    let lines: Vec<_> = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok()).collect();
    let named: Vec<HeaderName> =
        lines.iter().flat_map(|line| line.split(',')).filter_map(|it| it.trim().parse().ok()).collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// Whether the client takes trailers by HTTP/1.1 (RFC 9110, section 10.1.4). They pass the proxy.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::TE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers() -> HeaderMap {
        let pairs = [
            ("connection", "Upgrade, x-mine"),
            ("upgrade", "websocket"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("accept", "a"),
        ];
        pairs.into_iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn what_belongs_to_the_connection_stays_with_it() {
        let mut stripped = headers();
        strip_hop_by_hop(&mut stripped, false);
        assert_eq!(stripped.keys().collect::<Vec<_>>(), ["accept"]);
        let mut upgrading = headers();
        strip_hop_by_hop(&mut upgrading, true);
        assert_eq!(upgrading[header::UPGRADE], "websocket");
        assert_eq!(upgrading[header::CONNECTION], "Upgrade");
        assert!(!upgrading.contains_key("x-mine"));
    }
}
