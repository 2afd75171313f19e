//! What several threads do at once.

use std::{sync::mpsc, thread};

use super::*;
use crate::{index::ResourceId, target::Target};

/// A feed asks the drains under the index's lock. A leader that begins asks the index about each drain.
#[tokio::test]
async fn feed_and_new_leader_do_not_wait_for_each_other() {
    let world = World::new();
    let snapshot = world.snapshots.borrow().clone();
    let ring = Ring::new(&world.tools, &snapshot, &Writes::default(), &world.known, &world.faults);
    let (ring, (ended, ends)) = (Arc::new(ring), mpsc::channel());
    for number in 0..1000 {
        let target = Target { uid: uid(&number.to_string()), ..Target::default() };
        ring.judge.drains.remember(&snapshot.mains[0].resource.id, &target, "a", "m");
    }
    let (feed, fed) = (ring.clone(), ended.clone());
    let mut shown = object(&world.labels, "shown", Some("a"))["metadata"].take();
    thread::spawn(move || {
        for version in 1..=2000 {
            shown["resourceVersion"] = json!(version.to_string());
            feed.index.apply(ResourceId(0), &serde_json::from_value(shown.clone()).unwrap());
        }
        fed.send("feed").unwrap();
    });
    thread::spawn(move || {
        for _ in 0..100 {
            ring.judge.drains.keep(|resource, uid| {
                ring.is_moving(resource, uid);
                true
            });
        }
        ended.send("leader").unwrap();
    });
    for _ in 0..2 {
        ends.recv_timeout(Duration::from_secs(30)).expect("both come to their end");
    }
}
