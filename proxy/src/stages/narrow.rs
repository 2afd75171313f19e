//! Narrows what a controller sees of the ring's resources to its shard, by the API server's own selectors.
//!
//! May change the query of requests for the ring's resources: the selector is joined with the client's.
//! Of watches it also takes away the wish for compression, which would make their bytes unreadable, and asks for
//! bookmarks, which say how far a watch has come that nothing else happens on. Refuses what it can't narrow without doubt. Touches nothing else. Tells the tap about each narrowed list and watch.

use http::{HeaderValue, Uri, header, uri::PathAndQuery};
use ringside_ring::ResourceVersion;

use super::context::AdmittedRequest;
use crate::{
    metrics::Metrics,
    request::{
        BadPath, BadRequest, Query, Resource, Verb, page::start_of_list, representation::is_compressed,
        selector::Selector,
    },
    status::Refusal,
    views::{Fields, Kind, Scope},
};

/// The view of the ring that an answer gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewToOpen {
    /// What it shows.
    pub scope: Scope,
    /// How it begins; `None` for a page of a list that must not be shown.
    pub kind: Option<Kind>,
    /// Whether its client knows bookmarks.
    pub bookmarks: bool,
}

/// Parameters on whose first value it is decided here what an answer shows.
const DECIDES: [&str; 4] = ["watch", "resourceVersion", "sendInitialEvents", BOOKMARKS];

/// The parameter by which a client asks for bookmarks.
const BOOKMARKS: &str = "allowWatchBookmarks";

/// Joins the shard's selector with the client's, and tells the tap about the view.
///
/// # Errors
/// When it can't be narrowed without doubt.
pub(super) fn narrow(
    AdmittedRequest { request, context }: &mut AdmittedRequest,
    metrics: &Metrics,
) -> Result<(), Refusal> {
    let (info, admitted) = (&context.info, &context.admitted);
    let (verb, resource) = (info.verb, &info.resource);
    if !admitted.policy.resources.contains(&resource.kind) {
        return Ok(());
    }
    if is_compressed(request.headers()) && !resource.is_behind_api_server() {
        return Err(Refusal::CompressedBody);
    }
    if !verb.selects() {
        return Ok(());
    }
    if !admitted.policy.narrows(&resource.kind) {
        // A deletion of many would delete what is another shard's, or leave what has no label yet.
        return match verb {
            Verb::DeleteCollection => Err(Refusal::Unlabelled(resource.kind.clone())),
            _ => Ok(()),
        };
    }
    let mut query = info.query.clone();
    query.keep_first(&DECIDES);
    let bookmarks = query.flag(BOOKMARKS);
    if verb == Verb::Watch && !bookmarks {
        query.set(BOOKMARKS, "true");
    }
    let theirs = Selector::parse(query.first("labelSelector").unwrap_or_default())?;
    let narrowed = query.with("labelSelector", &joined(&admitted.term.selector, &theirs));
    *request.uri_mut() = with_query(request.uri(), &narrowed)?;
    metrics.narrowed();
    if verb == Verb::Watch {
        // Since v1.37 API servers compress a watch with initial events for clients that accept that.
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        request.headers_mut().remove(header::SEC_WEBSOCKET_EXTENSIONS);
    }
    if verb != Verb::DeleteCollection {
        let (kind, scope) = (kind(verb, &query), scope(resource.clone(), &query, theirs));
        context.view_to_open = Some(ViewToOpen { scope, kind, bookmarks });
    }
    Ok(())
}

/// The shard's selector and the client's. Ours comes first: whatever a server might take for the end of a selector, it has
/// read ours by then.
pub(super) fn joined(ours: &str, theirs: &Selector) -> String {
    if theirs.is_empty() { ours.to_owned() } else { format!("{ours},{theirs}") }
}

fn scope(resource: Resource, query: &Query, labels: Selector) -> Scope {
    let Resource { kind, version, namespace, name, .. } = resource;
    let fields = Fields::parse(query.first("fieldSelector").unwrap_or_default()).named(name.as_deref());
    Scope { resource: kind, version, namespace, labels, fields }
}

/// How the view begins; `None` for a page of which the state is not known, or is not that of the pages before: it may
/// show a new state beside an old one, from before an object was released, and no event will ever take that back.
fn kind(verb: Verb, query: &Query) -> Option<Kind> {
    if verb == Verb::Watch {
        let replaces = query.flag("sendInitialEvents");
        return Some(if replaces { Kind::StreamingList } else { Kind::Watch(start_of_watch(query)) });
    }
    match query.first("continue").filter(|token| !token.is_empty()) {
        Some(token) => Some(Kind::Page(start_of_list(token)?)),
        None => Some(Kind::List),
    }
}

/// A watch from a resourceVersion of its own goes on from there; one from none or 0, or with initial events,
/// first shows a state of any age.
pub(super) fn start_of_watch(query: &Query) -> Option<ResourceVersion> {
    let from: ResourceVersion = query.first("resourceVersion")?.parse().ok()?;
    (!from.is_zero() && !query.flag("sendInitialEvents")).then_some(from)
}

pub(super) fn with_query(uri: &Uri, query: &str) -> Result<Uri, Refusal> {
    let mut parts = uri.clone().into_parts();
    let rewritten = format!("{}?{query}", uri.path());
    // Both were in a URI before, so it can't be anything else.
    let too_long = BadRequest::from(BadPath::TooLong(rewritten.len()));
    parts.path_and_query = Some(PathAndQuery::try_from(rewritten).map_err(|_| too_long.clone())?);
    Uri::from_parts(parts).map_err(|_| too_long.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(text).unwrap()
    }

    #[test]
    fn selectors_are_joined_with_ours_first() {
        let join = |text: &str| joined("s=me,!d", &Selector::parse(text).unwrap());
        assert_eq!(join(""), "s=me,!d");
        assert_eq!(join("a in (b)"), "s=me,!d,a in (b)");
        assert_eq!(join("a\0\0!d"), "s=me,!d,a");
    }

    #[test]
    fn a_later_page_is_of_the_state_that_its_list_began_with() {
        let of = |token: &str| kind(Verb::List, &query(&format!("limit=5&continue={token}")));
        let token =
            |rv: &str| BASE64_URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":"a"}}"#));
        assert_eq!(of(""), Some(Kind::List));
        assert_eq!(of(&token("12")), Some(Kind::Page("12".parse().unwrap())));
        assert_eq!(of("what-is-that"), None);
        assert_eq!(of(&token("-1")), None);
    }

    #[test]
    fn only_a_watch_that_goes_on_from_a_state_starts_past_it() {
        let start = |text: &str| start_of_watch(&query(text)).map(|it| it.to_string());
        assert_eq!(start("resourceVersion=12"), Some("12".to_owned()));
        assert_eq!(start("resourceVersion=12&sendInitialEvents=false"), Some("12".to_owned()));
        for none in [
            "",
            "resourceVersion=",
            "resourceVersion=0",
            "resourceVersion=x",
            "resourceVersion=12&sendInitialEvents=true",
        ] {
            assert_eq!(start(none), None, "{none}");
        }
    }
}
