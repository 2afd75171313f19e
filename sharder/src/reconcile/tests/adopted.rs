//! Objects that are placed by themselves or follow an owner, as they have one.

use super::*;

/// ConfigMaps with Secrets, and Secrets that are objects of their own. `shards` are ready.
fn world(shards: &[&str]) -> World {
    let mut spec = example_spec();
    spec["resources"].as_array_mut().unwrap().push(json!({"group": "", "resource": SECRETS}));
    let ready: Vec<_> = shards.iter().map(|shard| (*shard, ShardState::Ready)).collect();
    World::of(snapshot_of(&ring_of(&spec), &ready))
}

/// A name of a Secret whose own home is `shard`.
fn secret(world: &World, shard: &str) -> String {
    let snapshot = world.snapshots.borrow().clone();
    let main = snapshot.mains.iter().find(|main| main.resource.id.resource == SECRETS).unwrap();
    let is_home =
        |name: &String| snapshot.hash_ring().owner(&key_of(main, name)).is_some_and(|owner| owner.as_str() == shard);
    (0..).map(|number| format!("s-{number}")).find(is_home).unwrap()
}

fn drain(world: &World, name: &str) -> Option<String> {
    world.label(SECRETS, name, &world.labels.drain)
}

#[tokio::test(start_paused = true)]
async fn one_without_owner_is_placed_by_its_own_key_and_one_with_an_owner_goes_with_it() {
    let mut world = world(&["a", "b"]);
    world.begin().await;
    let (owner, name) = (world.name("a", 0), secret(&world, "b"));
    world.put(CONFIG_MAPS, &owner, None);
    world.put(SECRETS, &name, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(SECRETS, &name).as_deref(), Some("b"));
    world.put_child("child", &owner, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("a"));
    // It has no owner any more, and its own home is elsewhere: it is drained as any other.
    let free = secret(&world, "b");
    world.put_child(&free, &owner, Some("a"));
    sleep(MOMENT).await;
    assert_eq!((world.shard(SECRETS, &free).as_deref(), drain(&world, &free)), (Some("a"), None));
    world.put(SECRETS, &free, Some("a"));
    sleep(MOMENT).await;
    assert!(drain(&world, &free).is_some());
    world.put(SECRETS, &free, None);
    sleep(MOMENT).await;
    assert_eq!((world.shard(SECRETS, &free).as_deref(), drain(&world, &free)), (Some("b"), None));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_adopted_is_released_by_its_shard_before_it_goes_to_its_owner() {
    let mut world = world(&["a", "b"]);
    let (owner, name) = (world.name("a", 0), secret(&world, "b"));
    world.put(CONFIG_MAPS, &owner, Some("a"));
    world.put(SECRETS, &name, Some("b"));
    world.begin().await;
    world.put_child(&name, &owner, Some("b"));
    sleep(MOMENT).await;
    assert!(drain(&world, &name).is_some());
    // For as long as that takes.
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.shard(SECRETS, &name).as_deref(), Some("b"));
    assert_eq!(world.written(), [&*name]);
    world.put_child(&name, &owner, None);
    sleep(MOMENT).await;
    assert_eq!((world.shard(SECRETS, &name).as_deref(), drain(&world, &name)), (Some("a"), None));
    assert!(world.known_drains().is_empty(), "it is over");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_released_is_late_and_does_not_hold_its_owner() {
    let mut world = world(&["a", "b", "c"]);
    let owner = world.name("a", 0);
    // Its home is elsewhere, and moves only once it may.
    world.put(CONFIG_MAPS, &owner, Some("a"));
    world.put_child("held", &owner, Some("c"));
    world.begin().await;
    assert!(drain(&world, "held").is_some());
    sleep(Duration::from_secs(61)).await;
    assert_eq!(world.known_drains().get("c"), Some(&1));
    world.put(CONFIG_MAPS, &owner, Some("b"));
    sleep(MOMENT).await;
    assert!(world.drain(&owner).is_some(), "it goes home, whatever its child does");
    assert_eq!(world.shard(SECRETS, "held").as_deref(), Some("c"));
}

/// Nothing says which shard released them.
#[tokio::test(start_paused = true)]
async fn an_owner_that_never_had_a_shard_waits_for_what_others_work_on() {
    let mut world = world(&["a", "b"]);
    let owner = world.name("a", 0);
    for (name, shard) in [("one", "a"), ("two", "b")] {
        world.put_child(name, &owner, Some(shard));
    }
    world.put(CONFIG_MAPS, &owner, None);
    world.begin().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((world.shard(SECRETS, "one").as_deref(), drain(&world, "one")), (Some("a"), None));
    assert!(drain(&world, "two").is_some());
    assert_eq!(world.shard(CONFIG_MAPS, &owner), None);
    world.put_child("two", &owner, None);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((world.shard(SECRETS, "two").as_deref(), drain(&world, "two")), (Some("a"), None));
    assert_eq!(world.shard(CONFIG_MAPS, &owner).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_family_moves_as_one_and_one_of_another_shard_is_released_by_that() {
    let mut world = world(&["a", "b", "c"]);
    let owner = world.name("a", 0);
    world.put(CONFIG_MAPS, &owner, Some("b"));
    world.put_child("of-the-family", &owner, Some("b"));
    world.begin().await;
    assert!(world.drain(&owner).is_some());
    // It is adopted while its owner is drained, and its shard has it still.
    world.put_child("adopted", &owner, Some("c"));
    sleep(MOMENT).await;
    world.acknowledge(&owner).await;
    assert_eq!(world.shard(CONFIG_MAPS, &owner).as_deref(), Some("a"));
    assert_eq!((world.shard(SECRETS, "of-the-family").as_deref(), drain(&world, "of-the-family")), (Some("a"), None));
    let written = world.written();
    assert_eq!(
        written.iter().filter(|name| *name == "of-the-family").count(),
        1,
        "moved, and not drained: {written:?}"
    );
    assert_eq!(world.shard(SECRETS, "adopted").as_deref(), Some("c"));
    assert!(drain(&world, "adopted").is_some());
    world.put_child("adopted", &owner, None);
    sleep(MOMENT).await;
    assert_eq!((world.shard(SECRETS, "adopted").as_deref(), drain(&world, "adopted")), (Some("a"), None));
}
