//! Decisions from all objects, by replicas that each see their share.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
};
use ringside_e2e::{control_plane::client_of, eventually::eventually, website::Website};
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

pub(super) async fn decisions(world: &World) {
    let (mut seen, mut given, mut holders) = (Vec::new(), Vec::new(), BTreeSet::new());
    let [one, other] = world.shards();
    for (shard, another) in [(one, other), (other, one)] {
        let websites = through(shard).await;
        let all = names(&websites, &ListParams::default()).await;
        assert!((1..OBJECTS).contains(&all.len()), "{} sees {} of {OBJECTS}", shard.name(), all.len());
        // It hands out the lowest number that it sees free.
        let number = first_free(&websites).await;
        merge(&websites, &all[0], json!({"metadata": {"annotations": {NUMBER: number.to_string()}}})).await;
        given.push(number);
        // A Service leads to each of the replicas by chance, of which each believes to lead.
        holders.insert(holder(&through(shard).await).await);
        let foreign = world.owned(another).await.remove(1);
        assert!(websites.get_opt(&foreign).await.unwrap().is_none(), "{} finds {foreign}", shard.name());
        // A webhook in the controller's pod, which refuses a second object of a host, lets that through.
        let host = format!("www.{}.example.com", shard.name());
        merge(&world.websites(), &foreign, json!({"metadata": {"labels": {HOST: host}}})).await;
        let by_label = ListParams::default().labels(&format!("{HOST}={host}"));
        let by_field = ListParams::default().fields(&format!("metadata.name={foreign}"));
        for selected in [by_label, by_field] {
            assert_eq!(names(&websites, &selected).await, [""; 0]);
            assert_eq!(names(&world.websites(), &selected).await, [&*foreign], "a live read past the proxy finds it");
        }
        seen.extend(all);
    }
    // Each object is in one of both lists.
    seen.sort_unstable();
    assert_eq!(seen, names(&world.websites(), &ListParams::default()).await);
    assert_eq!(given, [1, 1], "one of the shards saw the number of the other");
    // An allocator without the sidecar sees all.
    assert_eq!(first_free(&world.websites()).await, 2);
    assert_eq!(holders.len(), 2, "{holders:?}");
    assert_eq!(holder(&Api::namespaced(world.client(), NAME)).await, format!("ringside-{NAME}"));
}

/// The lowest number that none of the objects has which are seen.
async fn first_free(websites: &Api<Website>) -> u32 {
    let all = websites.list(&ListParams::default()).await.unwrap();
    let taken: BTreeSet<u32> = all.iter().filter_map(|one| one.annotations().get(NUMBER)?.parse().ok()).collect();
    (1..).find(|number| !taken.contains(number)).unwrap()
}

/// A lock where the proxies answer no election.
pub(super) async fn lock_elsewhere(world: &World) {
    let [one, other] = world.shards();
    for (shard, takes) in [(one, true), (other, false)] {
        let leases: Api<Lease> = Api::namespaced(client_of(&shard.kubeconfig()).await.unwrap(), ELSEWHERE);
        let spec = json!({"holderIdentity": shard.name(), "leaseDurationSeconds": 15});
        let lock = serde_json::from_value(json!({"metadata": {"name": SINGLETON}, "spec": spec})).unwrap();
        let created = leases.create(&PostParams::default(), &lock).await;
        assert_eq!(created.is_ok(), takes, "{}: {created:?}", shard.name());
        let held = leases.get(SINGLETON).await.unwrap().spec.unwrap();
        assert_eq!(held.holder_identity.as_deref(), Some(one.name()));
    }
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
