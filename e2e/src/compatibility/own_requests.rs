//! The written list of what the proxy asks the API server of itself, beside what it is asked for.
//!
//! A test compares all that arrives without its mark with this list; what stands here must be seen at work, too.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use percent_encoding::percent_decode_str;

use super::changes::{OWN_REQUEST, saw_entry};

/// A request of the proxy's own.
struct OwnRequest {
    /// As the page says it.
    request: &'static str,
    because: &'static str,
    /// By method, path and decoded query.
    is: fn(&str, &str, &str) -> bool,
}

/// A question about objects, with this in its query.
fn asks(method: &str, query: &str, parts: &[&str]) -> bool {
    method == "GET" && parts.iter().all(|part| query.contains(part))
}

const EXACT: &str = "resourceVersionMatch=Exact";
const NAMED: &str = "metadata.name=";
/// Where locks of elections may be.
const LOCKS: [&str; 2] =
    ["/api/v1/namespaces/default/configmaps/", "/apis/coordination.k8s.io/v1/namespaces/default/leases/"];

const fn own(request: &'static str, because: &'static str, is: fn(&str, &str, &str) -> bool) -> OwnRequest {
    OwnRequest { request, because, is }
}

#[rustfmt::skip]
const LIST: [OwnRequest; 15] = [
    own("`POST` of a SelfSubjectReview", "at the start: which pod it is, and so which shard",
        |method, path, _| method == "POST" && path.ends_with("/selfsubjectreviews")),
    own("`GET`, `POST` and `PUT` of the lock of the controller's election",
        "the ring holds it: renewed two or three times in the time that it lasts, by whichever shard; each looks five times, \
         and where what may be a lock is listed or watched by its one name",
        |method, path, query| method == "GET" && query.is_empty() && LOCKS.iter().any(|place| path.starts_with(place))
            || ["POST", "PUT"].contains(&method) && query.trim_start_matches('&') == "fieldManager=ringside-proxy"),
    own("`GET`, `POST` and `PUT` of the shard Lease",
        "it is a shard for as long as it holds that; renewed every few seconds",
        |method, path, query| path.starts_with("/apis/coordination.k8s.io/v1/namespaces/") && path.contains("/leases")
            && query.is_empty() && ["GET", "POST", "PUT"].contains(&method)),
    own("list and watch of its ClusterRing", "what the ring shards",
        |method, path, query| asks(method, query, &["metadata.name="]) && path.ends_with("/clusterrings")),
    own("discovery of a group",
        "the version and kind of the ring's resources, and of the owners of controlled objects",
        |method, path, _| {
            let depth = path.trim_matches('/').split('/').count();
            method == "GET" && (path.starts_with("/apis") && depth <= 3 || path.starts_with("/api") && depth <= 2)
        }),
    own("list and watch of the metadata of what is drained of this shard, of each resource of the ring",
        "which objects have to be let go",
        |method, _, query| {
            let selector = query.split("labelSelector=").nth(1).unwrap_or_default();
            method == "GET" && selector.contains(",drain.") && !selector.contains(",!drain.")
        }),
    own("`PATCH` of an object that is drained",
        "the acknowledgement: both labels are taken off, as the field manager `ringside-acknowledgement`",
        |method, _, query| method == "PATCH" && query.trim_start_matches('&') == "fieldManager=ringside-acknowledgement"),
    own("`PATCH` of an object that was there before its owner, after a create of it under that was refused with 409",
        "it gets this shard's label, as the field manager `ringside-adoption`, so that the controller can adopt it",
        |method, _, query| method == "PATCH" && query.trim_start_matches('&') == "fieldManager=ringside-adoption"),
    own("`PATCH` of a peering object of kopf's",
        "the ring is one of kopf's peers, and says so whenever its controller does",
        |method, path, _| method == "PATCH" && path.starts_with("/apis/kopf.dev/v1/") && path.contains("/kopfpeerings/")),
    own("list of the name `-`, which no object has, of a controlled resource that the controller watches",
        "whether the API server knows all that was written before: then an object that came from another shard is shown",
        |method, _, query| method == "GET" && query.ends_with("fieldSelector=metadata.name=-")),
    own("list of one name, for its metadata",
        "whose an object is at this moment, where it is written, or read in a form that does not say it",
        |method, _, query| asks(method, query, &[NAMED]) && !query.contains(EXACT) && !query.contains("limit=")),
    own("list of what is to be deleted, for its metadata, where a deletion of many is of a controlled resource",
        "whose the objects are that control it",
        |method, _, query| asks(method, query, &["labelSelector=", "limit=100"])),
    own("list of one object, as the client and for its metadata, before the first list or watch of a resource",
        "the version from which on a watch may go on",
        |method, _, query| asks(method, query, &["limit=1"]) && !query.contains("labelSelector=")),
    own("list of one name with a watch's own selectors, as it was right before a move or where a watch begins",
        "whether that watch showed what is let go, or missed that it was",
        |method, _, query| asks(method, query, &[NAMED, EXACT])),
    own("`GET` of `/livez`, on a new connection",
        "whether a server that was asked by HTTP/1.1 is still there, of whose answer nothing has come for 10 s",
        |method, path, _| method == "GET" && path == "/livez"),
];

/// Whether all of these are on the list; notes them.
pub fn note<'a>(requests: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<()> {
    for (method, target) in requests {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = percent_decode_str(&query.replace('+', " ")).decode_utf8_lossy().into_owned();
        let listed = LIST.iter().find(|listed| (listed.is)(method, path, &query));
        let listed =
            listed.with_context(|| format!("the proxy asks of itself, and no list says so: {method} {target}"))?;
        saw_entry(OWN_REQUEST, listed.request);
    }
    Ok(())
}

/// The names of the list's entries.
pub(super) fn names() -> BTreeSet<&'static str> {
    LIST.iter().map(|listed| listed.request).collect()
}

/// The list as Markdown.
pub(super) fn page() -> String {
    let mut page =
        "### Requests of the proxy's own\n\nWhatever a client asks arrives once, but for what stands above. Where credentials were rotated, \
                    `/version` is asked with the new ones before they are used. And who holds a drain past its deadline reads its \
                    ClusterRing, and writes an Event about it. A controlled object that was created without label is \
                    [patched](proxy-fence.md#children-that-come-without-label) with its own uid.\n\n\
                    | request | because |\n| --- | --- |\n"
            .to_owned();
    for OwnRequest { request, because, .. } in LIST {
        page.push_str(&format!("| {request} | {because} |\n"));
    }
    page
}
