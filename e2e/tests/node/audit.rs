//! What the API server wrote down about requests.

use std::{collections::BTreeSet, fs};

use k8s_openapi::jiff::Timestamp;
use ringside_e2e::node::Node;
use serde_json::Value;

/// A request that was answered.
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// By which of a pod's tokens it came.
    pub(crate) credential: String,
}

/// The requests of a pod's ServiceAccount tokens, the first one first.
pub(crate) fn requests_of(node: &Node, pod: &str) -> Vec<Request> {
    let log = fs::read_to_string(node.control_plane().audit_log()).unwrap();
    let of_pod = |event: &Value| event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0] == pod;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = log.lines().filter(|line| line.contains(pod)).filter_map(|line| serde_json::from_str(line).ok());
    let requests = events.filter(of_pod).map(|event: Value| Request {
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
    let log = fs::read_to_string(node.control_plane().audit_log()).unwrap();
    let of_status = log.lines().filter(|line| line.contains("/status"));
    let events = of_status.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events = events.filter(|event| {
        event["stage"] == "ResponseComplete"
            && (&event["objectRef"]["resource"], &event["objectRef"]["subresource"])
                == (&"websites".into(), &"status".into())
    });
    let mut works: Vec<_> = events
        .filter_map(|event| {
            let time = |name: &str| event[name].as_str()?.parse::<Timestamp>().ok();
            Some(Work {
                pod: event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0].as_str()?.to_owned(),
                asked: time("requestReceivedTimestamp")?,
                answered: time("stageTimestamp")?,
            })
        })
        .collect();
    works.sort_by_key(|work| work.answered);
    works
}
