//! R: the JSON patches a second that an API server takes with nothing else going on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use ringside_e2e::{
    control_plane::{ControlPlane, client_of},
    system::NAMESPACE,
};
use serde_json::json;

use super::objects::root;
use crate::processes::cpu_time;

/// How many connections write at once.
pub const CONNECTIONS: usize = 32;

/// What bare patches cost.
#[derive(Clone, Copy, Debug)]
pub struct Bare {
    /// R.
    pub per_second: f64,
    /// Processor time of the API server for each.
    pub api_server: Duration,
}

impl Bare {
    /// Patches labels of the first so many objects for this time.
    pub(super) async fn measure(control_plane: &ControlPlane, objects: usize, time: Duration) -> anyhow::Result<Self> {
        let api_server = control_plane.api_server().context("no API server runs")?.id();
        let path = control_plane.kubeconfig_path();
        // A client of each: connections of one client may be shared.
        let clients = try_join_all((0..CONNECTIONS).map(|_| client_of(&path))).await?;
        let (used, begin) = (cpu_time(api_server)?, Instant::now());
        let objects = Arc::new((0..objects).map(root).collect::<Vec<_>>());
        let writers = clients
            .into_iter()
            .enumerate()
            .map(|(number, client)| tokio::spawn(write(client, Arc::clone(&objects), number, begin + time)));
        let mut patches = 0;
        for written in try_join_all(writers).await? {
            patches += written?;
        }
        let (took, used) = (begin.elapsed(), cpu_time(api_server)?.saturating_sub(used));
        let count = f64::from(patches).max(1.0);
        Ok(Self { per_second: count / took.as_secs_f64(), api_server: used.div_f64(count) })
    }
}

async fn write(client: Client, objects: Arc<Vec<String>>, writer: usize, until: Instant) -> kube::Result<u32> {
    let api: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let own: Vec<_> = objects.iter().skip(writer).step_by(CONNECTIONS).collect();
    let mut written = 0;
    for name in own.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        // As a move's: it tests what it relies on, and changes a label.
        let patch = json!([
            {"op": "test", "path": "/metadata/labels/app", "value": "bench"},
            {"op": "add", "path": "/metadata/labels/bare", "value": written.to_string()},
        ]);
        let Ok(patch) = serde_json::from_value(patch) else { break };
        api.patch_metadata(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
        written += 1;
    }
    Ok(written)
}
