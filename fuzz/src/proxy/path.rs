//! A request that is understood is understood alike in every other spelling of its path. The input: `GET /api/v1/pods`.

use http::{HeaderMap, Method, Uri};
use ringside_proxy::request::{RequestInfo, Resource, Verb};

/// None where it is refused.
fn read(method: &Method, uri: &str) -> Option<Option<(Verb, Resource)>> {
    let info = RequestInfo::of(method, &uri.parse().ok()?, &HeaderMap::new()).ok()?;
    Some(info.map(|info| (info.verb, info.resource)))
}

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let input = super::text(input);
    let Some((method, target)) = input.split_once(' ') else { return };
    let Ok(method) = &method.parse::<Method>() else { return };
    let Ok(uri) = target.parse::<Uri>() else { return };
    let Some(info) = read(method, target) else { return };
    // `OPTIONS *` has no other spelling.
    if !uri.path().starts_with('/') {
        return;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // As a server does that cleans paths up. What is behind a subresource may be anything.
    let merged: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let merged = format!("/{}", merged.join("/"));
    assert_eq!(read(method, &format!("{merged}{query}")), Some(info.clone()), "{merged}");
    assert_eq!(read(method, &format!("{}//{query}", uri.path())), Some(info.clone()));
    if !uri.path().contains('%') {
        let escape = |byte: u8| if byte == b'/' { "/".to_owned() } else { format!("%{byte:02x}") };
        let escaped: String = uri.path().bytes().map(escape).collect();
        assert_eq!(read(method, &format!("{escaped}{query}")), Some(info), "{escaped}");
    }
}
