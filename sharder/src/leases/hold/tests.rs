//! Holds on Leases, against a fake API server under a paused clock.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    held::{MAX_RENEWALS, QUIET, UNUSED},
    *,
};
use crate::{
    api_error::has_ended,
    fixtures::FakeApi,
    leases::{
        Leases,
        tests::{just_seen, lead, see, seen_for_long, stored},
    },
    write::conflict,
};

fn path_of(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

/// The holder, the duration, and how often the holder changed.
fn spec(api: &FakeApi, path: &str) -> Option<(String, u64, u64)> {
    let spec = api.get(path)?["spec"].clone();
    let number = |field: &str| spec[field].as_u64().unwrap_or_default();
    let holder = spec["holderIdentity"].as_str().unwrap().to_owned();
    Some((holder, number("leaseDurationSeconds"), number("leaseTransitions")))
}

fn held(duration: u64, transitions: u64) -> Option<(String, u64, u64)> {
    Some(("shardlease-controller".to_owned(), duration, transitions))
}

/// How long a hold is waited for at most: longer than a Lease is left alone.
const HOLD_TIMEOUT: Duration = REST.saturating_add(Duration::from_secs(3));

async fn hold(leases: &Leases, shard: &str) -> Option<Hold> {
    hold_for(leases, shard, "u").await
}

/// The same for the object of this uid.
async fn hold_for(leases: &Leases, shard: &str, uid: &str) -> Option<Hold> {
    let held = async {
        loop {
            match leases.hold(&"example".parse().unwrap(), shard, uid) {
                None => sleep(Duration::from_millis(50)).await,
                held => return held,
            }
        }
    };
    timeout(HOLD_TIMEOUT, held).await.ok().flatten()
}

fn writes_to(api: &FakeApi, path: &str) -> usize {
    let of_path = |asked: &&crate::fixtures::Asked| asked.method != Method::GET && asked.path == *path;
    api.asked().iter().filter(of_path).count()
}

/// Whether a write may be sent under the hold; this one makes no progress.
async fn is_open(hold: &Hold) -> bool {
    !has_ended(&hold.carry_out(async |_| Err::<(), _>(conflict("refused"))).await.unwrap_err())
}

/// A write of the takeover is carried out.
async fn progress(hold: &Hold) {
    hold.carry_out(async |_| Ok(())).await.unwrap();
}

/// A Lease of the shard `x` that is known and stored as this.
fn known(api: &FakeApi, leases: &Leases, change: impl FnOnce(&mut Value)) -> String {
    let (path, mut lease) = stored("x", "");
    lease["metadata"]["labels"]["alpha.sharding.timebertt.dev/state"] = json!("dead");
    change(&mut lease);
    see(leases, &lease);
    api.put(&path, lease);
    path
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_for_twice_the_duration_and_is_released_when_nothing_uses_it() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let first = hold(&leases, "x").await.unwrap();
    let second = hold(&leases, "x").await.unwrap();
    assert_eq!(spec(&api, &path), held(20, 1));
    drop(first);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the second is in use");
    drop(second);
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
    assert_eq!(writes_to(&api, &path), 2);
}

/// The leader before may have written under its hold until a moment ago. The shard waits again for as long.
#[tokio::test(start_paused = true)]
async fn what_a_leader_before_holds_is_acquired_anew_for_as_long() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |lease| {
        lease["spec"]["holderIdentity"] = json!("shardlease-controller");
        lease["spec"]["leaseDurationSeconds"] = json!(20);
    });
    let _leading = lead(&api, &leases);
    drop(hold(&leases, "x").await.unwrap());
    sleep(Duration::from_secs(15)).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the leader before may have a write under way");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_hold_has_to_end_although_it_is_used() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    sleep(Duration::from_secs(15)).await;
    assert!(is_open(&hold).await);
    sleep(Duration::from_millis(600)).await;
    assert!(!is_open(&hold).await, "a fifth less than the shard waits");
    assert_eq!(spec(&api, &path), held(20, 1));
    sleep(Duration::from_secs(6)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
    assert_eq!(writes_to(&api, &path), 2, "without progress it is not renewed");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_a_hold_while_it_is_released() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    drop(hold(&leases, "x").await.unwrap());
    api.slow(Method::PUT, &path, Duration::from_secs(2));
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), held(20, 1), "the release is under way");
    let again = hold(&leases, "x").await.unwrap();
    assert_eq!(spec(&api, &path), held(20, 2), "it is another hold");
    again.carry_out(async |_| Ok(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_acquisition_that_declares_a_shard_dead_is_its_hold() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |lease| {
        lease["spec"]["holderIdentity"] = json!("x");
        lease["metadata"]["labels"]["alpha.sharding.timebertt.dev/state"] = json!("ready");
    });
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none(), "it may work");
    while spec(&api, &path) != held(20, 1) {
        sleep(Duration::from_millis(100)).await;
    }
    sleep(UNUSED / 2).await;
    assert!(hold(&leases, "x").await.is_some());
    assert_eq!(spec(&api, &path), held(20, 1));
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_name_without_lease_gets_one_where_the_rings_shards_are_and_that_is_deleted_as_any() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let (_, mut elsewhere) = stored("b", "b");
    elsewhere["metadata"]["namespace"] = json!("other");
    see(&leases, &elsewhere);
    let _leading = lead(&api, &leases);
    let paths = ["default", "other"].map(|namespace| path_of(namespace, "x"));
    let held_there = hold(&leases, "x").await.unwrap();
    for path in &paths {
        assert_eq!(spec(&api, path), held(30, 0), "{path}");
    }
    drop(held_there);
    sleep(QUIET * 2).await;
    for path in &paths {
        assert_eq!(spec(&api, path), Some((String::new(), 15, 0)), "{path}");
    }
    sleep(Duration::from_secs(80)).await;
    assert_eq!(paths.map(|path| api.get(&path)), [None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_name_without_lease_is_not_held_before_its_shard_had_the_time_to_notice() {
    let (api, leases) = (FakeApi::default(), just_seen(&["a"]));
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none());
    assert_eq!(writes_to(&api, &path_of("default", "x")), 0);
    sleep(2 * DEFAULT_LEASE_DURATION).await;
    assert!(hold(&leases, "x").await.is_some());
}

/// It is another ring's shard by now, say.
#[tokio::test(start_paused = true)]
async fn where_a_lease_of_the_name_is_no_shards_of_the_ring_the_name_is_gone() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let (path, mut lease) = stored("x", "x");
    lease["metadata"]["labels"] = json!({"alpha.sharding.timebertt.dev/clusterring": "another"});
    api.put(&path, lease.clone());
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_some());
    assert_eq!(api.get(&path), Some(lease));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_can_not_be_made_is_told() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    api.intercept(|asked, _| {
        (asked.method == Method::POST && asked.path.ends_with("/leases")).then_some(StatusCode::FORBIDDEN)
    });
    let _leading = lead(&api, &leases);
    assert!(hold(&leases, "x").await.is_none());
    let told = leases.unmade(&"example".parse().unwrap());
    assert!(told[0].contains("none can be made in namespace 'default': "), "{told:?}");
    sleep(Duration::from_secs(8)).await;
    let asked = api.asked().iter().filter(|asked| asked.path.ends_with("/leases")).count();
    assert!((2..6).contains(&asked), "{asked}");
}

/// No shard can have such a name, as that is its Lease's as well.
#[tokio::test(start_paused = true)]
async fn a_name_that_no_lease_can_have_is_held_without_one() {
    for name in ["", "Upper_case"] {
        let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
        let _leading = lead(&api, &leases);
        assert!(hold(&leases, name).await.is_some(), "'{name}'");
        assert_eq!(api.asked().iter().filter(|asked| asked.method == Method::POST).count(), 0);
    }
}

/// A native shard waits for no admission.
#[tokio::test(start_paused = true)]
async fn a_hold_ends_as_soon_as_a_shard_of_the_name_holds_another_lease() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    hold.carry_out(async |_| Ok(())).await.unwrap();
    let (_, mut elsewhere) = stored("x", "x");
    elsewhere["metadata"]["namespace"] = json!("other");
    see(&leases, &elsewhere);
    assert!(has_ended(&hold.carry_out(async |_| Ok(())).await.unwrap_err()));
}

/// A dead shard's 25,000 families, of which 64 are written at once.
#[tokio::test(start_paused = true)]
async fn a_takeover_pauses_only_after_ten_renewals() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let ring = "example".parse().unwrap();
    let (next, begun) = (Cell::new(0), RefCell::new(Vec::new()));
    let family = async || {
        while next.replace(next.get() + 1) < 25_000 {
            let hold = loop {
                match leases.hold(&ring, "x", "u") {
                    None => sleep(Duration::from_millis(50)).await,
                    Some(hold) => break hold,
                }
            };
            begun.borrow_mut().push(leases.clock.now());
            let write = async |within: Duration| {
                assert!(2 * within >= Duration::from_secs(20) / 3, "a third of the hold at least: {within:?}");
                sleep(Duration::from_millis(350)).await;
                Ok(())
            };
            hold.carry_out(write).await.unwrap();
        }
    };
    futures::future::join_all((0..64).map(|_| family())).await;
    let begun = begun.into_inner();
    let apart = begun.windows(2).map(|two| (two[1].since(two[0]), two[0].since(begun[0])));
    let pauses: Vec<_> = apart.filter(|(apart, _)| *apart > Duration::from_millis(500)).collect();
    let [(lasts, after)] = pauses[..] else { panic!("{pauses:?}") };
    assert!(lasts >= REST && lasts < REST + 2 * QUIET, "{lasts:?}");
    // A third each, and what may be begun in the last.
    assert!(after > Duration::from_secs(75) && after < Duration::from_secs(77), "{after:?}");
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 2)));
    let renewals = writes_to(&api, &path) - 4;
    assert!((MAX_RENEWALS..2 * MAX_RENEWALS).contains(&renewals), "{renewals}");
}

/// An object of a shard that has one child there and is taken, as far as that.
async fn begun(leases: &Leases) -> Hold {
    let hold = hold_for(leases, "x", "in-part").await.unwrap();
    hold.begin("in-part").unwrap();
    hold
}

/// Its shard would find it without the children that have moved, and make them once more.
#[tokio::test(start_paused = true)]
async fn a_hold_lasts_to_its_end_for_a_family_of_which_not_all_has_moved() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let first = begun(&leases).await;
    sleep(Duration::from_secs(9)).await;
    first.begin("new").unwrap();
    first.end("new");
    sleep(Duration::from_secs(1)).await;
    assert!(has_ended(&first.begin("new").unwrap_err()), "less than a third is left");
    assert!(is_open(&first).await);
    drop(first);
    assert!(hold_for(&leases, "x", "in-part").await.is_some(), "one that has failed comes again");
    sleep(Duration::from_secs(9)).await;
    assert_eq!(spec(&api, &path), held(20, 1), "it still waits for that one");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_renewed_is_released_when_its_families_have_moved() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = begun(&leases).await;
    progress(&hold).await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(writes_to(&api, &path), 1, "not before its first third is over");
    sleep(Duration::from_secs(5)).await;
    hold.begin("another").unwrap();
    assert_eq!((spec(&api, &path), writes_to(&api, &path)), (held(20, 1), 2), "it was renewed");
    hold.end("another");
    hold.end("in-part");
    drop(hold);
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
    let released = leases.clock.now();
    assert!(hold_for(&leases, "x", "new").await.is_some());
    assert!(leases.clock.now().since(released) < REST / 2, "it had not run out, so the Lease needs no rest");
}

/// What the watch shows of it comes first, as it may.
#[tokio::test(start_paused = true)]
async fn a_renewal_counts_once_it_is_seen_from_before_its_request() {
    for is_stored in [true, false] {
        let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
        let path = known(&api, &leases, |_| {});
        let _leading = lead(&api, &leases);
        let hold = hold(&leases, "x").await.unwrap();
        progress(&hold).await;
        let of_path = path.clone();
        api.intercept(move |asked, objects| {
            let renews = asked.method == Method::PUT && asked.path == of_path;
            renews.then(|| {
                if is_stored {
                    let mut lease = asked.body.clone();
                    lease["metadata"]["resourceVersion"] = json!("9999");
                    objects.insert(of_path.clone(), lease);
                }
                StatusCode::INTERNAL_SERVER_ERROR
            })
        });
        // It was asked for at 7 s, or a moment before.
        sleep(Duration::from_secs(12)).await;
        if is_stored {
            see(&leases, &api.get(&path).unwrap());
        }
        sleep(Duration::from_millis(3_500)).await;
        assert_eq!(is_open(&hold).await, is_stored);
        sleep(Duration::from_millis(8_500)).await;
        assert!(!is_open(&hold).await);
    }
}

/// The watch is late, and the shard has its Lease again.
#[tokio::test(start_paused = true)]
async fn a_renewal_takes_no_lease_from_a_shard() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    progress(&hold).await;
    let mut lease = api.get(&path).unwrap();
    lease["spec"]["holderIdentity"] = json!("x");
    lease["metadata"]["resourceVersion"] = json!("9999");
    api.put(&path, lease);
    sleep(Duration::from_secs(7)).await;
    assert!(!is_open(&hold).await);
    assert_eq!(spec(&api, &path).unwrap().0, "x");
}

/// What left the ring has to lose its labels all the same.
#[tokio::test(start_paused = true)]
async fn in_a_ring_without_any_lease_nothing_is_to_be_held() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&[]));
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    hold.carry_out(async |_| Ok(())).await.unwrap();
    assert_eq!(api.asked().iter().filter(|asked| asked.method != Method::GET).count(), 0);
}

/// It may be carried out until then, and its shard must not be back before.
#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_keeps_the_hold() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let hold = hold(&leases, "x").await.unwrap();
    hold.carry_out(async |_| std::future::pending::<Result<(), _>>().await).await.unwrap_err();
    drop(hold);
    sleep(QUIET * 2).await;
    assert_eq!(spec(&api, &path), held(20, 1));
    sleep(Duration::from_secs(12)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_hold_counts_from_before_its_request() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    api.slow(Method::PUT, &path, Duration::from_secs(3));
    let _leading = lead(&api, &leases);
    let asked = leases.clock.now();
    let hold = hold(&leases, "x").await.unwrap();
    sleep(Duration::from_secs(15).saturating_sub(leases.clock.now().since(asked))).await;
    assert!(is_open(&hold).await);
    sleep(Duration::from_millis(600)).await;
    assert!(!is_open(&hold).await);
}

/// A shard that waits takes it then.
#[tokio::test(start_paused = true)]
async fn a_lease_is_left_alone_for_a_while_after_a_hold_has_run_out() {
    let (api, leases) = (FakeApi::default(), seen_for_long(&["a"]));
    let path = known(&api, &leases, |_| {});
    let _leading = lead(&api, &leases);
    let first = hold(&leases, "x").await.unwrap();
    sleep(Duration::from_secs(19)).await;
    drop(first);
    while spec(&api, &path) != Some((String::new(), 10, 1)) {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(leases.hold(&"example".parse().unwrap(), "x", "u").is_none());
    sleep(REST - Duration::from_millis(200)).await;
    assert_eq!(spec(&api, &path), Some((String::new(), 10, 1)));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(spec(&api, &path), held(20, 2));
}

/// The plan looks at it while families begin.
#[test]
fn a_hold_is_used_and_looked_at_by_several_threads() {
    let held =
        Held::new(("example".parse().unwrap(), "x".to_owned()), None, Moment::default(), Duration::from_secs(1_000));
    std::thread::scope(|threads| {
        threads.spawn(|| (0..300_000).for_each(|_| _ = held.takes("u", Moment::default())));
        threads.spawn(|| (0..300_000).for_each(|_| _ = (held.ends(), held.renews(Moment::default()))));
    });
}
