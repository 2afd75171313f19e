//! A Lease that another holder has, or had.

use super::{
    super::*,
    world::{Fake, World, lease_of, now, terms},
};

#[tokio::test(start_paused = true)]
async fn anothers_lease_is_taken_only_after_it_stood_still_for_its_duration() {
    let world = World::start(Some(lease_of("b", "2")));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!world.lease_handle.held());
        world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    }
    let since = world.seconds();
    world.lease_handle.until_held().await;
    assert!((15..=19).contains(&(world.seconds() - since)), "{}", world.seconds() - since);
    assert_eq!(world.spec().lease_transitions, Some(4));
}

#[tokio::test(start_paused = true)]
async fn anothers_lease_stands_still_since_the_answer_that_showed_it() {
    let fake = Fake { far: Duration::from_secs(4), ..Fake::default() };
    let world = World::with(fake, Some(lease_of("b", "2")), terms());
    // The look was sent, and has not arrived.
    tokio::time::sleep(Duration::from_millis(3_900)).await;
    let renewed = world.clock.now();
    {
        let mut fake = world.fake.lock().unwrap();
        fake.far = Duration::ZERO;
        fake.edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    }
    world.lease_handle.until_held().await;
    let stood = world.clock.now().since(renewed);
    assert!(stood >= Duration::from_secs(15), "{stood:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_prompt_takes_a_lease_in_the_moment_in_which_it_is_released() {
    let world = World::prompt(lease_of("b", "2"));
    // Right after a look, so that the next one is far.
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    assert!(!world.lease_handle.held());
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some(String::new()));
    let since = world.clock.now();
    world.lease_handle.until_held().await;
    let took = world.clock.now().since(since);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn to_who_is_prompt_a_lease_stands_still_since_its_renewal_and_not_since_the_next_look() {
    let world = World::prompt(lease_of("b", "2"));
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    let renewed = world.clock.now();
    world.lease_handle.until_held().await;
    let stood = world.clock.now().since(renewed);
    assert!((Duration::from_secs(15)..Duration::from_secs(17)).contains(&stood), "{stood:?}");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_watch_looks_now_and_then() {
    let world = World::with(Fake::default(), Some(lease_of("b", "2")), LeaseParams { prompt: true, ..terms() });
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some(String::new()));
    let since = world.clock.now();
    world.lease_handle.until_held().await;
    assert!(world.clock.now().since(since) <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn who_was_disturbed_by_a_label_takes_it_at_once() {
    let fake = Fake { labelled_once: true, ..Fake::default() };
    let world = World::with(fake, Some(lease_of("a", "1")), terms());
    world.lease_handle.until_held().await;
    assert_eq!(world.seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_is_second_to_create_it_waits_for_the_first() {
    let world = World::start(Some(lease_of("b", "2")));
    world.fake.lock().unwrap().hidden_once = true;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reason = world.lease_handle.reason().unwrap();
    assert!(reason.contains("held by 'b'"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_goes_on_and_a_recreated_pod_waits() {
    let world = World::start(Some(lease_of("a", "1")));
    world.lease_handle.until_held().await;
    assert_eq!(world.seconds(), 0);
    assert_eq!(world.spec().lease_transitions, Some(3));

    let world = World::start(Some(lease_of("a", "2")));
    world.lease_handle.until_held().await;
    assert!(world.seconds() >= 15);
}

/// A container that restarts while the sharder takes what it had: not before the hold is released, and soon after that.
#[tokio::test(start_paused = true)]
async fn what_the_sharder_holds_is_taken_when_it_is_released_or_has_stood_still_for_its_duration() {
    for is_released in [true, false] {
        let mut hold = lease_of(ringside_ring::lease::SHARDER_HOLDER, "1");
        hold.spec.as_mut().unwrap().lease_duration_seconds = Some(30);
        let world = World::start(Some(hold));
        tokio::time::sleep(Duration::from_millis(6_100)).await;
        assert!(!world.lease_handle.held());
        let told = world.lease_handle.reason().unwrap();
        assert!(told.contains("held by the sharder"), "{told}");
        if is_released {
            world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some(String::new()));
        }
        let since = world.clock.now();
        world.lease_handle.until_held().await;
        let took = world.clock.now().since(since);
        let wanted = if is_released { 0..1_000 } else { 23_000..25_000 };
        assert!(wanted.contains(&took.as_millis()), "released: {is_released}, {took:?}");
    }
}
