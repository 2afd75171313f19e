//! Passes, against a fake API server.

#![allow(clippy::unwrap_used)]

use futures::FutureExt;
use http::{Method, StatusCode};
use ringside_ring::{RingLabels, lease::ShardState};
use ringside_runtime::explain::code;
use serde_json::{Value, json};

use super::*;
use crate::{
    assign::{
        process,
        tests::{CONFIG_MAPS, SECRETS, chain, name_of, object, owned, path, put_chain, scope, target, top},
    },
    fixtures::FakeApi,
    leases::tests::promises,
    snapshot::tests::{example_spec, ring, snapshot_of},
};

mod away;
mod failing;
mod lone;
mod unanswered;

fn labels_of(api: &FakeApi, path: &str) -> Value {
    api.get(path).unwrap()["metadata"]["labels"].clone()
}

#[tokio::test]
async fn what_belongs_elsewhere_is_drained_once_and_what_has_no_owner_is_left_to_the_watch() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (shard, drain) = (scope.snapshot.labels.shard.clone(), scope.snapshot.labels.drain.clone());
    let name = name_of("a", &scope);
    let misplaced = path(CONFIG_MAPS, &name);
    api.put(&misplaced, object(&scope, &name, Some("b")));
    let at_home = name_of("b", &scope);
    api.put(&path(CONFIG_MAPS, &at_home), object(&scope, &at_home, Some("b")));
    api.put(&path(CONFIG_MAPS, "x-orphan"), object(&scope, "x-orphan", Some("gone")));
    objects::pass(&scope, Way::Pages).await.unwrap();
    let labels = labels_of(&api, &misplaced);
    assert_eq!(labels[&shard], "b", "its shard must let go first");
    let id = labels[&drain].as_str().unwrap().to_owned();
    assert!(crate::move_id::age(&id, std::time::SystemTime::now()).is_some(), "{id} does not say when it began");
    assert_eq!(api.writes(), [format!("PATCH {misplaced}")]);
    assert_eq!(scope.drains.previous(&format!("uid-{name}")).as_deref(), Some("b"));
    // A drain that is under way is left alone, its value above all.
    objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &misplaced)[&drain], id.as_str());
    assert_eq!(api.writes().len(), 1);
}

#[tokio::test]
async fn a_drain_says_what_its_shard_promised() {
    let api = FakeApi::default();
    let scope = scope(&api);
    promises(&scope.leases, "b", "1500ms");
    let name = name_of("a", &scope);
    let misplaced = path(CONFIG_MAPS, &name);
    api.put(&misplaced, object(&scope, &name, Some("b")));
    objects::pass(&scope, Way::Pages).await.unwrap();
    let drain = labels_of(&api, &misplaced)[&scope.snapshot.labels.drain].as_str().unwrap().to_owned();
    assert!(drain.ends_with(".1500ms"), "{drain}");
    assert_eq!(scope.drains.id(&format!("uid-{name}")), Some(drain));
}

/// Names that begin so, of objects that belong to the shard `a`.
fn names(scope: &Scope, begin: &str) -> impl Iterator<Item = String> {
    let belongs = |name: &String| {
        let key = scope.main.resource.key(Some("default"), name);
        scope.snapshot.hash_ring().owner(&key).unwrap().as_str() == "a"
    };
    (0..).map(move |i| format!("{begin}-{i}")).filter(belongs)
}

/// So many objects of the shard `b` that belong to `a`.
fn misplaced(api: &FakeApi, scope: &Scope, count: usize) {
    for name in names(scope, "o").take(count) {
        api.put(&path(CONFIG_MAPS, &name), object(scope, &name, Some("b")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_drains_as_many_objects_as_have_a_place_and_waits_until_one_has_an_owner_again() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (places, moment) = (scope.moves.bound(), Duration::from_secs(1));
    misplaced(&api, &scope, places + 3);
    // The leader before asked for one.
    let before = names(&scope, "z").next().unwrap();
    let mut drained = object(&scope, &before, Some("b"));
    drained["metadata"]["labels"][&scope.snapshot.labels.drain] = json!("m");
    api.put(&path(CONFIG_MAPS, &before), drained);
    let mut pass = std::pin::pin!(objects::pass(&scope, Way::Pages));
    for ended in 0..2 {
        assert!(tokio::time::timeout(moment, &mut pass).await.is_err());
        assert_eq!(api.writes().len(), places - 1 + ended);
        let last = api.writes().pop().unwrap();
        scope.drains.forget(&format!("uid-{}", last.rsplit('/').next().unwrap()));
    }
    // Shards that let go of nothing hold up the others for a while.
    assert_eq!(tokio::time::timeout(10 * moment, pass).await.unwrap().unwrap().map(|error| error.to_string()), None);
    assert_eq!(api.writes().len(), places + 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_let_go_of_after_a_grace_is_drained_evenly() {
    let api = FakeApi::default();
    let scope = scope(&api);
    promises(&scope.leases, "b", "2000ms");
    misplaced(&api, &scope, 3);
    let start = tokio::time::Instant::now();
    objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(api.writes().len(), 3);
    assert_eq!(start.elapsed(), 2 * Duration::from_secs(2) / u32::try_from(scope.moves.bound()).unwrap());
}

#[tokio::test]
async fn an_object_that_the_api_server_refuses_does_not_hold_up_the_others() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let first = name_of("a", &scope);
    let bad = path(CONFIG_MAPS, &first);
    api.put(&bad, object(&scope, &first, Some("b")));
    let other = names(&scope, "p").next().unwrap();
    api.put(&path(CONFIG_MAPS, &other), object(&scope, &other, Some("b")));
    let refused = bad.clone();
    api.intercept(move |asked, _| {
        (asked.method == Method::PATCH && asked.path == refused).then_some(StatusCode::FORBIDDEN)
    });
    let refused = objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(403), "and is told");
    assert!(labels_of(&api, &bad)[&scope.snapshot.labels.drain].is_null());
    assert!(labels_of(&api, &path(CONFIG_MAPS, &other))[&scope.snapshot.labels.drain].is_string());
}

#[tokio::test(start_paused = true)]
async fn what_comes_after_many_refusals_is_looked_at_and_drained() {
    let api = FakeApi::default();
    let scope = scope(&api);
    misplaced(&api, &scope, objects::DRAINS);
    let last = names(&scope, "z").next().unwrap();
    api.put(&path(CONFIG_MAPS, &last), object(&scope, &last, Some("b")));
    api.intercept(|asked, _| {
        (asked.method == Method::PATCH && asked.path.contains("/o-")).then_some(StatusCode::FORBIDDEN)
    });
    let refused = objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(403));
    assert!(labels_of(&api, &path(CONFIG_MAPS, &last))[&scope.snapshot.labels.drain].is_string());
    assert_eq!(api.writes().len(), objects::DRAINS + 1, "nobody is asked twice");
}

#[tokio::test(start_paused = true)]
async fn where_everything_is_refused_a_pass_sees_all_and_ends() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let count = objects::REFUSALS + 1;
    misplaced(&api, &scope, count);
    api.intercept(|asked, _| (asked.method == Method::PATCH).then_some(StatusCode::FORBIDDEN));
    let refused = objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(refused.and_then(|error| code(&error)), Some(403));
    assert_eq!(api.writes().len(), objects::REFUSALS);
    let counted = scope.census.figures(&scope.snapshot.members).remove(&scope.main.resource.id).unwrap();
    assert_eq!(counted.shards.unwrap()["b"], u64::try_from(count).unwrap(), "all were seen");
}

#[tokio::test]
async fn what_is_moved_before_the_answer_begins_is_counted_once() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = name_of("a", &scope);
    let (census, resource) = (scope.census.clone(), scope.main.resource.id.clone());
    let moved = object(&scope, &name, Some("a"));
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("b")));
    api.intercept(move |asked, objects| {
        if asked.path.ends_with("/configmaps") {
            objects.insert(path(CONFIG_MAPS, &name), moved.clone());
            census.given(&resource, (&format!("uid-{name}"), None), (Some("b"), Some("b")), "a");
        }
        None
    });
    objects::pass(&scope, Way::Pages).await.unwrap();
    let counted = scope.census.figures(&scope.snapshot.members).remove(&scope.main.resource.id).unwrap();
    assert_eq!(counted.shards.unwrap(), [("a".to_owned(), 1), ("b".to_owned(), 0)].into());
}

#[tokio::test]
async fn stray_children_are_brought_to_their_owner_unless_it_is_on_the_move() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (shard, drain) = (scope.snapshot.labels.shard.clone(), scope.snapshot.labels.drain.clone());
    let name = name_of("a", &scope);
    let owner = object(&scope, &name, Some("a"));
    let mut draining = owner.clone();
    draining["metadata"]["labels"][&drain] = json!("m");
    let child = path(SECRETS, "c");
    for (owner, expected) in [
        (draining, Value::Null),
        (object(&scope, &name, None), Value::Null),
        (object(&scope, &name, Some("gone")), Value::Null),
        (owner, json!("a")),
    ] {
        api.put(&path(CONFIG_MAPS, &name), owner);
        api.put(&child, owned(object(&scope, "c", None), &name));
        children::pass(&scope, Way::Pages).await.unwrap();
        assert_eq!(labels_of(&api, &child)[&shard], expected);
    }
}

#[tokio::test]
async fn a_child_that_somebody_drained_is_shown_to_its_shard_again() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (shard, drain) = (scope.snapshot.labels.shard.clone(), scope.snapshot.labels.drain.clone());
    let (name, child) = (name_of("a", &scope), path(SECRETS, "c"));
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")));
    let mut drained = owned(object(&scope, "c", Some("a")), &name);
    drained["metadata"]["labels"][&drain] = json!("by-hand");
    api.put(&child, drained);
    children::pass(&scope, Way::Pages).await.unwrap();
    let labels = labels_of(&api, &child);
    assert_eq!((&labels[&shard], &labels[&drain]), (&json!("a"), &Value::Null));
}

#[tokio::test]
async fn a_child_that_a_leader_before_sent_elsewhere_is_found_when_its_owner_moves() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    let owner = object(&scope, &name, Some("gone"));
    api.put(&path(CONFIG_MAPS, &name), owner.clone());
    // Then `b` was where both belonged.
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("b")), &name));
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &path(SECRETS, "c"))[&shard], "b", "where it belongs depends on where its owner goes");
    let owner = target(&scope, &owner);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    for path in [path(CONFIG_MAPS, &name), path(SECRETS, "c")] {
        assert_eq!(labels_of(&api, &path)[&shard], "a");
    }
}

#[tokio::test]
async fn a_child_is_brought_to_an_owner_whose_move_ends_while_the_child_is_looked_at() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("gone")));
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("b")), &name));
    let (read, moved, mut reads) = (path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")), 0);
    api.intercept(move |asked, objects| {
        reads += usize::from(asked.path == read);
        if reads == 2 {
            objects.insert(read.clone(), moved.clone());
        }
        None
    });
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &path(SECRETS, "c"))[&shard], "a");
}

#[tokio::test]
async fn children_at_home_cost_no_request_and_strangers_are_left_alone() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let name = name_of("a", &scope);
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("a")), &name));
    api.put(&path(SECRETS, "free"), object(&scope, "free", None));
    let mut pods = owned(object(&scope, "of-a-pod", None), &name);
    pods["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    pods["metadata"]["ownerReferences"][0]["uid"] = json!("uid-of-a-pod");
    api.put(&path(SECRETS, "of-a-pod"), pods);
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(api.asked().len(), 1, "{:?}", api.asked());
}

#[tokio::test]
async fn a_grandchild_is_brought_to_the_owner_at_the_top() {
    let api = FakeApi::default();
    let scope = chain(&api);
    let shard = scope.snapshot.labels.shard.clone();
    put_chain(&api, &scope, "b");
    let name = names(&scope, "top").next().unwrap();
    let mut owner = api.get(&top("top")).unwrap();
    owner["metadata"]["name"] = json!(name);
    owner["metadata"]["labels"][&shard] = json!("a");
    api.put(&top(&name), owner);
    let mut middle = api.get(&path(CONFIG_MAPS, "middle")).unwrap();
    middle["metadata"]["ownerReferences"][0]["name"] = json!(name);
    api.put(&path(CONFIG_MAPS, "middle"), middle);
    children::pass(&scope, Way::Pages).await.unwrap();
    for path in [path(CONFIG_MAPS, "middle"), path(SECRETS, "leaf")] {
        assert_eq!(labels_of(&api, &path)[&shard], "a", "{path}");
    }
}

/// A leader before had sent the child ahead to where its owner belonged then. It is there, as far as a pass can tell; but
/// its owner goes elsewhere after the next change of the shards.
#[tokio::test(start_paused = true)]
async fn what_a_leader_before_sent_ahead_is_found_after_the_next_change_of_the_shards_as_well() {
    let api = FakeApi::default();
    let scope = Scope { begun: crate::assign::Begun::default(), ..scope(&api) };
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("gone")));
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("a")), &name));
    scope.due.mark([scope.main.resource.id.clone()], &[Pass::Objects, Pass::Children]);
    tokio::select! {
        never = passes(&scope) => match never {},
        () = tokio::time::sleep(RETRY) => {}
    }
    assert!(scope.due.is_done([&scope.main.resource.id].into_iter()) && scope.begun.knows(&scope.main.resource.id));
    // `a` goes before the owner was moved.
    let without = snapshot_of(&ring(&example_spec()), &[("b", ShardState::Ready), ("gone", ShardState::Dead)]);
    let scope = Scope { snapshot: std::sync::Arc::new(without), ..scope };
    let owner = target(&scope, &api.get(&path(CONFIG_MAPS, &name)).unwrap());
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    for path in [path(CONFIG_MAPS, &name), path(SECRETS, "c")] {
        assert_eq!(labels_of(&api, &path)[&shard], "b");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_created_in_the_moment_of_a_move_is_brought_after_it() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("gone")));
    let late = owned(object(&scope, "late", Some("gone")), &name);
    // The children have been listed when the owner gets its label; only then this one comes.
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH {
            objects.insert(path(SECRETS, "late"), late.clone());
        }
        None
    });
    let owner = target(&scope, &api.get(&path(CONFIG_MAPS, &name)).unwrap());
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!(labels_of(&api, &path(SECRETS, "late"))[&shard], "gone");
    api.intercept(|_, _| None);
    tokio::select! {
        never = look_again(&scope) => match never {},
        () = tokio::time::sleep(std::time::Duration::from_secs(2)) => {}
    }
    assert_eq!(labels_of(&api, &path(SECRETS, "late"))[&shard], "a");
}

#[tokio::test]
async fn what_keeps_its_labels_in_a_ring_without_shards_holds_up_nothing_else() {
    let api = FakeApi::default();
    let vacant = std::sync::Arc::new(snapshot_of(&ring(&example_spec()), &[("gone", ShardState::Dead)]));
    let namespaces = crate::namespaces::tests::known(&api, &[("default", "another")]);
    let scope = Scope { snapshot: vacant, namespaces, ..scope(&api) };
    for name in ["refused", "taken", "bare"] {
        let shard = Some("gone").filter(|_| name != "bare");
        api.put(&path(CONFIG_MAPS, name), object(&scope, name, shard));
    }
    api.intercept(|asked, _| {
        (asked.method == Method::PATCH && asked.path.ends_with("/refused")).then_some(StatusCode::FORBIDDEN)
    });
    let refused = vacant::pass(&scope).await.unwrap();
    assert_eq!(refused.as_ref().and_then(code), Some(403));
    assert_eq!(labels_of(&api, &path(CONFIG_MAPS, "taken")), json!({}));
    assert_eq!(labels_of(&api, &path(CONFIG_MAPS, "refused"))[&scope.snapshot.labels.shard], "gone");
    assert_eq!(api.writes().len(), 2, "what has no labels costs nothing");
}

#[tokio::test]
async fn what_a_ring_without_shards_has_is_counted_as_nobodys() {
    let api = FakeApi::default();
    let vacant = std::sync::Arc::new(snapshot_of(&ring(&example_spec()), &[("gone", ShardState::Dead)]));
    let scope = Scope { snapshot: vacant, ..scope(&api) };
    for (name, shard) in [("had", Some("gone")), ("never", None)] {
        api.put(&path(CONFIG_MAPS, name), object(&scope, name, shard));
    }
    assert_eq!(vacant::pass(&scope).await.unwrap().map(|error| error.to_string()), None);
    let counted = scope.census.figures(&scope.snapshot.members).remove(&scope.main.resource.id).unwrap();
    assert_eq!((counted.unassigned, counted.unassigned_since.is_some()), (2, true));
    assert_eq!(api.writes().len(), 0);
}

/// The webhook was not asked for a moment, which nobody has noticed.
#[tokio::test(start_paused = true)]
async fn children_of_an_object_that_came_without_label_are_looked_for() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    let looking_scope = scope.clone();
    let looking = tokio::spawn(async move { super::look_again(&looking_scope).await });
    let owner = object(&scope, &name, None);
    api.put(&path(CONFIG_MAPS, &name), owner.clone());
    let owner = target(&scope, &owner);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    // Its controller is at work by now.
    api.put(&path(SECRETS, "c"), owned(object(&scope, "c", None), &name));
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(labels_of(&api, &path(SECRETS, "c"))[&shard], "a");
    api.put(&path(SECRETS, "late"), owned(object(&scope, "late", None), &name));
    tokio::time::sleep(std::time::Duration::from_secs(40)).await;
    assert_eq!(labels_of(&api, &path(SECRETS, "late"))[&shard], "a");
    let asked = api.asked().len();
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    assert_eq!(api.asked().len(), asked, "and no more");
    looking.abort();
}

#[tokio::test(start_paused = true)]
async fn children_without_label_are_looked_for_while_the_webhook_is_not_reached_and_once_more() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let shard = scope.snapshot.labels.shard.clone();
    let name = name_of("a", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("a")));
    let put = |child: &str| api.put(&path(SECRETS, child), owned(object(&scope, child, None), &name));
    let is_labelled = |child: &str| labels_of(&api, &path(SECRETS, child))[&shard] == "a";
    api.put(&path(SECRETS, "stranger"), object(&scope, "stranger", None));
    let mut looking = std::pin::pin!(async { tokio::join!(look_for_unlabelled(&scope), super::look_again(&scope)) });
    let mut wait = async |seconds| {
        tokio::select! {
            (never, _) = &mut looking => match never {},
            () = tokio::time::sleep(std::time::Duration::from_secs(seconds)) => {}
        }
    };
    put("c-1");
    scope.reach.send_replace(Some(Ok(())));
    wait(60).await;
    assert!(!is_labelled("c-1") && api.asked().is_empty(), "the webhook labels what is created");
    scope.reach.send_replace(Some(Err("refused".to_owned())));
    wait(1).await;
    assert!(is_labelled("c-1"));
    put("c-2");
    wait(1).await;
    assert!(is_labelled("c-2"));
    put("c-3");
    scope.reach.send_replace(Some(Ok(())));
    wait(1).await;
    assert!(is_labelled("c-3"), "it may have come after the last look and before the webhook was reached");
    put("c-4");
    wait(50).await;
    assert!(is_labelled("c-4"), "its create may have begun before that");
    let asked = api.asked().len();
    wait(60).await;
    assert_eq!(api.asked().len(), asked);
    assert_eq!(api.writes().len(), 4, "what is controlled by nobody of the ring is left alone");

    scope.reach.send_replace(Some(Err("refused".to_owned())));
    wait(1).await;
    put("c-5");
    api.intercept(|_, _| Some(StatusCode::SERVICE_UNAVAILABLE));
    scope.reach.send_replace(Some(Ok(())));
    wait(1).await;
    assert!(!is_labelled("c-5"));
    api.intercept(|_, _| None);
    wait(15).await;
    assert!(is_labelled("c-5"), "a last look that fails is tried again");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_controlled_nothing_is_done_while_the_webhook_is_not_reached() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    scope.main.controlled.clear();
    let is_due = || scope.looks.is_due(&scope.main.resource.id);
    let mut looking = std::pin::pin!(look_for_unlabelled(&scope));
    scope.reach.send_replace(Some(Err("refused".to_owned())));
    assert!(looking.as_mut().now_or_never().is_none());
    assert!(!is_due(), "it goes round and round without a pause");
    scope.reach.send_replace(Some(Ok(())));
    assert!(looking.as_mut().now_or_never().is_none());
    assert!(is_due(), "once, as after any time without the webhook");
}

#[tokio::test(start_paused = true)]
async fn a_look_for_children_without_label_that_fails_is_not_repeated_twice_a_second() {
    let api = FakeApi::default();
    let scope = scope(&api);
    api.intercept(|_, _| Some(StatusCode::SERVICE_UNAVAILABLE));
    scope.reach.send_replace(Some(Err("refused".to_owned())));
    let looking = look_for_unlabelled(&scope);
    assert!(tokio::time::timeout(std::time::Duration::from_secs(60), looking).await.is_err());
    let asked = api.asked().len();
    assert!((10..=13).contains(&asked), "{asked} requests in a minute");
}

/// A ring with a shard whose Lease has expired.
fn with_late_shard(api: &FakeApi) -> Scope {
    let states = [("a", ShardState::Ready), ("b", ShardState::Ready), ("late", ShardState::Expired)];
    Scope { snapshot: std::sync::Arc::new(snapshot_of(&ring(&example_spec()), &states)), ..scope(api) }
}

#[tokio::test]
async fn nothing_leaves_its_shard_for_one_whose_lease_has_expired_until_that_is_decided() {
    let api = FakeApi::default();
    let scope = with_late_shard(&api);
    let name = name_of("late", &scope);
    let past = scope.snapshot.receiver(&scope.main.resource.key(Some("default"), &name)).unwrap().to_string();
    let other = if past == "a" { "b" } else { "a" };
    for (shard, held_back) in [("late", false), (&*past, false), (other, true)] {
        api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some(shard)));
        objects::pass(&scope, Way::Pages).await.unwrap();
        assert_eq!(api.writes(), Vec::<String>::new());
        assert_eq!(scope.due.take_held_back(), held_back, "with {shard}, past the late one it goes to {past}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_drained_as_its_next_shard_became_late_meanwhile_is_held_back() {
    let api = FakeApi::default();
    let late = with_late_shard(&api);
    let states = ["a", "b", "late"].map(|shard| (shard, ShardState::Ready));
    let ready = std::sync::Arc::new(snapshot_of(&ring(&example_spec()), &states));
    let scope = Scope { snapshot: ready, ..late.clone() };
    let goes_past_to_a = |name: &String| {
        let key = scope.main.resource.key(Some("default"), name);
        let owner = scope.snapshot.hash_ring().owner(&key).unwrap();
        owner.as_str() == "late" && late.snapshot.receiver(&key).unwrap().as_str() == "a"
    };
    for name in (0..).map(|i| format!("o-{i}")).filter(goes_past_to_a).take(9) {
        api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("b")));
    }
    // The Lease expires while the first ones are drained.
    let newest = scope.newest.clone();
    api.intercept(move |asked, _| {
        if asked.method == Method::PATCH {
            newest.set(Some(late.snapshot.clone()));
        }
        None
    });
    objects::pass(&scope, Way::Pages).await.unwrap();
    assert!(api.writes().len() < 9 && scope.due.take_held_back(), "{:?}", api.writes());
}

#[tokio::test]
async fn objects_in_a_namespace_that_left_are_drained_and_their_children_lose_their_labels_after_them() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let scope = Scope { namespaces: crate::namespaces::tests::known(&api, &[("default", "another")]), ..scope };
    let RingLabels { shard, drain } = scope.snapshot.labels.clone();
    let (owner, child) = (path(CONFIG_MAPS, "o"), path(SECRETS, "c"));
    api.put(&owner, object(&scope, "o", Some("b")));
    api.put(&child, owned(object(&scope, "c", Some("b")), "o"));
    objects::pass(&scope, Way::Pages).await.unwrap();
    assert!(labels_of(&api, &owner)[&drain].is_string() && labels_of(&api, &owner)[&shard] == "b");
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &child)[&shard], "b", "its owner is still worked on");
    let mut acknowledged = api.get(&owner).unwrap();
    acknowledged["metadata"]["labels"] = json!({});
    api.put(&owner, acknowledged);
    children::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(labels_of(&api, &child), json!({}));
}

#[tokio::test]
async fn a_labelled_object_that_follows_nobody_of_the_ring_loses_its_labels() {
    let api = FakeApi::default();
    let scope = scope(&api);
    api.put(&path(SECRETS, "free"), object(&scope, "free", Some("a")));
    let mut of_a_pod = owned(object(&scope, "of-a-pod", Some("a")), "o");
    of_a_pod["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    api.put(&path(SECRETS, "of-a-pod"), of_a_pod);
    children::pass(&scope, Way::Pages).await.unwrap();
    for name in ["free", "of-a-pod"] {
        assert_eq!(labels_of(&api, &path(SECRETS, name)), json!({}));
    }
}

#[tokio::test]
async fn a_pass_stays_due_until_it_is_done() {
    let due = Due::default();
    let resource = GroupResource { group: String::new(), resource: "configmaps".into() };
    due.mark([resource.clone()], &[Pass::Children, Pass::Objects]);
    assert_eq!(due.next(&resource).await.0, Pass::Objects);
    let objects = due.next(&resource).await;
    assert_eq!(objects.0, Pass::Objects, "it was broken off");
    due.done(&resource, objects);
    assert_eq!(due.next(&resource).await.0, Pass::Children);
}

#[tokio::test]
async fn a_pass_that_is_marked_while_it_is_made_is_made_again() {
    let due = Due::default();
    let resource = GroupResource { group: String::new(), resource: "configmaps".into() };
    due.mark([resource.clone()], &[Pass::Objects]);
    let first = due.next(&resource).await;
    due.mark([resource.clone()], &[Pass::Objects]);
    due.done(&resource, first);
    assert_eq!(due.of(&resource), [Pass::Objects]);
    let second = due.next(&resource).await;
    due.done(&resource, second);
    assert!(due.is_done([&resource].into_iter()));
}
