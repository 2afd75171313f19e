//! What is said where, and who sees it.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

const RING: &str = "ringside-example";

fn peerings() -> Peerings {
    Peerings::new(&"example".parse().unwrap())
}

fn collection() -> Collection {
    Collection { group: "kopf.dev".to_owned(), version: "v1".to_owned(), plural: "kopfpeerings".to_owned() }
}

fn place() -> PeeringObject {
    collection().place(Some("ns".to_owned()), "default".to_owned())
}

fn status(status: &Value) -> Map<String, Value> {
    status.as_object().unwrap().clone()
}

fn seen(peerings: &Peerings, real: &Value) -> Value {
    let mut object = json!({"metadata": {"namespace": "ns", "name": "default"}, "status": real});
    peerings.show_all(&collection(), &mut object);
    object["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn the_controller_sees_itself_and_strangers_and_nobody_of_its_ring() {
    let peerings = peerings();
    let me = json!({"priority": 0, "lifetime": 60, "lastseen": "2026-01-01T00:00:00.000000+00:00"});
    let left = peerings.say(&place(), status(&json!({"me": me, "old": null}))).unwrap();
    assert_eq!(left, status(&json!({"old": null})), "who is dead is for the API server to take off");
    let real = json!({"stranger": {"priority": 7}, RING: {"priority": 0}});
    assert_eq!(seen(&peerings, &real), json!({"stranger": {"priority": 7}, "me": me}));
    // In a list as well, and nowhere else.
    let mut list = json!({"items": [
        {"metadata": {"namespace": "ns", "name": "default"}},
        {"metadata": {"namespace": "ns", "name": "other"}, "status": {RING: {}}},
    ]});
    peerings.show_all(&collection(), &mut list);
    assert_eq!((&list["items"][0]["status"], &list["items"][1]["status"]), (&json!({"me": me}), &json!({})));
    // Who does not say so again is gone.
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(seen(&peerings, &real), json!({"stranger": {"priority": 7}}));
}

#[tokio::test]
async fn what_the_controller_takes_back_is_gone_at_once() {
    let peerings = peerings();
    let mut changes = peerings.changes();
    peerings.say(&place(), status(&json!({"me": {"priority": 3, "lifetime": 60}}))).unwrap();
    assert!(changes.has_changed().unwrap());
    changes.borrow_and_update();
    assert_eq!(peerings.say(&place(), status(&json!({"me": null}))).unwrap(), Map::new());
    assert!(changes.has_changed().unwrap());
    assert_eq!(seen(&peerings, &json!({})), json!({}));
}

#[tokio::test(start_paused = true)]
async fn no_more_is_kept_than_fits() {
    let peerings = peerings();
    let one = |identity: &str| status(&json!({identity: {"lifetime": 60}}));
    for n in 0..MAX_REMEMBERED {
        peerings.say(&place(), one(&n.to_string())).unwrap();
    }
    assert_eq!(peerings.say(&place(), one("more")), Err(TooMany));
    tokio::time::sleep(Duration::from_secs(61)).await;
    for n in 0..MAX_REMEMBERED {
        peerings.say(&collection().place(None, n.to_string()), one("me")).unwrap();
    }
    assert_eq!(peerings.say(&place(), one("me")), Err(TooMany));
    assert_eq!(peerings.say(&place(), status(&json!({"old": null}))), Ok(status(&json!({"old": null}))));
}

#[test]
fn the_ring_is_there_as_the_highest_of_what_its_controller_says() {
    let said = status(&json!({"old": null, "me": {"priority": 3, "lifetime": 10}, "too": {"priority": -1}}));
    assert_eq!(Peerings::said(&said), Some(Peer { priority: 3, lifetime: Duration::from_secs(10) }));
    assert_eq!(Peerings::said(&status(&json!({"me": {}}))), Some(Peer { priority: 0, lifetime: LIFETIME }));
    assert_eq!(Peerings::said(&status(&json!({"me": null}))), None);
}

#[test]
fn only_peering_objects_as_a_whole_are_meant() {
    let of = |group: &str, plural: &str, subresource: Option<&str>| {
        let kind = ringside_ring::cluster_ring::GroupResource { group: group.into(), resource: plural.into() };
        let subresource = subresource.map(str::to_owned);
        Collection::of(&Resource { kind, version: "v1".into(), namespace: None, name: None, subresource }).is_some()
    };
    assert!(of("kopf.dev", "clusterkopfpeerings", None) && of("zalando.org", "kopfpeerings", Some("status")));
    assert!(!of("kopf.dev", "kopfpeerings", Some("scale")) && !of("kopf.dev", "kopfexamples", None));
    assert!(!of("example.com", "kopfpeerings", None));
}
