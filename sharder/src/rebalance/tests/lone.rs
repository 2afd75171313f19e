//! Objects of a controlled resource that no object of the ring controls.

use super::*;
use crate::assign::tests::owned;

/// What the last pass found of Secrets.
fn lone(scope: &Scope) -> String {
    let secrets = GroupResource { group: String::new(), resource: SECRETS.into() };
    let found = scope.census.lone(&[&secrets].into());
    found.get(&secrets).map(ToString::to_string).unwrap_or_default()
}

fn put(api: &FakeApi, name: &str, child: Value) {
    api.put(&path(SECRETS, name), child);
}

#[tokio::test]
async fn objects_that_no_shard_sees_are_counted_by_each_pass() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &owner), object(&scope, &owner, Some("a")));
    put(&api, "child", owned(object(&scope, "child", Some("a")), &owner));
    put(&api, "users", object(&scope, "users", None));
    let mut certificate = owned(object(&scope, "certificate", None), "site");
    certificate["metadata"]["ownerReferences"][0]["apiVersion"] = json!("cert-manager.io/v1");
    put(&api, "certificate", certificate);
    assert_eq!(lone(&scope), "", "nothing was looked through");
    for _ in 0..2 {
        children::pass(&scope, Way::Pages).await.unwrap();
        assert_eq!(lone(&scope), "1 without a controller and 1 with one outside the ring, such as 'default/users'");
    }
    assert_eq!(api.writes(), Vec::<String>::new());
    put(&api, "users", owned(object(&scope, "users", Some("a")), &owner));
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(lone(&scope), "1 with a controller outside the ring, such as 'default/certificate'");
}

#[tokio::test]
async fn an_object_that_may_follow_what_is_not_served_is_not_counted() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    std::sync::Arc::make_mut(&mut scope.snapshot).unresolved =
        vec![GroupResource { group: "x.example.com".into(), resource: "things".into() }];
    let mut child = owned(object(&scope, "c", None), "thing");
    child["metadata"]["ownerReferences"][0]["apiVersion"] = json!("x.example.com/v1");
    put(&api, "c", child);
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(lone(&scope), "0 without a controller");
}
