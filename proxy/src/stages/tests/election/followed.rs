//! Lists and watches of one lock through the whole stack.

use serde_json::Value;

use super::*;

const LOCK: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
/// The list of the one lock.
const ONE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases?fieldSelector=metadata.name%3Dlock";
const RING: &str = "ringside-example";

fn made_here() -> Lab {
    Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")))
}

impl Lab {
    async fn create(&self) {
        assert_eq!(self.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    }

    async fn renew(&self) {
        assert_eq!(self.send(write("PUT", LOCK, record("lock", ""))).await.status(), StatusCode::OK);
    }

    async fn delete(&self) {
        assert_eq!(self.send(write("DELETE", LOCK, "")).await.status(), StatusCode::OK);
    }

    /// The version of the list, and the holders in it.
    async fn list(&self) -> (String, Vec<String>) {
        let list: Value = serde_json::from_str(&text(self.get(ONE).await).await).unwrap();
        assert_eq!(list["kind"], "LeaseList", "{list}");
        let holders = list["items"].as_array().unwrap().iter().map(holder);
        (list["metadata"]["resourceVersion"].as_str().unwrap().to_owned(), holders.collect())
    }

    async fn watch(&self, rest: &str) -> Watch {
        let response = self.get(&format!("{ONE}&watch=true&{rest}")).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        Watch(response.into_body())
    }
}

fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// A watch as its client reads it.
struct Watch(Body);

impl Watch {
    /// The events that have come by now.
    fn events(&mut self) -> Vec<Value> {
        let mut text = Vec::new();
        while let Some(Some(frame)) = self.0.frame().now_or_never() {
            text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        let lines = std::str::from_utf8(&text).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Their types.
    fn said(&mut self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.0.frame().now_or_never(), Some(None))
    }

    /// That it tells its client to list again, and ends.
    fn is_expired(&mut self) {
        let events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&"ERROR".into(), &410.into()));
        assert!(self.has_ended());
    }
}

#[tokio::test]
async fn a_list_of_one_lock_says_what_a_get_of_it_says() {
    let lab = made_here();
    lab.get(ONE).await;
    assert_eq!(lab.asked(), [format!("GET {ONE}")], "it may be an old leader's");
    lab.create().await;
    let (first, holders) = lab.list().await;
    assert_eq!(holders, ["a"]);
    let lock: Value = serde_json::from_str(&text(lab.get(LOCK).await).await).unwrap();
    assert_eq!(version(&lock).to_string(), first);
    lab.delete().await;
    let (second, holders) = lab.list().await;
    assert_eq!(holders, Vec::<String>::new());
    assert!(first.parse::<u64>().unwrap() < second.parse().unwrap(), "a watch from there shows no deletion");
    assert_eq!(lab.asked().len(), 2, "all else is answered here");
}

#[tokio::test]
async fn what_the_ring_holds_is_in_no_list_and_a_watch_says_nothing_until_it_is_made() {
    for legacy in [false, true] {
        let lab = made_here();
        lab.real.is_held_by(&the_lock(), RING);
        let mut first = match legacy {
            false => lab.watch("").await,
            true => Watch(lab.get(&LOCK.replace("/v1/", "/v1/watch/")).await.into_body()),
        };
        assert!(first.events().is_empty());
        let (version, holders) = lab.list().await;
        assert_eq!(holders, Vec::<String>::new());
        let mut later = lab.watch(&format!("resourceVersion={version}")).await;
        assert!(later.events().is_empty());
        lab.create().await;
        for watch in [&mut first, &mut later] {
            let events = watch.events();
            assert_eq!((events.len(), &events[0]["type"]), (1, &"ADDED".into()));
            assert_eq!(holder(&events[0]["object"]), "a");
        }
        assert_eq!(lab.asked(), Vec::<String>::new(), "all of it is answered here");
    }
}

#[tokio::test]
async fn a_watch_shows_what_becomes_of_a_lock() {
    let lab = made_here();
    lab.create().await;
    let mut watch = lab.watch("resourceVersion=0").await;
    let mut now = lab.watch("sendInitialEvents=false").await;
    assert_eq!(watch.said(), ["ADDED"]);
    lab.renew().await;
    assert_eq!((watch.said(), now.said()), (vec!["MODIFIED".to_owned()], vec!["MODIFIED".to_owned()]));
    lab.delete().await;
    let gone = watch.events();
    assert_eq!((&gone[0]["type"], holder(&gone[0]["object"])), (&"DELETED".into(), "a".to_owned()));
    assert_eq!(version(&gone[0]["object"]).to_string(), lab.list().await.0);
    lab.create().await;
    assert_eq!(watch.said(), ["ADDED"]);
}

/// Nothing is kept for it but what it showed.
#[tokio::test]
async fn a_reader_that_is_slow_is_told_how_the_lock_stands_and_not_each_step() {
    let lab = made_here();
    lab.create().await;
    let mut watch = lab.watch("").await;
    assert_eq!(watch.said(), ["ADDED"]);
    for _ in 0..100 {
        lab.renew().await;
    }
    let events = watch.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(version(&events[0]["object"]).to_string(), lab.list().await.0);
    lab.delete().await;
    lab.create().await;
    let events = watch.events();
    let versions: Vec<_> = events.iter().map(|event| version(&event["object"])).collect();
    assert_eq!((&events[0]["type"], &events[1]["type"]), (&"DELETED".into(), &"ADDED".into()), "another object");
    assert!(versions.is_sorted() && versions.len() == 2, "{versions:?}");
}

#[tokio::test]
async fn a_watch_goes_on_from_what_its_client_knows_or_makes_it_list_again() {
    let lab = made_here();
    lab.create().await;
    let (made, _) = lab.list().await;
    let from = async |version: &str| lab.watch(&format!("resourceVersion={version}")).await;
    assert_eq!(from(&made).await.said(), Vec::<String>::new());
    lab.renew().await;
    let (renewed, _) = lab.list().await;
    assert_eq!(from(&made).await.said(), ["MODIFIED"]);
    for unknown in ["7", "x", &(renewed.parse::<u64>().unwrap() + 1).to_string()] {
        from(unknown).await.is_expired();
    }
    lab.delete().await;
    from(&made).await.is_expired();
    let (deleted, _) = lab.list().await;
    assert_eq!(from(&deleted).await.said(), Vec::<String>::new());
    lab.create().await;
    assert_eq!(from(&deleted).await.said(), ["ADDED"]);
    from(&renewed).await.is_expired();
}

/// The client has it from the proxy of before: an API server would wait for its own versions to come so far.
#[tokio::test]
async fn a_watch_from_a_version_of_before_a_restart_makes_its_client_list_again() {
    let lab = made_here();
    lab.watch("resourceVersion=4611686018427387999").await.is_expired();
    assert_eq!(lab.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_where_bookmarks_are_known() {
    let lab = made_here();
    lab.real.is_held_by(&the_lock(), RING);
    let streaming = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for made in [false, true] {
        if made {
            lab.create().await;
        }
        let events = lab.watch(&format!("{streaming}&allowWatchBookmarks=true")).await.events();
        let (end, before) = events.split_last().unwrap();
        assert_eq!(before.len(), usize::from(made), "{events:?}");
        let metadata = &end["object"]["metadata"];
        assert_eq!((&end["type"], &end["object"]["kind"]), (&"BOOKMARK".into(), &"Lease".into()));
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(metadata["resourceVersion"].as_str().unwrap(), lab.list().await.0);
        assert_eq!(lab.watch(streaming).await.said().len(), usize::from(made), "who does not know them gets none");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_as_long_as_it_says_and_has_bookmarks_if_it_likes() {
    let lab = made_here();
    lab.create().await;
    let mut watch = lab.watch("timeoutSeconds=90&allowWatchBookmarks=1").await;
    let mut plain = lab.watch("").await;
    assert_eq!((watch.said().len(), plain.said().len()), (1, 1));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let bookmarks = watch.events();
    assert_eq!((bookmarks.len(), &bookmarks[0]["type"]), (1, &"BOOKMARK".into()));
    assert_eq!(version(&bookmarks[0]["object"]).to_string(), lab.list().await.0);
    assert!(bookmarks[0]["object"]["metadata"].get("annotations").is_none());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(watch.has_ended());
    assert!(plain.said().is_empty() && !plain.has_ended());
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(plain.has_ended());
}

#[tokio::test]
async fn a_watch_from_memory_ends_with_the_shard_lease_and_with_the_proxy() {
    for closing in [false, true] {
        let lab = made_here();
        lab.create().await;
        let mut watch = lab.watch("").await;
        assert_eq!(watch.said(), ["ADDED"]);
        if closing {
            lab.shared.closing.cancel();
            assert!(watch.has_ended(), "in order: its client goes on with the next proxy");
        } else {
            lab.shared.gate.close();
            assert!(watch.said().is_empty(), "a client that can open no other lives on");
            lab.shared.gate.open(term());
            assert!(timeout(Duration::from_secs(5), watch.0.frame()).await.expect("it goes on").is_none());
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_somebody_elses_by_now_is_not_shown_by_a_watch_from_memory() {
    let lab = made_here();
    lab.create().await;
    let mut watch = lab.watch("").await;
    assert_eq!(watch.said(), ["ADDED"]);
    lab.shared.locks.forget(&the_lock());
    watch.is_expired();
}

/// Of the lock with this holder.
fn event(holder: &str) -> &'static str {
    let lease = record("lock", "5").replace(r#""a""#, &format!("{holder:?}")).replace('\n', "");
    format!("{{\"type\":\"MODIFIED\",\"object\":{lease}}}\n").leak()
}

#[tokio::test]
async fn a_watch_that_passes_ends_where_the_ring_takes_the_lock() {
    let (open, respond) = streaming();
    let lab = Lab::new(respond);
    lab.real.is_held_by(&the_lock(), "old");
    let mut watch = lab.watch("resourceVersion=4").await;
    assert_eq!(lab.last().headers["accept-encoding"], "identity");
    let sent = event("old");
    let (first, rest) = sent.split_at(70);
    open.unbounded_send(first).unwrap();
    assert!(watch.events().is_empty());
    open.unbounded_send(rest).unwrap();
    assert_eq!(watch.events(), [serde_json::from_str::<Value>(sent).unwrap()], "an old leader is seen");
    assert!(!lab.shared.locks.knows(&the_lock()));
    open.unbounded_send(event(RING)).unwrap();
    watch.is_expired();
    assert_eq!(lab.list().await.1, Vec::<String>::new(), "it is there for the taking");
}

#[tokio::test]
async fn a_watch_that_passes_ends_where_the_lock_is_the_controllers() {
    let (_open, respond) = streaming();
    let lab = Lab::new(move |seen| match seen.method {
        Method::POST => would_store(StatusCode::CREATED, record("lock", "")),
        _ => respond(seen),
    });
    let mut watch = lab.watch("").await;
    assert!(watch.events().is_empty());
    lab.create().await;
    watch.is_expired();
    assert_eq!(lab.list().await.1, ["a"]);
}

#[tokio::test]
async fn a_watch_that_passes_ends_where_a_read_shows_that_the_ring_has_the_lock() {
    let (_open, respond) = streaming();
    let lab = Lab::new(respond);
    let mut watch = lab.watch("resourceVersion=4").await;
    assert!(watch.events().is_empty());
    lab.real.is_held_by(&the_lock(), RING);
    assert_eq!(lab.list().await.1, Vec::<String>::new());
    watch.is_expired();
}

#[tokio::test]
async fn what_else_passes_in_a_watch_of_one_name_comes_out_as_it_came() {
    let json_lines = format!("{}{}", event("old"), "{\"type\":\"BOOKMARK\",\"object\":{}}\nno JSON\n");
    let lengths = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01d".to_vec();
    let (lines, watched) = ("application/json", "application/vnd.kubernetes.protobuf;stream=watch");
    for (media_type, sent) in [(lines, json_lines.into_bytes()), (watched, lengths), ("text/plain", b"a\nb".to_vec())] {
        let bytes = Bytes::from(sent);
        let answer = bytes.clone();
        let lab = Lab::new(move |_| {
            let mut response = json(full(answer.clone()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            response
        });
        let watched = lab.get(&format!("{ONE}&watch=1")).await;
        assert_eq!(watched.into_body().collect().await.unwrap().to_bytes(), bytes, "{media_type}");
    }
}

#[tokio::test]
async fn what_is_about_more_than_one_object_passes_as_it_is() {
    let lab = made_here();
    lab.create().await;
    let before = lab.asked().len();
    let all = "/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3Dlock";
    let others = [
        LEASES.to_owned(),
        format!("{LEASES}?watch=1"),
        format!("{LEASES}?fieldSelector=metadata.namespace%3Dns&watch=1"),
        format!("{ONE}&labelSelector=a"),
        format!("{}&watch=1", ONE.replace("%3D", "!%3D")),
        format!("{ONE}-2"),
        all.to_owned(),
        all.replace("/leases", "/namespaces/other/leases"),
    ];
    for other in &others {
        lab.get(other).await;
    }
    assert_eq!(lab.asked()[before..], others.map(|other| format!("GET {other}")));
    // To an API server that is a get.
    assert!(text(lab.get(&format!("{LOCK}?watch=true")).await).await.starts_with(r#"{"apiVersion""#));
}

#[tokio::test]
async fn a_watch_of_one_name_by_websocket_is_answered_as_by_who_knows_none() {
    let lab = made_here();
    let mut handshake = ask("GET", &format!("{ONE}&watch=1"));
    handshake.headers_mut().insert("connection", HeaderValue::from_static("Upgrade"));
    handshake.headers_mut().insert("upgrade", HeaderValue::from_static("websocket"));
    let answer = lab.send(handshake).await;
    assert_eq!((answer.status(), text(answer).await), (StatusCode::OK, String::new()));
    assert_eq!(lab.asked(), Vec::<String>::new());
}
