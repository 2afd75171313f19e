//! Who a request says that it comes from: read as the API server reads it, and taken off.
//!
//! The API server tries a bearer token in `Authorization` and one in a WebSocket's subprotocols, for browsers, which
//! can set no headers there (`pkg/authentication/request/{bearertoken,websocket}` of k8s.io/apiserver); one valid token
//! is enough. The proxy authenticates and removes the credentials, as the API server does (`pkg/endpoints/filters`).
//! What passes is sent with the pod's own, and no other header may identify the client. Another account's token stays
//! on the request, which is sent with that alone. `Impersonate-*` is no credential: the API server asks whether the
//! account may.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};

use super::Token;

/// What comes before a token among the subprotocols.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// Headers in which a front proxy of the API server names its clients. No API server trusts them without that proxy's
/// certificate.
const FRONT_PROXY: [HeaderName; 3] = [
    HeaderName::from_static("x-remote-user"),
    HeaderName::from_static("x-remote-uid"),
    HeaderName::from_static("x-remote-group"),
];
const FRONT_PROXY_EXTRA: &str = "x-remote-extra-";

/// Whose credentials came with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// The token of this proxy, of this generation.
    Own(u64),
    /// A token that is no proxy's: the API server knows whose it is.
    Foreign,
    /// None, or what no API server takes from a client of a proxy.
    None,
}

/// Whether a request is sent with another account's token.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION)
}

/// Takes the credentials off, and says whose they were. Another account's token stays, in `Authorization`.
pub(crate) fn take(headers: &mut HeaderMap, token: &Token) -> Credentials {
    let authorization = headers.remove(AUTHORIZATION);
    let by_header = authorization.as_ref().and_then(bearer).map(|offered| offered.as_bytes().to_vec());
    let upgrades = is_websocket(headers);
    let by_subprotocol = take_subprotocol(headers).filter(|_| upgrades && headers.contains_key(SEC_WEBSOCKET_PROTOCOL));
    take_front_proxy(headers);
    let offered: Vec<_> = by_header.into_iter().chain(by_subprotocol).filter(|it| !it.is_empty()).collect();
    if let Some(generation) = offered.iter().find_map(|offered| token.generation_of(offered)) {
        return Credentials::Own(generation);
    }
    let foreign = offered.iter().find(|offered| !Token::is_like(offered));
    match foreign.and_then(|foreign| HeaderValue::from_bytes(&[b"Bearer ", &foreign[..]].concat()).ok()) {
        Some(mut value) => {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            Credentials::Foreign
        }
        None => Credentials::None,
    }
}

/// The second word, if the first is `Bearer`.
pub(crate) fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, rest) = value.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| rest.split(' ').next().unwrap_or_default())
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    headers.get(UPGRADE).is_some_and(|protocol| text(protocol) == "websocket")
        && headers.get_all(CONNECTION).iter().any(|line| text(line).contains("upgrade"))
}

/// The token among the subprotocols, if there is one and only one. A subprotocol has to be left for the server to
/// choose; the header is gone when none is.
fn take_subprotocol(headers: &mut HeaderMap) -> Option<Vec<u8>> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|line| line.to_str().ok());
    let all = lines.flat_map(|line| line.split(',')).map(str::trim);
    let (tokens, rest): (Vec<_>, Vec<_>) = all.partition(|protocol| protocol.starts_with(BEARER));
    let [token] = tokens[..] else {
        if !tokens.is_empty() {
            headers.remove(SEC_WEBSOCKET_PROTOCOL);
        }
        return None;
    };
    let offered = BASE64_URL_SAFE_NO_PAD.decode(&token[BEARER.len()..]).ok();
    match HeaderValue::from_str(&rest.join(",")) {
        Ok(rest) if !rest.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
    offered
}

fn take_front_proxy(headers: &mut HeaderMap) {
    let extra: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(FRONT_PROXY_EXTRA)).cloned().collect();
    for name in FRONT_PROXY.iter().chain(&extra) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Base64 of `secret.0`.
    const SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.c2VjcmV0LjA";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn accepted(headers: &mut HeaderMap) -> bool {
        let credentials = take(headers, &Token::of("secret"));
        // Of another account's no more is in question here than that it is not the proxy's.
        if credentials == Credentials::Foreign {
            headers.remove(AUTHORIZATION);
        }
        credentials == Credentials::Own(0)
    }

    fn websocket(protocols: &[&str]) -> HeaderMap {
        let mut headers = headers(&[("connection", "keep-alive, Upgrade"), ("upgrade", "WebSocket")]);
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_bearer_token_is_read_as_the_api_server_reads_it() {
        for right in ["Bearer secret.0", "bearer secret.0", " BEARER secret.0 ", "Bearer secret.0 and more"] {
            let mut headers = headers(&[("authorization", right)]);
            assert!(accepted(&mut headers), "{right}");
            assert!(headers.is_empty());
        }
        for wrong in [
            "",
            "secret.0",
            "Bearer",
            "Bearer ",
            "Bearer  secret.0",
            "Bearer\tsecret.0",
            "Basic secret.0",
            "Bearer secret2.0",
        ] {
            let mut headers = headers(&[("authorization", wrong)]);
            assert!(!accepted(&mut headers), "{wrong}");
            assert!(headers.is_empty());
        }
        let mut twice = headers(&[("authorization", "Bearer wrong"), ("authorization", "Bearer secret.0")]);
        assert!(!accepted(&mut twice), "the first one counts");
        assert!(!accepted(&mut HeaderMap::new()));
    }

    #[test]
    fn a_browsers_token_among_the_subprotocols_is_taken_off_and_the_others_stay() {
        for protocols in [
            &[SUBPROTOCOL, "v5.channel.k8s.io", "v4.channel.k8s.io"][..],
            &["v5.channel.k8s.io,v4.channel.k8s.io", SUBPROTOCOL],
            &[&format!("v5.channel.k8s.io, {SUBPROTOCOL}, v4.channel.k8s.io")],
        ] {
            let mut headers = websocket(protocols);
            assert!(accepted(&mut headers), "{protocols:?}");
            let left: Vec<_> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect();
            assert_eq!(left, ["v5.channel.k8s.io,v4.channel.k8s.io"], "{protocols:?}");
        }
        let untouched = ["v5.channel.k8s.io, v4.channel.k8s.io", "x"];
        let mut headers = websocket(&untouched);
        headers.insert(AUTHORIZATION, "Bearer secret.0".parse().unwrap());
        assert!(accepted(&mut headers));
        assert_eq!(headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect::<Vec<_>>(), untouched);
    }

    #[test]
    fn a_token_that_the_api_server_would_not_take_there_is_none_but_never_passes() {
        let wrong = format!("{BEARER}d3Jvbmc");
        let padded = format!("{SUBPROTOCOL}==");
        for protocols in [
            &[SUBPROTOCOL][..],
            &[SUBPROTOCOL, SUBPROTOCOL, "x"],
            &[SUBPROTOCOL, &wrong, "x"],
            &[&wrong, "x"],
            &[&padded, "x"],
            &[&format!("{BEARER}?"), "x"],
            &[BEARER, "x"],
        ] {
            let mut headers = websocket(protocols);
            assert!(!accepted(&mut headers), "{protocols:?}");
            assert!(!format!("{headers:?}").contains(BEARER), "{headers:?}");
        }
        for plain in [&[][..], &[("upgrade", "spdy/3.1"), ("connection", "upgrade")], &[("upgrade", "websocket")]] {
            let mut headers = headers(plain);
            headers.insert(SEC_WEBSOCKET_PROTOCOL, format!("{SUBPROTOCOL}, x").parse().unwrap());
            assert!(!accepted(&mut headers), "{plain:?}");
        }
    }

    #[test]
    fn another_accounts_token_stays_alone_and_in_the_usual_form() {
        let secret = "0123456789abcdef".repeat(4);
        for (offered, kept) in [
            (Some("bearer eyJ.eyJ.sig and more"), Some("Bearer eyJ.eyJ.sig")),
            (Some("Bearer secret2.0"), Some("Bearer secret2.0")),
            // Of another proxy, or of a folder that is gone.
            (Some(&*format!("Bearer {secret}.7")), None),
            (Some(&*format!("Bearer {secret}")), None),
            (Some("Basic c2VjcmV0"), None),
            (Some("Bearer "), None),
            (None, None),
        ] {
            let pairs: Vec<_> = offered.map(|it| ("authorization", it)).into_iter().collect();
            let mut headers = headers(&[&pairs[..], &[("x-remote-user", "admin")]].concat());
            let credentials = take(&mut headers, &Token::of("secret"));
            assert_eq!(credentials == Credentials::Foreign, kept.is_some(), "{offered:?}");
            let left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            assert_eq!(left, kept.map(|kept| ("authorization", kept)).into_iter().collect::<Vec<_>>(), "{offered:?}");
        }
        // Base64 of `theirs`.
        let mut socket = websocket(&["base64url.bearer.authorization.k8s.io.dGhlaXJz, v5.channel.k8s.io"]);
        assert_eq!(take(&mut socket, &Token::of("secret")), Credentials::Foreign);
        assert_eq!(socket[AUTHORIZATION], "Bearer theirs");
        assert_eq!(socket[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
    }

    #[test]
    fn nothing_else_says_who_is_asking() {
        let mut headers = headers(&[
            ("authorization", "Bearer secret.0"),
            ("x-remote-user", "admin"),
            ("x-remote-uid", "1"),
            ("x-remote-group", "system:masters"),
            ("x-remote-group", "more"),
            ("x-remote-extra-scopes", "all"),
            ("impersonate-user", "jane"),
            ("x-remote", "stays"),
        ]);
        assert!(accepted(&mut headers));
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["impersonate-user", "x-remote"]);
    }
}
