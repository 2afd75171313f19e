//! Controllers that follow their lock by a list and a watch of its one name, as informers do. Each sees what a get of it says:
//! the old leader at first, later nobody but itself, and never the ring, by which it would take itself for beaten.

use std::{collections::BTreeSet, pin::pin};

use futures::{Stream, StreamExt};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    runtime::watcher::{self, Event, watcher},
};
use ringside_e2e::{eventually::eventually, proxy::Proxy};
use tokio::time::{interval, timeout};

use super::{
    fixture::{DEADLINE, Fixture, MIGHTY, NAMESPACE},
    life::{RING, Real},
    programs::LEASE,
};

const LOCK: &str = "followed-lock";

fn lease(holder: &str) -> Lease {
    let now = Some(MicroTime(Timestamp::now()));
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
        acquire_time: now.clone(),
        renew_time: now,
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    let mut lease = Lease { spec: Some(spec), ..Lease::default() };
    lease.metadata.name = Some(LOCK.to_owned());
    lease
}

fn holder(lease: &Lease) -> String {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default()
}

/// A controller in a shard.
struct Follower {
    name: &'static str,
    leases: Api<Lease>,
    _proxy: Proxy,
}

impl Follower {
    async fn start(fixture: &Fixture, name: &'static str) -> Self {
        let proxy = fixture.shard(name, MIGHTY, &[]).await;
        let leases = Api::namespaced(proxy.client().await.unwrap(), NAMESPACE);
        Self { name, leases, _proxy: proxy }
    }

    /// The version of the list of the lock, and the holders in it.
    async fn list(&self) -> (String, Vec<String>) {
        let list = self.leases.list(&ListParams::default().fields(&format!("metadata.name={LOCK}"))).await.unwrap();
        (list.metadata.resource_version.unwrap(), list.items.iter().map(holder).collect())
    }

    async fn watch(&self, version: &str) -> impl Stream<Item = kube::Result<WatchEvent<Lease>>> + use<> {
        let one = WatchParams::default().fields(&format!("metadata.name={LOCK}"));
        self.leases.watch(&one, version).await.unwrap().boxed()
    }

    /// Takes the lock, or renews it.
    async fn hold(&self) {
        let mut held = lease(self.name);
        held.metadata.resource_version = self.leases.get(LOCK).await.unwrap().metadata.resource_version;
        self.leases.replace(LOCK, &PostParams::default(), &held).await.unwrap();
    }

    /// Renews the lock until a reflector of it has seen that, and the ring has renewed the real one; returns whom it saw.
    async fn sees_while_it_renews(&self, config: watcher::Config, real: &Real) -> BTreeSet<String> {
        let mut events = pin!(watcher(self.leases.clone(), config.fields(&format!("metadata.name={LOCK}"))));
        let (mut renew, made) = (interval(LEASE / 5), real.renewed().await);
        let (mut seen, mut renewals) = (BTreeSet::new(), 0);
        while renewals < 2 || real.renewed().await == made {
            tokio::select! {
                _ = renew.tick() => self.hold().await,
                event = events.next() => match event.unwrap().unwrap() {
                    Event::Init | Event::InitDone => {}
                    Event::InitApply(lease) => drop(seen.insert(holder(&lease))),
                    Event::Apply(lease) => {
                        renewals += 1;
                        seen.insert(holder(&lease));
                    }
                    Event::Delete(lease) => panic!("{lease:?}"),
                },
            }
        }
        seen
    }
}

/// What comes next, but for bookmarks.
async fn next(watch: &mut (impl Stream<Item = kube::Result<WatchEvent<Lease>>> + Unpin)) -> WatchEvent<Lease> {
    loop {
        let event = timeout(DEADLINE, watch.next()).await.expect("nothing comes").expect("the watch has ended");
        match event.unwrap() {
            WatchEvent::Bookmark(_) => {}
            event => return event,
        }
    }
}

/// An old leader; then one shard's controller takes the lock, and the other's makes it.
pub(crate) async fn by_one_name(fixture: &Fixture) {
    let client = fixture.control_plane.client();
    Api::namespaced(client, NAMESPACE).create(&PostParams::default(), &lease("old")).await.unwrap();
    let first = Follower::start(fixture, "followed-0").await;
    let second = Follower::start(fixture, "followed-1").await;
    let (mut of_first, mut of_second) = (first.watch("0").await, second.watch("0").await);
    for (shard, watch) in [(&first, &mut of_first), (&second, &mut of_second)] {
        assert_eq!(shard.list().await.1, ["old"]);
        let event = next(watch).await;
        assert!(matches!(&event, WatchEvent::Added(lease) if holder(lease) == "old"), "{event:?}");
    }

    first.hold().await;
    let real = Real::within(fixture, NAMESPACE, LOCK);
    assert_eq!(real.holder().await, RING);
    for watch in [&mut of_first, &mut of_second] {
        let event = next(watch).await;
        assert!(matches!(&event, WatchEvent::Error(status) if status.code == 410), "{event:?}");
        assert!(watch.next().await.is_none());
    }
    assert_eq!(first.list().await.1, [first.name]);
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let seen = first.sees_while_it_renews(config, &real).await;
        assert_eq!(seen, BTreeSet::from([first.name.to_owned()]));
    }

    let (version, holders) = second.list().await;
    assert_eq!(holders, Vec::<String>::new(), "it is there for the taking");
    let mut watch = second.watch(&version).await;
    let made = real.renewed().await;
    let renewed = eventually("the ring renews the lock, of which the second sees nothing", DEADLINE, || async {
        first.hold().await;
        let now = real.renewed().await;
        if now == made { Err(format!("{now:?}")) } else { Ok(()) }
    });
    renewed.await.unwrap();
    second.leases.create(&PostParams::default(), &lease(second.name)).await.unwrap();
    let event = next(&mut watch).await;
    assert!(matches!(&event, WatchEvent::Added(lease) if holder(lease) == second.name), "{event:?}");
    for shard in [&first, &second] {
        assert_eq!(shard.list().await.1, [shard.name]);
    }
    assert_eq!(real.holder().await, RING);
}
