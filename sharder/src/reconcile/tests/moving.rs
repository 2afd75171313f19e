//! Shards come and go.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_belongs_elsewhere_is_drained_and_goes_there_once_it_is_released() {
    let mut world = World::of(among(&["b"]));
    let snapshot = Arc::new(snapshot());
    world.begin().await;
    let names: Vec<_> = {
        let later = World::of((*snapshot).clone());
        (0..3).map(|number| later.name("a", number)).collect()
    };
    for name in &names {
        world.put(CONFIG_MAPS, name, None);
    }
    sleep(MOMENT).await;
    assert!(names.iter().all(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("b")));
    let before = world.lists();
    world.snapshots.send_replace(snapshot);
    sleep(MOMENT).await;
    for name in &names {
        assert!(world.drain(name).is_some(), "{name}");
        world.acknowledge(name).await;
        assert_eq!(world.shard(CONFIG_MAPS, name).as_deref(), Some("a"));
    }
    assert!(world.lists() - before <= names.len(), "at most one of children for each, which had none");
}

/// Its conversion webhook is down, say.
#[tokio::test(start_paused = true)]
async fn resource_that_can_not_be_listed_keeps_no_other_from_moving() {
    let mut spec = example_spec();
    spec["resources"] = json!([{"group": "", "resource": "configmaps"}, {"group": "", "resource": "secrets"}]);
    let ready = |shard| (shard, ShardState::Ready);
    let mut world = World::of(snapshot_of(&ring_of(&spec), &[ready("a"), ready("b")]));
    let (config_map, secret) = (world.name("a", 0), world.name("a", 1));
    world.put(CONFIG_MAPS, &config_map, Some("b"));
    world.put(SECRETS, &secret, Some("gone"));
    let api = world.api.clone();
    let answers = |status: Option<http::StatusCode>| {
        api.intercept(move |asked, _| status.filter(|_| asked.path.ends_with("/secrets")));
    };
    answers(Some(http::StatusCode::INTERNAL_SERVER_ERROR));
    world.begin().await;
    assert!(world.drain(&config_map).is_some(), "its own are all known");
    let distribution = world.known.distribution(&world.snapshots.borrow());
    let counted: Vec<_> = distribution.resources.values().map(|counts| counts.shards.is_some()).collect();
    assert_eq!((counted, distribution.counted), (vec![true, false], None));
    sleep(Duration::from_secs(70)).await;
    let told = world.faults.of(&world.snapshots.borrow()).join("; ");
    assert!(told.starts_with("objects of 'secrets' can't be watched: "), "{told}");
    answers(None);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(world.faults.of(&world.snapshots.borrow()), [""; 0]);
}

/// What is drained already is moved, what is new is assigned, and what was a shard's that is gone is taken.
#[tokio::test(start_paused = true)]
async fn paused_ring_begins_no_move_and_ends_those_that_began() {
    let mut world = World::new();
    let bound = crate::queue::moves::Moves::default().bound();
    let [new, left] = [world.name("a", bound + 1), world.name("a", bound + 2)];
    let names: Vec<_> = (0..=bound).map(|number| world.name("a", number)).collect();
    for name in &names {
        world.put(CONFIG_MAPS, name, Some("b"));
    }
    world.begin().await;
    let drained = |world: &World| names.iter().filter(|name| world.drain(name).is_some()).cloned().collect::<Vec<_>>();
    assert_eq!(drained(&world).len(), bound, "one waits for a place");
    world.pause(true).await;
    for name in drained(&world) {
        world.acknowledge(&name).await;
        assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    }
    world.put(CONFIG_MAPS, &new, None);
    world.put(CONFIG_MAPS, &left, Some("gone"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!([&new, &left].map(|name| world.shard(CONFIG_MAPS, name).unwrap()), ["a", "a"]);
    assert_eq!(drained(&world).len(), 0);
    assert_eq!(names.iter().filter(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("b")).count(), 1);
    world.pause(false).await;
    assert_eq!(drained(&world).len(), 1, "it goes on by itself");
}

#[tokio::test(start_paused = true)]
async fn no_more_objects_are_drained_at_once_than_may_move() {
    let mut world = World::new();
    let bound = crate::queue::moves::Moves::default().bound();
    for number in 0..bound + 3 {
        world.put(CONFIG_MAPS, &world.name("a", number), Some("b"));
    }
    world.begin().await;
    let drained = || (0..bound + 3).filter(|number| world.drain(&world.name("a", *number)).is_some()).count();
    assert_eq!(drained(), bound);
    let first = (0..bound + 3).map(|number| world.name("a", number)).find(|name| world.drain(name).is_some()).unwrap();
    world.acknowledge(&first).await;
    assert_eq!(world.written().iter().filter(|name| **name == first).count(), 2, "drained, and given to the other");
    assert_eq!(drained(), bound, "the next one has its place");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_changes_of_the_shards_restart_nothing() {
    let mut world = World::new();
    for number in 0..20 {
        world.put(CONFIG_MAPS, &world.name("b", number), Some("b"));
    }
    world.begin().await;
    let asked = world.asked(|asked| asked.method == Method::GET).len();
    for _ in 0..50 {
        world.among(&["b", "c"]).await;
        world.among(&["a", "b"]).await;
    }
    assert_eq!(world.asked(|asked| asked.method == Method::GET).len(), asked);
}

#[tokio::test(start_paused = true)]
async fn what_a_shard_that_is_gone_has_left_is_taken_under_the_hold_on_its_lease() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("gone"));
    world.put_child("child", &name, Some("gone"));
    world.begin().await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    assert_eq!(world.written(), ["child", &name]);
    let bounded = world.asked(|asked| asked.method == Method::PATCH && asked.query.contains("timeout="));
    assert_eq!(bounded.len(), 2, "the API server gives up before the hold ends");
    let is_whole = |asked: &&Asked| !asked.accept.contains("as=PartialObjectMetadata");
    assert_eq!(bounded.iter().filter(is_whole).count(), 0, "an object may be large, and its metadata are enough");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_waits_for_the_first_list_of_children_and_makes_none_of_all() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("gone"));
    world.put_child("child", &name, Some("b"));
    world.api.slow(Method::GET, &format!("/api/v1/namespaces/default/{SECRETS}"), Duration::from_secs(5));
    world.begin().await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(world.written(), [""; 0], "a child may be anywhere");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.written(), ["child", &name]);
    let of_all = |query: &str| query.contains("limit=") && !query.contains("labelSelector=shard");
    let lists = world.asked(|asked| asked.path.ends_with(&format!("default/{SECRETS}")) && of_all(&asked.query));
    assert!(lists.is_empty(), "{lists:?}");
}

/// What another leader holds, or a shard that is back, is not taken.
#[tokio::test(start_paused = true)]
async fn without_a_hold_nothing_is_taken_and_with_one_at_once() {
    let mut world = World::new();
    let [name, free] = [world.name("a", 0), world.name("a", 1)];
    world.put(CONFIG_MAPS, &name, Some("unknown"));
    world.begin().await;
    world.put(CONFIG_MAPS, &free, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("unknown"));
    assert_eq!(world.shard(CONFIG_MAPS, &free).as_deref(), Some("a"), "nothing else waits for that");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("unknown"));
    hold_name(&world.leases, "unknown");
    sleep(MOMENT).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_released_in_time_is_taken_behind_the_fence_and_stays_without() {
    for is_fenced in [true, false] {
        let mut world = if is_fenced { World::fenced() } else { World::new() };
        let name = world.name("b", 0);
        world.put(CONFIG_MAPS, &name, Some("a"));
        world.begin().await;
        assert!(world.drain(&name).is_some());
        let deadline = world.snapshots.borrow().spec.drain_deadline();
        sleep(deadline - 2 * MOMENT).await;
        assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some(if is_fenced { "b" } else { "a" }));
        assert_eq!(world.drain(&name), None);
        assert_eq!(world.known.failed_moves.all().len(), usize::from(!is_fenced));
    }
}

/// It was given to the one that it would have, and that one's home is back.
#[tokio::test(start_paused = true)]
async fn what_was_given_past_a_late_shard_goes_home_when_that_is_back() {
    let mut world = World::new();
    let late = [("a", ShardState::Expired), ("b", ShardState::Ready)];
    let name = world.name("a", 0);
    world.snapshots.send_replace(Arc::new(snapshot_of(&ring_of(&example_spec()), &late)));
    world.begin().await;
    world.put(CONFIG_MAPS, &name, None);
    sleep(MOMENT).await;
    assert_eq!((world.shard(CONFIG_MAPS, &name).as_deref(), world.drain(&name)), (Some("b"), None));
    world.among(&["a", "b"]).await;
    assert!(world.drain(&name).is_some());
}

/// Another deadline, and a resource that waits for its fence.
#[tokio::test(start_paused = true)]
async fn an_edit_of_the_ring_that_leaves_its_resources_lists_nothing() {
    let mut world = World::new();
    world.put(CONFIG_MAPS, &world.name("b", 0), Some("b"));
    world.begin().await;
    let asked = world.asked(|asked| asked.method == Method::GET).len();
    let mut edited = snapshot();
    edited.generation += 1;
    edited.spec.drain_deadline_seconds = Some(30);
    world.snapshots.send_replace(Arc::new(edited));
    sleep(MOMENT).await;
    world.snapshots.send_replace(Arc::new(snapshot().withholding([world.resource()].into())));
    sleep(MOMENT).await;
    assert_eq!(world.asked(|asked| asked.method == Method::GET).len(), asked);
}

#[tokio::test(start_paused = true)]
async fn how_long_a_shard_may_take_is_what_the_ring_says_now() {
    for (seconds, is_taken) in [(45, false), (31, true)] {
        let mut world = World::fenced();
        let name = world.name("b", 0);
        world.put(CONFIG_MAPS, &name, Some("a"));
        world.begin().await;
        sleep(Duration::from_secs(35)).await;
        let mut edited = (**world.snapshots.borrow()).clone();
        edited.generation += 1;
        edited.spec.drain_deadline_seconds = Some(seconds);
        world.snapshots.send_replace(Arc::new(edited));
        sleep(MOMENT).await;
        assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref() == Some("b"), is_taken, "{seconds}");
    }
}
