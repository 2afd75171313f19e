//! Resource paths: `/api/v1/...`, `/apis/<group>/<version>/...` and their legacy `/watch/` forms.

use percent_encoding::percent_decode_str;
use ringside_ring::cluster_ring::GroupResource;

use super::Resource;

/// A path that different parsers would read differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Percent-encoding that can't be decoded.
    #[error("the path '{0}' is not valid percent-encoded UTF-8")]
    Encoding(String),
    /// A path that servers clean up before they look at it, each in its own way.
    #[error("the path '{0}' has empty, '.' or '..' segments")]
    NotClean(String),
}

#[derive(Debug)]
pub(super) struct Target {
    pub(super) resource: Resource,
    pub(super) legacy_watch: bool,
}

/// What Kubernetes calls subresources of a namespace; anything else there is a resource in that namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Resource, name and subresource.
const NAMED_BY: usize = 3;

/// The resource in a path, or `None` if it is not about one.
pub(super) fn parse(raw: &str) -> Result<Option<Target>, BadPath> {
    // The API server works on the decoded path (Go's URL.Path), so an encoded slash separates too.
    let decoded = decode(raw).ok_or_else(|| BadPath::Encoding(raw.to_owned()))?;
    let inner = decoded.strip_prefix('/').unwrap_or(&decoded);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    let parts: Vec<&str> = inner.split('/').collect();
    let target = target(&parts);
    // What stands behind a subresource is for whom the API server connects the client to (`services/x/proxy//y`).
    // It must not climb out of there, whoever cleans the path on the way.
    let meaning = target.as_ref().map_or(parts.len(), |(_, length)| parts.len().min(*length));
    let mentions_api = parts.iter().any(|part| matches!(*part, "api" | "apis"));
    if mentions_api && (parts[..meaning].contains(&"") || parts.iter().any(|part| matches!(*part, "." | ".."))) {
        return Err(BadPath::NotClean(raw.to_owned()));
    }
    Ok(target.map(|(target, _)| target))
}

/// What the segments mean, and how many of them, up to the subresource, say it.
fn target(parts: &[&str]) -> Option<(Target, usize)> {
    let (group, rest) = match parts {
        ["api", rest @ ..] => ("", rest),
        ["apis", group, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let [version, rest @ ..] = rest else { return None };
    let (legacy_watch, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let (namespace, rest) = match rest {
        [] => return None,
        ["namespaces", namespace, third, ..] if !NAMESPACE_SUBRESOURCES.contains(third) => {
            (Some(*namespace), &rest[2..])
        }
        ["namespaces", namespace, ..] => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let part = |index: usize| rest.get(index).map(|part| (*part).to_owned());
    let resource = Resource {
        kind: GroupResource { group: group.to_owned(), resource: part(0).unwrap_or_default() },
        version: (*version).to_owned(),
        namespace: namespace.map(str::to_owned),
        name: part(1),
        subresource: part(2),
    };
    Some((Target { resource, legacy_watch }, parts.len() - rest.len() + NAMED_BY))
}

/// Decodes percent-encoding as strictly as Go does, and to UTF-8 besides.
pub(super) fn decode(raw: &str) -> Option<String> {
    let bytes = raw.as_bytes();
    let escapes_are_whole = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        matches!(bytes.get(at + 1..at + 3), Some([high, low]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
    });
    escapes_are_whole.then(|| percent_decode_str(raw).decode_utf8().ok().map(String::from))?
}
