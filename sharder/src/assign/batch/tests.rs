//! Children before owners, against a fake API server.

#![allow(clippy::unwrap_used)]

mod holds;

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use ringside_ring::lease::ShardState;
use serde_json::{Value, json};

use super::*;
use crate::{
    assign::tests::{
        CONFIG_MAPS, SECRETS, chain, fenced, late, name_of, object, owned, owner_and_child, path, put_chain, scope, top,
    },
    fixtures::{Asked, FakeApi},
    leases::tests::held_by,
    metrics::Metrics,
    snapshot::tests::{example_spec, ring, snapshot_of},
};

mod home;

fn shard_of(api: &FakeApi, path: &str, scope: &Scope) -> Option<String> {
    let object = api.get(path)?;
    object["metadata"]["labels"][&scope.snapshot.labels.shard].as_str().map(str::to_owned)
}

/// Whether it is the last write of a move: the one that names a shard.
fn assigns(asked: &Asked) -> bool {
    let last = asked.body.as_array().and_then(|operations| operations.last());
    asked.method == Method::PATCH && last.is_some_and(|last| last["path"].as_str().unwrap().contains("/shard."))
}

fn uids(targets: &[Target]) -> Vec<&str> {
    targets.iter().map(|target| &*target.uid).collect()
}

fn target(api: &FakeApi, path: &str, scope: &Scope) -> Target {
    let object: crate::resources::Object = serde_json::from_value(api.get(path).unwrap()).unwrap();
    scope.target(&object)
}

/// An owner `o` with two children, all of them the dead shard's.
fn family(api: &FakeApi, scope: &Scope) -> Target {
    api.put(&path(CONFIG_MAPS, "o"), object(scope, "o", Some("gone")));
    for name in ["c1", "c2"] {
        api.put(&path(SECRETS, name), owned(object(scope, name, Some("gone")), "o"));
    }
    target(api, &path(CONFIG_MAPS, "o"), scope)
}

#[tokio::test]
async fn children_are_moved_before_their_owner() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = family(&api, &scope);
    api.put(&path(SECRETS, "strange"), owned(object(&scope, "strange", Some("gone")), "another"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    let writes = api.writes();
    assert_eq!(writes.len(), 3, "{writes:?}");
    assert_eq!(writes[2], format!("PATCH {}", path(CONFIG_MAPS, "o")));
    let to = shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).unwrap();
    assert!(scope.snapshot.members.is_available(&to));
    for name in ["c1", "c2"] {
        assert_eq!(shard_of(&api, &path(SECRETS, name), &scope), Some(to.clone()));
    }
    assert_eq!(shard_of(&api, &path(SECRETS, "strange"), &scope).as_deref(), Some("gone"));
}

#[tokio::test]
async fn what_follows_a_child_is_moved_before_it_and_all_of_them_before_the_owner() {
    let api = FakeApi::default();
    let scope = chain(&api);
    put_chain(&api, &scope, "gone");
    api.put(&path(SECRETS, "strange"), owned(object(&scope, "strange", Some("gone")), "another"));
    let owner = target(&api, &top("top"), &scope);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    let chain = [path(SECRETS, "leaf"), path(CONFIG_MAPS, "middle"), top("top")];
    assert_eq!(api.writes(), chain.clone().map(|path| format!("PATCH {path}")));
    let to = shard_of(&api, &top("top"), &scope).unwrap();
    for path in chain {
        assert_eq!(shard_of(&api, &path, &scope).as_deref(), Some(&*to), "{path}");
    }
    let lists = |of: &str| api.asked().iter().filter(|asked| asked.path.ends_with(of)).count();
    assert_eq!((lists("/configmaps"), lists("/secrets")), (1, 3), "only what can have more is listed again");
}

#[tokio::test]
async fn an_owner_waits_while_one_of_its_children_can_not_be_moved() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = family(&api, &scope);
    let stuck = path(SECRETS, "c2");
    api.intercept(move |asked, _| {
        (asked.method == Method::PATCH && asked.path == stuck).then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    let again = process(&scope, vec![owner]).await;
    assert_eq!(uids(&again), ["uid-o"]);
    assert_eq!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).as_deref(), Some("gone"));
    api.intercept(|_, _| None);
    assert_eq!(process(&scope, again).await, vec![]);
    assert_ne!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).as_deref(), Some("gone"));
}

#[tokio::test]
async fn children_that_were_sent_ahead_are_found_when_their_owner_goes_elsewhere() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = family(&api, &scope);
    api.intercept(|asked, _| {
        (assigns(asked) && asked.path == path(CONFIG_MAPS, "o")).then_some(StatusCode::SERVICE_UNAVAILABLE)
    });
    assert_eq!(uids(&process(&scope, vec![owner.clone()]).await), ["uid-o"]);
    let first = shard_of(&api, &path(SECRETS, "c1"), &scope).unwrap();
    // That shard goes before the owner could follow.
    api.intercept(|_, _| None);
    let other = if first == "a" { "b" } else { "a" };
    let shards = [(other, ShardState::Ready), (&*first, ShardState::Dead), ("gone", ShardState::Dead)];
    let snapshot = Arc::new(snapshot_of(&ring(&example_spec()), &shards));
    let scope = Scope { main: snapshot.mains[0].clone(), snapshot, leases: held_by(&[other]), ..scope };
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    // They have neither the label of the shard that the owner was with, nor that of the one it goes to.
    let search = api.asked().into_iter().rfind(|asked| asked.path.ends_with("/secrets")).unwrap();
    assert!(!search.query.contains("labelSelector"), "{}", search.query);
    for path in [path(CONFIG_MAPS, "o"), path(SECRETS, "c1"), path(SECRETS, "c2")] {
        assert_eq!(shard_of(&api, &path, &scope).as_deref(), Some(other), "{path}");
    }
}

#[tokio::test]
async fn children_that_were_sent_ahead_come_back_to_an_owner_that_stays() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = family(&api, &scope);
    // Its shard comes back, and gets it back, while its children are being sent ahead: known from the refusal only.
    api.intercept(|asked, objects| {
        (assigns(asked) && asked.path == path(CONFIG_MAPS, "o")).then(|| {
            let labels = &mut objects.get_mut(&asked.path).unwrap()["metadata"]["labels"];
            let stays = if asked.body.as_array().unwrap().last().unwrap()["value"] == "a" { "b" } else { "a" };
            labels.as_object_mut().unwrap().retain(|key, _| key.starts_with("shard."));
            labels.as_object_mut().unwrap().values_mut().for_each(|shard| *shard = json!(stays));
            StatusCode::UNPROCESSABLE_ENTITY
        })
    });
    let again = process(&scope, vec![owner]).await;
    let stays = shard_of(&api, &path(CONFIG_MAPS, "o"), &scope);
    assert_ne!(shard_of(&api, &path(SECRETS, "c1"), &scope), stays);
    assert_eq!(process(&scope, again).await, vec![]);
    for name in ["c1", "c2"] {
        assert_eq!(shard_of(&api, &path(SECRETS, name), &scope), stays);
    }
    assert_eq!(scope.begun.of(&scope.main.resource.id), vec![]);
}

#[tokio::test]
async fn owners_wait_while_children_can_not_be_listed() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = family(&api, &scope);
    api.intercept(|asked, _| (asked.path.ends_with("/secrets")).then_some(StatusCode::FORBIDDEN));
    assert_eq!(uids(&process(&scope, vec![owner]).await), ["uid-o"]);
    assert_eq!(api.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn an_object_that_changed_is_decided_on_anew() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let label = scope.snapshot.labels.shard.clone();
    // Unlabelled when it was seen; somebody else assigned it before the patch came.
    api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
    let seen = target(&api, &path(CONFIG_MAPS, "o"), &scope);
    let mut assigned = api.get(&path(CONFIG_MAPS, "o")).unwrap();
    assigned["metadata"]["labels"] = json!({&label: "a"});
    assigned["metadata"]["resourceVersion"] = Value::from("8");
    api.put(&path(CONFIG_MAPS, "o"), assigned);
    let again = process(&scope, vec![seen.clone()]).await;
    assert_eq!(again.len(), 1, "its children were sent to another shard");
    assert_eq!(process(&scope, again).await, vec![]);
    assert_eq!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).as_deref(), Some("a"));
    // One that was only written to by its user gets its shard all the same.
    let mut written = object(&scope, "o", None);
    written["metadata"]["resourceVersion"] = Value::from("9");
    api.put(&path(CONFIG_MAPS, "o"), written);
    assert_eq!(process(&scope, vec![seen.clone()]).await, vec![]);
    assert!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).is_some());
    // And one of the same name and another uid is left alone.
    let mut another = object(&scope, "o", None);
    another["metadata"]["uid"] = Value::from("another");
    api.put(&path(CONFIG_MAPS, "o"), another);
    assert_eq!(process(&scope, vec![seen]).await, vec![]);
    assert_eq!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope), None);
}

#[tokio::test]
async fn an_object_without_labels_outside_the_rings_namespaces_is_left_alone() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let owner = Target { shard: None, ..family(&api, &scope) };
    for labels in [json!({}), json!({"role": "other"})] {
        api.put("/api/v1/namespaces/default", json!({"metadata": {"name": "default", "labels": labels}}));
        assert_eq!(process(&scope, vec![owner.clone()]).await, vec![]);
    }
    assert_eq!(api.writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_late_shard_loses_an_object_after_its_children_where_the_fence_is_around_it_and_not_before_the_deadline() {
    for (stands, late, to) in [(true, true, "b"), (true, false, "a"), (false, true, "a")] {
        let api = FakeApi::default();
        let mut scope = fenced(&api);
        if !stands {
            scope.fences = crate::fence::follow(api.client()).0;
        }
        let name = name_of("b", &scope);
        let (main, child) = (path(CONFIG_MAPS, &name), path(SECRETS, "child"));
        let mut drained = object(&scope, &name, Some("a"));
        drained["metadata"]["labels"][&scope.snapshot.labels.drain] = "m".into();
        api.put(&main, drained);
        api.put(&child, owned(object(&scope, "child", Some("a")), &name));
        let owner = target(&api, &main, &scope);
        scope.drains.remember(&scope.main.resource.id, &owner, "a", "m");
        let deadline = scope.snapshot.spec.drain_deadline();
        tokio::time::advance(if late { deadline } else { deadline / 2 }).await;
        assert!(process(&scope, vec![owner]).await.is_empty());
        let now = [&main, &child].map(|path| shard_of(&api, path, &scope));
        assert_eq!(now, [Some(to.to_owned()), Some(to.to_owned())], "fenced: {stands}, late: {late}");
        let writes = api.writes().into_iter().filter(|write| write.starts_with("PATCH")).collect::<Vec<_>>();
        let wanted = if to == "b" { vec![format!("PATCH {child}"), format!("PATCH {main}")] } else { vec![] };
        assert_eq!(writes, wanted, "the child first");
    }
}

#[tokio::test]
async fn who_was_drained_is_remembered_so_that_only_its_children_are_listed() {
    let api = FakeApi::default();
    let scope = scope(&api);
    api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
    let owner = target(&api, &path(CONFIG_MAPS, "o"), &scope);
    let selectors = |api: &FakeApi| -> Vec<bool> {
        let lists = api.asked().into_iter().filter(|asked| asked.path.ends_with("/secrets"));
        lists.map(|asked| asked.query.contains("labelSelector")).collect()
    };
    scope.drains.remember(&scope.main.resource.id, &owner, "a", "m");
    process(&scope, vec![owner.clone()]).await;
    assert_eq!(selectors(&api), [true]);
    assert_eq!(scope.drains.previous(&owner.uid), None, "forgotten once it has an owner");
    api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
    process(&scope, vec![owner]).await;
    assert_eq!(selectors(&api), [true, false]);
}

#[tokio::test]
async fn without_controlled_resources_nothing_is_listed() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    scope.main.controlled.clear();
    let owner = family(&api, &scope);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!(api.writes(), vec![format!("PATCH {}", path(CONFIG_MAPS, "o"))]);
    assert!(api.asked().iter().all(|asked| !asked.path.ends_with("/secrets")));
}

#[tokio::test]
async fn an_object_that_was_labelled_meanwhile_is_not_taken_from_a_shard_that_nobody_asked_about() {
    let api = FakeApi::default();
    let scope = scope(&api);
    api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
    let seen = target(&api, &path(CONFIG_MAPS, "o"), &scope);
    let mut labelled = object(&scope, "o", Some("new"));
    labelled["metadata"]["resourceVersion"] = Value::from("8");
    api.put(&path(CONFIG_MAPS, "o"), labelled);
    assert_eq!(process(&scope, vec![seen]).await, vec![]);
    assert_eq!(shard_of(&api, &path(CONFIG_MAPS, "o"), &scope).as_deref(), Some("new"));
}

#[tokio::test]
async fn what_is_gone_or_another_shards_when_it_is_taken_waits_for_no_owner() {
    for is_gone in [true, false] {
        let api = FakeApi::default();
        let scope = scope(&api);
        api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", Some("gone")));
        let owner = target(&api, &path(CONFIG_MAPS, "o"), &scope);
        let shard = scope.snapshot.labels.shard.clone();
        api.intercept(move |asked, objects| {
            if asked.method != Method::PATCH {
                return None;
            }
            if is_gone {
                objects.remove(&asked.path);
            } else {
                objects.get_mut(&asked.path).unwrap()["metadata"]["labels"][&shard] = json!("a");
            }
            None
        });
        // Its children may have been sent ahead.
        let again = process(&scope, vec![owner]).await;
        assert_eq!(process(&scope, again).await, vec![]);
        assert_eq!(api.writes().len(), 1);
        let figures = scope.census.figures(&scope.snapshot.members);
        assert_eq!(figures[&scope.main.resource.id].unassigned, 0, "gone: {is_gone}");
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_an_object_waited_is_known_when_the_watch_shows_its_owner_before_the_write_is_answered() {
    let api = FakeApi::default();
    let (mut scope, mut registry) = (scope(&api), prometheus_client::registry::Registry::default());
    scope.metrics = Metrics::register(&mut registry);
    api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", None));
    let seen = target(&api, &path(CONFIG_MAPS, "o"), &scope);
    scope.census.waits(&scope.main.resource.id, &seen.uid);
    tokio::time::advance(Duration::from_secs(2)).await;
    let (census, resource) = (scope.census.clone(), scope.main.resource.id.clone());
    let shown = serde_json::from_value(object(&scope, "o", Some("a"))).unwrap();
    let shown = kube::runtime::watcher::Event::Delete(shown);
    api.intercept(move |asked, _| {
        if asked.method == Method::PATCH {
            census.shown(&resource, &shown);
        }
        None
    });
    assert_eq!(process(&scope, vec![seen]).await, vec![]);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let sum = text.lines().find(|line| line.contains("assignment_duration_seconds_sum{")).unwrap();
    assert!(sum.ends_with(" 2.0"), "{sum}");
}

#[tokio::test]
async fn an_owner_follows_its_children_to_a_shard_that_became_late_meanwhile() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (_, main, child) = owner_and_child(&api, &scope, "a", "gone");
    let owner = target(&api, &main, &scope);
    // The work goes on when a Lease runs out: only what is given from then on goes past that shard.
    let (newest, of_child, late) = (scope.newest.clone(), child.clone(), late("a"));
    api.intercept(move |asked, _| {
        if assigns(asked) && asked.path == of_child {
            newest.set(Some(late.clone()));
        }
        None
    });
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    let now = [&child, &main].map(|path| shard_of(&api, path, &scope));
    assert_eq!(now, [Some("a".to_owned()), Some("a".to_owned())]);
}
