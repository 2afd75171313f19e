#![allow(clippy::unwrap_used)]

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::FakeApi;

const PATH: &str = "/api/v1/namespaces/kept";
const PERIOD: Duration = Duration::from_secs(3_000);

/// An object that is kept, of a kind without a namespace.
fn kept(api: &FakeApi) -> (Kept, impl Future<Output = Infallible> + Send + 'static) {
    api.put(PATH, json!({"metadata": {"name": "kept", "resourceVersion": "1"}}));
    let kind = ApiResource::erase::<Namespace>(&());
    let (kept, keeper) = Kept::new((&api.client(), &api.client()), &kind, "kept".to_owned(), PERIOD);
    (kept, keeper.run())
}

fn object(says: &str) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}, "says": says}))
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
    let Standing::InPlace { since } = kept.standing() else { panic!("it is in place") };
    api.put(PATH, json!({"metadata": {"name": "kept", "resourceVersion": "of somebody"}, "says": "something else"}));
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(says(&api), "this");
    let Standing::InPlace { since: again } = kept.standing() else { panic!("it is in place") };
    assert!(again > since, "whoever relies on it has to wait anew");
    let writes = api.writes().len();
    tokio::time::sleep(PERIOD / 10).await;
    assert_eq!(api.writes().len(), writes, "nothing is left to do");
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_and_it_is_tried_again() {
    let api = FakeApi::default();
    api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::FORBIDDEN));
    let (kept, keeper) = kept(&api);
    let keeper = tokio::spawn(keeper);
    kept.want(Some(object("this")));
    let mut changes = kept.changes();
    let refused = changes.wait_for(|standing| matches!(standing, Standing::Refused(_))).await.unwrap().clone();
    assert_eq!(refused, Standing::Refused("missing permission: as the test wishes".to_owned()));
    api.intercept(|_, _| None);
    changes.wait_for(|standing| matches!(standing, Standing::InPlace { .. })).await.unwrap();
    keeper.abort();
}

#[test]
fn what_others_have_added_is_noticed() {
    let object = |manager: &str, field: &str| -> DynamicObject {
        let managed =
            json!([{"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {field: {}}}]);
        serde_json::from_value(json!({"metadata": {"name": "kept", "managedFields": managed}})).unwrap()
    };
    assert!(is_extended(&object("kubectl-edit", "f:spec")));
    assert!(!is_extended(&object("kubectl-label", "f:metadata")));
    assert!(!is_extended(&object(FIELD_MANAGER, "f:spec")));
}
