//! What a shard that is gone has left is taken while the sharder holds its Lease, and at no other time.

use ringside_ring::labels::LEASE_STATE;
use tokio::time::{Instant, sleep};

use super::*;
use crate::leases::tests::{Leading, lead, see, seen_for_long, stored};

/// The Lease of `gone` lasts for 10 s, so a hold for 20, of which the sharder uses 16.
const USED: Duration = Duration::from_secs(16);

/// A leader at work, and a shard `gone` that has released its Lease.
fn left(api: &FakeApi) -> (Scope, Leading) {
    let scope = Scope { leases: seen_for_long(&["a", "b"]), ..scope(api) };
    for (shard, holder, state) in [("a", "a", "ready"), ("b", "b", "ready"), ("gone", "", "dead")] {
        let (path, mut lease) = stored(shard, holder);
        lease["metadata"]["labels"][LEASE_STATE] = json!(state);
        see(&scope.leases, &lease);
        api.put(&path, lease);
    }
    let leading = lead(api, &scope.leases);
    (scope, leading)
}

/// What the shard has left: ConfigMaps with a Secret each.
fn objects(api: &FakeApi, scope: &Scope, count: usize) -> Vec<Target> {
    let objects = (0..count).map(|number| {
        let (name, child) = (format!("x-{number}"), format!("c-{number}"));
        api.put(&path(SECRETS, &child), owned(object(scope, &child, Some("gone")), &name));
        api.put(&path(CONFIG_MAPS, &name), object(scope, &name, Some("gone")));
        target(api, &path(CONFIG_MAPS, &name), scope)
    });
    objects.collect()
}

fn is_lease(asked: &Asked) -> bool {
    asked.path == stored("gone", "").0
}

/// The writes to objects and to the shard's Lease.
fn writes(api: &FakeApi) -> Vec<Asked> {
    let is_ours = |asked: &Asked| is_lease(asked) || asked.path.contains("/api/v1/");
    api.asked().into_iter().filter(|asked| asked.method != Method::GET && is_ours(asked)).collect()
}

fn patches(api: &FakeApi) -> usize {
    writes(api).iter().filter(|asked| asked.method == Method::PATCH).count()
}

fn holder(api: &FakeApi) -> String {
    api.get(&stored("gone", "").0).unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_takeover_costs_a_write_for_each_object_and_two_for_the_shard() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let objects = objects(&api, &scope, 40);
    assert_eq!(process(&scope, objects).await, []);
    sleep(Duration::from_secs(10)).await;
    let writes = writes(&api);
    assert_eq!((patches(&api), writes.len()), (40 + 40, 40 + 40 + 2));
    let [first, .., last] = &writes[..] else { unreachable!() };
    let spec = |asked: &Asked| {
        (asked.body["spec"]["holderIdentity"].clone(), asked.body["spec"]["leaseDurationSeconds"].clone())
    };
    assert_eq!(spec(first), (json!("shardlease-controller"), json!(20)));
    assert_eq!(spec(last), (json!(""), json!(10)), "released as it was");
    let reads = api.asked().into_iter().filter(|asked| asked.method == Method::GET && asked.path.contains("maps/"));
    assert_eq!(reads.count(), 0);
}

/// The watch has not shown it yet.
#[tokio::test(start_paused = true)]
async fn from_a_shard_that_is_back_before_its_lease_is_held_nothing_is_taken() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let (path, mut lease) = stored("gone", "gone");
    lease["metadata"]["resourceVersion"] = json!("2");
    api.put(&path, lease);
    let (objects, membership) = (objects(&api, &scope, 3), scope.leases.membership());
    assert_eq!(process(&scope, objects).await.len(), 3);
    assert_eq!((patches(&api), holder(&api).as_str()), (0, "gone"));
    assert!(membership.has_changed().unwrap(), "the next snapshot has the shard");
}

/// Nothing but its name is known, and another replica's webhook places objects with it.
#[tokio::test(start_paused = true)]
async fn from_a_shard_that_this_replica_has_not_heard_of_nothing_is_taken() {
    let api = FakeApi::default();
    let scope = Scope { leases: seen_for_long(&["a", "b"]), ..scope(&api) };
    let _leading = lead(&api, &scope.leases);
    let (path, lease) = stored("gone", "gone");
    api.put(&path, lease);
    let (objects, membership) = (objects(&api, &scope, 3), scope.leases.membership());
    assert_eq!(process(&scope, objects).await.len(), 3);
    assert_eq!((patches(&api), holder(&api).as_str()), (0, "gone"));
    assert!(membership.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn from_a_shard_that_has_its_lease_again_nothing_more_is_taken() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let objects = objects(&api, &scope, 200);
    let (leases, mut is_back) = (scope.leases.clone(), false);
    api.slow_writes(Duration::from_millis(100));
    api.intercept(move |asked, objects| {
        if asked.method == Method::PATCH && asked.path.contains("maps/") && !std::mem::replace(&mut is_back, true) {
            let (path, mut lease) = stored("gone", "gone");
            lease["metadata"]["resourceVersion"] = json!("5000");
            see(&leases, &lease);
            objects.insert(path, lease);
        }
        None
    });
    let again = process(&scope, objects).await.len();
    assert!((200 - PARALLEL..200).contains(&again), "{again} are left");
    assert_eq!(holder(&api), "gone");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_has_run_out_stops_the_takeover_until_a_shard_that_waits_had_time_to_come_back() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let (objects, begun) = (objects(&api, &scope, 3), Instant::now());
    api.slow_lists(USED - Duration::from_millis(400));
    let again = process(&scope, objects).await;
    assert_eq!((again.len(), patches(&api)), (3, 0), "there is too little time for a write");
    api.slow_lists(Duration::ZERO);
    assert_eq!(process(&scope, again).await, []);
    assert_eq!(patches(&api), 6);
    let released = USED + Duration::from_secs(5);
    assert!((released..released + Duration::from_secs(3)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let holders: Vec<_> =
        writes(&api).into_iter().filter(is_lease).map(|asked| asked.body["spec"]["holderIdentity"].clone()).collect();
    assert_eq!(holders, ["shardlease-controller", "", "shardlease-controller"]);
}

/// It may be carried out for as long as the API server was asked to go on with it.
#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_ends_before_the_hold_does_and_keeps_it() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let (objects, begun) = (objects(&api, &scope, 1), Instant::now());
    api.slow(Method::PATCH, &path(CONFIG_MAPS, "x-0"), Duration::from_secs(1_000));
    assert_eq!(process(&scope, objects).await.len(), 1);
    assert!((USED / 2 - Duration::from_secs(1)..=USED / 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let child = writes(&api).into_iter().find(|asked| asked.path == path(SECRETS, "c-0")).unwrap();
    assert_eq!(child.query.trim_start_matches('&'), "timeout=8000ms", "the owner's write comes later, and has less");
    while begun.elapsed() < USED {
        assert_eq!(holder(&api), "shardlease-controller", "{:?}", begun.elapsed());
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(holder(&api), "");
}

/// Whose Lease can't be held keeps its objects, and nothing else waits for that.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_lease_holds_up_nothing_else() {
    let api = FakeApi::default();
    let (scope, _leading) = left(&api);
    let mut objects = objects(&api, &scope, 1);
    api.put(&path(CONFIG_MAPS, "free"), object(&scope, "free", None));
    objects.push(target(&api, &path(CONFIG_MAPS, "free"), &scope));
    api.intercept(|asked, _| is_lease(asked).then_some(StatusCode::FORBIDDEN));
    let (given, at) = (api.clone(), path(CONFIG_MAPS, "free"));
    let shard = scope.snapshot.labels.shard.clone();
    let look = tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        given.get(&at).unwrap()["metadata"]["labels"][shard].is_string()
    });
    assert_eq!(uids(&process(&scope, objects).await), ["uid-x-0"]);
    assert!(look.await.unwrap());
    assert_eq!(patches(&api), 1);
}

/// Its shard would find it without its children.
#[tokio::test(start_paused = true)]
async fn a_family_of_which_not_all_has_moved_keeps_the_hold() {
    for is_whole in [true, false] {
        let api = FakeApi::default();
        let (scope, _leading) = left(&api);
        let objects = objects(&api, &scope, 1);
        api.intercept(move |asked, _| {
            let fails = !is_whole && asked.method == Method::PATCH && asked.path.contains("maps/");
            fails.then_some(StatusCode::UNPROCESSABLE_ENTITY)
        });
        assert_eq!(process(&scope, objects).await.len(), usize::from(!is_whole));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(holder(&api), if is_whole { "" } else { "shardlease-controller" });
        sleep(Duration::from_secs(8)).await;
        assert_eq!(holder(&api), "", "whole: {is_whole}");
    }
}
