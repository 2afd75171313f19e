//! What the API server wrote down about requests.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;
use ringside_e2e::{
    audit::{events, pod},
    node::Node,
};
use serde_json::Value;

/// A request that was answered.
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// By which of a pod's tokens it came.
    pub(crate) credential: String,
}

/// The requests of a pod's ServiceAccount tokens, the first one first.
pub(crate) fn requests_of(node: &Node, name: &str) -> Vec<Request> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events =
        events(&node.control_plane().audit_log(), name).unwrap().into_iter().filter(|event| pod(event) == Some(name));
    let requests = events.map(|event| Request {
        verb: text(&event["verb"]),
        resource: text(&event["objectRef"]["resource"]),
        credential: text(&event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]),
    });
    requests.collect()
}

/// The tokens that a pod's requests came by.
pub(crate) fn credentials_of(node: &Node, pod: &str) -> BTreeSet<String> {
    requests_of(node, pod).into_iter().map(|request| request.credential).collect()
}

/// A write to the status of a Website: who works on one says so there at the end.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Whose token it came by.
    pub(crate) pod: String,
    pub(crate) asked: Timestamp,
    pub(crate) answered: Timestamp,
}

/// What was worked, the earliest first.
pub(crate) fn works(node: &Node) -> Vec<Work> {
    let of_status = |event: &Value| {
        let about = &event["objectRef"];
        event["stage"] == "ResponseComplete" && about["resource"] == "websites" && about["subresource"] == "status"
    };
    let events = events(&node.control_plane().audit_log(), "/status").unwrap().into_iter().filter(of_status);
    let works = events.filter_map(|event| {
        let time = |name: &str| event[name].as_str()?.parse::<Timestamp>().ok();
        Some(Work {
            pod: pod(&event)?.to_owned(),
            asked: time("requestReceivedTimestamp")?,
            answered: time("stageTimestamp")?,
        })
    });
    let mut works: Vec<_> = works.collect();
    works.sort_by_key(|work| work.answered);
    works
}
