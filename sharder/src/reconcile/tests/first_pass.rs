//! When the objects of a resource that has joined count as labelled.

use http::StatusCode;
use ringside_ring::cluster_ring::GroupResource;

use super::*;

fn of(name: &str) -> GroupResource {
    GroupResource { group: String::new(), resource: name.into() }
}

fn are_labelled(world: &World) -> [bool; 2] {
    let snapshot = world.snapshots.borrow().clone();
    [CONFIG_MAPS, SECRETS].map(|resource| world.known.is_labelled(&snapshot, &of(resource)))
}

/// Looks as often as the status is written.
async fn until_labelled(world: &World) {
    for _ in 0..10 {
        if are_labelled(world) == [true; 2] {
            return;
        }
        sleep(Duration::from_secs(2)).await;
    }
    panic!("it is not labelled");
}

#[tokio::test(start_paused = true)]
async fn resource_is_labelled_once_its_families_were_tried() {
    let mut world = World::new();
    let (name, bad) = (world.name("a", 0), world.name("b", 0));
    for (name, child) in [(&name, "child"), (&bad, "bad")] {
        world.put(CONFIG_MAPS, name, Some("a"));
        world.put_child(child, name, None);
    }
    world.api.intercept(|asked, _| {
        (asked.method == Method::PATCH && asked.path.ends_with("/bad")).then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    assert_eq!(are_labelled(&world), [false; 2], "nothing is known");
    world.api.slow_writes(Duration::from_secs(10));
    world.begin().await;
    for _ in 0..3 {
        assert_eq!(are_labelled(&world), [false; 2], "writes are under way");
        sleep(Duration::from_secs(2)).await;
    }
    until_labelled(&world).await;
    assert_eq!(world.shard(SECRETS, "child").as_deref(), Some("a"));
    assert_eq!(world.shard(SECRETS, "bad"), None, "one that is refused keeps no others waiting");
    let mut another = world.snapshots.borrow().as_ref().clone();
    another.generation += 1;
    assert!(!world.known.is_labelled(&another, &of(SECRETS)), "of another generation nothing is known");
    assert!(!world.known.is_labelled(&world.snapshots.borrow(), &of("pods")), "it is none of the ring's");
}

#[tokio::test(start_paused = true)]
async fn resource_is_not_labelled_while_its_objects_are_withheld() {
    let mut withheld = snapshot();
    withheld.withheld = [of(CONFIG_MAPS)].into();
    let mut world = World::of(withheld.clone());
    world.put(CONFIG_MAPS, "o", None);
    world.begin().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((are_labelled(&world), world.shard(CONFIG_MAPS, "o")), ([false; 2], None));
    withheld.withheld.clear();
    world.snapshots.send_replace(Arc::new(withheld));
    sleep(MOMENT).await;
    until_labelled(&world).await;
    assert!(world.shard(CONFIG_MAPS, "o").is_some());
}
