//! Which work a change makes necessary, and what comes of work that is broken off, against a fake API server.

#![allow(clippy::unwrap_used)]

use http::StatusCode;
use ringside_ring::{
    Controller::{Absent, Working},
    RingLabels,
    cluster_ring::GroupResource,
    lease::ShardState::{Dead, Ready},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::{
    assign::{
        tests::{CONFIG_MAPS, SECRETS, object, owned, path, scope},
        writes::AllWrites,
    },
    cleanup::departed::Departed,
    fixtures::FakeApi,
    leases::tests::held_by,
    metrics::Metrics,
    namespaces::{Namespaces, tests::known},
    probe::Verdicts,
    rings::ClientConfig,
    snapshot::tests::{example_spec, ring, snapshot_of, with_controllers, with_members},
    target::Target,
};

/// The passes that are due after a change from one snapshot to another.
fn due_after(previous: Option<&Snapshot>, snapshot: &Snapshot) -> Vec<Pass> {
    let due = Due::default();
    mark(&due, previous, snapshot);
    due.of(&snapshot.mains[0].resource.id)
}

#[test]
fn only_what_a_change_makes_necessary_is_looked_through() {
    let spec = ring(&example_spec());
    let two = snapshot_of(&spec, &[("a", Ready), ("b", Ready)]);
    let one = snapshot_of(&spec, &[("a", Ready), ("b", Dead)]);
    let other = snapshot_of(&spec, &[("a", Dead), ("b", Ready)]);
    assert_eq!(due_after(None, &two), [Pass::Objects, Pass::Children], "leadership begins");
    assert_eq!(due_after(Some(&one), &two), [Pass::Objects], "a shard joined");
    assert_eq!(due_after(Some(&two), &one), [], "a shard went: the watch finds its objects");
    assert_eq!(due_after(Some(&one), &other), [Pass::Objects], "one joined while another went");
    let none = snapshot_of(&spec, &[("a", Dead), ("b", Dead)]);
    assert_eq!(due_after(Some(&one), &none), [Pass::Objects, Pass::Children], "nothing is watched any more");
    assert_eq!(due_after(Some(&none), &snapshot_of(&spec, &[("a", Dead)])), [], "nothing has changed");
    assert_eq!(due_after(Some(&none), &one), [Pass::Objects, Pass::Children], "these were passes of another kind");
    let mut all_namespaces = example_spec();
    all_namespaces["namespaceSelector"] = json!({});
    let wider = snapshot_of(&ring(&all_namespaces), &[("a", Ready), ("b", Ready)]);
    assert_eq!(due_after(Some(&two), &wider), [Pass::Objects, Pass::Children], "the spec changed");
}

#[test]
fn objects_are_looked_through_when_a_controller_is_absent_and_when_it_works_again() {
    let of =
        |controllers: [_; 2]| with_controllers(&ring(&example_spec()), &[("a", controllers[0]), ("b", controllers[1])]);
    let (both, one, none) = (of([Working, Working]), of([Working, Absent]), of([Absent, Absent]));
    assert_eq!(due_after(Some(&both), &one), [Pass::Objects]);
    assert_eq!(due_after(Some(&one), &both), [Pass::Objects]);
    assert_eq!(due_after(Some(&one), &none), [], "nobody works elsewhere");
    assert_eq!(due_after(Some(&none), &one), [Pass::Objects]);
    assert_eq!(due_after(Some(&none), &both), [Pass::Objects]);
    assert!(both.among_the_same(&one), "what is under way goes on");
}

#[test]
fn what_left_the_ring_is_forgotten_and_no_pass_over_it_stays_due() {
    let spec = ring(&example_spec());
    let before = snapshot_of(&spec, &[("a", Ready), ("b", Ready)]);
    let after = ring(&json!({"resources": [{"group": "apps", "resource": "deployments"}]}));
    let after = snapshot_of(&after, &[("a", Ready), ("b", Ready)]);
    let resource = &before.mains[0].resource;
    let (kept, due) = (Kept::with(Drains::default(), Census::default()), Due::default());
    mark_all(&due, &before);
    kept.drains.remember(&resource.id, &Target { uid: "u".into(), ..Target::default() }, "a", "m");
    let _ = kept.fits(&before, &due);
    assert_eq!(due.of(&resource.id), [Pass::Objects, Pass::Children]);
    let _ = kept.fits(&after, &due);
    assert_eq!((due.of(&resource.id), kept.drains.previous("u")), (vec![], None));
    assert!(due.is_done([&resource.id].into_iter()), "or no period would ever begin anew");
}

/// How often the lists of all ConfigMaps began.
fn passes(api: &FakeApi) -> usize {
    let lists = api.asked().into_iter().filter(|asked| asked.path.ends_with("/configmaps"));
    // The fake API server streams nothing, so pages are asked for.
    lists.filter(|asked| !asked.query.contains("labelSelector") && !asked.query.contains("watch=true")).count()
}

/// Begins to lead, as somebody who knows of the shards `a` and `b`.
fn start(api: &FakeApi, latest: watch::Receiver<Arc<Snapshot>>) -> JoinHandle<Infallible> {
    let (namespaces, _not_followed) = Namespaces::follow(api.client());
    start_in(namespaces, api, latest)
}

/// The same, who knows of these namespaces.
fn start_in(namespaces: Namespaces, api: &FakeApi, latest: watch::Receiver<Arc<Snapshot>>) -> JoinHandle<Infallible> {
    let client_config = ClientConfig { namespace: "ringside-system".into(), url: None };
    let (_all, snapshots) = watch::channel(None);
    let leader = Leader {
        client: api.client(),
        watches: api.client(),
        leases: held_by(&["a", "b"]),
        namespaces,
        fences: crate::fence::follow(api.client()).0,
        notices: crate::notices::Notices::new(api.client()),
        writes: AllWrites::new(Metrics::default()),
        metrics: Metrics::default(),
        snapshots,
        client_config: Arc::new(client_config),
        trust: watch::channel(None).1,
        injector: None,
        sync_period: Duration::from_secs(60),
        departed: Departed::default(),
        reach: Verdicts::default(),
        modes: crate::probe::WebhookModes::default(),
        mutating: Verdicts::default(),
        support: watch::Sender::default(),
    };
    tokio::spawn(async move { distribute(leader, latest, Default::default(), Faults::default()).await })
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_takes_longer_than_the_period_is_not_broken_off() {
    let api = FakeApi::default();
    api.intercept(|asked, _| asked.path.ends_with("/secrets").then_some(StatusCode::SERVICE_UNAVAILABLE));
    let snapshot = Arc::new(snapshot_of(&ring(&example_spec()), &[("a", Ready), ("b", Ready)]));
    let (_ring, latest) = watch::channel(snapshot);
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(passes(&api), 1, "the children are still due");
    api.intercept(|_, _| None);
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(passes(&api), 3, "two periods");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_fence_does_not_keep_the_period_from_the_rest_of_its_ring() {
    let api = FakeApi::default();
    let mut spec = example_spec();
    spec["resources"].as_array_mut().unwrap().push(json!({"group": "apps", "resource": "deployments"}));
    let deployments = GroupResource { group: "apps".into(), resource: "deployments".into() };
    let snapshot = snapshot_of(&ring(&spec), &[("a", Ready), ("b", Ready)]).withholding([deployments].into());
    assert_eq!(snapshot.distributed().count(), 1);
    let (_ring, latest) = watch::channel(Arc::new(snapshot));
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(passes(&api), 3, "at once, and two periods");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_can_never_be_looked_through_does_not_keep_the_period_from_the_rest_of_its_ring() {
    let api = FakeApi::default();
    api.intercept(|asked, _| asked.path.ends_with("/deployments").then_some(StatusCode::INTERNAL_SERVER_ERROR));
    let mut spec = example_spec();
    spec["resources"].as_array_mut().unwrap().push(json!({"group": "apps", "resource": "deployments"}));
    let snapshot = snapshot_of(&ring(&spec), &[("a", Ready), ("b", Ready)]);
    assert_eq!(snapshot.distributed().count(), 2);
    let (_ring, latest) = watch::channel(Arc::new(snapshot));
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(passes(&api), 3, "at once, and two periods");
    let failed = api.asked().into_iter().filter(|asked| asked.path.ends_with("/deployments"));
    let failed = failed.filter(|asked| !asked.query.contains("labelSelector")).count();
    assert!(failed < 30, "{failed}: more and more seldom");
    task.abort();
}

/// How long a write takes here.
const WRITE: Duration = Duration::from_millis(100);
const CHILDREN: [&str; 2] = ["c1", "c2"];

/// Whom the owner and its children belong to when their shard leaves and comes back after `away`, and whether that is shown
/// its owner; and whom they belong to in the end.
async fn after_a_return(away: Duration, new_leader: bool) -> ((Value, Vec<Value>, bool), (Value, Vec<Value>)) {
    let api = FakeApi::default();
    let scope = scope(&api);
    api.intercept(|asked, _| {
        // Objects without owner are shown by a list, and by no event after that.
        let watch = asked.query.contains("watch=true");
        watch.then_some(StatusCode::SERVICE_UNAVAILABLE)
    });
    let spec = ring(&example_spec());
    let without = scope.snapshot.clone();
    let with = Arc::new(snapshot_of(&spec, &[("a", Ready), ("b", Ready), ("gone", Ready)]));
    let belongs = |name: &String| {
        with.hash_ring().owner(&scope.main.resource.key(Some("default"), name)).unwrap().as_str() == "gone"
    };
    let name = (0..).map(|i| format!("o-{i}")).find(belongs).unwrap();
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("gone")));
    for child in CHILDREN {
        api.put(&path(SECRETS, child), owned(object(&scope, child, Some("gone")), &name));
    }
    let (shards, latest) = watch::channel(with.clone());
    let mut task = start(&api, latest.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.writes(), Vec::<String>::new());
    api.slow_writes(WRITE);
    shards.send_replace(without);
    tokio::time::sleep(away).await;
    if new_leader {
        task.abort();
        // The Lease of the election is not free before these have ended.
        tokio::time::sleep(WRITE).await;
    }
    shards.send_replace(with);
    if new_leader {
        task = start(&api, latest.clone());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    task.abort();
    let labels = |path: &str| api.get(path).unwrap()["metadata"]["labels"].clone();
    let RingLabels { shard, drain } = &scope.snapshot.labels;
    let children = || CHILDREN.map(|child| labels(&path(SECRETS, child))[shard].clone()).to_vec();
    let owner = || labels(&path(CONFIG_MAPS, &name));
    let is_shown = owner()[drain].is_null();
    let first = (owner()[shard].clone(), children(), is_shown);
    // Whoever has it lets go.
    let mut acknowledged = api.get(&path(CONFIG_MAPS, &name)).unwrap();
    if acknowledged["metadata"]["labels"][drain].is_string() {
        acknowledged["metadata"]["labels"] = json!({});
        api.put(&path(CONFIG_MAPS, &name), acknowledged);
    }
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(1)).await;
    task.abort();
    (first, (owner()[shard].clone(), children()))
}

/// The owner is claimed first, then the children are written, then the owner again: the shard comes back before, during and
/// after each of these.
#[tokio::test(start_paused = true)]
async fn a_family_is_together_whenever_its_shard_comes_back() {
    for new_leader in [false, true] {
        let mut shown = Vec::new();
        for away in (0..=7).map(|half| half * WRITE / 2) {
            let away = away + Duration::from_millis(1);
            let ((owner, children, is_shown), after) = after_a_return(away, new_leader).await;
            let context = format!("away for {away:?}, new leader: {new_leader}");
            if is_shown {
                assert_eq!(children, [owner.clone(), owner.clone()], "its shard works on it: {context}");
            }
            assert_eq!(after, (json!("gone"), vec![json!("gone"); 2]), "{context}");
            shown.push(is_shown);
        }
        assert!(shown.contains(&false), "the shard comes back in the midst of it: {shown:?}");
    }
}

/// What a pass and an assignment find while the work on a snapshot goes on.
#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_breaks_nothing_off_and_is_known_at_once() {
    use ringside_ring::lease::ShardState::Expired;
    let api = FakeApi::default();
    let scope = scope(&api);
    let of = |late| Arc::new(snapshot_of(&ring(&example_spec()), &[("a", Ready), ("b", late)]));
    let (all_ready, b_late) = (of(Ready), of(Expired));
    let key = |name: &str| scope.main.resource.key(Some("default"), name);
    let name =
        (0..).map(|i| format!("o-{i}")).find(|name| all_ready.hash_ring().owner(&key(name)).unwrap().as_str() == "b");
    let name = name.unwrap();
    let (shards, latest) = watch::channel(all_ready.clone());
    // Lists show what is new.
    api.intercept(|asked, _| asked.query.contains("sendInitialEvents").then_some(StatusCode::UNPROCESSABLE_ENTITY));
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(1)).await;
    shards.send_replace(b_late);
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, None));
    let shard =
        || api.get(&path(CONFIG_MAPS, &name)).unwrap()["metadata"]["labels"][&scope.snapshot.labels.shard].clone();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(shard(), "a");
    shards.send_replace(all_ready);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        api.get(&path(CONFIG_MAPS, &name)).unwrap()["metadata"]["labels"][&scope.snapshot.labels.drain].is_string()
    );
    task.abort();
}

/// The ring names a resource that is not served, waits for the fence around it and then no longer, and is less patient.
/// Each time a new beginning would look at all again that is in hand.
#[tokio::test(start_paused = true)]
async fn what_changes_nothing_about_who_gets_what_breaks_nothing_off() {
    let api = FakeApi::default();
    // Each watch begins with a list, and makes no other one.
    api.intercept(|asked, _| asked.query.contains("watch=true").then_some(StatusCode::SERVICE_UNAVAILABLE));
    let begun = || {
        let lists = api.asked().into_iter().filter(|asked| asked.path.ends_with("/configmaps"));
        lists.filter(|asked| asked.query.contains("notin") && !asked.query.contains("watch=true")).count()
    };
    let of = |spec: &Value| snapshot_of(&ring(spec), &[("a", Ready), ("b", Ready)]);
    let waiting = |snapshot: &Snapshot, group: &str, resource: &str| {
        snapshot.clone().withholding([GroupResource { group: group.into(), resource: resource.into() }].into())
    };
    let mut spec = example_spec();
    let (rings, latest) = watch::channel(Arc::new(of(&spec)));
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(1)).await;
    spec["resources"].as_array_mut().unwrap().push(json!({"group": "no.example.com", "resource": "things"}));
    spec["drainDeadlineSeconds"] = json!(20);
    let edited = of(&spec);
    for (snapshot, times) in [
        (waiting(&edited, "no.example.com", "things"), 1),
        (edited.clone(), 1),
        // What is served, and given to nobody until its fence stands.
        (waiting(&edited, "", "configmaps"), 1),
        (edited, 2),
    ] {
        rings.send_replace(Arc::new(snapshot));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(begun(), times);
    }
    task.abort();
}

/// From the first newcomer of a roll to its end, in the sharder's own work.
#[tokio::test(start_paused = true)]
async fn while_shards_are_replaced_objects_stay_where_they_are_and_come_home_after() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let of = |replaced: &[&str]| {
        let snapshot = snapshot_of(&ring(&example_spec()), &[("a", Ready), ("b", Ready)]);
        let outgoing: Vec<_> = replaced.iter().map(|shard| shard.parse().unwrap()).collect();
        let members = snapshot.members.clone().replacing(outgoing);
        Arc::new(with_members(snapshot, members))
    };
    let only = Arc::new(snapshot_of(&ring(&example_spec()), &[("a", Ready)]));
    let [of_a, of_b] = ["a", "b"].map(|shard| crate::assign::tests::name_of(shard, &scope));
    api.put(&path(CONFIG_MAPS, &of_b), object(&scope, &of_b, Some("a")));
    let (shards, latest) = watch::channel(only);
    api.intercept(|asked, _| asked.query.contains("sendInitialEvents").then_some(StatusCode::UNPROCESSABLE_ENTITY));
    let task = start(&api, latest);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The newcomer is `b`, and `a` is to be replaced.
    shards.send_replace(of(&["a"]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    api.put(&path(CONFIG_MAPS, &of_a), object(&scope, &of_a, None));
    tokio::time::sleep(Duration::from_secs(70)).await;
    let labels = |name: &str| api.get(&path(CONFIG_MAPS, name)).unwrap()["metadata"]["labels"].clone();
    let RingLabels { shard, drain } = &scope.snapshot.labels;
    assert_eq!((&labels(&of_b)[shard], &labels(&of_b)[drain]), (&json!("a"), &Value::Null), "it stays for now");
    assert_eq!(labels(&of_a)[shard], "b", "what has no owner goes to one that stays");
    // It hangs: all count alike again.
    shards.send_replace(of(&[]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(labels(&of_b)[drain].is_string() && labels(&of_a)[drain].is_string());
    task.abort();
}

/// A shard that says on its Lease that its controller does not work, and later that it does.
#[tokio::test(start_paused = true)]
async fn objects_leave_a_shard_whose_controller_is_absent_and_come_home_when_it_works() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let of = |controllers: [_; 2]| {
        Arc::new(with_controllers(&ring(&example_spec()), &[("a", controllers[0]), ("b", controllers[1])]))
    };
    let name = crate::assign::tests::name_of("b", &scope);
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, Some("b")));
    api.intercept(|asked, _| asked.query.contains("sendInitialEvents").then_some(StatusCode::UNPROCESSABLE_ENTITY));
    let (shards, latest) = watch::channel(of([Working, Working]));
    let task = start(&api, latest);
    let labels = || api.get(&path(CONFIG_MAPS, &name)).unwrap()["metadata"]["labels"].clone();
    let RingLabels { shard, drain } = &scope.snapshot.labels;
    let after = async |controllers| {
        shards.send_replace(of(controllers));
        tokio::time::sleep(Duration::from_secs(30)).await;
        (labels()[shard].clone(), labels()[drain].is_string())
    };
    assert_eq!(after([Absent, Absent]).await, (json!("b"), false), "nobody works elsewhere");
    assert_eq!(after([Working, Absent]).await, (json!("b"), true));
    // Its proxy acknowledges: nothing that it passed is about the object.
    api.put(&path(CONFIG_MAPS, &name), object(&scope, &name, None));
    assert_eq!(after([Working, Absent]).await, (json!("a"), false));
    assert_eq!(after([Working, Working]).await, (json!("a"), true));
    task.abort();
}

/// Whether its last shard goes while the ring has a leader, or was gone before.
#[tokio::test(start_paused = true)]
async fn what_left_a_ring_without_shards_loses_its_labels_at_once_and_the_rest_stays_as_it_is() {
    for goes in [true, false] {
        let api = FakeApi::default();
        let scope = scope(&api);
        let of = |state| Arc::new(snapshot_of(&ring(&example_spec()), &[("gone", state)]));
        let elsewhere = "/api/v1/namespaces/stays/configmaps/o".to_owned();
        let mut stays = object(&scope, "o", Some("gone"));
        stays["metadata"]["namespace"] = json!("stays");
        api.put(&elsewhere, stays.clone());
        api.put(&path(CONFIG_MAPS, "o"), object(&scope, "o", Some("gone")));
        api.put(&path(SECRETS, "c"), owned(object(&scope, "c", Some("gone")), "o"));
        let namespaces = known(&api, &[("default", "another"), ("stays", "project")]);
        let (shards, latest) = watch::channel(of(if goes { Ready } else { Dead }));
        let task = start_in(namespaces, &api, latest);
        let labels = |path: &str| api.get(path).unwrap()["metadata"]["labels"].clone();
        if goes {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(
                labels(&path(CONFIG_MAPS, "o"))[&scope.snapshot.labels.drain].is_string(),
                "its shard is asked first"
            );
            shards.send_replace(of(Dead));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for path in [path(CONFIG_MAPS, "o"), path(SECRETS, "c")] {
            assert_eq!(labels(&path), json!({}), "{path}, goes: {goes}");
        }
        assert_eq!(labels(&elsewhere), stays["metadata"]["labels"]);
        // Once a period all are looked through, and no more is done to them.
        let (writes, looked) = (api.writes().len(), passes(&api));
        tokio::time::sleep(Duration::from_secs(150)).await;
        assert_eq!((api.writes().len(), passes(&api)), (writes, looked + 2), "goes: {goes}");
        task.abort();
    }
}
