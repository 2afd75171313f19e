#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::{
    assign::tests::{CONFIG_MAPS, SECRETS, path},
    fixtures::FakeApi,
    snapshot::tests::resource,
};

fn cleanup(api: &FakeApi) -> Cleanup {
    Cleanup { client: api.client(), ring: "example".parse().unwrap(), writes: Writes::default(), attempts: 3 }
}

/// Owners, and what they control.
fn resources() -> Vec<Arc<Resource>> {
    vec![resource("", "ConfigMap", CONFIG_MAPS), resource("", "Secret", SECRETS)]
}

fn labelled(name: &str, shard: Option<&str>, drain: Option<&str>) -> Value {
    let labels = RingLabels::of(&"example".parse().unwrap());
    let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"),
        "resourceVersion": "7", "labels": {"app": "x"}}});
    for (key, value) in [(labels.shard, shard), (labels.drain, drain)] {
        if let Some(value) = value {
            object["metadata"]["labels"][key] = json!(value);
        }
    }
    object
}

fn put(api: &FakeApi, resource: &str, name: &str, shard: Option<&str>, drain: Option<&str>) {
    api.put(&path(resource, name), labelled(name, shard, drain));
}

fn labels_of(api: &FakeApi, resource: &str, name: &str) -> Value {
    api.get(&path(resource, name)).unwrap()["metadata"]["labels"].clone()
}

fn counts(tallies: &Tallies) -> Vec<(&str, usize, usize)> {
    tallies.iter().map(|(id, tally)| (&*id.resource, tally.taken, tally.left)).collect()
}

#[tokio::test(start_paused = true)]
async fn both_labels_are_taken_off_owners_first() {
    let api = FakeApi::default();
    put(&api, CONFIG_MAPS, "owned", Some("a"), None);
    put(&api, CONFIG_MAPS, "drained", Some("a"), Some("m"));
    put(&api, CONFIG_MAPS, "left-over", None, Some("m"));
    put(&api, CONFIG_MAPS, "free", None, None);
    put(&api, SECRETS, "child", Some("a"), None);
    let tallies = cleanup(&api).take_labels_off(&resources()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 3, 0), (SECRETS, 1, 0)]);
    assert!(tallies.values().all(Tally::is_clean));
    for name in ["owned", "drained", "left-over", "free"] {
        assert_eq!(labels_of(&api, CONFIG_MAPS, name), json!({"app": "x"}), "labels of others stay");
    }
    let writes = api.writes();
    assert_eq!(writes.len(), 4, "what has none is not written to: {writes:?}");
    assert_eq!(writes[3], format!("PATCH {}", path(SECRETS, "child")));
}

#[tokio::test(start_paused = true)]
async fn what_gets_labels_a_moment_later_is_found_as_well() {
    let api = FakeApi::default();
    let late = api.clone();
    let task = tokio::spawn(async move {
        // A review of the webhook that began before the ring was gone.
        tokio::time::sleep(SETTLED - Duration::from_millis(1)).await;
        put(&late, SECRETS, "late", Some("a"), None);
    });
    let tallies = cleanup(&api).take_labels_off(&resources()).await;
    task.await.unwrap();
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 0, 0), (SECRETS, 1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_taken_off_is_told_and_holds_up_nothing() {
    let api = FakeApi::default();
    put(&api, CONFIG_MAPS, "stuck", Some("a"), None);
    put(&api, CONFIG_MAPS, "easy", Some("a"), None);
    put(&api, SECRETS, "child", Some("a"), None);
    api.intercept(|asked, _| {
        (asked.method == Method::PATCH && asked.path.ends_with("stuck")).then_some(StatusCode::FORBIDDEN)
    });
    let tallies = cleanup(&api).take_labels_off(&resources()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 1, 1), (SECRETS, 1, 0)]);
    let fault = tallies.values().find_map(|tally| tally.fault.clone());
    assert_eq!(fault.as_deref(), Some("missing permission: as the test wishes"));

    api.intercept(|asked, _| asked.path.ends_with(SECRETS).then_some(StatusCode::FORBIDDEN));
    let tallies = cleanup(&api).take_labels_off(&resources()).await;
    assert_eq!(counts(&tallies), [(CONFIG_MAPS, 1, 0), (SECRETS, 0, 0)]);
    assert!(!tallies.values().all(Tally::is_clean), "what can't be looked at may have labels");

    api.intercept(|asked, _| asked.path.ends_with(SECRETS).then_some(StatusCode::NOT_FOUND));
    let tallies = cleanup(&api).take_labels_off(&resources()).await;
    assert!(tallies.values().all(Tally::is_clean), "their definition went with them");
}
