//! What a client is told that did not watch while objects moved.

use prost::Message as _;
use serde_json::{Value, json};

use super::*;
use crate::{request::representation::JSON, views::fixtures::leaving, wire};

const WATCH: &str = "/apis/x.io/v1/things?watch=1";

/// Watches that stay open, and questions that are answered with these uids, or refused without.
fn lab(ours: Option<&'static [&'static str]>) -> Lab {
    Lab::new(move |seen| {
        let query = seen.uri.query().unwrap();
        if query.contains("watch=1") {
            return silent();
        }
        let items: Vec<_> = ours.into_iter().flatten().map(|uid| json!({"metadata": {"uid": uid}})).collect();
        let items = if items.is_empty() { Value::Null } else { items.into() };
        let mut answer = json(full(json!({"kind": "PartialObjectMetadataList", "items": items}).to_string()));
        if ours.is_none() {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    })
}

async fn watch(lab: &Lab, query: &str) -> Body {
    lab.get(&format!("{WATCH}{query}")).await.into_body()
}

fn first(mut body: Body) -> Option<Value> {
    let frame = body.frame().now_or_never()?;
    let event = serde_json::from_slice(&frame?.unwrap().into_data().unwrap()).unwrap();
    // Who asks for more has it.
    assert!(body.frame().now_or_never().flatten().is_none());
    Some(event)
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_skips_a_move_begins_with_its_deleted() {
    let lab = lab(Some(&[]));
    drop(watch(&lab, "&resourceVersion=5").await);
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 30));
    let event = first(watch(&lab, "&resourceVersion=20").await).unwrap();
    let labels = json!({"tier": "front"});
    let metadata = json!({"name": "a", "namespace": "ns", "uid": "uid-12", "resourceVersion": "20", "labels": labels});
    assert_eq!(
        event,
        json!({"type": "DELETED", "object": {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": metadata}})
    );
    let question = lab.seen.lock()[2].clone();
    assert_eq!(question.uri.path(), "/apis/x%2Eio/v1/namespaces/ns/things");
    let query = question.uri.query().unwrap();
    for part in ["labelSelector=s%3Dme%2C%21d", "fieldSelector=metadata.name%3Da", "resourceVersion=20", "Match=Exact"]
    {
        assert!(query.contains(part), "{query}");
    }
    assert!(first(watch(&lab, "&resourceVersion=20").await).is_none(), "it was told, and 30 is still to come");
}

#[tokio::test(start_paused = true)]
async fn kopf_finds_a_deletion_timestamp_in_what_it_missed() {
    let lab = lab(Some(&[]));
    drop(lab.get_by_kopf(&format!("{WATCH}&resourceVersion=5")).await);
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
    let event = first(lab.get_by_kopf(&format!("{WATCH}&resourceVersion=20")).await.into_body()).unwrap();
    assert!(event["object"]["metadata"]["deletionTimestamp"].is_string(), "{event}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_before_it_was_told_is_told_by_its_next_watch() {
    let lab = lab(Some(&[]));
    drop(watch(&lab, "&resourceVersion=5").await);
    let twelve = leaving(things(), Some("ns"), 12);
    lab.shared.views.leaves(&twelve);
    drop(watch(&lab, "&resourceVersion=20").await);
    assert_eq!(lab.shared.views.count_blocking(&twelve), 1, "it may work on it still");
    let event = first(watch(&lab, "&resourceVersion=20").await).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["uid"]), (&json!("DELETED"), &json!("uid-12")));
    assert_eq!(lab.shared.views.count_blocking(&twelve), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_listed_before_the_proxy_knew_of_a_drain_lists_again_and_is_told() {
    let lab = lab(Some(&[]));
    drop(watch(&lab, "&resourceVersion=5").await);
    let again = watch(&lab, "&resourceVersion=20").await;
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
    let ended = first(again).unwrap();
    assert_eq!((&ended["type"], &ended["object"]["code"]), (&json!("ERROR"), &json!(410)));
    let event = first(watch(&lab, "&resourceVersion=21").await).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["uid"]), (&json!("DELETED"), &json!("uid-12")));
}

#[tokio::test(start_paused = true)]
async fn who_went_on_where_it_was_or_notices_by_itself_is_told_nothing() {
    for query in
        ["&resourceVersion=5", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "&resourceVersion=11"]
    {
        let lab = lab(Some(&[]));
        drop(watch(&lab, "&resourceVersion=5").await);
        lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
        assert!(first(watch(&lab, query).await).is_none(), "{query}");
        assert_eq!(lab.seen.lock().len(), 2, "nothing is asked: {query}");
    }
    let lab = lab(Some(&[]));
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
    assert!(first(watch(&lab, "&resourceVersion=20").await).is_none(), "it never watched");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_came_back_is_not_taken_away_nor_another_one_of_its_name() {
    for there in [&["uid-12"], &["uid-of-another"]] {
        let lab = lab(Some(there));
        drop(watch(&lab, "&resourceVersion=5").await);
        lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
        assert!(first(watch(&lab, "&resourceVersion=20").await).is_none(), "{there:?}");
        assert_eq!(lab.seen.lock().len(), 3, "it was asked about");
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_says_what_it_missed_a_client_lists_again_and_asks_anew() {
    let lab = lab(None);
    drop(watch(&lab, "&resourceVersion=5").await);
    lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
    for _ in 0..2 {
        let event = first(watch(&lab, "&resourceVersion=20").await).unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    }
}

/// Typed clients can't read an object without its `spec`, or `roleRef`.
#[tokio::test(start_paused = true)]
async fn whole_objects_are_told_as_a_whole_as_they_were_or_as_they_are() {
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let wholes = [
        // As it was, what it is now where that is forgotten, and what there is where nothing is left, or it is another's name.
        (JSON, Some("12"), "uid-12", true),
        (JSON, None, "uid-12", true),
        (JSON, Some("0"), "uid-12", false),
        (JSON, None, "uid-of-another", false),
        (metadata, Some("12"), "uid-12", false),
    ];
    for (accept, known, uid, is_whole) in wholes {
        let lab = Lab::new(move |seen| {
            let query = crate::request::Query::parse(seen.uri.query().unwrap()).unwrap();
            if query.flag("watch") {
                return silent();
            }
            let is_known = query.first("labelSelector").is_none() && query.first("resourceVersion") == known;
            let object =
                json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": "9"}, "roleRef": {"name": "r"}});
            let items = if is_known { json!([object]) } else { Value::Null };
            json(full(json!({"kind": "ThingList", "items": items}).to_string()))
        });
        let ask = |from: &str| {
            let mut request = ask("GET", &format!("{WATCH}&resourceVersion={from}"));
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
            lab.send(request)
        };
        drop(ask("5").await);
        lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
        let event = first(ask("20").await.into_body()).unwrap();
        let object = &event["object"];
        assert_eq!((&event["type"], &object["metadata"]["resourceVersion"]), (&json!("DELETED"), &json!("20")));
        assert_eq!(object["roleRef"] == json!({"name": "r"}), is_whole, "{known:?} {uid} {event}");
        if is_whole {
            assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("Thing"), &json!("x.io/v1")));
        }
        assert_eq!(lab.shared.budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn whole_objects_in_protobuf_are_told_as_a_whole() {
    let owner = wire::OwnerReference { name: "o".into(), ..wire::OwnerReference::default() };
    let metadata = wire::Metadata {
        name: "a".into(),
        uid: "uid-12".into(),
        resource_version: "9".into(),
        owner_references: vec![owner],
        ..wire::Metadata::default()
    };
    let object = wire::AnyMetadata { metadata: Some(metadata.clone()) };
    for (kind, is_whole) in [("ThingList", true), ("Thing", false)] {
        let list = wire::List { metadata: None, items: vec![object.encode_to_vec().into()] };
        let list = wire::wrap("x.io/v1", kind, &list);
        let lab = Lab::new(move |seen| match seen.uri.query().unwrap() {
            query if query.contains("watch=1") => protobuf(silent().into_body()),
            query if query.contains("labelSelector") => json(full(r#"{"kind":"ThingList","items":null}"#)),
            _ => protobuf(full(list.clone())),
        });
        let ask = |from: &str| {
            let mut request = ask("GET", &format!("{WATCH}&resourceVersion={from}"));
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(PROTOBUF));
            lab.send(request)
        };
        drop(ask("5").await);
        lab.shared.views.leaves(&leaving(things(), Some("ns"), 12));
        let frame = ask("20").await.into_body().frame().await.unwrap().unwrap();
        let event = wire::WatchEvent::decode(frame.into_data().unwrap().slice(4..)).unwrap();
        let told = wire::unwrap(&event.object.unwrap().raw).unwrap();
        assert_eq!((&*event.event_type, told.type_meta.unwrap().kind), ("DELETED", "Thing".to_owned()));
        let told = wire::AnyMetadata::decode(told.raw).unwrap().metadata.unwrap();
        assert_eq!((&*told.uid, &*told.resource_version), ("uid-12", "20"));
        assert_eq!(told.owner_references == metadata.owner_references, is_whole, "{kind}");
        assert_eq!(lab.shared.budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn few_whole_objects_are_asked_for_at_a_time() {
    for (accept, at_a_time) in [(JSON, 2), ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 8)] {
        let lab = Lab::stuck(|seen| seen.uri.query().unwrap().contains("watch=1").then(silent));
        let ask = |from: &str| {
            let mut request = ask("GET", &format!("{WATCH}&resourceVersion={from}"));
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
            lab.send(request)
        };
        drop(ask("5").await);
        (12..22).for_each(|version| lab.shared.views.leaves(&leaving(things(), Some("ns"), version)));
        let mut body = ask("30").await.into_body();
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(lab.seen.lock().len() - 2, at_a_time, "beside two watches");
    }
}
