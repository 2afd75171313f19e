//! Replicas of the sharder that end, or reach the API server in another way.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use ringside_ring::lease::holder;

use super::{Sharder, System, SystemError, sharder, shards::take};
use crate::{eventually::eventually, relay::Relay};

impl System {
    /// Starts a replica of the sharder that reaches the API server by a relay before it, and waits until it is ready.
    pub async fn add_relayed_sharder(&mut self, relay: &Relay) -> Result<(), SystemError> {
        let plane = self.plane_mut();
        plane.start_sharder(Some(relay)).await?;
        plane.start_sharders(plane.sharders.len()).await
    }

    /// Ends a replica of the sharder gracefully; its Pod stays.
    pub async fn stop_sharder(&mut self, name: &str) -> Result<(), SystemError> {
        Ok(take(&mut self.plane_mut().sharders, name, Sharder::name)?.process().stop().await?)
    }

    /// Kills a replica of the sharder (SIGKILL); its Pod stays.
    pub async fn kill_sharder(&mut self, name: &str) -> Result<(), SystemError> {
        Ok(take(&mut self.plane_mut().sharders, name, Sharder::name)?.process().end().await?)
    }

    /// The replica that leads, by the Lease of the election, once there is one.
    pub async fn leading_sharder(&self, within: Duration) -> Result<String, SystemError> {
        let leases: Api<Lease> = Api::namespaced(self.control_plane().client(), sharder::NAMESPACE);
        let leading = eventually("a replica leads", within, || async {
            let lease = leases.get("ringside-sharder").await.map_err(|error| error.to_string())?;
            let holder = holder(lease.spec.as_ref()).ok_or("nobody does")?;
            holder.split_once('_').map(|(name, _)| name.to_owned()).ok_or_else(|| holder.to_owned())
        });
        Ok(leading.await?)
    }
}
