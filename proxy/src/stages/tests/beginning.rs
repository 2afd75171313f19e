//! Watches from nothing, of an API server without streaming lists.

use serde_json::Value;

use super::*;

const WATCH: &str = "/apis/x.io/v1/namespaces/a/things?watch=1&fieldSelector=b%3Dc&timeoutSeconds=7";

/// Refuses streaming lists, and has three objects at 10, in two pages.
fn without_streaming_lists(seen: &Seen) -> Response<Body> {
    let query = seen.uri.query().unwrap();
    let list = |version: &str, token: &str, names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).collect();
        let metadata = format!(r#"{{"resourceVersion":"{version}","continue":"{token}"}}"#);
        let items = items.join(",");
        json(full(format!(r#"{{"kind":"ThingList","apiVersion":"x.io/v1","metadata":{metadata},"items":[{items}]}}"#)))
    };
    match query {
        query if query.contains("sendInitialEvents") => with(StatusCode::UNPROCESSABLE_ENTITY),
        query if query.contains("watch=1") => json(full("{\"type\":\"DELETED\",\"object\":{\"metadata\":{}}}\n")),
        query if query.contains("continue=more") => list("10", "", &["third"]),
        _ => list("10", "more", &["first", "second"]),
    }
}

async fn events(response: Response<Body>) -> Vec<(String, Value)> {
    let text = text(response).await;
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"].clone())).collect()
}

#[tokio::test]
async fn a_watch_from_nothing_shows_a_list_of_the_present_and_goes_on_from_there() {
    let lab = Lab::new(without_streaming_lists);
    for start in ["", "&resourceVersion=0", "&resourceVersion="] {
        lab.seen.lock().clear();
        let events = events(lab.get(&format!("{WATCH}{start}")).await).await;
        let shown: Vec<_> = events.iter().map(|(kind, object)| (kind.as_str(), &object["metadata"]["name"])).collect();
        assert_eq!(shown[..3], [("ADDED", &"first".into()), ("ADDED", &"second".into()), ("ADDED", &"third".into())]);
        assert_eq!(shown[3..], [("DELETED", &Value::Null)], "its client asked for no bookmarks");
        assert!(events[..3].iter().all(|(_, it)| it["kind"] == "Thing" && it["apiVersion"] == "x.io/v1"), "{events:?}");
        let seen: Vec<_> = lab.seen.lock().iter().map(|seen| seen.uri.query().unwrap().to_owned()).collect();
        let [refused, first, second, rest] = &seen[..] else { panic!("{seen:?}") };
        assert!(refused.contains("sendInitialEvents=true"));
        for list in [first, second] {
            assert!(list.contains("labelSelector=s%3Dme") && list.contains("fieldSelector=b%3Dc"), "{list}");
            assert!(!list.contains("watch=") && !list.contains("resourceVersion"), "{list}");
        }
        assert!(rest.contains("resourceVersion=10") && rest.contains("watch=1") && rest.contains("timeoutSeconds=7"));
        assert!(!rest.contains("sendInitialEvents") && !rest.contains("resourceVersionMatch"), "{rest}");
    }
}

#[tokio::test]
async fn a_client_that_knows_bookmarks_is_told_the_end_of_the_list() {
    let lab = Lab::new(without_streaming_lists);
    let events = events(lab.get(&format!("{WATCH}&allowWatchBookmarks=true")).await).await;
    let (kind, object) = &events[3];
    assert_eq!((kind.as_str(), object["metadata"]["resourceVersion"].as_str()), ("BOOKMARK", Some("10")));
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[tokio::test]
async fn what_the_api_server_says_to_the_list_is_the_answer() {
    let lab = Lab::new(|seen| match seen.uri.query().unwrap().contains("sendInitialEvents") {
        true => with(StatusCode::UNPROCESSABLE_ENTITY),
        false => with(StatusCode::FORBIDDEN),
    });
    assert_eq!(lab.get(WATCH).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn half_a_list_is_no_whole_one() {
    let lab = Lab::new(|seen| match seen.uri.query().unwrap().contains("continue=more") {
        true => with(StatusCode::INTERNAL_SERVER_ERROR),
        false => without_streaming_lists(seen),
    });
    let events = events(lab.get(WATCH).await).await;
    let (kind, object) = events.last().unwrap();
    assert_eq!((events.len(), kind.as_str(), object["code"].as_u64()), (3, "ERROR", Some(410)));
}

#[tokio::test]
async fn other_forms_and_clients_that_ask_for_a_streaming_list_are_refused_as_by_the_api_server() {
    let lab = Lab::new(without_streaming_lists);
    let streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    assert_eq!(lab.get(&format!("{WATCH}{streaming}")).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let mut table = ask("GET", WATCH);
    let accept = HeaderValue::from_static("application/json;as=Table;g=meta.k8s.io;v=v1");
    table.headers_mut().insert(header::ACCEPT, accept);
    assert_eq!(lab.send(table).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let mut protobuf = ask("GET", WATCH);
    protobuf.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(PROTOBUF));
    assert_eq!(lab.send(protobuf).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn watch_that_prefers_protobuf_is_begun_in_json() {
    let lab = Lab::new(without_streaming_lists);
    let mut request = ask("GET", WATCH);
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    assert_eq!(events(lab.send(request).await).await.len(), 4);
    let asked: Vec<_> = lab.seen.lock().iter().map(|seen| seen.headers[header::ACCEPT].clone()).collect();
    assert_eq!(asked, [accept, "application/json", "application/json", "application/json"]);
}
