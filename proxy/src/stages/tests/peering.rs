//! kopf's peering objects through the whole stack.

use serde_json::{Value, json};

use super::*;

const DEFAULT: &str = "/apis/kopf.dev/v1/namespaces/ns/kopfpeerings/default";
const ALL: &str = "/apis/kopf.dev/v1/namespaces/ns/kopfpeerings";
const RING: &str = "ringside-example";

fn real(status: &Value) -> Value {
    json!({
        "apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "status": status,
        "metadata": {"namespace": "ns", "name": "default", "resourceVersion": "5"},
    })
}

fn me(lastseen: &str) -> Value {
    json!({"priority": 0, "lifetime": 60, "lastseen": lastseen})
}

async fn says(lab: &Lab, status: Value) -> Response<Body> {
    let mut patch = ask("PATCH", DEFAULT).map(|_| full(json!({"status": status}).to_string()));
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    lab.send(patch).await
}

async fn status_of(answer: Response<Body>) -> Value {
    let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
    answer["status"].clone()
}

impl Lab {
    fn requests(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| format!("{} {}", seen.method, seen.uri)).collect()
    }
}

#[tokio::test]
async fn what_the_controller_says_of_itself_stays_here_and_the_ring_says_it_once() {
    let stranger = json!({"stranger": {"priority": 7}, RING: me("then")});
    let there = real(&stranger);
    let lab = Lab::new(move |_| json(full(there.to_string())));
    lab.real.put(DEFAULT, real(&stranger));
    let answer = says(&lab, json!({"me": me("now")})).await;
    assert_eq!(
        (answer.status(), &answer.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    assert_eq!(status_of(answer).await, json!({"stranger": {"priority": 7}, "me": me("now")}));
    assert_eq!(lab.requests(), Vec::<String>::new(), "nothing of it reached the API server");
    let entry = lab.real.get(DEFAULT)["status"].clone();
    assert_eq!((&entry["me"], &entry[RING]["priority"]), (&Value::Null, &json!(0)), "{entry}");
    assert_eq!(status_of(lab.get(DEFAULT).await).await, json!({"stranger": {"priority": 7}, "me": me("now")}));
    // Of what it takes off, its own is not for the API server.
    assert_eq!(says(&lab, json!({"dead": null, "me": null})).await.status(), StatusCode::OK);
    assert_eq!(lab.requests().last().unwrap(), &format!("PATCH {DEFAULT}"));
    assert_eq!(status_of(lab.get(DEFAULT).await).await, json!({"stranger": {"priority": 7}}));
}

#[tokio::test]
async fn without_the_rings_entry_the_controller_is_not_said_to_be_there() {
    for (refused, answered) in [(403, 403), (409, 409), (422, 422), (500, 503)] {
        let lab = Lab::new(|_| json(full(real(&json!({})).to_string())));
        lab.real.put(DEFAULT, real(&json!({})));
        lab.real.refuse(Some(StatusCode::from_u16(refused).unwrap()));
        assert_eq!(says(&lab, json!({"me": me("now")})).await.status(), answered, "{refused}");
        assert_eq!(lab.requests(), Vec::<String>::new());
        assert_eq!(status_of(lab.get(DEFAULT).await).await, json!({}), "{refused}");
    }
}

/// kopf works without peers then.
#[tokio::test]
async fn where_there_is_no_peering_object_the_api_server_says_so() {
    let lab = Lab::new(|_| {
        let mut response = json(full(r#"{"kind":"Status","code":404}"#));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    });
    let answer = says(&lab, json!({"me": me("now")})).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(text(answer).await, r#"{"kind":"Status","code":404}"#, "as it is");
    assert_eq!(lab.requests(), [format!("GET {DEFAULT}")], "nothing was written");
}

/// Who may write the part need not be let read it.
#[tokio::test]
async fn what_is_said_by_the_status_alone_is_answered_with_the_whole_object() {
    let lab = Lab::new(|_| json(full(real(&json!({})).to_string())));
    lab.real.put(DEFAULT, real(&json!({})));
    let mut patch = ask("PATCH", &format!("{DEFAULT}/status?fieldManager=a"));
    *patch.body_mut() = full(json!({"status": {"me": me("now")}}).to_string());
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    assert_eq!(status_of(lab.send(patch).await).await, json!({"me": me("now")}));
    assert_eq!(lab.requests(), Vec::<String>::new());
    // Where nothing is to be said for the ring, as at the operator's end, it is read.
    let mut patch = ask("PATCH", &format!("{DEFAULT}/status?fieldManager=a"));
    *patch.body_mut() = full(json!({"status": {"me": null}}).to_string());
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    assert_eq!(status_of(lab.send(patch).await).await, json!({}));
    assert_eq!(lab.requests(), [format!("GET {DEFAULT}")]);
}

#[tokio::test]
async fn a_watch_shows_what_the_controller_says_of_itself_as_it_says_it() {
    let (sender, respond) = streaming();
    let lab = Lab::new(move |seen| match seen.uri.query() {
        Some(query) if query.contains("watch") => respond(seen),
        _ => json(full(real(&json!({})).to_string())),
    });
    lab.real.put(DEFAULT, real(&json!({})));
    let mut watch = lab.get(&format!("{ALL}?watch=true")).await.into_body();
    let mut next = async || -> Value {
        let frame = tokio::time::timeout(Duration::from_secs(10), watch.frame()).await.expect("an event");
        let frame = frame.unwrap().unwrap().into_data().unwrap();
        serde_json::from_slice(&frame).unwrap()
    };
    let event = |kind: &str, status: Value| -> &'static str {
        Box::leak(format!("{}\n", json!({"type": kind, "object": real(&status)})).into_boxed_str())
    };
    // In two pieces.
    let (first, second) = event("ADDED", json!({RING: me("then"), "old": {"priority": 0}})).split_at(40);
    sender.unbounded_send(first).unwrap();
    sender.unbounded_send(second).unwrap();
    let added = next().await;
    assert_eq!((&added["type"], &added["object"]["status"]), (&json!("ADDED"), &json!({"old": {"priority": 0}})));
    assert_eq!(says(&lab, json!({"me": me("now")})).await.status(), StatusCode::OK);
    let said = next().await;
    assert_eq!(said["type"], "MODIFIED");
    assert_eq!(said["object"]["status"], json!({"old": {"priority": 0}, "me": me("now")}));
    assert_eq!(said["object"]["metadata"]["resourceVersion"], "5");
    sender.unbounded_send(event("MODIFIED", json!({RING: me("later")}))).unwrap();
    assert_eq!(next().await["object"]["status"], json!({"me": me("now")}));
    let bookmark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    sender.unbounded_send(Box::leak(format!("{bookmark}\n").into_boxed_str())).unwrap();
    assert_eq!(next().await["type"], "BOOKMARK");
    // It ends as the API server ends it.
    drop(sender);
    assert!(watch.frame().await.is_none());
}

#[tokio::test]
async fn all_else_about_peering_objects_passes() {
    let lab = Lab::new(|_| json(full(real(&json!({RING: me("then")})).to_string())));
    let mut table = ask("GET", ALL);
    let as_table = HeaderValue::from_static("application/json;as=Table;g=meta.k8s.io;v=v1,application/json");
    table.headers_mut().insert("accept", as_table);
    assert_eq!(status_of(lab.send(table).await).await, json!({RING: me("then")}));
    let labels = json!({"metadata": {"labels": {"a": "b"}}, "status": {"me": {}}}).to_string();
    let mut patch = ask("PATCH", DEFAULT).map(|_| full(labels));
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    lab.send(patch).await;
    lab.send(ask("DELETE", DEFAULT)).await;
    let expected = [format!("GET {ALL}"), format!("PATCH {DEFAULT}"), format!("DELETE {DEFAULT}")];
    assert_eq!(lab.requests(), expected);
}
