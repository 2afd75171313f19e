#![allow(clippy::unwrap_used)]

mod ending;
mod taking;
mod world;

use super::*;
use world::{Fake, Shared, World, lease_of, now, terms};

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_kept_and_released() {
    let mut world = World::start(None);
    world.lease_handle.until_held().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.lease_handle.held());
    assert!((18..=22).contains(&world.fake.lock().unwrap().writes), "one renewal every 3 s");
    assert_eq!(world.fake.lock().unwrap().lease.clone().unwrap().metadata.labels.unwrap()["ring"], "example");
    world.shutdown.trigger();
    (&mut world.task).await.unwrap();
    assert!(!world.lease_handle.held());
    assert_eq!(world.spec().holder_identity.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn validity_ends_before_others_may_take_over_and_counts_from_the_start_of_a_renewal() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    let faults: [fn(&mut Fake, bool); 3] =
        [|fake, on| fake.failing = on, |fake, on| fake.busy = on, |fake, on| fake.mute = on];
    for (fault, lost) in faults.into_iter().zip([12, 24, 36]) {
        fault(&mut world.fake.lock().unwrap(), true);
        world.lease_handle.until_lost().await;
        assert!((lost..lost + 3).contains(&world.seconds()), "after {} s", world.seconds());
        // No other holder took it meanwhile, so it is ours again as soon as a renewal succeeds.
        fault(&mut world.fake.lock().unwrap(), false);
        world.lease_handle.until_held().await;
    }
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_start_of_the_request_that_was_accepted() {
    let world = World::with(Fake { far: Duration::from_secs(4), ..Fake::default() }, None, terms());
    world.lease_handle.until_held().await;
    // A look, and the creation. The next renewal is on its way.
    assert_eq!(world.seconds(), 8);
    world.fake.lock().unwrap().failing = true;
    world.lease_handle.until_lost().await;
    assert_eq!(world.seconds(), 4 + 12);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_while_every_answer_takes_four_seconds() {
    for far in [true, false] {
        let mut fake = Fake::default();
        *(if far { &mut fake.far } else { &mut fake.slow }) = Duration::from_secs(4);
        let mut world = World::with(fake, None, terms());
        // A look, and the creation.
        let held = tokio::time::timeout(Duration::from_secs(60), world.lease_handle.until_held()).await;
        assert!(held.is_ok() && world.seconds() == 8, "after {} s", world.seconds());
        let lost = tokio::time::timeout(Duration::from_secs(300), world.lease_handle.until_lost()).await;
        assert!(lost.is_err(), "lost after {} s", world.seconds());
        world.shutdown.trigger();
        (&mut world.task).await.unwrap();
        assert_eq!(world.spec().holder_identity.as_deref(), Some(""), "released as slowly");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_less_than_the_validity_costs_nothing() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    let faults: [fn(&mut Fake, bool); 3] =
        [|fake, on| fake.failing = on, |fake, on| fake.busy = on, |fake, on| fake.mute = on];
    for fault in faults {
        fault(&mut world.fake.lock().unwrap(), true);
        let lost = tokio::time::timeout(Duration::from_secs(6), world.lease_handle.until_lost()).await;
        assert!(lost.is_err());
        fault(&mut world.fake.lock().unwrap(), false);
        let lost = tokio::time::timeout(Duration::from_secs(20), world.lease_handle.until_lost()).await;
        assert!(lost.is_err());
    }
    assert_eq!(world.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_write_is_a_loss_at_once_even_in_our_name() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    world.fake.lock().unwrap().edit(|lease| {
        lease.spec.as_mut().unwrap().renew_time = Some(now());
        lease.metadata.annotations = Some(BTreeMap::from([("uid".into(), "2".into())]));
    });
    world.lease_handle.until_lost().await;
    assert!(world.seconds() <= 3, "{}", world.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_label_written_by_others_is_no_loss() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    for _ in 0..5 {
        world.fake.lock().unwrap().edit(|lease| {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(["state", "older"].map(|key| (key.into(), "ready".into())));
        });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(world.lease_handle.held());
    }
    let labels = world.fake.lock().unwrap().lease.clone().unwrap().metadata.labels.unwrap();
    assert_eq!(labels["state"], "ready");
    assert!(!labels.contains_key("older"), "a label that the terms say is taken off");
}

#[tokio::test(start_paused = true)]
async fn what_the_holder_says_of_itself_is_no_identity_is_written_with_each_renewal_and_ends_with_the_release() {
    let annotations = |fake: &Shared| fake.lock().unwrap().lease.clone().unwrap().metadata.annotations.unwrap();
    let said = |fake: &Shared| {
        let annotations = annotations(fake);
        (annotations.get("weight").cloned(), annotations.get("unsaid").cloned())
    };
    // Before a restart of the same instance it said something else.
    let mut before = lease_of("a", "1");
    let old =
        [("weight", "1"), ("unsaid", "x"), ("others", "y")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    before.metadata.annotations.get_or_insert_default().extend(old);
    let mut world = World::start(Some(before));
    world.lease_handle.until_held().await;
    assert_eq!(world.seconds(), 0);
    assert_eq!(said(&world.fake), (Some("2".into()), None));
    world.fake.lock().unwrap().edit(|lease| {
        lease.metadata.annotations.get_or_insert_default().extend([("weight".into(), "9".into())]);
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(world.lease_handle.held());
    assert_eq!(said(&world.fake), (Some("2".into()), None));
    world.shutdown.trigger();
    (&mut world.task).await.unwrap();
    assert_eq!(said(&world.fake), (None, None));
    assert_eq!(annotations(&world.fake).into_keys().collect::<Vec<_>>(), ["others", "uid"]);
}

#[tokio::test(start_paused = true)]
async fn annotations_of_others_are_shown_by_a_look_and_before_each_renewal() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    let annotate = |value: &str| {
        let mark = ("mark".to_owned(), value.to_owned());
        world.fake.lock().unwrap().edit(|lease| lease.metadata.annotations.get_or_insert_default().extend([mark]));
    };
    let writes = world.fake.lock().unwrap().writes;
    annotate("1");
    world.lease_handle.look();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.lease_handle.annotation("mark").as_deref(), Some("1"));
    assert_eq!(world.fake.lock().unwrap().writes, writes, "a look writes nothing");
    annotate("2");
    // The renewal has landed, and its answer is on its way.
    world.fake.lock().unwrap().slow = Duration::from_secs(2);
    while world.fake.lock().unwrap().writes == writes {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.lease_handle.annotation("mark").as_deref(), Some("2"));
    assert!(world.lease_handle.held());
}

#[tokio::test(start_paused = true)]
async fn what_the_holder_says_of_itself_is_written_at_once_while_it_holds_the_lease() {
    let facts = |said: &str| Facts::from([("weight".to_owned(), Some(said.to_owned()))]);
    let (says, latest) = tokio::sync::watch::channel(facts("1"));
    let world = World::with(Fake::default(), None, LeaseParams { facts: latest, ..terms() });
    let weight = || world.fake.lock().unwrap().lease.clone().unwrap().metadata.annotations.unwrap()["weight"].clone();
    world.lease_handle.until_held().await;
    for said in ["2", "3"] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        says.send_replace(facts(said));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(weight(), said);
        assert!(world.lease_handle.held());
    }
    drop(says);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.lease_handle.held(), "it is renewed as before");
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_landed_without_an_answer_is_no_loss() {
    let world = World::start(None);
    world.lease_handle.until_held().await;
    let acquired = world.spec().acquire_time;
    world.fake.lock().unwrap().mute = true;
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.fake.lock().unwrap().mute = false;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.lease_handle.held());
    // A loss, however short, would have acquired it again.
    assert_eq!(world.spec().acquire_time, acquired);
}
