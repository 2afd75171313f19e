//! Resource paths: `/api/v1/...`, `/apis/<group>/<version>/...` and their legacy `/watch/` forms.

use percent_encoding::percent_decode_str;
use ringside_ring::cluster_ring::GroupResource;

use super::{Resource, Verb};

/// A path that different parsers would read differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Percent-encoding that can't be decoded.
    #[error("the path '{0}' is not valid percent-encoding")]
    Encoding(String),
    /// A path that says something else once a server on the way has cleaned it up.
    #[error("the path '{0}' has empty, '.' or '..' segments")]
    NotClean(String),
    /// A path behind a prefix, which some servers take for a resource and the API server does not.
    #[error(
        "the path '{0}' has the API behind a prefix, where nothing can be filtered: begin the path with /api or /apis, and \
         write the prefix into the address of the server in the kubeconfig of the proxy"
    )]
    Prefixed(String),
    /// With the shard's selector it is longer than an HTTP library takes.
    #[error("path and query are too long: {0} bytes with the shard's selector in it, 65,534 at most")]
    TooLong(usize),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) resource: Resource,
    /// The verb that the path names, whatever the method is.
    pub(super) verb: Option<Verb>,
}

/// What Kubernetes calls subresources of a namespace; anything else there is a resource in that namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// First segments of paths that are about no resource, behind which `api` and `apis` are names.
const ROOTS: [&str; 15] = [
    "api",
    "apis",
    "openapi",
    "version",
    "healthz",
    "livez",
    "readyz",
    "metrics",
    "logs",
    ".well-known",
    "openid",
    "debug",
    "swagger",
    "swaggerapi",
    "static",
];

/// The resource in a path, or `None` if it is not about one.
pub(super) fn parse(raw: &str) -> Result<Option<PathTarget>, BadPath> {
    if !is_whole(raw) {
        return Err(BadPath::Encoding(raw.to_owned()));
    }
    // The API server works on the decoded path (Go's URL.Path), so an encoded slash separates too.
    let decoded = decode(raw);
    let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
    let target = target(&parts);
    // The API server takes segments as they are; what stands before it may clean the path first. Then both must
    // read the same. What stands behind a subresource is for whom the API server connects the client to
    // (`services/x/proxy//y`), but must not climb out of there.
    let merged: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    let climbs = parts.iter().any(|part| matches!(*part, "." | ".."));
    let is_api = |part: &&str| matches!(*part, "api" | "apis");
    if (climbs && parts.iter().any(is_api)) || self::target(&merged) != target {
        return Err(BadPath::NotClean(raw.to_owned()));
    }
    if let [first, rest @ ..] = &merged[..]
        && !ROOTS.contains(first)
        && rest.iter().any(is_api)
    {
        return Err(BadPath::Prefixed(raw.to_owned()));
    }
    Ok(target)
}

/// What the segments mean to `NewRequestInfo` of k8s.io/apiserver.
fn target(parts: &[&str]) -> Option<PathTarget> {
    let (group, version, rest) = match parts {
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (*group, version, rest),
        _ => return None,
    };
    let (verb, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (Some(Verb::Watch), rest),
        // No API server serves it since Kubernetes 1.10, but it is still no resource.
        ["proxy", rest @ ..] if !rest.is_empty() => (Some(Verb::Unknown), rest),
        rest => (None, rest),
    };
    let (namespace, rest) = match rest {
        [] => return None,
        ["namespaces", namespace, third, ..] if !NAMESPACE_SUBRESOURCES.contains(third) => {
            (Some(*namespace), &rest[2..])
        }
        // A namespace lies in none, although `NewRequestInfo` says of it that it lies in itself: nothing in its metadata does.
        rest => (None, rest),
    };
    let part = |index: usize| rest.get(index).filter(|part| !part.is_empty()).map(|part| (*part).to_owned());
    let resource = Resource {
        kind: GroupResource { group: group.to_owned(), resource: part(0).unwrap_or_default() },
        version: (*version).to_owned(),
        namespace: namespace.filter(|name| !name.is_empty()).map(str::to_owned),
        name: part(1),
        subresource: part(2),
    };
    Some(PathTarget { resource, verb })
}

/// Whether each `%` begins an escape, without which Go decodes nothing.
pub(super) fn is_whole(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        matches!(bytes.get(at + 1..at + 3), Some([high, low]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
    })
}

/// What Go takes for the text; in place of bytes that are no UTF-8 stands U+FFFD.
pub(super) fn decode(raw: &str) -> String {
    percent_decode_str(raw).decode_utf8_lossy().into_owned()
}
