//! A move that fails costs little work: what can't be released or written stays where it is, and few others are tried.

use http::StatusCode;

use super::{refused::refuse, *};
use crate::failed_moves::{Cause, MANY, PROBE_PERIOD};

const OBJECTS: usize = 60;

/// Objects of `b` that belong to `a`, with a child each whose name begins with `child-`.
fn families(world: &World, count: usize) -> Vec<String> {
    let names: Vec<_> = (0..count).map(|number| world.name("a", number)).collect();
    for name in &names {
        world.put(CONFIG_MAPS, name, Some("b"));
        world.put_child(&format!("child-{name}"), name, Some("b"));
        world.put_child(&format!("other-{name}"), name, Some("b"));
    }
    names
}

impl World {
    /// Those of these that no shard works on.
    fn idle(&self, names: &[String]) -> Vec<String> {
        let is_idle = |name: &&String| self.drain(name).is_some() || self.shard(CONFIG_MAPS, name).is_none();
        names.iter().filter(is_idle).cloned().collect()
    }

    /// For as long as it is polled, `b` releases what is drained, but what it `keeps`.
    async fn releases(&self, names: &[String], keeps: impl Fn(&str) -> bool) {
        loop {
            for name in self.idle(names).iter().filter(|name| self.drain(name).is_some() && !keeps(name)) {
                self.put(CONFIG_MAPS, name, None);
            }
            sleep(MOMENT).await;
        }
    }

    /// Lets a time pass in which `b` releases what is drained; returns the most that were without a shard at any moment.
    async fn pass(&self, names: &[String], time: Duration, keeps: impl Fn(&str) -> bool) -> usize {
        let most = std::cell::Cell::new(0);
        let counts = async {
            loop {
                most.set(most.get().max(self.idle(names).len()));
                sleep(MOMENT / 2).await;
            }
        };
        let both = futures::future::join(self.releases(names, keeps), counts);
        let _ = tokio::time::timeout(time, both).await;
        most.get()
    }
}

/// As where its account may not patch the resource.
#[tokio::test(start_paused = true)]
async fn a_shard_that_acknowledges_nothing_is_asked_for_few_and_keeps_all() {
    let mut world = World::new();
    let names = families(&world, OBJECTS);
    world.begin().await;
    let most = world.pass(&names, Duration::from_secs(600), |_| true).await;
    assert!((MANY..20).contains(&most), "{most}");
    let mut last = 0;
    for _ in 0..10 {
        last = last.max(world.pass(&names, PROBE_PERIOD, |_| true).await);
    }
    assert!((1..=2).contains(&last), "{last} at once: one a minute");
    let failed = world.known.failed_moves.all().remove(&Cause::Shard("b".to_owned())).unwrap();
    assert!(failed.holds_back && names.iter().any(|name| failed.place.ends_with(name)), "{failed:?}");
    // Once it can, all go.
    world.pass(&names, 3 * PROBE_PERIOD, |_| false).await;
    assert!(names.iter().all(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("a")));
    assert!(world.known.failed_moves.all().is_empty());
}

/// A webhook refuses what its shard writes to it, say.
#[tokio::test(start_paused = true)]
async fn one_object_that_is_never_released_stays_and_holds_up_no_other() {
    let mut world = World::new();
    let names = families(&world, OBJECTS);
    world.begin().await;
    let kept = names[0].clone();
    world.pass(&names, Duration::from_secs(90), |name| name == kept).await;
    let moved = names.iter().filter(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("a")).count();
    assert_eq!((moved, world.shard(CONFIG_MAPS, &kept).as_deref(), world.drain(&kept)), (OBJECTS - 1, Some("b"), None));
    world.pass(&names, Duration::from_secs(480), |name| name == kept).await;
    assert_eq!(world.written().iter().filter(|name| **name == kept).count(), 2, "drained, and taken back");
    world.pass(&names, Duration::from_secs(300), |_| false).await;
    assert_eq!(world.shard(CONFIG_MAPS, &kept).as_deref(), Some("a"));
}

/// Behind the fence the shard loses the object, after a minute without work on it.
#[tokio::test(start_paused = true)]
async fn behind_the_fence_few_objects_are_taken_by_force_from_a_shard_that_works() {
    let mut world = World::fenced();
    let names: Vec<_> = (0..OBJECTS).map(|number| world.name("b", number)).collect();
    names.iter().for_each(|name| world.put(CONFIG_MAPS, name, Some("a")));
    world.begin().await;
    let most = world.pass(&names, Duration::from_secs(600), |_| true).await;
    assert!((MANY..20).contains(&most), "{most}");
    let taken = names.iter().filter(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("b")).count();
    assert!((16..30).contains(&taken), "{taken}: some, and one a minute");
}

/// A shard without a working controller works on nothing: what it has is asked for all at once, and stays drained.
#[tokio::test(start_paused = true)]
async fn a_move_that_is_needed_is_not_held_back_nor_taken_back() {
    let mut world = World::of(crate::snapshot::tests::with_absent(&["a", "b"], "b"));
    let names = families(&world, OBJECTS);
    world.begin().await;
    world.pass(&names, Duration::from_secs(180), |_| true).await;
    assert_eq!(world.idle(&names).len(), OBJECTS);
    // It works again: it has all again that does not belong elsewhere.
    world.among(&["a", "b"]).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(world.idle(&names), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_owner_goes_back_to_the_shard_of_a_child_that_is_refused() {
    let mut world = World::new();
    let names = families(&world, OBJECTS);
    refuse(&world, "child-", StatusCode::FORBIDDEN);
    world.begin().await;
    world.pass(&names, Duration::from_secs(55), |_| false).await;
    assert_eq!(world.idle(&names), Vec::<String>::new());
    for name in &names {
        let shards =
            [(CONFIG_MAPS, name.clone()), (SECRETS, format!("child-{name}")), (SECRETS, format!("other-{name}"))];
        assert!(shards.iter().all(|(kind, name)| world.shard(kind, name).as_deref() == Some("b")), "{name}");
    }
    // Each is drained, and given back.
    let tried = || world.written().iter().filter(|name| names.contains(name)).count() / 2;
    let first = tried();
    assert!((MANY..20).contains(&first), "{first}");
    world.pass(&names, Duration::from_secs(600), |_| false).await;
    assert!((8..=12).contains(&(tried() - first)), "{} after {first}: one a minute", tried());
    let (cause, failed) = world.known.failed_moves.all().pop_first().unwrap();
    assert!(matches!(cause, Cause::Children(_)) && failed.holds_back, "{failed:?}");
    assert!(failed.place.starts_with("default/child-") && failed.why.is_some(), "{failed:?}");
    world.api.intercept(|_, _| None);
    world.pass(&names, Duration::from_secs(240), |_| false).await;
    assert!(names.iter().all(|name| world.shard(CONFIG_MAPS, name).as_deref() == Some("a")));
    assert!(world.known.failed_moves.all().is_empty());
}

/// The condition says so from the first on.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_refused_is_told_at_once() {
    let mut world = World::new();
    let names = families(&world, 1);
    refuse(&world, "child-", StatusCode::UNPROCESSABLE_ENTITY);
    world.begin().await;
    world.pass(&names, Duration::from_secs(2), |_| false).await;
    assert_eq!((world.shard(CONFIG_MAPS, &names[0]).as_deref(), world.drain(&names[0])), (Some("b"), None));
    let failed = world.known.failed_moves.all().pop_first().unwrap().1;
    assert!(failed.place.starts_with("default/child-") && !failed.holds_back, "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn in_a_takeover_an_owner_goes_on_without_the_children_that_are_refused() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("gone"));
    for child in ["child-1", "other-1", "other-2"] {
        world.put_child(child, &name, Some("gone"));
    }
    refuse(&world, "child-", StatusCode::FORBIDDEN);
    world.begin().await;
    sleep(Duration::from_secs(1)).await;
    let shards = [(CONFIG_MAPS, &*name), (SECRETS, "other-1"), (SECRETS, "other-2"), (SECRETS, "child-1")];
    let shards = shards.map(|(kind, name)| world.shard(kind, name).unwrap());
    assert_eq!(shards, ["a", "a", "a", "gone"]);
    let written = world.written();
    let at = |what: &str| written.iter().position(|name| name == what).unwrap();
    assert!(at("other-1") < at(&name) && at("other-2") < at(&name), "{written:?}");
    let failed = world.known.failed_moves.all().pop_first().unwrap().1;
    assert_eq!(failed.place, "default/child-1");
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(70)).await;
    assert_eq!(world.shard(SECRETS, "child-1").as_deref(), Some("a"));
    assert!(world.known.failed_moves.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_without_owner_goes_to_the_shard_of_a_child_that_is_refused_and_home_later() {
    let mut world = World::new();
    let names = [world.name("a", 0)];
    world.put(CONFIG_MAPS, &names[0], None);
    world.put_child("child", &names[0], Some("b"));
    refuse(&world, "child", StatusCode::FORBIDDEN);
    world.begin().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((world.shard(CONFIG_MAPS, &names[0]).as_deref(), world.drain(&names[0])), (Some("b"), None));
    world.api.intercept(|_, _| None);
    world.pass(&names, Duration::from_secs(75), |_| false).await;
    let shards = [world.shard(CONFIG_MAPS, &names[0]), world.shard(SECRETS, "child")];
    assert_eq!(shards, [Some("a".to_owned()), Some("a".to_owned())]);
}

/// The fence went away in the middle of a move that was forced.
#[tokio::test(start_paused = true)]
async fn no_drain_is_taken_back_once_a_child_is_with_another_shard() {
    for child in ["a", "b", "gone"] {
        let mut world = World::new();
        let name = world.name("a", 0);
        let mut drained = object(&world.labels, &name, Some("b"));
        drained["metadata"]["labels"][&world.labels.drain] = json!("m");
        world.api.put(&path(CONFIG_MAPS, &name), drained);
        world.put_child("child", &name, Some(child));
        world.begin().await;
        sleep(Duration::from_secs(65)).await;
        assert_eq!(world.drain(&name).is_some(), child == "a", "{child}");
    }
}
