//! Watches of kopf's.

use super::*;

/// kopf ends an object's timers and daemons at a `DELETED` with a deletionTimestamp, and at no other.
#[tokio::test]
async fn a_watch_of_kopfs_has_a_deletion_timestamp_in_each_deleted() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get_by_kopf("/apis/x.io/v1/things?watch=1&resourceVersion=5").await.into_body();
    let (first, second) = DELETED.split_at(30);
    server.unbounded_send(first).unwrap();
    assert!(body.frame().now_or_never().is_none(), "a mark needs the whole event");
    server.unbounded_send(second).unwrap();
    let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: serde_json::Value = serde_json::from_slice(&event).unwrap();
    assert!(event["object"]["metadata"]["deletionTimestamp"].is_string(), "{event}");
    assert!(body.frame().now_or_never().is_none());
    assert_eq!((behind(&lab, 12), behind(&lab, 13)), (0, 1), "it places the watch as any other");
    // An end of the ring's has its place, though the event under way has none.
    server.unbounded_send(first).unwrap();
    assert!(body.frame().now_or_never().is_none());
    lab.shared.knowledge.send_replace(sharding(&[]));
    let end = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(end.starts_with(b"{\"type\":\"ERROR\""), "{end:?}");
}

/// What is not of the ring is not the proxy's.
#[tokio::test]
async fn a_watch_of_kopfs_outside_of_the_ring_passes_as_it_is() {
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut body = lab.get_by_kopf("/apis/x.io/v1/others?watch=1&resourceVersion=5").await.into_body();
    server.unbounded_send(DELETED).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), DELETED);
}
