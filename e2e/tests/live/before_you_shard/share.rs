//! Decisions from all objects, by replicas that each see their share.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{control_plane::client_of, eventually::eventually, system::Shard, website::Website};
use serde_json::json;

use super::{DEADLINE, NAME, OBJECTS, World, merge, names, through};

/// Where an object has the number that it was given.
const NUMBER: &str = "example.com/number";
/// A label by which a webhook looks for objects of the same host.
const HOST: &str = "example.com/host";
/// The operator's lock.
const LOCK: &str = "website-operator";
/// A lock of what is to be done once, and not once a replica.
const SINGLETON: &str = "before-you-shard-singleton";
/// Where it is.
const ELSEWHERE: &str = "default";

pub(super) async fn pool(world: &World) {
    let (mut seen, mut given) = (Vec::new(), Vec::new());
    for shard in world.shards() {
        let websites = through(shard).await;
        let all = names(&websites, &ListParams::default()).await;
        assert!((1..OBJECTS).contains(&all.len()), "{} sees {} of {OBJECTS}", shard.name(), all.len());
        let number = first_free(&websites).await;
        merge(&websites, &all[0], json!({"metadata": {"annotations": {NUMBER: number.to_string()}}})).await;
        given.push(number);
        seen.extend(all);
    }
    // Each object is in one of both lists.
    seen.sort_unstable();
    assert_eq!(seen, names(&world.websites(), &ListParams::default()).await);
    assert_eq!(given, [1, 1], "one of the shards saw the number of the other");
    // An allocator without the sidecar sees all.
    assert_eq!(first_free(&world.websites()).await, 2);
}

/// The lowest number that none of the objects has which are seen.
async fn first_free(websites: &Api<Website>) -> u32 {
    let all = websites.list(&ListParams::default()).await.unwrap();
    let taken: BTreeSet<u32> = all.iter().filter_map(|one| one.annotations().get(NUMBER)?.parse().ok()).collect();
    (1..).find(|number| !taken.contains(number)).unwrap()
}

/// A webhook runs in the controller's pod, and refuses a second object of a host.
pub(super) async fn webhook(world: &World) {
    let [one, other] = world.shards();
    let (first, asked) = (world.owned(one).await.remove(1), through(other).await);
    let host = json!({"metadata": {"labels": {HOST: "www.example.com"}}});
    merge(&world.websites(), &first, host).await;
    let by_label = ListParams::default().labels(&format!("{HOST}=www.example.com"));
    let by_field = ListParams::default().fields(&format!("metadata.name={first}"));
    for selected in [by_label, by_field] {
        assert_eq!(names(&asked, &selected).await, [""; 0], "it would be let through");
        assert_eq!(names(&world.websites(), &selected).await, [&*first], "a live read past the proxy finds it");
    }
}

pub(super) async fn leaders(world: &World) {
    let mut holders = BTreeSet::new();
    let [one, other] = world.shards();
    for (shard, another) in [(one, other), (other, one)] {
        holders.insert(holder(&through(shard).await).await);
        // A Service leads to each of the replicas by chance.
        let foreign = world.owned(another).await.remove(0);
        assert_eq!(finds(shard, &foreign).await, None, "{} finds {foreign}", shard.name());
        assert_eq!(finds(another, &foreign).await, Some(foreign));
    }
    assert_eq!(holders.len(), 2, "each believes to lead: {holders:?}");
    let real = holder(&Api::namespaced(world.client(), NAME)).await;
    assert_eq!(real, format!("ringside-{NAME}"));
}

/// A lock where the proxies answer no election.
pub(super) async fn lock_elsewhere(world: &World) {
    let [one, other] = world.shards();
    for (shard, takes) in [(one, true), (other, false)] {
        let leases: Api<Lease> = Api::namespaced(client_of(&shard.kubeconfig()).await.unwrap(), ELSEWHERE);
        let created = leases.create(&PostParams::default(), &lock(shard)).await;
        assert_eq!(created.is_ok(), takes, "{}: {created:?}", shard.name());
        let held = leases.get(SINGLETON).await.unwrap().spec.unwrap();
        assert_eq!(held.holder_identity.as_deref(), Some(one.name()));
    }
}

/// A lock as client-go writes it, held by this shard.
fn lock(shard: &Shard) -> Lease {
    let now = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec {
        holder_identity: Some(shard.name().to_owned()),
        lease_duration_seconds: Some(15),
        acquire_time: now.clone(),
        renew_time: now,
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { name: Some(SINGLETON.to_owned()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(spec) }
}

/// Who holds the lock, from this view.
async fn holder(leases: &Api<Lease>) -> String {
    let held = eventually("there is a leader", DEADLINE, || async {
        let lock = leases.get(LOCK).await.map_err(|error| error.to_string())?;
        let holder = lock.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
        holder.ok_or_else(|| "the lock has no holder".to_owned())
    });
    held.await.unwrap()
}

async fn finds(shard: &Shard, name: &str) -> Option<String> {
    through::<Website>(shard).await.get_opt(name).await.unwrap().map(|found| found.name_any())
}
