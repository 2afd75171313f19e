//! What users do to objects.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use ringside_ring::grace::Grace;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::refusals::REFUSED;
use crate::{chaos::run::Run, system::NAMESPACE, website::Website};

/// Within this time an object is gone that was deleted, and the API server knows a policy that is there.
const SOON: Duration = Duration::from_secs(60);

/// Within this time the garbage collector has taken what a gone owner has left, if it knows of that: it looks for resources that
/// are new every 30 s.
const COLLECTED: Duration = Duration::from_secs(40);

/// Deletes objects and makes them again under the same names. Returns how many are others now, once they were worked on:
/// children that are made while no webhook answers wait for the sharder's next pass (docs/dev/limits.md).
pub(super) async fn make_again(run: &mut Run, objects: &[usize]) -> Result<usize> {
    let api = run.workload.api(&run.client);
    let mut made = Vec::new();
    for &number in objects {
        let (name, again) = (run.workload.name(number), run.workload.website(number));
        let before = api.get(&name).await?.uid();
        api.delete(&name, &DeleteParams::default()).await?;
        run.until("an object is made again", SOON, || async {
            let created = api.create(&PostParams::default(), &again).await;
            created.map(drop).map_err(|error| error.to_string())
        })
        .await?;
        let again = api.get(&name).await?.uid();
        if again != before {
            made.push((name, before, again));
        }
    }
    let until = Instant::now() + COLLECTED;
    for (name, before, uid) in &made {
        collect(run, until, name, before.as_deref()).await?;
        run.until(&format!("{name} is worked on"), SOON, || is_worked_on(&api, name, uid.as_deref())).await?;
    }
    Ok(made.len())
}

/// Takes what a gone owner has left, where the garbage collector does not: it compares names when its watch comes back,
/// and learns of no owner that is gone if there is another of that name by then. Of the child's own end it learns.
async fn collect(run: &mut Run, until: Instant, name: &str, owner: Option<&str>) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(run.client.clone(), NAMESPACE);
    loop {
        let child = maps.get_opt(name).await?.filter(|child| {
            let mut owners = child.owner_references().iter();
            owners.any(|reference| Some(&*reference.uid) == owner)
        });
        let Some(child) = child else { return Ok(()) };
        if Instant::now() >= until {
            let this = Preconditions { uid: child.uid(), ..Preconditions::default() };
            let delete = DeleteParams { preconditions: Some(this), ..DeleteParams::background() };
            return match maps.delete(name, &delete).await {
                // It was taken just now.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
                deleted => Ok(deleted.map(drop)?),
            };
        }
        run.pass(Instant::now() + Duration::from_millis(200)).await?;
    }
}

/// Whether it is another one than this by now, or its controller has made what belongs to it.
async fn is_worked_on(api: &Api<Website>, name: &str, uid: Option<&str>) -> Result<(), String> {
    let now = api.get(name).await.map_err(|error| error.to_string())?;
    let worked_on = now.status.as_ref().is_some_and(|status| status.observed_generation > 0);
    if worked_on || now.metadata.uid.as_deref() != uid { Ok(()) } else { Err(format!("{:?}", now.metadata.labels)) }
}

/// Takes the shard label off objects and off what belongs to others; of every second object and child both labels. Returns
/// how many of these writes were taken.
pub(super) async fn strip(run: &mut Run, objects: &[usize]) -> Result<usize> {
    let (shard, drain) = (run.labels.shard.clone(), run.labels.drain.clone());
    write(run, objects, move |index| match index % 4 {
        0 | 1 => json!({&shard: null}),
        _ => json!({&shard: null, &drain: null}),
    })
    .await
}

/// Names another shard on objects and on what belongs to others, or an unknown one, and sets a drain. Returns how many
/// of these writes were taken.
pub(super) async fn forge(run: &mut Run, objects: &[usize]) -> Result<usize> {
    let shards: Vec<_> = run.system.shards().map(|shard| shard.name().to_owned()).collect();
    ensure!(!shards.is_empty(), "there is no shard to be named");
    let (shard, drain) = (run.labels.shard.clone(), run.labels.drain.clone());
    write(run, objects, move |index| match index % 3 {
        0 => json!({&shard: &shards[index % shards.len()]}),
        1 => json!({&shard: "nobody"}),
        // With a grace: without one, any client that drops both labels would release it (docs/dev/limits.md).
        _ => json!({&drain: Grace::drain_value("by-hand", Grace::of(Duration::from_secs(1)))}),
    })
    .await
}

/// Writes labels to every second of the objects, and to the children of the others.
async fn write(run: &mut Run, objects: &[usize], labels: impl Fn(usize) -> Value) -> Result<usize> {
    let owners = run.workload.api(&run.client);
    let children: Api<ConfigMap> = Api::namespaced(run.client.clone(), NAMESPACE);
    until_protected(run, &owners).await?;
    let mut taken = 0;
    for (index, &number) in objects.iter().enumerate() {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels(index)}}));
        let (name, params) = (run.workload.name(number), PatchParams::default());
        if index % 2 == 0 {
            owners.patch(&name, &params, &patch).await?;
        } else {
            match children.patch(&name, &params, &patch).await {
                // Its owner was made a moment ago, or an API server goes on by a policy of another fault that is over.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.message.contains(REFUSED) => continue,
                patched => drop(patched?),
            }
        }
        taken += 1;
    }
    Ok(taken)
}

/// Waits until the API server puts labels back: where it does not, whose an object is is up to who writes its labels.
async fn until_protected(run: &mut Run, api: &Api<Website>) -> Result<()> {
    let (shard, name) = (run.labels.shard.clone(), run.workload.name(0));
    let strip = Patch::Merge(json!({"metadata": {"labels": {&shard: null}}}));
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    run.until("the API server puts labels back", SOON, || async {
        let stripped = api.patch(&name, &tried, &strip).await.map_err(|error| error.to_string())?;
        if stripped.labels().contains_key(&shard) { Ok(()) } else { Err("it does not".to_owned()) }
    })
    .await
}
