//! What is read of objects in each form, and that the same is read in all of them.
#![allow(clippy::unwrap_used)]

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const APPLY: &str = "application/apply-patch+yaml";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: [&str; 2] = ["application/merge-patch+json", "application/strategic-merge-patch+json"];

fn headers(content_type: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())])
}

fn uids(content_type: &str, body: impl Into<Bytes>) -> Result<Vec<String>, Unreadable> {
    let written = of_request(&headers(content_type), &body.into())?;
    Ok(written.owners.into_iter().map(|owner| owner.uid).collect())
}

fn owner(uid: &str, controller: bool) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Thing", "name": "a", "uid": uid, "controller": controller})
}

fn child(owners: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c", "ownerReferences": owners}, "data": {}})
}

fn in_protobuf(metadata: wire::Metadata) -> Bytes {
    wire::wrap("v1", "Secret", &wire::AnyMetadata { metadata: Some(metadata) })
}

fn reference(uid: &str, controller: bool) -> wire::OwnerReference {
    wire::OwnerReference {
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        name: "a".into(),
        uid: uid.into(),
        controller: Some(controller),
    }
}

#[test]
fn the_controller_is_found_in_every_form_of_a_write() {
    let body = child(&[owner("other", false), owner("mine", true)]).to_string();
    for form in [JSON, "application/json; charset=utf-8", YAML, APPLY].into_iter().chain(MERGE) {
        assert_eq!(uids(form, body.clone()).unwrap(), ["mine"], "{form}");
    }
    let yaml = "metadata:\n  ownerReferences:\n  - {uid: other}\n  - {apiVersion: x.io/v1, kind: &it Thing, \
         uid: mine, controller: true, name: *it}\n";
    for form in [YAML, APPLY] {
        assert_eq!(uids(form, yaml).unwrap(), ["mine"], "{form}");
    }
    let owner_references = vec![reference("other", false), reference("mine", true)];
    let message = in_protobuf(wire::Metadata { owner_references, ..Default::default() });
    assert_eq!(uids(PROTOBUF, message).unwrap(), ["mine"]);
    assert_eq!(uids(JSON, "{}").unwrap(), [""; 0]);
    assert_eq!(of_request(&HeaderMap::new(), &body.into()).unwrap().owners.len(), 1, "without a type it is JSON");
}

/// Where none controls the object, the only one of a kind of the ring counts, which a reader here can't know.
#[test]
fn without_a_controller_all_owners_with_a_name_are_found() {
    let body = child(&[owner("a", false), owner("b", false), json!({"uid": "c"})]).to_string();
    for form in [JSON, YAML, APPLY].into_iter().chain(MERGE) {
        assert_eq!(uids(form, body.clone()).unwrap(), ["a", "b"], "{form}");
    }
    assert_eq!(
        uids(JSON_PATCH, json!([{"op": "add", "path": "", "value": child(&[owner("a", false)])}]).to_string()).unwrap(),
        ["a"]
    );
}

#[test]
fn the_name_in_a_create_is_found_in_every_form() {
    let json = r#"{"metadata": {"name": "p", "generateName": "q"}}"#;
    let protobuf = in_protobuf(wire::Metadata { name: "p".into(), ..wire::Metadata::default() });
    for (form, body) in [(JSON, json.into()), (YAML, "metadata:\n  name: p\n".into()), (PROTOBUF, protobuf)] {
        let written = of_request(&headers(form), &body).unwrap();
        assert_eq!(written, Written { name: Some("p".into()), owners: Vec::new() }, "{form}");
    }
    // As Go writes an object without a name.
    let raw = Bytes::from_static(&[0x0a, 2, 0x0a, 0]);
    let unnamed = wire::enveloped(&wire::Unknown { raw, ..wire::Unknown::default() });
    assert_eq!(of_request(&headers(PROTOBUF), &unnamed), Ok(Written::default()));
}

#[test]
fn escapes_are_in_nobodys_way() {
    let body = r#"{"m\u0065tadata":{"\u006fwnerReferences":[{"apiVersion":"a/v1","kind":"A","name":"a","\u0075id":"m\u0069ne",
        "controller":true}]}}"#;
    assert_eq!(uids(JSON, body).unwrap(), ["mine"]);
    let yaml = "\"m\\u0065tadata\": {\"\\x6fwnerReferences\": [{apiVersion: a/v1, kind: A, name: a, \"uid\": \"m\\u0069ne\", \
                controller: true}]}";
    assert_eq!(uids(APPLY, yaml).unwrap(), ["mine"]);
    let merged = "base: &base {ownerReferences: [{apiVersion: a/v1, kind: A, name: a, uid: mine, controller: true}]}\nmetadata: {<<: *base, name: c}\n";
    assert_eq!(uids(APPLY, merged).unwrap(), ["mine"]);
}

#[test]
fn a_json_patch_is_read_wherever_it_points() {
    let one = owner("mine", true);
    for (path, value) in [
        ("", child(std::slice::from_ref(&one))),
        ("/metadata", json!({"ownerReferences": [one.clone()]})),
        ("/metadata/ownerReferences", json!([one.clone()])),
        ("/metadata/ownerReferences/-", one.clone()),
        ("/metadata/ownerReferences/0", one),
    ] {
        let patch = json!([{"op": "test", "path": "/x", "value": 1}, {"op": "add", "path": path, "value": value}]);
        assert_eq!(uids(JSON_PATCH, patch.to_string()).unwrap(), ["mine"], "{path}");
    }
    for path in ["/metadata/ownerReferences/0/uid", "/metadata/ownerReferences/0/controller"] {
        let patch = json!([{"op": "replace", "path": path, "value": "mine"}]);
        assert!(uids(JSON_PATCH, patch.to_string()).is_err(), "{path}");
    }
    for (op, path) in [
        ("copy", "/metadata/ownerReferences/-"),
        ("move", "/metadata/ownerReferences"),
        ("copy", "/metadata"),
        ("move", ""),
    ] {
        let patch = json!([{"op": op, "from": "/spec/owner", "path": path}]);
        assert!(uids(JSON_PATCH, patch.to_string()).is_err(), "{op} {path}");
    }
    let elsewhere = json!([{"op": "copy", "from": "/metadata/ownerReferences/0", "path": "/spec/owner"}]);
    assert_eq!(uids(JSON_PATCH, elsewhere.to_string()).unwrap(), [""; 0]);
    let other =
        json!([{"op": "remove", "path": "/metadata/ownerReferences"}, {"op": "add", "path": "/spec", "value": 1}]);
    assert_eq!(uids(JSON_PATCH, other.to_string()).unwrap(), [""; 0]);
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let twice = r#"{"ownerReferences":[{"uid":"mine","controller":true}],"ownerReferences":[]}"#;
    for (form, body) in [
        (JSON, format!(r#"{{"metadata":{twice}}}"#)),
        (JSON, format!(r#"{{"metadata":{twice},"metadata":{{}}}}"#)),
        (APPLY, format!(r#"{{"metadata":{twice}}}"#)),
        (APPLY, "metadata: {}\nmetadata: {}\n".to_owned()),
        (YAML, "metadata: {}\n---\nmetadata: {}\n".to_owned()),
        (JSON, r#"{"metadata":{}} {}"#.to_owned()),
        (JSON, "[]".to_owned()),
        (JSON, "metadata: {}".to_owned()),
        (PROTOBUF, "{}".to_owned()),
        (JSON_PATCH, "{}".to_owned()),
        ("application/cbor", "{}".to_owned()),
        ("application/apply-patch+cbor", "{}".to_owned()),
        ("text/plain", "{}".to_owned()),
        // One that is there becomes the controller, of whichever kind it is.
        (APPLY, r#"{"metadata":{"ownerReferences":[{"uid":"mine","controller":true}]}}"#.to_owned()),
        (MERGE[1], r#"{"metadata":{"ownerReferences":[{"uid":"mine","kind":"Thing","controller":true}]}}"#.to_owned()),
        (
            MERGE[1],
            r#"{"metadata":{"ownerReferences":[{"uid":"mine","apiVersion":"a/v1","kind":"A","controller":true}]}}"#
                .to_owned(),
        ),
    ] {
        assert!(uids(form, body.clone()).is_err(), "{form}: {body}");
    }
    let mut compressed = headers(JSON);
    compressed.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    assert_eq!(of_request(&compressed, &Bytes::from_static(b"{}")), Err(Unreadable::Form));
}

#[test]
fn an_answer_shows_its_labels_in_every_form() {
    let metadata = json!({"name": "a", "uid": "1", "resourceVersion": "7", "labels": {"s\u{e9}": "me"}});
    let table = |objects: Vec<Value>| {
        let rows: Vec<_> = objects.into_iter().map(|object| json!({"cells": [1], "object": object})).collect();
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": rows}).to_string()
    };
    let whole = json!({"kind": "Thing", "apiVersion": "x.io/v1", "metadata": metadata, "rows": 5}).to_string();
    let protobuf = in_protobuf(wire::Metadata {
        name: "a".into(),
        uid: "1".into(),
        resource_version: "7".into(),
        labels: BTreeMap::from([("s\u{e9}".into(), "me".into())]),
        ..Default::default()
    });
    for (form, body) in [
        (JSON, whole.clone().into()),
        (YAML, whole.into()),
        (
            YAML,
            "kind: Thing\nmetadata:\n  name: a\n  uid: \"1\"\n  resourceVersion: \"7\"\n  labels: {s\u{e9}: me}\n"
                .into(),
        ),
        (JSON, table(vec![json!({"metadata": metadata})]).into()),
        (PROTOBUF, protobuf),
    ] {
        let read = of_answer(&headers(form), &body).unwrap();
        assert_eq!((read.uid.as_deref(), read.labels.unwrap()["s\u{e9}"].as_str()), (Some("1"), "me"), "{form}");
        assert_eq!(read.resource_version.as_deref(), Some("7"), "{form}");
    }
    for undecided in [table(vec![]), table(vec![Value::Null]), table(vec![json!({}), json!({})]), "{}".into()] {
        assert!(of_answer(&headers(JSON), &undecided.clone().into()).is_err(), "{undecided}");
    }
    assert!(of_list(&Bytes::from_static(br#"{"kind":"Status"}"#)).is_err());
    assert_eq!(
        of_list(&Bytes::from_static(br#"{"kind":"PartialObjectMetadataList","items":null}"#)),
        Ok(Page::default())
    );
    let page =
        of_list(&Bytes::from_static(br#"{"metadata":{"continue":"x"},"items":[{"metadata":{"uid":"1"}}]}"#)).unwrap();
    assert_eq!((page.items.len(), page.next.as_deref()), (1, Some("x")));
}

#[test]
fn a_compressed_answer_is_read_as_far_as_it_is_an_object() {
    let gzip = |body: &[u8]| -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap().into()
    };
    let with = |encoding: &'static str| {
        let mut headers = headers(JSON);
        headers.append(header::CONTENT_ENCODING, encoding.parse().unwrap());
        headers
    };
    let object = json!({"kind": "Thing", "metadata": {"uid": "1"}}).to_string();
    let read = |body: &Bytes| of_answer(&with("gzip"), body).map(|it| it.uid);
    assert_eq!(read(&gzip(object.as_bytes())), Ok(Some("1".to_owned())));
    // As clients read it, which takes several parts for one.
    let parts = [gzip(&object.as_bytes()[..9]), gzip(&object.as_bytes()[9..])].concat();
    assert_eq!(read(&parts.into()), Ok(Some("1".to_owned())));
    assert!(read(&gzip(object.as_bytes()).slice(..20)).is_err(), "cut");
    assert!(read(&object.clone().into()).is_err(), "not compressed");
    let mut long = object.clone().into_bytes();
    long.resize(MAX_OBJECT + 1, b' ');
    assert_eq!(read(&gzip(&long)), Err(Unreadable::Form), "a few kilobytes that stand for 8 MiB and more");
    let mut twice = with("gzip");
    twice.append(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    for unknown in [with("br"), twice] {
        assert_eq!(of_answer(&unknown, &gzip(object.as_bytes())), Err(Unreadable::Form));
    }
}

proptest! {
    #[test]
    fn json_yaml_and_protobuf_name_the_same_owners(
        owners in prop::collection::vec(("[ -~\u{e9}\u{1f600}]{0,12}", any::<bool>()), 0..4),
        name in "\\PC{0,12}",
    ) {
        let is_controlled = owners.iter().any(|(_, controls)| *controls);
        let counts = owners.iter().filter(|(_, controls)| *controls || !is_controlled);
        let expected: Vec<_> = counts.map(|(uid, _)| uid.clone()).collect();
        let references: Vec<_> = owners.iter().map(|(uid, controls)| owner(uid, *controls)).collect();
        let mut object = child(&references);
        object["metadata"]["annotations"] = json!({ name: "}],\"ownerReferences\":[{\"uid\":\"x\",\"controller\":true}]" });
        for form in [JSON, YAML, APPLY, MERGE[0]] {
            prop_assert_eq!(&uids(form, object.to_string()).unwrap(), &expected);
        }
        // As YAML is written by hand, and not as JSON.
        let yaml = serde_saphyr::to_string(&object).unwrap();
        prop_assert_eq!(&uids(APPLY, yaml).unwrap(), &expected);
        let owner_references = owners.iter().map(|(uid, controls)| reference(uid, *controls)).collect();
        let message = in_protobuf(wire::Metadata { owner_references, ..Default::default() });
        prop_assert_eq!(&uids(PROTOBUF, message).unwrap(), &expected);
    }

    #[test]
    fn no_bytes_make_it_fall(body in prop::collection::vec(any::<u8>(), 0..200), protobuf in any::<bool>()) {
        let body = Bytes::from(if protobuf { [wire::MAGIC, &body].concat() } else { body });
        for form in [JSON, APPLY, PROTOBUF, JSON_PATCH] {
            let _ = of_request(&headers(form), &body);
            let _ = of_answer(&headers(form), &body);
        }
    }
}
