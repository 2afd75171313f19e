//! Lines as an API server writes them, and what is told of them.

#![allow(clippy::unwrap_used)]

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::{audit::POD_NAME, checker::Labels};

fn labels() -> RingLabels {
    RingLabels::of(&"websites".parse().unwrap())
}

/// An update of a Website by the Pod `shard-1`, as v1.37.0 writes it down.
fn event() -> Value {
    json!({
        "auditID": "6f7f", "requestURI": "/apis/x/v1/namespaces/default/websites/o/status",
        "stage": "ResponseComplete", "verb": "patch",
        "user": {"username": "system:serviceaccount:default:website-controller", "extra": {POD_NAME: ["shard-1"]}},
        "objectRef": {"resource": "websites", "namespace": "default", "name": "o", "subresource": "status"},
        "responseStatus": {"metadata": {}, "code": 200},
        "responseObject": {"kind": "Website", "metadata": {"name": "o", "namespace": "default", "uid": "u",
            "resourceVersion": "12", "labels": {labels().shard: "shard-1", "app": "x"}}},
        "requestReceivedTimestamp": "2026-01-02T03:04:05.000006Z", "stageTimestamp": "2026-01-02T03:04:05.100006Z",
    })
}

fn read(event: &Value) -> Option<Request> {
    request(audit::Event::parse(event.to_string().as_bytes()).unwrap(), &labels())
}

#[test]
fn a_request_has_who_asked_and_what_came_of_it() {
    let answered = read(&event()).unwrap();
    assert_eq!((&*answered.who, answered.code, &*answered.what.1), ("shard-1", 200, "websites/status"));
    let object = answered.object.unwrap();
    let shown = Labels { shard: Some("shard-1".into()), drain: None };
    assert_eq!((&*object.uid, object.version, object.labels), ("u", "12".parse().ok(), Some(shown)));
    assert_eq!(answered.answered.duration_since(answered.received).as_millis(), 100);
    // Nothing comes of a refusal, and not who asks is in a Pod.
    let mut refused = event();
    refused["responseStatus"]["code"] = json!(409);
    refused["responseObject"] = json!({"kind": "Status", "metadata": {}, "details": {"uid": "u"}});
    refused["user"] = json!({"username": "somebody"});
    let refused = read(&refused).unwrap();
    assert_eq!((refused.object, &*refused.who, refused.code), (None, "somebody", 409));
}

#[test]
fn of_what_is_read_only_the_fences_question_is_a_word_of_the_shard() {
    for (query, is_word) in [
        ("?fieldSelector=metadata%2Ename%3Do", true),
        ("?&fieldSelector=metadata.name%3Do", false),
        ("?labelSelector=a", false),
    ] {
        let mut event = event();
        event["verb"] = json!("list");
        event["requestURI"] = json!(format!("/apis/x/v1/namespaces/default/websites{query}"));
        assert_eq!(read(&event).is_some(), is_word, "{query}");
    }
}

#[test]
fn those_about_an_object_are_found_its_creation_as_well() {
    let mut created = event();
    created["verb"] = json!("create");
    created["objectRef"] = json!({"resource": "websites", "namespace": "default"});
    let mut of_another = event();
    of_another["objectRef"]["name"] = json!("oo");
    of_another["responseObject"]["metadata"]["name"] = json!("oo");
    let folder = crate::process::Folder::create("history").unwrap();
    let log = folder.path().join("audit.log");
    // The last one is being written.
    fs::write(&log, format!("{created}\n{of_another}\n{}\n{{\"stage\":", event())).unwrap();
    let names = BTreeSet::from(["default/o".to_owned()]);
    let found = requests(&log, &labels(), &names).unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["default/o"]);
    let verbs: Vec<_> = found["default/o"].iter().map(|request| &*request.what.0).collect();
    assert_eq!(verbs, ["create", "patch"]);
}

#[test]
fn all_that_is_known_is_told_in_its_order() {
    let at = |seconds| Duration::from_secs(seconds);
    let started = |uid: &str| Event::Started { uid: uid.to_owned(), generation: 3, instance: "shard-1.1".to_owned() };
    let seen = Event::Seen {
        uid: "u".to_owned(),
        name: "default/o".to_owned(),
        generation: 3,
        shard: Some("shard-1".to_owned()),
    };
    let journal = [
        Record { at: at(1), event: seen },
        Record { at: at(2), event: started("u") },
        Record { at: at(3), event: started("of another") },
        Record { at: at(9), event: Event::Killed { instance: "shard-1.1".to_owned() } },
    ];
    let request = read(&event()).unwrap();
    let begun = request.received - SignedDuration::from_secs(5);
    let told = tell("default/o", &[request], &journal, begun);
    let lines: Vec<_> = told.lines().collect();
    let [_, started, asked, killed] = lines[..] else { panic!("{told}") };
    assert!(started.ends_with("2.000  shard-1.1 starts on generation 3"), "{told}");
    assert!(asked.contains("shard-1: patch websites/status: 200 after 100ms, version 12, shard shard-1"), "{told}");
    assert!(killed.ends_with("9.000  shard-1.1 is no more"), "{told}");
}
