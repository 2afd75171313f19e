//! How a Lease is released.

use super::*;

/// One whose Lease lasts so long, and who has it.
async fn holding(duration: Duration) -> World {
    let world = World::with(Fake::default(), None, LeaseParams { duration, ..terms() });
    world.lease_handle.until_held().await;
    world
}

impl World {
    fn fault(&self, fault: impl FnOnce(&mut Fake)) {
        fault(&mut self.fake.lock().unwrap());
    }

    /// How long it takes from the shutdown.
    async fn end(&mut self) -> Duration {
        self.shutdown.trigger();
        let begun = self.clock.now();
        (&mut self.task).await.unwrap();
        assert!(!self.lease_handle.held());
        self.clock.now().since(begun)
    }

    fn holder(&self) -> String {
        self.spec().holder_identity.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_api_server_does_the_end_takes_ten_seconds_at_most() {
    let faults: [fn(&mut Fake); 6] = [
        |fake| fake.failing = true,
        |fake| fake.mute = true,
        |fake| fake.mute_writes = true,
        |fake| fake.slow = Duration::from_secs(4),
        |fake| fake.far = Duration::from_secs(4),
        |fake| fake.far = Duration::from_secs(30),
    ];
    for fault in faults {
        for duration in [1, 5, 15, 60, 300].map(Duration::from_secs) {
            for part in 0..8 {
                let mut world = holding(duration).await;
                world.fault(fault);
                // Before, in and after a renewal that has the same trouble.
                tokio::time::sleep(duration * part / 20).await;
                let took = world.end().await;
                assert!(took <= Duration::from_millis(10_010), "{took:?} for {duration:?}, part {part}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_is_waited_for_while_every_answer_takes_four_seconds() {
    let slow: [fn(&mut Fake); 2] =
        [|fake| fake.slow = Duration::from_secs(4), |fake| fake.far = Duration::from_secs(4)];
    for slow in slow {
        for when in 0..16 {
            let mut world = holding(Duration::from_secs(15)).await;
            world.fault(slow);
            tokio::time::sleep(Duration::from_millis(2_900 + 500 * when)).await;
            assert!(world.lease_handle.held());
            let took = world.end().await;
            assert_eq!(world.holder(), "", "after {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_a_long_lease_that_hangs_leaves_time_for_the_release() {
    let duration = Duration::from_secs(60);
    let mut world = holding(duration).await;
    world.fault(|fake| fake.mute = true);
    tokio::time::sleep(duration / 5 + Duration::from_secs(1)).await;
    // What was asked by now is never answered.
    world.fault(|fake| fake.mute = false);
    world.end().await;
    assert_eq!(world.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn a_release_is_tried_until_the_api_server_takes_it() {
    let mut world = holding(Duration::from_secs(15)).await;
    world.fault(|fake| fake.failing = true);
    let fake = world.fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(8)).await;
        fake.lock().unwrap().failing = false;
    });
    let took = world.end().await;
    assert_eq!(world.holder(), "", "after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_may_not_be_is_not_tried_again() {
    let mut world = holding(Duration::from_secs(15)).await;
    world.fault(|fake| fake.forbidden = true);
    assert_eq!(world.end().await, Duration::ZERO);
    assert_eq!(world.holder(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_label_that_others_wrote_keeps_nobody_from_a_release_and_another_holder_does() {
    let mut world = holding(Duration::from_secs(15)).await;
    let label = |lease: &mut Lease| drop(lease.metadata.labels.get_or_insert_default().insert("x".into(), "y".into()));
    world.fault(|fake| fake.edit(label));
    world.end().await;
    assert_eq!(world.holder(), "");
    assert_eq!(world.fake.lock().unwrap().lease.clone().unwrap().metadata.labels.unwrap()["x"], "y");

    let mut world = holding(Duration::from_secs(15)).await;
    world.fault(|fake| fake.edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some("sharder".into())));
    world.end().await;
    assert_eq!(world.holder(), "sharder");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_gets_no_answer_ends_all_the_same() {
    let mut world = holding(Duration::from_secs(15)).await;
    world.fault(|fake| fake.mute_writes = true);
    let took = world.end().await;
    // It landed, as a look shows.
    assert!(took <= Duration::from_secs(6), "{took:?}");
    assert_eq!(world.holder(), "");
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_without_an_answer_is_released() {
    let mut world = World::with(Fake { mute_writes: true, ..Fake::default() }, None, terms());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!world.lease_handle.held());
    assert_eq!(world.holder(), "a");
    world.end().await;
    assert_eq!(world.holder(), "");
}
