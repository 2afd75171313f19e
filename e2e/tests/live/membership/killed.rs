//! How long the objects of a shard that was killed are without an owner.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use kube::{Api, ResourceExt as _};
use ringside_e2e::{
    eventually::{eventually, in_time},
    website::Website,
    workload::Workload,
};
use ringside_ring::{RingLabels, RingName};

use super::fixture::{DEADLINE, Fixture, SHORT, USUAL};

const OBJECTS: usize = 100;

/// By the duration of the Lease: what is promised.
const BOUNDS: [(Duration, Duration); 2] = [(USUAL, Duration::from_secs(32)), (SHORT, Duration::from_secs(12))];

/// How many objects each shard has; those that have none, or are to be let go of, are nobody's.
async fn owners(fixture: &Fixture, ring: &RingName) -> BTreeMap<String, usize> {
    let (websites, labels) = (Api::<Website>::namespaced(fixture.client(), ring.name()), RingLabels::of(ring));
    let mut owners = BTreeMap::new();
    for website in websites.list_metadata(&Default::default()).await.unwrap() {
        let ownership = labels.ownership(Some(website.labels()));
        let owner = ownership.shard.filter(|_| ownership.drain.is_none()).unwrap_or_default();
        *owners.entry(owner.to_owned()).or_default() += 1;
    }
    owners
}

async fn kill(fixture: &Fixture, duration: Duration) -> Duration {
    // The case may be run once more.
    static TIMES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("killed-{}-{}", duration.as_secs(), TIMES.fetch_add(1, Ordering::Relaxed));
    let ring = fixture.ring(&name).await;
    let doomed = fixture.shard(&ring, &name, duration, &fixture.system.control_plane().url(), None).await;
    let heirs = [format!("{name}-heir-0"), format!("{name}-heir-1")];
    let mut living = Vec::new();
    for heir in &heirs {
        living.push(fixture.plain(&ring, heir, duration).await);
    }
    fixture.until_counted(&ring, 3).await;
    let workload = Workload { namespace: name.clone(), ..Workload::idle("site", OBJECTS) };
    workload.create(&fixture.client()).await.unwrap();
    let all = eventually("all objects have owners", DEADLINE, || async {
        let owners = owners(fixture, &ring).await;
        let whole = !owners.contains_key("") && owners.contains_key(&name);
        if whole && owners.values().sum::<usize>() == OBJECTS { Ok(owners) } else { Err(format!("{owners:?}")) }
    });
    println!("{name}: {:?}", all.await.unwrap());
    // Right after a renewal: nobody is waited for longer.
    fixture.history.until_renewed(&name, DEADLINE).await;
    doomed.proxy.process.kill().unwrap();
    let killed = Instant::now();
    let all = eventually("all objects have living owners", DEADLINE, || async {
        let owners = owners(fixture, &ring).await;
        let living = owners.keys().all(|owner| heirs.contains(owner));
        if living { Ok(owners) } else { Err(format!("{owners:?}")) }
    });
    let owners = all.await.unwrap();
    let took = killed.elapsed();
    println!("{name}: the last object had an owner {took:?} after the kill: {owners:?}");
    took
}

pub(crate) async fn bounds(fixture: &Fixture) {
    let [usual, short] = BOUNDS;
    let (first, second) = tokio::join!(kill(fixture, usual.0), kill(fixture, short.0));
    for (took, (duration, bound)) in [(first, usual), (second, short)] {
        in_time(&format!("owners after a kill, Leases of {duration:?}"), took, bound);
    }
}
