//! Replicas of the sharder that end, or reach the API server in another way.

use std::{path::Path, time::Duration};

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

    /// Starts proxies and sharders from these programs from now on.
    pub fn start_from(&mut self, proxy: &Path, sharder: &Path) {
        let programs = &mut self.plane_mut().ringside;
        (programs.proxy, programs.sharder) = (proxy.to_owned(), sharder.to_owned());
    }

    /// Replaces the replicas of the sharder one by one, as a Deployment does: the next one is ready before one ends. The one that
    /// leads is the first to end.
    pub async fn roll_sharders(&mut self, within: Duration) -> Result<(), SystemError> {
        let leader = self.leading_sharder(within).await?;
        let (first, then): (Vec<_>, Vec<_>) =
            self.sharders().map(|it| it.name().to_owned()).partition(|name| *name == leader);
        for name in first.into_iter().chain(then) {
            let replicas = self.plane_mut().sharders.len();
            self.start_sharders(replicas + 1).await?;
            self.stop_sharder(&name).await?;
        }
        Ok(())
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
            let holder = holder(lease.spec.as_ref()).ok_or("none does")?;
            holder.split_once('_').map(|(name, _)| name.to_owned()).ok_or_else(|| holder.to_owned())
        });
        Ok(leading.await?)
    }
}
