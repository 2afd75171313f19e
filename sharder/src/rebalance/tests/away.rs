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
