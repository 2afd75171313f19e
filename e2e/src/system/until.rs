//! Waiting for a system to come to rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use ringside_ring::Controller;

use super::{System, SystemError};
use crate::{
    checker::Checker,
    eventually::eventually,
    observer::Picture,
    ring_status::{until_available, until_condition},
    workload::Workload,
};

impl System {
    /// Waits until the sharder counts the shards that run, and their Leases say that their operators work. A proxy is ready
    /// before either: what is created in between is placed without it, and moved at once.
    pub async fn until_counted(&self, within: Duration) -> Result<(), SystemError> {
        self.until_counted_are(self.names().len(), within).await?;
        let (client, names) = (self.base.plane.control_plane.client(), self.names());
        let leases: Api<Lease> = Api::namespaced(client, &self.base.place.namespace);
        let working = eventually("the operators of all shards work", within, || async {
            let all = leases.list(&Default::default()).await.map_err(|error| error.to_string())?;
            let mut absent = all.iter().filter(|lease| Controller::of(lease) == Controller::Absent);
            match absent.find(|lease| names.contains(&*lease.name_any())) {
                Some(lease) => Err(format!("not that of {}", lease.name_any())),
                None => Ok(()),
            }
        });
        Ok(working.await?)
    }

    /// Waits until the sharder counts so many shards, whichever they are.
    pub async fn until_counted_are(&self, shards: usize, within: Duration) -> Result<(), SystemError> {
        Ok(until_available(&self.control_plane().client(), &self.base.place.ring, shards, within).await?)
    }

    /// Waits until the ring says that the API server fences it, with all of its shards.
    pub async fn until_fenced(&self, within: Duration) -> Result<(), SystemError> {
        until_condition(&self.control_plane().client(), &self.base.place.ring, "Fenced", "True", within).await?;
        Ok(())
    }

    /// Creates the objects once the sharder counts the shards, and waits until each shard has its share and all of them
    /// were worked on.
    pub async fn share_out(&self, workload: &Workload, within: Duration) -> Result<(), SystemError> {
        self.until_counted(within).await?;
        let created = workload.create(&self.base.plane.control_plane.client()).await;
        created.context("create the objects")?;
        self.until_balanced(within).await?;
        self.until_settled(within).await
    }

    /// Waits until each object is owned by a shard that runs, each shard that runs owns some, and none is on the move.
    pub async fn until_balanced(&self, within: Duration) -> Result<(), SystemError> {
        self.until("balanced", within, |picture, _| {
            let owners: BTreeSet<&str> = picture.owned.keys().map(String::as_str).collect();
            owners == self.names() && picture.draining.is_empty() && picture.unassigned == 0
        })
        .await
    }

    /// Waits until every shard has as many objects as this says, and none is on its way.
    pub async fn until_owned(&self, wanted: &BTreeMap<String, usize>, within: Duration) -> Result<(), SystemError> {
        self.until("owned as before", within, |picture, _| {
            picture.owned == *wanted && picture.draining.is_empty() && picture.unassigned == 0
        })
        .await
    }

    /// Waits until every object has an owner and every generation was worked on.
    pub async fn until_settled(&self, within: Duration) -> Result<(), SystemError> {
        self.until("settled", within, |picture, checker| {
            picture.draining.is_empty() && checker.unowned() == 0 && checker.pending() == 0
        })
        .await
    }

    /// Changes each object once and waits until all of that was worked on. Without it an object whose new owner never
    /// sees it passes: its generations were all worked on before it moved.
    pub async fn until_all_worked_on(&self, workload: &Workload, within: Duration) -> Result<(), SystemError> {
        let changed = workload.change_all(&self.base.plane.control_plane.client()).await;
        for website in changed.context("change the objects")? {
            self.monitor().wrote(&website);
        }
        self.until_settled(within).await
    }

    async fn until(
        &self,
        what: &str,
        within: Duration,
        reached: impl Fn(&Picture, &Checker) -> bool,
    ) -> Result<(), SystemError> {
        let outcome = eventually(what, within, || async {
            if let Err(error) = self.check() {
                return Ok(Err(error));
            }
            let picture = self.monitor().picture();
            self.monitor().judge(|checker| {
                if reached(&picture, checker) {
                    Ok(Ok(()))
                } else {
                    Err(format!(
                        "{picture:?}, {} without owner, {} not worked on",
                        checker.unowned(),
                        checker.pending()
                    ))
                }
            })
        });
        outcome.await?
    }
}
