//! The commands `pause` and `resume`: a ring keeps its objects where they are, and moves them again.

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use ringside_ring::{Ring, RingName};
use ringside_runtime::explain::{code, explain};
use serde_json::{Value, json};

use crate::{cluster::Global, output::Said};

/// The arguments of `pause` and of `resume`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The ring.
    ring: RingName,
}

/// Keeps the objects of a ring where they are.
///
/// # Errors
/// When the ring can't be written.
pub async fn pause(global: &Global, Arguments { ring }: &Arguments) -> anyhow::Result<Said> {
    write(&global.connect().await?.client, ring, &json!(true)).await?;
    Ok(Said::good(format!(
        "{ring} is paused: moves under way end, and none begins; new objects are assigned, and those of replicas that are gone taken over; `ringside resume {ring}` ends it"
    )))
}

/// Lets the objects of a ring move again.
///
/// # Errors
/// When the ring can't be written.
pub async fn resume(global: &Global, Arguments { ring }: &Arguments) -> anyhow::Result<Said> {
    // Absent, as it was: what applies the ring's manifest finds nothing of its own changed.
    write(&global.connect().await?.client, ring, &Value::Null).await?;
    Ok(Said::good(format!("{ring} is not paused: objects move to the replicas where they belong")))
}

/// Writes `spec.paused` of a ring.
async fn write(client: &Client, name: &RingName, paused: &Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    let rings = Api::<Ring>::all_with(client.clone(), &name.kind());
    let (titled, plural) = (name.titled(), name.kind().names().plural);
    let written =
        rings.patch(name.name(), &PatchParams::default(), &patch).await.map_err(|error| match code(&error) {
            Some(404) => anyhow::anyhow!("there is no {titled}: `kubectl get {plural}` lists those that there are"),
            _ => anyhow::anyhow!("can't write {titled}: {}", explain(&error)),
        })?;
    // An API server prunes a field that the definition does not have.
    anyhow::ensure!(
        written.spec.paused == paused.as_bool().unwrap_or_default(),
        "{titled} is as it was: its CustomResourceDefinition has no spec.paused; apply that of this version"
    );
    Ok(())
}
