//! A ring with many objects, and what happens to it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, ListParams, ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use ringside_e2e::{
    eventually::eventually,
    plain_shard::{Acknowledger, PlainShard, join_all},
    system::{NAMESPACE, RING, Settings, System},
};
use ringside_ring::{ClusterRing, HashRing, PartitionKey, RingLabels, RingName, ShardName};
use serde_json::json;

use super::{
    make::Make,
    meter::{Cost, Meter, Phase},
};

/// The contract's own.
const LEASE: Duration = Duration::from_secs(15);
/// Of a phase; 100,000 objects take minutes.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// Requests at once while objects are created.
const CREATES: usize = 16;
/// A page of what is looked at in the end.
const PAGE: u32 = 5_000;
/// How long the sharder is looked at before it has anything to do.
const REST: Duration = Duration::from_secs(10);

/// The names of shards.
type Living = Arc<Mutex<BTreeSet<String>>>;

/// A ring, its shards, and its objects.
pub struct Ground {
    // Dropped in this order.
    shards: Vec<PlainShard>,
    /// Those of them that let go.
    living: Living,
    _acknowledger: Acknowledger,
    meter: Meter,
    make: Make,
    objects: usize,
    ring: RingName,
    labels: RingLabels,
    system: System,
}

impl Ground {
    /// With so many objects without owner, and so many shards, but without the ring.
    pub async fn start(make: Make, objects: usize, shards: usize) -> anyhow::Result<Self> {
        let settings = Settings { audit_requests: true, ..Settings::default() };
        let mut system = System::start(settings).await?;
        let client = system.control_plane().client();
        create(&client, objects).await?;
        make.start(&mut system, RING).await?;
        let ring: RingName = RING.parse()?;
        let labels = RingLabels::of(&ring);
        let names = (0..shards).map(name).collect::<Result<Vec<_>, _>>()?;
        let shards = join_all(&client, NAMESPACE, &ring, names, LEASE).await?;
        let living: Living = Arc::new(Mutex::new(shards.iter().map(|shard| shard.name().to_string()).collect()));
        let among = Arc::clone(&living);
        let lets_go = move |shard: &str| among.lock().contains(shard);
        let acknowledger = Acknowledger::start(&client, &labels, &ApiResource::erase::<ConfigMap>(&()), lets_go);
        let meter = Meter::of(make, &system)?;
        Ok(Self { shards, living, _acknowledger: acknowledger, meter, make, objects, ring, labels, system })
    }

    /// Nothing happens.
    pub async fn rest(&mut self) -> anyhow::Result<Cost> {
        let phase = self.meter.begin()?;
        tokio::time::sleep(REST).await;
        self.meter.end(phase).await
    }

    /// The ring comes, and every object gets an owner.
    pub async fn assign(&mut self) -> anyhow::Result<(usize, Cost)> {
        let phase = self.meter.begin()?;
        let spec = json!({"resources": [{"group": "", "resource": "configmaps"}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}});
        let ring = ClusterRing::new(RING, serde_json::from_value(spec)?);
        Api::<ClusterRing>::all(self.client()).create(&PostParams::default(), &ring).await?;
        self.end(phase, self.objects).await
    }

    /// One shard more.
    pub async fn join(&mut self) -> anyhow::Result<(usize, Cost)> {
        let before = self.names();
        let joining = name(before.len())?;
        let phase = self.meter.begin()?;
        let shard = PlainShard::join(&self.client(), NAMESPACE, &self.ring, &joining, LEASE).await?;
        self.shards.push(shard);
        self.living.lock().insert(joining.to_string());
        let given = self.belongs_to(&joining);
        let own = format!("{}={joining}", self.labels.shard);
        self.until(&format!("{joining} has its {given} objects"), async || {
            let there = self.count(&own).await?;
            if there == given { Ok(()) } else { Err(format!("{there} of {given}")) }
        })
        .await?;
        self.end(phase, given).await
    }

    /// One lets go of its Lease.
    pub async fn leave(&mut self) -> anyhow::Result<(usize, Cost)> {
        let (shard, given) = self.take_last()?;
        let phase = self.meter.begin()?;
        shard.release().await?;
        self.end(phase, given).await
    }

    /// One stops renewing its Lease. What it takes until the sharder knows is not counted.
    pub async fn die(&mut self) -> anyhow::Result<(usize, Cost)> {
        let (shard, given) = self.take_last()?;
        drop(shard);
        self.system.until_counted_are(self.shards.len(), DEADLINE).await?;
        let phase = self.meter.begin()?;
        self.end(phase, given).await
    }

    /// The shard that goes, which lets go of nothing any more, and how many objects belong to it.
    fn take_last(&mut self) -> anyhow::Result<(PlainShard, usize)> {
        let given = self.belongs_to(self.shards.last().context("no shard")?.name());
        let shard = self.shards.pop().context("no shard")?;
        self.living.lock().remove(shard.name().as_str());
        Ok((shard, given))
    }

    /// A phase in which so many objects got an owner ends when nothing is left to do; then each is looked at.
    async fn end(&mut self, phase: Phase, given: usize) -> anyhow::Result<(usize, Cost)> {
        self.until_at_rest().await?;
        let cost = self.meter.end(phase).await?;
        self.check().await?;
        Ok((given, cost))
    }

    fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    fn names(&self) -> Vec<ShardName> {
        self.shards.iter().map(|shard| shard.name().clone()).collect()
    }

    fn placement(&self) -> HashRing {
        HashRing::new(self.names(), self.make.tokens())
    }

    /// How many objects belong to a shard.
    fn belongs_to(&self, shard: &ShardName) -> usize {
        let placement = self.placement();
        (0..self.objects).filter(|&object| placement.owner(&key(&object_name(object))) == Some(shard)).count()
    }

    /// Waits until nobody has anything that is not one of the shards', and nothing is on the move.
    async fn until_at_rest(&self) -> anyhow::Result<()> {
        let names: Vec<_> = self.shards.iter().map(|shard| shard.name().as_str()).collect();
        let unowned = format!("{} notin ({})", self.labels.shard, names.join(","));
        self.until("every object has an owner", async || {
            for selector in [&unowned, &self.labels.drain] {
                let some = self.objects().list_metadata(&ListParams::default().labels(selector).limit(1)).await;
                if !some.map_err(|error| error.to_string())?.items.is_empty() {
                    return Err(selector.clone());
                }
            }
            Ok(())
        })
        .await
    }

    async fn until(&self, what: &str, reached: impl AsyncFn() -> Result<(), String>) -> anyhow::Result<()> {
        Ok(eventually(what, DEADLINE, || reached()).await?)
    }

    fn objects(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    async fn count(&self, selector: &str) -> Result<usize, String> {
        let found = self.objects().list_metadata(&ListParams::default().labels(selector)).await;
        Ok(found.map_err(|error| error.to_string())?.items.len())
    }

    /// Each object is where the hash ring says.
    async fn check(&self) -> anyhow::Result<()> {
        let placement = self.placement();
        let (mut seen, mut page) = (0, ListParams::default().limit(PAGE));
        loop {
            let found = self.objects().list_metadata(&page).await?;
            for object in found.items.iter().filter(|object| object.name_any().starts_with(OBJECT)) {
                seen += 1;
                let owner = self.labels.ownership(object.metadata.labels.as_ref()).shard;
                let expected = placement.owner(&key(&object.name_any()));
                ensure!(owner == expected.map(ShardName::as_str), "{} is with {owner:?}", object.name_any());
            }
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => break,
            }
        }
        ensure!(seen == self.objects, "{seen} of {} objects", self.objects);
        Ok(())
    }
}

const OBJECT: &str = "object-";

fn object_name(number: usize) -> String {
    format!("{OBJECT}{number:06}")
}

fn key(name: &str) -> PartitionKey {
    PartitionKey::of("", "ConfigMap", NAMESPACE, name)
}

fn name(number: usize) -> Result<ShardName, ringside_ring::name::InvalidName> {
    format!("shard-{number}").parse()
}

async fn create(client: &Client, objects: usize) -> anyhow::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let creates = stream::iter(0..objects).map(|number| {
        let metadata = ObjectMeta { name: Some(object_name(number)), ..ObjectMeta::default() };
        let (api, object) = (api.clone(), ConfigMap { metadata, ..ConfigMap::default() });
        async move { api.create(&PostParams::default(), &object).await.map(drop) }
    });
    Ok(creates.buffer_unordered(CREATES).try_collect().await?)
}
