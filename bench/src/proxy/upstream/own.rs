//! What a proxy asks of itself: who it is, its Lease, its ring, which resources there are.

use std::collections::HashMap;

use futures::stream;
use http::{Method, StatusCode};
use hyper::body::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Answer, INSIDE, JSON, JSON_WATCH, OUTSIDE, streamed, whole};

/// The objects that it writes, by their path.
#[derive(Default)]
pub(super) struct Own(Mutex<(u64, HashMap<String, Value>)>);

impl Own {
    pub(super) fn answer(&self, method: &Method, path: &str, query: &str, body: &Bytes) -> Answer {
        let ring = if query.contains(OUTSIDE) { OUTSIDE } else { INSIDE };
        match path.rsplit('/').next().unwrap_or_default() {
            // Which pod it is, no one can tell: the name that it was given counts.
            "selfsubjectreviews" => object(StatusCode::CREATED, &json!({"metadata": {}, "status": {"userInfo": {}}})),
            _ if query.contains("watch=") => streamed(JSON_WATCH, stream::pending()),
            "clusterrings" => list(&json!([ring_object(ring)])),
            // Of the ring that is asked for nothing: no object.
            "deployments" => list(&json!([])),
            "api" => object(StatusCode::OK, &json!({"kind": "APIVersions", "versions": ["v1"]})),
            "apis" => object(StatusCode::OK, &groups()),
            "v1" => object(StatusCode::OK, &resources(path)),
            "version" => object(StatusCode::OK, &json!({"major": "1", "minor": "37"})),
            name if path.contains("/leases") => self.lease(method, path, name, body),
            _ => missing(),
        }
    }

    fn lease(&self, method: &Method, path: &str, name: &str, body: &Bytes) -> Answer {
        let mut leases = self.0.lock();
        if *method == Method::GET {
            return leases.1.get(path).map_or_else(missing, |lease| object(StatusCode::OK, lease));
        }
        let mut lease: Value = serde_json::from_slice(body).unwrap_or_default();
        leases.0 += 1;
        lease["metadata"]["resourceVersion"] = json!(leases.0.to_string());
        // Created in the collection, later found by its name.
        let own_name = lease["metadata"]["name"].as_str().unwrap_or(name).to_owned();
        let place = if name == "leases" { format!("{path}/{own_name}") } else { path.to_owned() };
        leases.1.insert(place, lease.clone());
        object(if *method == Method::POST { StatusCode::CREATED } else { StatusCode::OK }, &lease)
    }
}

/// Whether this asks for what a shard is to release: nothing ever is.
pub(super) fn asks_for_drained(query: &str) -> bool {
    let query = query.replace("%2E", ".").replace("%21", "!");
    query.contains("drain.") && !query.contains("!drain.")
}

fn ring_object(name: &str) -> Value {
    let (group, resource) = if name == INSIDE { ("", "pods") } else { ("apps", "deployments") };
    json!({
        "apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing",
        "metadata": {"name": name, "uid": name, "resourceVersion": "2", "generation": 1},
        "spec": {"resources": [{"group": group, "resource": resource}]},
    })
}

fn groups() -> Value {
    let version = json!({"groupVersion": "apps/v1", "version": "v1"});
    json!({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": [version], "preferredVersion": version}]})
}

fn resources(path: &str) -> Value {
    let (version, name, kind) = match path {
        "/api/v1" => ("v1", "pods", "Pod"),
        _ => ("apps/v1", "deployments", "Deployment"),
    };
    let resource =
        json!({"name": name, "singularName": "", "kind": kind, "namespaced": true, "verbs": ["get", "list", "watch"]});
    json!({"kind": "APIResourceList", "groupVersion": version, "resources": [resource]})
}

fn list(items: &Value) -> Answer {
    object(StatusCode::OK, &json!({"metadata": {"resourceVersion": "1000"}, "items": items}))
}

fn object(status: StatusCode, object: &Value) -> Answer {
    whole(status, JSON, Bytes::from(object.to_string()))
}

fn missing() -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
    object(StatusCode::NOT_FOUND, &status)
}
