//! Objects, and steady changes to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    eventually::eventually,
    system::NAMESPACE,
    website::{Website, WebsiteSpec},
};

/// After so long a change is left, where the next one is to be made whatever comes of it.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// An operator that has put finalizers on objects takes them off before that.
const GONE_DEADLINE: Duration = Duration::from_secs(60);

/// Requests in flight while all objects are created or changed.
const CONCURRENT_WRITES: usize = 8;

/// How the objects are worked on.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The namespace of the objects.
    pub namespace: String,
    /// What the objects' names begin with. Not twice in a cluster: children of a deleted object are in the way of a new
    /// one of that name until the garbage collector, which looks for new resources twice a minute, has found them.
    pub prefix: &'static str,
    /// How many objects there are.
    pub objects: usize,
    /// How long each reconcile works, at least.
    pub work: Duration,
    /// The time between two changes.
    pub interval: Duration,
    /// What decides which object is changed when.
    pub seed: u64,
}

/// Changes objects until it is stopped, or dropped.
#[derive(Debug)]
pub struct Updates {
    changing: AbortOnDropHandle<kube::Result<()>>,
    made: Arc<AtomicUsize>,
}

/// The time between changes of objects that no client is meant to change.
const SELDOM: Duration = Duration::from_secs(3600);

impl Workload {
    /// Objects in the systems' namespace that are worked on in no time, and that no client changes.
    #[must_use]
    pub fn idle(prefix: &'static str, objects: usize) -> Self {
        let namespace = NAMESPACE.to_owned();
        Self { namespace, prefix, objects, work: Duration::ZERO, interval: SELDOM, seed: 0 }
    }

    /// The same in another namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Creates the objects.
    pub async fn create(&self, client: &Client) -> kube::Result<()> {
        let (api, params) = (&self.api(client), &PostParams::default());
        self.each(|index| async move { api.create(params, &self.website(index)).await }).await.map(drop)
    }

    /// Deletes all objects, and waits until they are gone.
    pub async fn delete(&self, client: &Client) -> anyhow::Result<()> {
        let (api, all) = (self.api(client), ListParams::default());
        api.delete_collection(&DeleteParams::default(), &all).await?;
        let gone = eventually("all objects are gone", GONE_DEADLINE, || async {
            let left = api.list_metadata(&all).await.map_err(|error| error.to_string())?.items.len();
            if left == 0 { Ok(()) } else { Err(format!("{left} are there")) }
        });
        Ok(gone.await?)
    }

    /// Deletes all ConfigMaps and Secrets beside the objects: no garbage collector need be there for their children.
    pub async fn delete_children(&self, client: &Client) -> kube::Result<()> {
        let (params, all, namespace) = (DeleteParams::default(), ListParams::default(), &self.namespace);
        Api::<ConfigMap>::namespaced(client.clone(), namespace).delete_collection(&params, &all).await?;
        Api::<Secret>::namespaced(client.clone(), namespace).delete_collection(&params, &all).await.map(drop)
    }

    /// Changes each object once, to a new generation, and returns what was written.
    pub async fn change_all(&self, client: &Client) -> kube::Result<Vec<Website>> {
        let api = &self.api(client);
        self.each(|index| async move { change(api, &self.name(index), "the last change").await }).await
    }

    async fn each<F>(&self, write: impl Fn(usize) -> F) -> kube::Result<Vec<Website>>
    where
        F: Future<Output = kube::Result<Website>>,
    {
        stream::iter((0..self.objects).map(write)).buffer_unordered(CONCURRENT_WRITES).try_collect().await
    }

    /// Starts to change one object after the other, by chance, each time to a new generation, until one can't be changed.
    pub fn start_updates(&self, client: &Client) -> Updates {
        self.start(client, false)
    }

    /// The same, whatever comes of each change: for an API server that is not there at all times.
    pub fn start_insistent_updates(&self, client: &Client) -> Updates {
        self.start(client, true)
    }

    fn start(&self, client: &Client, insists: bool) -> Updates {
        let (api, workload, made) = (self.api(client), self.clone(), Arc::<AtomicUsize>::default());
        let changing = workload.update(api, insists, made.clone());
        Updates { changing: AbortOnDropHandle::new(tokio::spawn(changing)), made }
    }

    async fn update(self, api: Api<Website>, insists: bool, made: Arc<AtomicUsize>) -> kube::Result<()> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut tick = tokio::time::interval(self.interval);
        if insists {
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        for number in 1_u64.. {
            tick.tick().await;
            let (name, content) = (self.name(random.random_range(0..self.objects)), format!("change {number}"));
            let given_up = if insists { GIVEN_UP } else { Duration::MAX };
            match timeout(given_up, change(&api, &name, &content)).await {
                Ok(Ok(_)) => drop(made.fetch_add(1, Ordering::Relaxed)),
                Ok(Err(error)) if !insists => return Err(error),
                Ok(Err(error)) => tracing::debug!(%error, name, "a change was not made"),
                Err(_) => tracing::debug!(name, "a change was not answered"),
            }
        }
        Ok(())
    }

    /// All of them.
    pub fn api(&self, client: &Client) -> Api<Website> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    /// The name of an object.
    pub fn name(&self, index: usize) -> String {
        format!("{}-{index:05}", self.prefix)
    }

    /// An object, as it is created.
    pub fn website(&self, index: usize) -> Website {
        let work_millis = u32::try_from(self.work.as_millis()).unwrap_or(u32::MAX);
        Website::new(&self.name(index), WebsiteSpec { content: "new".to_owned(), work_millis })
    }
}

impl Updates {
    /// How many changes the API server took.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Stops them; says whether the API server refused one.
    pub async fn stop(self) -> kube::Result<()> {
        self.changing.abort();
        // Aborted is how it ends; anything else is a request that failed before.
        self.changing.await.unwrap_or(Ok(()))
    }
}

async fn change(api: &Api<Website>, name: &str, content: &str) -> kube::Result<Website> {
    let patch = json!({"spec": {"content": content}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
}
