//! What is known of a family when its owner is let go, and what is looked for then, under a paused clock.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use tokio::{task::JoinHandle, time::advance};

use super::*;
use crate::{
    assign::{
        process,
        tests::{CONFIG_MAPS, SECRETS, chain, object, owned, path, put_chain, scope, top},
    },
    fixtures::FakeApi,
    resources::Object,
};

const GRACE: Duration = Duration::from_secs(1);
const DRAIN: &str = "m.1000ms";
const MOMENT: Duration = Duration::from_millis(1);

/// How many lists of a resource began.
fn lists(api: &FakeApi, resource: &str) -> usize {
    api.asked().iter().filter(|asked| asked.path.ends_with(resource)).count()
}

fn seen(api: &FakeApi, path: &str, scope: &Scope) -> Target {
    let object: Object = serde_json::from_value(api.get(path).unwrap()).unwrap();
    scope.target(&object)
}

fn shard_of(api: &FakeApi, path: &str, scope: &Scope) -> Option<String> {
    let object = api.get(path)?;
    object["metadata"]["labels"][&scope.snapshot.labels.shard].as_str().map(str::to_owned)
}

fn put_child(api: &FakeApi, scope: &Scope, name: &str, owner: &str) {
    api.put(&path(SECRETS, name), owned(object(scope, name, Some("a")), owner));
}

/// An owner that shard `a` lets go of, by a drain of this value, with a child.
fn drained(api: &FakeApi, scope: &Scope, name: &str, drain: &str) {
    api.put(&path(CONFIG_MAPS, name), object(scope, name, Some("a")));
    put_child(api, scope, &format!("child-of-{name}"), name);
    let owner = seen(api, &path(CONFIG_MAPS, name), scope);
    scope.drains.remember(&scope.main.resource.id, &owner, "a", drain);
}

/// The object as it is shown after the acknowledgement.
fn acknowledged(api: &FakeApi, scope: &Scope, path: &str) -> Target {
    let mut object = api.get(path).unwrap();
    object["metadata"]["labels"] = json!({});
    api.put(path, object);
    seen(api, path, scope)
}

fn look_ahead_beside(scope: &Scope) -> JoinHandle<Infallible> {
    let scope = scope.clone();
    tokio::spawn(async move { look_ahead(&scope).await })
}

#[tokio::test(start_paused = true)]
async fn a_look_in_time_spares_the_list_after_the_acknowledgement_and_one_that_is_too_old_does_not() {
    // Clocks of two machines don't run at one speed.
    for (age, in_time) in [(GRACE / 2, true), (GRACE - GRACE / DRIFT, true), (GRACE - GRACE / DRIFT + MOMENT, false)] {
        let api = FakeApi::default();
        let scope = scope(&api);
        advance(10 * GRACE).await;
        drained(&api, &scope, "o", DRAIN);
        look(&scope).await.unwrap();
        // What the shard can have created since then, before it kept still.
        if !in_time {
            put_child(&api, &scope, "later", "o");
        }
        advance(age).await;
        let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
        assert_eq!(scope.foresight.knows(&scope, &owner), in_time);
        assert_eq!(process(&scope, vec![owner]).await, vec![]);
        assert_eq!(lists(&api, "/secrets"), if in_time { 1 } else { 2 }, "{age:?}");
        let to = shard_of(&api, &path(CONFIG_MAPS, "o"), &scope);
        let last = api.writes().pop();
        assert_eq!(last, Some(format!("PATCH {}", path(CONFIG_MAPS, "o"))), "the owner follows its children");
        for child in ["child-of-o", "later"].into_iter().take(api.writes().len() - 1) {
            assert_eq!(shard_of(&api, &path(SECRETS, child), &scope), to, "{child}");
        }
        assert_eq!(api.writes().len(), if in_time { 2 } else { 3 });
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_promise_for_this_very_drain_children_are_looked_for_after_the_acknowledgement() {
    for (first, then) in [("m", "m"), ("m.50ms", "m.50ms"), (DRAIN, "n.1000ms"), (DRAIN, "n")] {
        let api = FakeApi::default();
        let scope = scope(&api);
        advance(10 * GRACE).await;
        drained(&api, &scope, "o", first);
        look(&scope).await.unwrap();
        drained(&api, &scope, "o", then);
        let before = lists(&api, "/secrets");
        let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
        assert!(!scope.foresight.knows(&scope, &owner));
        assert_eq!(process(&scope, vec![owner]).await, vec![]);
        assert_eq!(lists(&api, "/secrets"), before + 1, "{first}, {then}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_acknowledged_or_may_be_anywhere_is_not_foreseen() {
    let api = FakeApi::default();
    let scope = scope(&api);
    advance(10 * GRACE).await;
    drained(&api, &scope, "o", DRAIN);
    look(&scope).await.unwrap();
    assert!(!scope.foresight.knows(&scope, &seen(&api, &path(CONFIG_MAPS, "o"), &scope)), "its shard has it");
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
    assert!(scope.foresight.knows(&scope, &owner));
    scope.begun.scatter(&scope.main.resource.id, &owner);
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!(lists(&api, "/secrets"), 2);
    // A leader that does not know where its predecessor sent children looks for none ahead.
    let scope = Scope { begun: crate::assign::Begun::default(), ..scope };
    drained(&api, &scope, "p", DRAIN);
    look(&scope).await.unwrap();
    assert_eq!(lists(&api, "/secrets"), 2);
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "p"));
    assert!(!scope.foresight.knows(&scope, &owner));
}

#[tokio::test(start_paused = true)]
async fn a_round_of_other_resources_than_the_rings_now_tells_nothing() {
    let api = FakeApi::default();
    let mut scope = scope(&api);
    advance(10 * GRACE).await;
    drained(&api, &scope, "o", DRAIN);
    let controlled = std::mem::take(&mut scope.main.controlled);
    look(&scope).await.unwrap();
    scope.main.controlled = controlled;
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    let child = shard_of(&api, &path(SECRETS, "child-of-o"), &scope);
    assert_eq!((lists(&api, "/secrets"), child), (1, shard_of(&api, &path(CONFIG_MAPS, "o"), &scope)));
}

#[tokio::test(start_paused = true)]
async fn chains_are_known_link_by_link() {
    let api = FakeApi::default();
    let scope = chain(&api);
    put_chain(&api, &scope, "a");
    advance(10 * GRACE).await;
    scope.drains.remember(&scope.main.resource.id, &seen(&api, &top("top"), &scope), "a", DRAIN);
    let beside = look_ahead_beside(&scope);
    tokio::time::sleep(GRACE * 9 / 10).await;
    let listed = || lists(&api, "/secrets") + lists(&api, "/configmaps");
    let before = listed();
    let owner = acknowledged(&api, &scope, &top("top"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    beside.abort();
    let writes = [path(SECRETS, "leaf"), path(CONFIG_MAPS, "middle"), top("top")].map(|path| format!("PATCH {path}"));
    assert_eq!(api.writes(), writes);
    assert_eq!(listed(), before);
    // The second list of a resource is no older than the first, which is no older than its request.
    let asked = api.asked().into_iter().filter(|asked| asked.path.ends_with("/secrets"));
    let queries: Vec<_> = asked.map(|asked| asked.query).collect();
    assert!(!queries.is_empty() && queries.len().is_multiple_of(2), "{queries:?}");
    for round in queries.chunks(2) {
        assert!(!round[0].contains("resourceVersion"), "{round:?}");
        assert!(round[1].contains("resourceVersion=1&resourceVersionMatch=NotOlderThan"), "{round:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_let_go_during_a_round_waits_for_it_and_for_none_of_his_own() {
    let api = FakeApi::default();
    let scope = scope(&api);
    advance(10 * GRACE).await;
    drained(&api, &scope, "o", DRAIN);
    drained(&api, &scope, "unpromised", "m");
    api.slow_lists(GRACE / 2);
    let beside = look_ahead_beside(&scope);
    tokio::time::sleep(GRACE / 2).await;
    assert_eq!(lists(&api, "/secrets"), 1, "it began after a quarter");
    let start = Instant::now();
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!((lists(&api, "/secrets"), start.elapsed()), (1, GRACE / 4));
    // Nobody else waits for it.
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "unpromised"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!(lists(&api, "/secrets"), 2);
    beside.abort();
}

#[tokio::test(start_paused = true)]
async fn a_round_that_was_in_time_is_so_however_long_it_takes() {
    let api = FakeApi::default();
    let scope = scope(&api);
    advance(10 * GRACE).await;
    drained(&api, &scope, "o", DRAIN);
    api.slow_lists(GRACE * 3 / 2);
    let beside = look_ahead_beside(&scope);
    tokio::time::sleep(GRACE / 2).await;
    let start = Instant::now();
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    assert_eq!((lists(&api, "/secrets"), start.elapsed()), (1, GRACE * 5 / 4), "it began after a quarter");
    let to = shard_of(&api, &path(CONFIG_MAPS, "o"), &scope);
    assert_eq!(shard_of(&api, &path(SECRETS, "child-of-o"), &scope), to);
    beside.abort();
}

#[tokio::test(start_paused = true)]
async fn rounds_leave_half_of_the_time_are_in_time_and_end() {
    for took in [MOMENT, GRACE / 10, GRACE / 3 - 10 * MOMENT] {
        let api = FakeApi::default();
        let scope = scope(&api);
        advance(10 * GRACE).await;
        drained(&api, &scope, "o", DRAIN);
        api.slow_lists(took);
        let beside = look_ahead_beside(&scope);
        let owner = Target { shard: None, ..seen(&api, &path(CONFIG_MAPS, "o"), &scope) };
        tokio::time::sleep(GRACE).await;
        while Promise::of(&scope, &owner).is_some() && lists(&api, "/secrets") < 8 {
            assert!(scope.foresight.knows(&scope, &owner), "at any time from the grace on: {took:?}");
            tokio::time::sleep(MOMENT).await;
        }
        tokio::time::sleep(GRACE * PATIENCE).await;
        let rounds = u32::try_from(lists(&api, "/secrets")).unwrap();
        assert!((8..=4 * PATIENCE).contains(&rounds) && took * rounds <= GRACE * PATIENCE / 2, "{rounds} of {took:?}");
        assert!(scope.foresight.0.borrow()[&scope.main.resource.id].last.is_none(), "nothing is kept of it");
        tokio::time::sleep(GRACE * 100).await;
        assert_eq!(lists(&api, "/secrets"), rounds as usize, "it is not looked after for ever");
        beside.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_is_forgotten_with_the_drain_and_is_bounded() {
    let api = FakeApi::default();
    let scope = scope(&api);
    advance(10 * GRACE).await;
    for name in ["o", "p"] {
        drained(&api, &scope, name, DRAIN);
    }
    let sought: Vec<_> = promised(&scope).into_iter().map(|drain| drain.sought).collect();
    let found = families(&scope, &sought, 1).await.unwrap();
    assert_eq!(found.values().flatten().map(Vec::len).collect::<Vec<_>>(), [1], "there is room for one child");
    assert_eq!(found.len(), 1, "of the other owner nothing is known");
    look(&scope).await.unwrap();
    let known = || scope.foresight.0.borrow()[&scope.main.resource.id].last.as_ref().map(|round| round.families.len());
    assert_eq!(known(), Some(2));
    let owner = acknowledged(&api, &scope, &path(CONFIG_MAPS, "o"));
    assert_eq!(process(&scope, vec![owner]).await, vec![]);
    look(&scope).await.unwrap();
    assert_eq!(known(), Some(1));
    scope.drains.forget("uid-p");
    let beside = look_ahead_beside(&scope);
    tokio::time::sleep(MOMENT).await;
    assert_eq!(known(), None);
    beside.abort();
}

#[tokio::test(start_paused = true)]
async fn of_a_resource_that_leaves_the_ring_nothing_is_kept() {
    let api = FakeApi::default();
    let scope = scope(&api);
    advance(10 * GRACE).await;
    drained(&api, &scope, "o", DRAIN);
    look(&scope).await.unwrap();
    let resource = &scope.main.resource.id;
    scope.foresight.keep_only(&[resource].into());
    assert!(scope.foresight.0.borrow().contains_key(resource));
    scope.foresight.keep_only(&BTreeSet::new());
    assert!(scope.foresight.0.borrow().is_empty());
}
