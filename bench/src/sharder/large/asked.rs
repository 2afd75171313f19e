//! What a request asks of synthetic objects.

use http::{Method, header, request::Parts};
use ringside_e2e::system::NAMESPACE;

use super::synthetic::Kind;

/// What is asked of the objects of a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of them, and what happens to them from then on.
    Stream,
    /// What happens to them from now on: nothing.
    Watch,
    /// So many of them, from one on.
    Page { from: usize, most: usize },
    /// Those without the label that all have, or outside of the namespace where all are.
    Nothing,
    /// One of them, a write, whole objects, or some by what is not known here.
    Other,
}

impl Asked {
    pub(super) fn of(request: &Parts, is_collection: bool, label: &str) -> Self {
        let accepts = request.headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok()).unwrap_or_default();
        if request.method != Method::GET || !is_collection || !accepts.contains("PartialObjectMetadata") {
            return Self::Other;
        }
        match parameter(request, "fieldSelector") {
            None => {}
            // As the sharder's client writes it.
            Some(fields) if fields.strip_prefix("metadata.namespace%21%3D") == Some(NAMESPACE) => return Self::Nothing,
            Some(_) => return Self::Other,
        }
        let number = |key| parameter(request, key).and_then(|value| value.parse().ok());
        let selector = parameter(request, "labelSelector").map(|value| value.replace("%21", "!").replace("%2F", "/"));
        let is_true = |key| parameter(request, key) == Some("true");
        match selector.as_deref() {
            None if is_true("watch") && is_true("sendInitialEvents") => Self::Stream,
            _ if is_true("watch") && !is_true("sendInitialEvents") => Self::Watch,
            _ if is_true("watch") => Self::Other,
            Some(selector) if selector.strip_prefix('!') == Some(label) => Self::Nothing,
            Some(selector) if selector != label => Self::Other,
            _ => {
                Self::Page { from: number("continue").unwrap_or_default(), most: number("limit").unwrap_or(usize::MAX) }
            }
        }
    }
}

/// As it was written, so empty where it is.
pub(super) fn parameter<'a>(request: &'a Parts, key: &str) -> Option<&'a str> {
    let pairs = request.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(of, value)| *of == key && !value.is_empty()).map(|(_, value)| value)
}

/// The kind that a request is about, and whether it is about all of its objects. None where it is about no synthetic ones.
pub(super) fn concerned(path: &str) -> Option<(Kind, bool)> {
    let path = path.strip_prefix("/api/v1/")?;
    let path =
        path.strip_prefix("namespaces/").map_or(Some(path), |rest| rest.strip_prefix(NAMESPACE)?.strip_prefix('/'))?;
    let (resource, rest) = path.split_once('/').unwrap_or((path, ""));
    Some((Kind::of(resource)?, rest.is_empty()))
}
