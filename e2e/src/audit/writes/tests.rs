//! Lines as an API server writes them.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::{audit::POD_NAME, checker::Labels};

const SHARDS: &str = "system:serviceaccount:default:website-controller";

fn labels() -> RingLabels {
    RingLabels::of(&"websites".parse().unwrap())
}

/// An update of a Website by the Pod `shard-1`, as v1.37.0 writes it down.
fn event() -> Value {
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": "ResponseComplete",
        "auditID": "6f7f", "requestURI": "/apis/web.example.com/v1/namespaces/default/websites/o/status", "verb": "patch",
        "user": {"username": SHARDS, "extra": {POD_NAME: ["shard-1"]}},
        "objectRef": {"resource": "websites", "namespace": "default", "name": "o", "apiGroup": "web.example.com",
            "apiVersion": "v1", "subresource": "status"},
        "responseStatus": {"metadata": {}, "code": 200},
        "responseObject": {"metadata": {"name": "o", "namespace": "default", "uid": "u", "resourceVersion": "12",
            "labels": {labels().shard: "shard-1", "app": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "above", "controller": true}]},
            "spec": {"content": "x"}},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z", "stageTimestamp": "2026-01-02T03:04:05.100006Z",
    })
}

fn read(event: &Value) -> Vec<Write> {
    match said(event.to_string().as_bytes(), &labels(), SHARDS).unwrap() {
        Said::Ended(id, writes) if id == "6f7f" => writes,
        _ => Vec::new(),
    }
}

fn with(pointer: &str, value: Value) -> Vec<Write> {
    let mut event = event();
    *event.pointer_mut(pointer).unwrap() = value;
    read(&event)
}

#[test]
fn a_write_of_a_shard_is_read() {
    let [write] = &read(&event())[..] else { panic!("one") };
    assert_eq!((write.shard.as_deref(), write.change), (Some("shard-1"), Change::Updated));
    assert_eq!(write.resource.to_string(), "websites.web.example.com");
    let shown = Labels { shard: Some("shard-1".to_owned()), drain: None };
    assert_eq!((&write.object.labels, &*write.object.name), (&Some(shown), "default/o"));
    assert_eq!((write.object.controller.as_deref(), &*write.object.uid), (Some("above"), "u"));
    assert_eq!(write.answered.duration_since(write.received).as_millis(), 100);
}

#[test]
fn others_are_no_shards_even_in_a_pod() {
    assert_eq!(with("/user/username", json!("system:serviceaccount:ringside-system:ringside-sharder"))[0].shard, None);
}

#[test]
fn what_did_not_land_is_left_out_but_for_second_creates() {
    assert_eq!(with("/responseStatus", json!({"code": 409, "reason": "Conflict"})), []);
    assert_eq!(with("/responseStatus", json!({"code": 504}))[0].change, Change::Unanswered);
    assert_eq!(with("/requestURI", json!("/apis/x?dryRun=All")), []);
    assert_eq!(with("/stage", json!("ResponseStarted")), []);
    let mut event = event();
    event["verb"] = json!("create");
    event["objectRef"]["subresource"] = json!("");
    event["responseStatus"] = json!({"code": 409, "reason": "AlreadyExists"});
    let owners = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "above", "controller": true}]);
    event["requestObject"] = json!({"metadata": {"ownerReferences": owners}});
    let refused = &read(&event)[0];
    assert_eq!((refused.change, refused.object.controller.as_deref()), (Change::Refused, Some("above")));
    event["responseStatus"] = json!({"code": 201});
    assert_eq!(read(&event)[0].change, Change::Created);
    event["verb"] = json!("patch");
    assert_eq!(read(&event)[0].change, Change::Created, "by server-side apply");
}

#[test]
fn what_the_fence_refused_is_told_from_a_missing_permission() {
    let mut event = event();
    event["verb"] = json!("create");
    event["objectRef"]["subresource"] = json!("");
    let status = |message: &str| json!({"code": 403, "reason": "Forbidden", "message": message});
    event["responseStatus"] = status("websites \"o\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no");
    event["responseObject"] = json!({"kind": "Status", "metadata": {}, "details": {"name": "o"}});
    let owners = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "above", "controller": true}]);
    for (sent, controller) in
        [(json!({"metadata": {"ownerReferences": owners}}), Some("above")), (json!([{"op": "remove"}]), None)]
    {
        event["requestObject"] = sent;
        let [write] = &read(&event)[..] else { panic!("one") };
        assert_eq!((write.change, &*write.object.name), (Change::Barred, "default/o"));
        assert_eq!(write.object.controller.as_deref(), controller);
    }
    event["responseStatus"] = status("User can't patch resource");
    assert_eq!(read(&event), []);
}

#[test]
fn the_labels_of_another_kind_of_answer_say_nothing() {
    assert_eq!(with("/objectRef/subresource", json!("scale"))[0].object.labels, None);
}

#[test]
fn deletions_are_answered_in_three_ways() {
    let mut event = event();
    event["objectRef"]["subresource"] = json!("");
    event["verb"] = json!("delete");
    assert_eq!(read(&event)[0].change, Change::Updated, "it has finalizers");
    let object = event["responseObject"].clone();
    event["responseObject"] = json!({"kind": "Status", "metadata": {}, "details": {"name": "o", "uid": "u"}});
    let [write] = &read(&event)[..] else { panic!("one") };
    assert_eq!((write.change, &*write.object.uid, &*write.object.name), (Change::Deleted, "u", "default/o"));
    event["verb"] = json!("deletecollection");
    event["responseObject"] = json!({"metadata": {"resourceVersion": "3"}, "items": [object.clone(), object]});
    assert_eq!(read(&event).iter().map(|write| write.change).collect::<Vec<_>>(), [Change::Deleted; 2]);
}

#[test]
fn a_lease_names_its_holder_and_garbage_is_a_fault() {
    assert_eq!(with("/responseObject/spec", json!({"holderIdentity": "h"}))[0].object.holder.as_deref(), Some("h"));
    assert!(said(b"{", &labels(), SHARDS).is_err());
    let mut without = event();
    without.as_object_mut().unwrap().remove("responseObject");
    assert!(said(without.to_string().as_bytes(), &labels(), SHARDS).unwrap_err().contains("without its outcome"));
}

#[test]
fn of_what_arrived_the_outcome_is_unknown() {
    let mut event = event();
    event["stage"] = json!("RequestReceived");
    for key in ["responseStatus", "responseObject"] {
        event.as_object_mut().unwrap().remove(key);
    }
    let Said::Begun(write) = said(event.to_string().as_bytes(), &labels(), SHARDS).unwrap() else { panic!("it began") };
    assert_eq!((write.change, &*write.id, write.shard.as_deref()), (Change::Unanswered, "6f7f", Some("shard-1")));
    assert_eq!((&*write.object.name, write.object.version), ("default/o", None));
}
