//! Objects get shards, and children are there before their owners.

use std::collections::BTreeMap;

use http::StatusCode;
use tokio::time::Instant;

use super::*;
use crate::lock::Mutex;

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_its_home_and_its_children_come_first() {
    let mut world = World::new();
    world.begin().await;
    let name = world.name("a", 0);
    world.put_child("child", &name, Some("b"));
    world.put(CONFIG_MAPS, &name, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("a"));
    assert_eq!(world.written(), ["child", &name]);
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_gets_its_home_as_well() {
    let mut world = World::new();
    let names = [world.name("a", 0), world.name("b", 0)];
    for name in &names {
        world.put(CONFIG_MAPS, name, None);
        world.put_child(&format!("child-of-{name}"), name, None);
    }
    world.begin().await;
    for (name, shard) in names.iter().zip(["a", "b"]) {
        assert_eq!(world.shard(CONFIG_MAPS, name).as_deref(), Some(shard));
        assert_eq!(world.shard(SECRETS, &format!("child-of-{name}")).as_deref(), Some(shard));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_no_watch_has_shown_gets_its_home_within_hours() {
    let mut world = World::new();
    world.begin().await;
    world.api.hold_watches_on("/api/v1/namespaces/default/configmaps", true);
    let new = world.name("a", 0);
    world.put(CONFIG_MAPS, &new, None);
    sleep(Duration::from_secs(2400)).await;
    assert!(world.written().is_empty());
    sleep(Duration::from_secs(2400)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &new).as_deref(), Some("a"));
}

/// The shard created it right before it released the owner, and the watch is slow.
#[tokio::test(start_paused = true)]
async fn a_child_that_the_watch_does_not_show_yet_comes_before_its_owner_too() {
    for has_known_child in [true, false] {
        let mut world = World::new();
        let name = world.name("a", 0);
        world.put(CONFIG_MAPS, &name, Some("b"));
        if has_known_child {
            world.put_child("known", &name, Some("b"));
        }
        world.begin().await;
        let drain = world.drain(&name);
        assert!(drain.is_some());
        // The watch on Secrets shows nothing for a while.
        world.api.hold_watches_on("/api/v1/namespaces/default/secrets", true);
        world.put_child("late", &name, Some("b"));
        world.acknowledge(&name).await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"), "known: {has_known_child}");
        let written = world.written();
        let at = |what: &str| written.iter().rposition(|name| name == what).unwrap();
        assert!(at("late") < at(&name), "{written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_family_whose_child_was_written_needs_no_list() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("b"));
    world.put_child("child", &name, Some("b"));
    world.begin().await;
    let before = world.lists();
    world.acknowledge(&name).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    assert_eq!(world.lists(), before);
    assert_eq!(world.written(), [&*name, "child", &name], "drain, child, owner");
}

/// The API server's answers say how many that are.
#[tokio::test(start_paused = true)]
async fn the_children_of_a_large_family_use_all_permits() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("b"));
    for child in 0..700 {
        world.put_child(&format!("child-{child}"), &name, Some("b"));
    }
    world.begin().await;
    // What is written together is answered together.
    world.api.slow_writes(MOMENT);
    let answered = Arc::new(Mutex::<BTreeMap<_, usize>>::new(BTreeMap::new()));
    let (of_children, at) = (path(SECRETS, ""), answered.clone());
    world.api.intercept(move |asked, _| {
        if asked.method == Method::PATCH && asked.path.starts_with(&of_children) {
            *at.lock().entry(Instant::now()).or_default() += 1;
        }
        None
    });
    world.acknowledge(&name).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    let at_once: Vec<_> = answered.lock().values().copied().collect();
    assert_eq!((at_once[0], at_once.iter().sum()), (8, 700));
    assert!(at_once.iter().max() > Some(&35), "{at_once:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_apart_is_brought_to_its_owner_wherever_that_is() {
    for shard in ["a", "b"] {
        let mut world = World::new();
        // An object that stays away from its home has its children beside it, too.
        let name = world.name("a", 0);
        let late = [("a", ShardState::Expired), ("b", ShardState::Ready)];
        world.snapshots.send_replace(Arc::new(snapshot_of(&ring_of(&example_spec()), &late)));
        world.put(CONFIG_MAPS, &name, Some(shard));
        world.begin().await;
        for made_by in [None, Some("a"), Some("b"), Some("gone")] {
            world.put_child("child", &name, made_by);
            sleep(MOMENT).await;
            assert_eq!(world.shard(SECRETS, "child").as_deref(), Some(shard), "{made_by:?}");
        }
        assert!(!world.written().contains(&name));
    }
}

/// Another leader has moved the owner, and this one's watch shows only the children.
#[tokio::test(start_paused = true)]
async fn a_child_follows_no_owner_as_it_was_before() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("a"));
    world.put_child("child", &name, Some("a"));
    world.begin().await;
    world.api.hold_watches_on("/api/v1/namespaces/default/configmaps", true);
    world.put(CONFIG_MAPS, &name, Some("b"));
    world.put_child("child", &name, Some("b"));
    sleep(MOMENT).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("b"));
    assert!(!world.written().contains(&"child".to_owned()), "{:?}", world.written());
}

/// It landed all the same, no watch shows that yet, and its shard is late when it is tried again.
#[tokio::test(start_paused = true)]
async fn what_may_have_its_shard_by_a_write_without_an_answer_is_read_before_its_children_go_elsewhere() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("b"));
    world.put_child("child", &name, Some("b"));
    world.begin().await;
    let (at, labels) = (path(CONFIG_MAPS, &name), world.labels.clone());
    // A change of the store within an interceptor is shown by no watch.
    world.api.intercept(move |asked, objects| {
        let assigns = asked.method == Method::PATCH && asked.path == at && asked.body.to_string().contains("\"a\"");
        assigns.then(|| {
            let metadata = &mut objects.get_mut(&at).unwrap()["metadata"];
            metadata["labels"] = json!({ &*labels.shard: "a" });
            metadata["resourceVersion"] = json!("9999");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    });
    world.put(CONFIG_MAPS, &name, None);
    sleep(Duration::from_millis(100)).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("a"));
    let late = [("a", ShardState::Expired), ("b", ShardState::Ready)];
    world.snapshots.send_replace(Arc::new(snapshot_of(&ring_of(&example_spec()), &late)));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("a"));
    assert_eq!(world.written().iter().filter(|name| *name == "child").count(), 1);
}

/// Its owner may adopt it with its next attempt, which it sees by the label.
#[tokio::test(start_paused = true)]
async fn what_follows_no_object_of_the_ring_loses_its_labels_after_a_while() {
    let mut world = World::new();
    world.begin().await;
    world.put(SECRETS, "lone", Some("a"));
    world.put(SECRETS, "plain", None);
    world.put(SECRETS, "adopted", Some("a"));
    sleep(crate::reconcile::judge::LONE - MOMENT).await;
    assert_eq!(world.shard(SECRETS, "lone").as_deref(), Some("a"));
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("a"));
    world.put_child("adopted", &name, Some("a"));
    sleep(2 * MOMENT).await;
    assert_eq!(world.shard(SECRETS, "lone"), None);
    assert_eq!(world.written(), ["lone"]);
    let lone = world.known.distribution(&world.snapshots.borrow()).lone;
    assert_eq!(lone.values().map(crate::index::Lone::objects).sum::<u64>(), 2);
}

#[tokio::test(start_paused = true)]
async fn counts_are_exact_at_any_time() {
    let mut world = World::new();
    for number in 0..3 {
        world.put(CONFIG_MAPS, &world.name("a", number), None);
    }
    world.begin().await;
    let counts = || {
        let distribution = world.known.distribution(&world.snapshots.borrow());
        let [counts] = <[_; 1]>::try_from(distribution.resources.into_values().collect::<Vec<_>>()).unwrap();
        (counts.shards.unwrap()["a"], counts.unassigned)
    };
    assert_eq!(counts(), (3, 0));
    world.api.remove(&path(CONFIG_MAPS, &world.name("a", 0)));
    sleep(MOMENT).await;
    assert_eq!(counts(), (2, 0));
}

/// Its slot in the index is another object's by then.
#[tokio::test(start_paused = true)]
async fn what_is_created_while_a_moved_object_is_deleted_keeps_its_children() {
    let mut world = World::new();
    let [name, other] = [world.name("a", 0), world.name("b", 0)];
    world.put(CONFIG_MAPS, &name, Some("b"));
    world.begin().await;
    world.api.slow(Method::GET, "/api/v1/namespaces/default/secrets", Duration::from_secs(2));
    world.acknowledge(&name).await;
    world.api.remove(&path(CONFIG_MAPS, &name));
    sleep(MOMENT).await;
    world.put(CONFIG_MAPS, &other, Some("b"));
    world.put_child("child", &other, Some("b"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("b"));
    assert!(!world.written().contains(&"child".to_owned()), "{:?}", world.written());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_listed_again_where_all_is_watched_while_the_webhook_is_away() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("a"));
    world.put_child("child", &name, Some("a"));
    world.begin().await;
    let before = world.lists();
    for verdict in [Err("refused".to_owned()), Ok(())] {
        world.tools.reach.send_replace(Some(verdict));
        sleep(MOMENT).await;
    }
    world.put_child("late", &name, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(SECRETS, "late").as_deref(), Some("a"));
    assert_eq!(world.lists(), before);
}
