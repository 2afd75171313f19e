//! Owners that stay with another shard than the hash ring names.

use super::*;

#[tokio::test]
async fn a_child_where_the_hash_ring_places_it_is_brought_to_an_owner_that_stays_elsewhere() {
    let api = FakeApi::default();
    let scope = with_late_shard(&api);
    let (name, child) = (name_of("late", &scope), path(SECRETS, "c"));
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")));
    api.put(&child, owned(object(&scope, "c", Some("late")), &name));
    objects::pass(&scope, Way::Pages).await.unwrap();
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &child)[&scope.snapshot.labels.shard], "a");
}

/// What others do to the store in the moment of the first write to the object at a path.
fn at_first_write(
    api: &FakeApi,
    at: &str,
    change: impl Fn(&mut std::collections::BTreeMap<String, Value>) + Send + 'static,
) {
    let (at, mut is_first) = (at.to_owned(), true);
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH && asked.path == at && std::mem::replace(&mut is_first, false) {
            change(objects);
        }
        None
    });
}

/// Its owner was seen at `a`, and its move to `b` has taken the child along.
#[tokio::test(start_paused = true)]
async fn a_child_that_has_moved_on_with_its_owner_is_not_brought_to_where_that_was() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = name_of("a", &scope);
    let (main, child) = (path(CONFIG_MAPS, &name), path(SECRETS, "child"));
    api.put(&main, object(&scope, &name, Some("a")));
    api.put(&child, owned(object(&scope, "child", Some("gone")), &name));
    let (of_child, shard) = (child.clone(), scope.snapshot.labels.shard.clone());
    at_first_write(&api, &child, move |objects| {
        objects.get_mut(&main).unwrap()["metadata"]["labels"][&shard] = json!("b");
        let child = objects.get_mut(&of_child).unwrap();
        child["metadata"]["labels"][&shard] = json!("b");
        child["metadata"]["resourceVersion"] = json!("8");
    });
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &child)[&scope.snapshot.labels.shard], "b");
}

/// As a controller does with the status of what is new.
#[tokio::test(start_paused = true)]
async fn a_child_that_changes_while_it_is_looked_at_is_brought_all_the_same() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (name, child) = (name_of("a", &scope), path(SECRETS, "child"));
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")));
    api.put(&child, owned(object(&scope, "child", Some("b")), &name));
    let of_child = child.clone();
    at_first_write(&api, &child, move |objects| {
        objects.get_mut(&of_child).unwrap()["metadata"]["resourceVersion"] = json!("8");
    });
    children::bring_selected(&scope, &scope.snapshot.labels.shard).await.unwrap();
    assert_eq!(labels_of(&api, &child)[&scope.snapshot.labels.shard], "a");
}
