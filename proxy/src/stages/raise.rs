//! Keeps old views from coming back (DESIGN, "Handover", 5).
//!
//! An API server may answer from a cache that is behind the others: it shows an object as it was before a move that is
//! complete (CONTROL-PLANE, 10). So reads of the ring's resources that may begin in the past are made reads of the present,
//! unless they ask for a resourceVersion from which on no move is missing: the highest at which an object was seen drained, and
//! one that was read when the shard's term began. A watch that goes on from a resourceVersion of its own is left alone: it
//! replays the `DELETED`. Reads of an exact state before that are expired, as after compaction.
//!
//! Not by `NotOlderThan` that version: where nothing is written to a resource, the cache of an API server before 1.31 does not
//! get there, and answers 504. A read of the present costs the same from 1.31 on, where the cache answers it, and is answered by
//! etcd before.
//!
//! May change the parameters of the query that say how old an answer may be, and nothing else.

use http::Uri;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use super::{admit::Admitted, context::AdmittedRequest, narrow::with_query};
use crate::{
    fence::Fence,
    request::{BadRequest, Query, Verb, page::start_of_list},
    status::Refusal,
};

/// The parameters that are read here: of several values the first one counts, as for the API server.
const VERSION: &str = "resourceVersion";
const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";
const AT_LEAST: &str = "NotOlderThan";

/// Makes reads of the ring's resources show no state from before a move.
///
/// # Errors
/// When it reads an exact state that is too old.
pub(super) fn raise(AdmittedRequest { request, context }: &mut AdmittedRequest, fence: &Fence) -> Result<(), Refusal> {
    let (info, admitted) = (&context.info, &context.admitted);
    let resource = &info.resource;
    if !admitted.policy.narrows(&resource.kind) || resource.is_behind_api_server() {
        return Ok(());
    }
    if info.verb == Verb::List
        && let Some(began) = info.query.first("continue").and_then(start_of_list)
        && admitted.floor(&resource.kind).and_then(|floor| floor.get().cloned()).is_some_and(|floor| began < floor)
    {
        // Its first page is of another set of objects; and of this one no event will say what is not the shard's any more.
        return Err(Refusal::Expired(began));
    }
    let raised = raised(info.verb, request.uri(), || floor(fence, &resource.kind, admitted))?;
    if let Some(query) = raised {
        *request.uri_mut() = with_query(request.uri(), &query)?;
        context.is_from_nothing = info.verb == Verb::Watch && info.query.first(INITIAL).is_none();
    }
    Ok(())
}

/// What no read may be older than. None while it is not known: then a read has to be of the present.
fn floor(fence: &Fence, resource: &GroupResource, admitted: &Admitted) -> Option<ResourceVersion> {
    let of_term = admitted.floor(resource)?.get().cloned()?;
    Some(fence.floor(resource).map_or(of_term.clone(), |drained| drained.max(of_term)))
}

/// The query to ask with instead, where this one may be answered with the past.
fn raised(verb: Verb, uri: &Uri, floor: impl Fn() -> Option<ResourceVersion>) -> Result<Option<String>, Refusal> {
    // Without a query only a watch may be answered with the past.
    let Some(raw) = uri.query().or((verb == Verb::Watch).then_some("")) else { return Ok(None) };
    let mut query = Query::parse(raw).map_err(BadRequest::from)?;
    let version = query.first(VERSION).unwrap_or_default();
    let asked = match version.parse::<ResourceVersion>() {
        Ok(asked) => Some(asked),
        Err(_) if version.is_empty() => None,
        // The API server refuses it.
        Err(_) => return Ok(None),
    };
    let raise = match verb {
        Verb::Get => raise_get(&mut query, asked.as_ref(), floor),
        Verb::List | Verb::DeleteCollection => raise_list(&mut query, asked.as_ref(), floor)?,
        Verb::Watch => raise_watch(&mut query, asked.as_ref(), floor),
        // A write is of the present.
        _ => false,
    };
    Ok(raise.then(|| query.to_string()))
}

type RequestedVersion<'a> = Option<&'a ResourceVersion>;

/// Without a resourceVersion it is a read of the present.
fn raise_get(query: &mut Query, asked: RequestedVersion<'_>, floor: impl Fn() -> Option<ResourceVersion>) -> bool {
    let Some(asked) = asked else { return false };
    let may_be_old = is_below(asked, floor());
    if may_be_old {
        query.remove(&[VERSION]);
    }
    may_be_old
}

/// Without a resourceVersion it is a read of the present; a page by `continue` is of the state of its first page.
fn raise_list(
    query: &mut Query,
    asked: RequestedVersion<'_>,
    floor: impl Fn() -> Option<ResourceVersion>,
) -> Result<bool, Refusal> {
    let Some(asked) = asked else { return Ok(false) };
    if query.first("continue").is_some_and(|token| !token.is_empty()) {
        return Ok(false);
    }
    let limit = query.first("limit").and_then(|limit| limit.parse::<i64>().ok());
    let limited = limit.is_some_and(|limit| limit > 0);
    let exact = match query.first(MATCH).unwrap_or_default() {
        AT_LEAST => false,
        // "Legacy exact match" of k8s.io/apiserver's `ShouldDelegateList`.
        "" => limited && !asked.is_zero(),
        "Exact" if !asked.is_zero() => true,
        // The API server refuses it.
        _ => return Ok(false),
    };
    if !is_below(asked, floor()) {
        return Ok(false);
    }
    if exact {
        return Err(Refusal::Expired(asked.clone()));
    }
    query.remove(&[VERSION, MATCH]);
    // The API server refuses what is no number.
    if asked.is_zero() && limit.is_some() {
        // As for every list from 0: it comes from the cache, which has no pages.
        query.remove(&["limit"]);
    }
    Ok(true)
}

/// From 0 or from nothing a watch begins with the objects that the API server happens to know: it says that it begins with
/// the most recent ones, but does not wait for them (`getWatchCacheResourceVersion` of k8s.io/apiserver), unless it is
/// asked for initial events, without which there is no way to say how old they may be. Who speaks of initial events
/// and of no resourceVersion gets the present already.
fn raise_watch(query: &mut Query, asked: RequestedVersion<'_>, floor: impl Fn() -> Option<ResourceVersion>) -> bool {
    let initial = query.first(INITIAL).map(|_| query.flag(INITIAL));
    let may_be_old = match (initial, asked) {
        (None, asked) => asked.is_none_or(ResourceVersion::is_zero),
        (Some(_), None) => false,
        (Some(true), Some(asked)) => is_below(asked, floor()),
        (Some(false), Some(asked)) => asked.is_zero(),
    };
    if !may_be_old {
        return false;
    }
    query.remove(&[VERSION]);
    if initial.is_none() {
        query.set(MATCH, AT_LEAST);
        query.set(INITIAL, "true");
    }
    true
}

/// Whether an answer that is not older than this may be too old. It may, while no floor is known.
fn is_below(asked: &ResourceVersion, floor: Option<ResourceVersion>) -> bool {
    floor.is_none_or(|floor| *asked < floor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn asked(verb: Verb, query: &str, floor: Option<u64>) -> String {
        let uri = format!("/apis/x.io/v1/things?{query}").parse().unwrap();
        match raised(verb, &uri, || floor.map(|it| it.to_string().parse().unwrap())) {
            Ok(raised) => raised.unwrap_or_else(|| query.to_owned()),
            Err(refusal) => refusal.label().to_owned(),
        }
    }

    #[test]
    fn a_read_that_may_begin_in_the_past_is_of_the_present() {
        for (verb, query, present) in [
            (Verb::Get, "resourceVersion=0", ""),
            (Verb::Get, "pretty=1&resourceVersion=9", "pretty=1"),
            (Verb::List, "resourceVersion=0", ""),
            (Verb::List, "limit=500&resourceVersion=0", ""),
            (Verb::List, "limit=abc&resourceVersion=0", "limit=abc"),
            (Verb::List, "resourceVersion=9", ""),
            (Verb::List, "resourceVersionMatch=NotOlderThan&resourceVersion=9", ""),
            (Verb::List, "limit=5&resourceVersionMatch=NotOlderThan&resourceVersion=9", "limit=5"),
            (Verb::DeleteCollection, "resourceVersion=0", ""),
        ] {
            for floor in [Some(10), None] {
                assert_eq!(asked(verb, query, floor), present, "{verb:?} {query} {floor:?}");
            }
        }
        let streamed = "resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
        for query in ["", "resourceVersion=0", "resourceVersion=", "resourceVersion=0&resourceVersion=12"] {
            assert_eq!(asked(Verb::Watch, query, Some(10)), streamed, "{query}");
        }
        for (initial, from) in [("true", "0"), ("true", "9"), ("false", "0")] {
            let asks = format!("sendInitialEvents={initial}&resourceVersionMatch=NotOlderThan");
            assert_eq!(asked(Verb::Watch, &format!("{asks}&resourceVersion={from}"), Some(10)), asks);
        }
    }

    #[test]
    fn an_exact_state_of_the_past_is_expired() {
        for query in ["resourceVersion=9&resourceVersionMatch=Exact", "resourceVersion=9&limit=5"] {
            assert_eq!(asked(Verb::List, query, Some(10)), "expired", "{query}");
            assert_eq!(asked(Verb::List, query, None), "expired", "{query}");
        }
    }

    #[test]
    fn what_is_of_the_present_or_goes_on_from_a_state_of_its_own_is_left_alone() {
        for (verb, query) in [
            (Verb::Get, ""),
            (Verb::Get, "resourceVersion=10"),
            (Verb::Get, "resourceVersion=x"),
            (Verb::List, "limit=5"),
            (Verb::List, "resourceVersion=11"),
            (Verb::List, "resourceVersion=10&resourceVersionMatch=Exact"),
            (Verb::List, "resourceVersion=10&limit=5"),
            (Verb::List, "continue=token&limit=5&resourceVersion=0"),
            (Verb::List, "resourceVersion=0&resourceVersionMatch=Exact"),
            (Verb::Watch, "resourceVersion=9"),
            (Verb::Watch, "resourceVersion=9&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
            (Verb::Watch, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            (Verb::Watch, "resourceVersion=12&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
            (Verb::Update, "resourceVersion=0"),
            (Verb::Create, "resourceVersion=0"),
        ] {
            assert_eq!(asked(verb, query, Some(10)), query, "{verb:?}");
        }
    }
}
