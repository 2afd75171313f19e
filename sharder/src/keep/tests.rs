#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use tokio::time::timeout;

use super::*;
use crate::fixtures::FakeApi;

const PATH: &str = "/api/v1/namespaces/kept";
const PERIOD: Duration = Duration::from_secs(3_000);

/// An object that is kept, of a kind without a namespace.
fn kept(api: &FakeApi) -> (Kept, impl Future<Output = Infallible> + Send + 'static) {
    api.put(PATH, json!({"metadata": {"name": "kept", "resourceVersion": "1", "labels": ours()}}));
    let kind = ApiResource::erase::<Namespace>(&());
    let (kept, keeper) = Kept::new((&api.client(), &api.client()), &kind, "kept".to_owned(), PERIOD);
    (kept, keeper.run())
}

fn ours() -> Value {
    json!(crate::belonging::belonging_labels())
}

fn object(says: &str) -> DynamicObject {
    let metadata = json!({"name": "kept", "labels": ours()});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "says": says}))
        .unwrap()
}

fn says(api: &FakeApi) -> Value {
    api.get(PATH).unwrap_or_default()["says"].clone()
}

#[tokio::test(start_paused = true)]
async fn it_is_written_when_it_should_be_another_and_removed_when_it_should_not_be() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    assert_eq!(kept.standing(), Standing::Pending);
    let mut changes = kept.changes();
    for text in ["this", "that"] {
        kept.want(Some(object(text)));
        assert_eq!(kept.standing(), Standing::Pending, "what stood before is no answer");
        changes.wait_for(|standing| matches!(standing, Standing::InPlace { .. })).await.unwrap();
        assert_eq!(says(&api), text);
    }
    kept.want(None);
    changes.wait_for(|standing| *standing == Standing::Absent).await.unwrap();
    assert_eq!(api.get(PATH), None);
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changes_or_deletes_is_written_again() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    kept.want(Some(object("this")));
    let mut changes = kept.changes();
    changes.wait_for(|standing| matches!(standing, Standing::InPlace { .. })).await.unwrap();
    let Standing::InPlace { since, .. } = kept.standing() else { panic!("it is in place") };
    let mut labels = ours();
    labels["a"] = json!("b");
    let adorned = json!({"name": "kept", "uid": "u", "resourceVersion": "of somebody", "labels": labels});
    api.put(PATH, json!({"metadata": adorned, "says": "this", "and": "something else"}));
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!((says(&api), api.get(PATH).unwrap().get("and")), (json!("this"), None), "also where it was added to");
    assert_eq!(api.get(PATH).unwrap()["metadata"]["labels"], labels, "labels of others do no harm");
    let Standing::InPlace { since: again, .. } = kept.standing() else { panic!("it is in place") };
    assert!(again > since, "whoever relies on it has to wait anew");
    let mut marked = api.get(PATH).unwrap();
    marked["metadata"]["resourceVersion"] = "of somebody else".into();
    api.put(PATH, marked);
    tokio::time::sleep(PERIOD / 10).await;
    let Standing::InPlace { since: after, .. } = kept.standing() else { panic!("it is in place") };
    assert_eq!(after, again, "it is of the same generation");
    let writes = api.writes().len();
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(api.writes().len(), writes, "nothing is left to do");
    api.remove(PATH);
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(says(&api), "this", "also when it was deleted");
    let disturbed = async {
        while kept.standing() != (Standing::Disturbed { again: true }) {
            api.remove(PATH);
            tokio::time::sleep(TRUCE[0] / 5).await;
        }
    };
    timeout(PERIOD / 10, disturbed).await.expect("who does so again and again has it for a moment, and that is told");
    assert_eq!(api.get(PATH), None);
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(says(&api), "this");
    assert!(matches!(kept.standing(), Standing::InPlace { .. }));
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_and_it_is_tried_again() {
    let api = FakeApi::default();
    api.intercept(|asked, _| (asked.method == Method::PUT).then_some(StatusCode::FORBIDDEN));
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    kept.want(Some(object("this")));
    let mut changes = kept.changes();
    let refused = changes.wait_for(|standing| matches!(standing, Standing::Refused { .. })).await.unwrap().clone();
    let why = "missing permission: as the test wishes".to_owned();
    assert_eq!(refused, Standing::Refused { code: Some(403), why });
    api.intercept(|_, _| None);
    changes.wait_for(|standing| matches!(standing, Standing::InPlace { .. })).await.unwrap();
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_written_at_the_same_time_by_somebody_else_is_written_at_once_again() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let mut others = 1;
    api.intercept(move |asked, objects| {
        if asked.method == Method::PUT && others > 0 {
            others -= 1;
            let metadata = json!({"name": "kept", "resourceVersion": "of somebody", "labels": ours()});
            objects.insert(PATH.to_owned(), json!({"metadata": metadata}));
        }
        None
    });
    let keeper = tokio::spawn(keeper);
    kept.want(Some(object("this")));
    tokio::time::sleep(RETRY / 2).await;
    assert_eq!(says(&api), "this");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_status_of_others_is_no_change_and_a_new_wish_waits_for_no_truce() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    let metadata = json!({"name": "kept", "uid": "u", "generation": 1, "resourceVersion": "1", "labels": ours()});
    api.put(PATH, json!({"metadata": metadata}));
    kept.want(Some(object("this")));
    tokio::time::sleep(PERIOD / 10).await;
    let writes = api.writes().len();
    let others = |generation: u64, version: &str| {
        let mut object = api.get(PATH).unwrap();
        object["status"] = version.into();
        object["metadata"]["generation"] = generation.into();
        object["metadata"]["resourceVersion"] = version.into();
        api.put(PATH, object);
    };
    others(1, "of somebody");
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(api.writes().len(), writes, "nothing was changed");
    // Another client goes on and on, and is left to it for longer each time.
    for generation in 2..40 {
        others(generation, &generation.to_string());
        tokio::time::sleep(TRUCE[0]).await;
    }
    let writes = api.writes().len() - writes;
    assert!((2..20).contains(&writes), "{writes} of 38");
    kept.want(Some(object("that")));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(says(&api), "that");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_left_to_others_stays_and_what_it_said_once_goes() {
    let managed = json!([{"manager": FIELD_MANAGER, "operation": "Update", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:once": {}}}}}]);
    let annotations = json!({"once": "ours", "of": "others"});
    let metadata = json!({"name": "kept", "resourceVersion": "1", "labels": ours(), "annotations": annotations,
        "managedFields": managed});
    let kind = ApiResource::erase::<Namespace>(&());
    let theirs: KeepForeign = |stored, wanted| wanted.data["theirs"] = stored.data["theirs"].clone();
    for (keep_foreign, kept_as) in [(theirs, json!(2)), (|_, _| {}, Value::Null)] {
        let api = FakeApi::default();
        api.put(PATH, json!({"metadata": metadata, "says": "that", "theirs": 2}));
        let (kept, keeper) = Kept::new((&api.client(), &api.client()), &kind, "kept".to_owned(), PERIOD);
        let keeper = tokio::spawn(keeper.keeping_foreign(keep_foreign).run());
        kept.want(Some(object("this")));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = api.get(PATH).unwrap();
        assert_eq!((&now["theirs"], &now["metadata"]["annotations"]), (&kept_as, &json!({"of": "others"})));
        let writes = api.writes().len();
        edit(&api, "theirs", json!(3));
        tokio::time::sleep(PERIOD / 10).await;
        let written = api.writes().len() - writes;
        assert_eq!(written, usize::from(kept_as.is_null()), "what stays is no reason to write");
        assert!(matches!(kept.standing(), Standing::InPlace { .. }));
        keeper.abort();
    }
}

/// Sets this field as another client.
fn edit(api: &FakeApi, field: &str, to: Value) {
    let mut object = api.get(PATH).unwrap();
    object[field] = to;
    object["metadata"]["resourceVersion"] = json!(format!("{}+", object["metadata"]["resourceVersion"]));
    object["metadata"]["managedFields"] = json!([{"manager": "enforcer", "operation": "Update"}]);
    api.put(PATH, object);
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_comes_back_after_each_write_is_left_and_told() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    kept.want(Some(object("this")));
    tokio::time::sleep(PERIOD / 10).await;
    let writes = || api.writes().len();
    let (before, begun) = (writes(), Instant::now());
    let mut told = None;
    while begun.elapsed() < Duration::from_secs(15 * 60) {
        if says(&api) == "this" {
            edit(&api, "says", json!("something else"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        if let Standing::Edited { why } = kept.standing() {
            told.get_or_insert((begun.elapsed(), why));
        }
    }
    let (after, why) = told.unwrap();
    assert!(after <= Duration::from_secs(5) && why.contains("\"enforcer\""), "{after:?}: {why}");
    assert_eq!((writes() - before, says(&api)), (3, json!("something else")));
    // What it does otherwise is looked at, and what is gone is written again.
    edit(&api, "says", json!("another thing"));
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(says(&api), "this");
    assert!(matches!(kept.standing(), Standing::InPlace { .. }));
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_has_not_our_label_is_neither_changed_nor_deleted() {
    let api = FakeApi::default();
    let (kept, keeper) = kept(&api);
    let theirs = json!({"metadata": {"name": "kept", "uid": "theirs", "resourceVersion": "1",
        "labels": {"app.kubernetes.io/name": "controller-sharding"}}, "says": "theirs"});
    api.put(PATH, theirs.clone());
    let keeper = tokio::spawn(keeper);
    for wish in [Some(object("this")), None, Some(object("this"))] {
        kept.want(wish);
        tokio::time::sleep(PERIOD * 2).await;
        assert_eq!((api.writes().len(), api.get(PATH)), (0, Some(theirs.clone())));
        let Standing::NotOurs { why } = kept.standing() else { panic!("{:?}", kept.standing()) };
        assert!(why.contains("app.kubernetes.io/managed-by=ringside-sharder"), "{why}");
    }
    api.remove(PATH);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(says(&api), "this");
    assert_eq!(api.writes(), [format!("PATCH {PATH}")], "by its name");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_not_deleted() {
    let api = FakeApi::default();
    // As where the sharder may not delete it.
    api.intercept(|asked, _| (asked.method == Method::DELETE).then_some(StatusCode::FORBIDDEN));
    let (kept, keeper) = kept(&api);
    api.remove(PATH);
    let keeper = tokio::spawn(keeper);
    kept.want(None);
    tokio::time::sleep(RETRY * 10).await;
    assert_eq!((kept.standing(), api.writes().len()), (Standing::Absent, 0));
    keeper.abort();
}
