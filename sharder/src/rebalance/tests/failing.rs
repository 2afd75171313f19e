//! Children whose owners nobody can tell, and writes that fail for a moment, for longer, or only seem to work.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::*;
use crate::assign::{tests::owner_and_child, write::is_undone};

/// The Secret `c` with `b`, whose owner is with `a`.
fn stray(api: &FakeApi, scope: &Scope) -> String {
    let name = name_of("a", scope);
    api.put(&path(CONFIG_MAPS, &name), object(scope, &name, Some("a")));
    api.put(&path(SECRETS, "c"), owned(object(scope, "c", Some("b")), &name));
    name
}

fn shard_of(api: &FakeApi, scope: &Scope, path: &str) -> Value {
    labels_of(api, path)[&scope.snapshot.labels.shard].clone()
}

#[tokio::test]
async fn whose_owner_is_of_a_resource_that_could_not_be_looked_up_keeps_its_label() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    Arc::make_mut(&mut scope.snapshot).unresolved =
        vec![GroupResource { group: "x.example.com".into(), resource: "things".into() }];
    for group in ["x.example.com", "y.example.com"] {
        let mut child = owned(object(&scope, group, Some("b")), "thing");
        child["metadata"]["ownerReferences"][0]["apiVersion"] = json!(format!("{group}/v1"));
        child["metadata"]["ownerReferences"][0]["uid"] = json!(format!("uid-{group}"));
        api.put(&path(SECRETS, group), child);
    }
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(shard_of(&api, &scope, &path(SECRETS, "x.example.com")), "b");
    assert_eq!(shard_of(&api, &scope, &path(SECRETS, "y.example.com")), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_for_a_moment_is_not_left_to_the_next_pass() {
    for (method, of) in [(Method::PATCH, SECRETS), (Method::GET, CONFIG_MAPS)] {
        let api = FakeApi::default();
        let scope = scope(&api);
        let name = stray(&api, &scope);
        let (collection, start) = (format!("/{of}"), Instant::now());
        api.intercept(move |asked, _| {
            let is_one = asked.method == method && asked.path.contains(&collection) && !asked.path.ends_with('s');
            (is_one && start.elapsed() < Duration::from_secs(3)).then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        let refused = children::pass(&scope, Way::Pages).await.unwrap();
        assert_eq!(shard_of(&api, &scope, &path(SECRETS, "c")), "a");
        assert!(refused.is_none(), "{refused:?}");
        assert!(!scope.begun.has(&format!("uid-{name}")));
    }
}

#[tokio::test(start_paused = true)]
async fn nor_is_one_that_its_controller_writes_to_at_each_attempt_for_a_moment() {
    let api = FakeApi::default();
    let scope = scope(&api);
    stray(&api, &scope);
    let mut version = 100;
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH && version < 104 {
            version += 1;
            objects.get_mut(&asked.path).unwrap()["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        None
    });
    let refused = children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(shard_of(&api, &scope, &path(SECRETS, "c")), "a");
    assert!(refused.is_none(), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_for_longer_is_found_wherever_it_is_when_its_owner_moves() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = stray(&api, &scope);
    api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    let refused = children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(500), "and is told");
    api.intercept(|_, _| None);
    // `a` has let go, and the object goes to another one.
    let shards = [("a", ShardState::Dead), ("gone", ShardState::Dead), ("next", ShardState::Ready)];
    let scope = Scope { snapshot: Arc::new(snapshot_of(&ring(&example_spec()), &shards)), ..scope };
    let owner = target(&scope, &api.get(&path(CONFIG_MAPS, &name)).unwrap());
    scope.drains.remember(&scope.main.resource.id, &owner, "a", "m");
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, None));
    let owner = target(&scope, &api.get(&path(CONFIG_MAPS, &name)).unwrap());
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    for path in [path(CONFIG_MAPS, &name), path(SECRETS, "c")] {
        assert_eq!(shard_of(&api, &scope, &path), "next", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn whose_owner_can_not_be_read_is_found_wherever_it_is_when_that_moves() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = stray(&api, &scope);
    let owner = path(CONFIG_MAPS, &name);
    api.intercept(move |asked, _| (asked.path == owner).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    for i in 0..=crate::assign::BATCH {
        let sibling = format!("d-{i}");
        api.put(&path(SECRETS, &sibling), owned(object(&scope, &sibling, Some("b")), &name));
    }
    // One owner is no outage.
    let refused = children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(500));
    assert!(scope.begun.has(&format!("uid-{name}")));
    let reads = api.asked().into_iter().filter(|asked| asked.path == path(CONFIG_MAPS, &name)).count();
    assert_eq!(reads, 5 + 1, "once for each attempt at a page of its children");
}

/// More children than are looked at together, each in vain, and one of a page after them that is a stray as well.
#[tokio::test(start_paused = true)]
async fn children_that_are_refused_keep_no_other_from_its_owner() {
    for status in [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::INTERNAL_SERVER_ERROR] {
        let api = FakeApi::default();
        let scope = scope(&api);
        let name = stray(&api, &scope);
        for i in 0..=crate::assign::BATCH {
            let refused = format!("a-{i:03}");
            api.put(&path(SECRETS, &refused), owned(object(&scope, &refused, Some("b")), &name));
        }
        api.intercept(move |asked, _| (asked.method == Method::PATCH && asked.path.contains("/a-")).then_some(status));
        let start = Instant::now();
        let outcome = children::pass(&scope, Way::Pages).await;
        assert_eq!(outcome.is_err(), status.is_server_error(), "only an outage may be over in a moment");
        let error = outcome.unwrap_or_else(Some);
        assert_eq!(error.and_then(|error| code(&error)), Some(status.as_u16()));
        assert_eq!(shard_of(&api, &scope, &path(SECRETS, "c")), "a");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        let of_one = format!("PATCH {}", path(SECRETS, "a-000"));
        // What is refused for what the object is would be refused again.
        let attempts = if status.is_server_error() { 5 } else { 1 };
        assert_eq!(api.writes().iter().filter(|write| **write == of_one).count(), attempts, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_takes_back_in_the_same_write_is_tried_again_and_told() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (_, main, child) = owner_and_child(&api, &scope, "a", "a");
    let owner = target(&scope, &api.get(&main).unwrap());
    scope.census.waits(&scope.main.resource.id, &owner.uid);
    api.drop_labels();
    let again = process(&scope, vec![owner.clone()]).await;
    assert_eq!(again.len(), 1);
    let figures = scope.census.figures(&scope.snapshot.members).remove(&scope.main.resource.id).unwrap();
    assert_eq!(figures.unassigned, 1);
    let faults = scope.faults.of(&scope.snapshot);
    assert!(faults[0].contains("can't be assigned") && faults[0].contains("taking it back"), "{faults:?}");
    assert_eq!(shard_of(&api, &scope, &child), "a");

    // A child that gets no label is not where its owner is about to be: that waits.
    let (_, main, child) = owner_and_child(&api, &scope, "a", "b");
    scope.drains.remember(&scope.main.resource.id, &owner, "b", "m");
    api.drop_labels();
    for _ in 0..2 {
        // By now it has no label by which it would be found.
        let written = api.writes().len();
        assert_eq!(process(&scope, vec![target(&scope, &api.get(&main).unwrap())]).await.len(), 1);
        assert_eq!(api.writes()[written..], [format!("PATCH {child}")]);
        assert_eq!(shard_of(&api, &scope, &child), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_somebody_takes_back_in_the_same_write_is_none_and_told() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("b")));
    api.put_labels_back();
    let refused = objects::pass(&scope, Way::Pages).await.unwrap();
    assert!(refused.is_some_and(|error| is_undone(&error)));
    assert_eq!(scope.drains.id(&format!("uid-{name}")), None, "nobody waits for an acknowledgement");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_and_is_not_any_more_is_not_told_for_longer() {
    let api = FakeApi::default();
    let scope = scope(&api);
    stray(&api, &scope);
    for (status, told) in [(StatusCode::FORBIDDEN, 1), (StatusCode::INTERNAL_SERVER_ERROR, 0)] {
        api.intercept(move |asked, _| (asked.method == Method::PATCH).then_some(status));
        scope.due.mark([scope.main.resource.id.clone()], &[Pass::Children]);
        tokio::select! {
            never = passes(&scope) => match never {},
            () = tokio::time::sleep(Duration::from_secs(60)) => {}
        }
        assert_eq!(scope.due.of(&scope.main.resource.id), []);
        assert_eq!(scope.faults.of(&scope.snapshot).len(), told, "{status}");
    }
}
