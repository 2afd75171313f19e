//! Takes a ring off the cluster when no sharder does, or looks whether one did.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::TryFutureExt as _;
use kube::{Api, Client, api::DeleteParams, discovery::verbs};
use ringside_ring::{Ring, RingLabels, RingName, cluster_ring::GroupResource};
use ringside_runtime::{
    discovery::{self, LookUpError, Served},
    explain::{code, explain},
};
use tokio::time::{Instant, sleep};

use super::report::Report;
use crate::{
    cleanup::{
        self, Scope, Tallies, Tally, belongings, lease,
        templates::{self, Holder},
    },
    resources::{self, Resource},
    writes::Writes,
};

/// How long a ring may take to go: it does at once, but for finalizers that others set.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const GONE_INTERVAL: Duration = Duration::from_millis(200);
/// The user waits for the end, and can repeat the command.
const ATTEMPTS: usize = 3;

/// What is to be cleaned up.
#[derive(Debug)]
pub struct Cleanup {
    /// The ring.
    pub ring: RingName,
    /// The only resources whose objects are scanned, beside those of a ring that still exists. Where there are none,
    /// all that the API server serves are scanned. Of a ring that is gone these are the resources.
    pub resources: BTreeSet<GroupResource>,
    /// Only says what there is.
    pub dry_run: bool,
}

/// Why nothing was cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// The ring is still there: its sharder would put everything back.
    #[error("can't delete {}, and as long as it is there its sharder puts the labels back: {why}", .ring.titled())]
    Ring {
        /// The ring.
        ring: RingName,
        /// What is in the way.
        why: String,
    },
    /// It is not known which resources there are.
    #[error("can't look up the resources: {0}")]
    Resources(#[from] LookUpError),
}

impl Cleanup {
    /// Takes the ring off, or looks what there is of it.
    ///
    /// # Errors
    /// When it could not begin. What could not be taken off is in the report.
    pub async fn run(self, client: &Client) -> Result<Report, CleanupError> {
        let rings: Api<Ring> = Api::all_with(client.clone(), &self.ring.kind());
        let ring = match rings.get(self.ring.name()).await {
            Ok(ring) => Some(ring),
            // Also where the API server does not know the kind.
            Err(error) if code(&error) == Some(404) => None,
            Err(error) => return Err(self.failed(explain(&error))),
        };
        let own = ring.as_ref().map_or_else(|| self.resources.clone(), resources::concerned);
        let (resources, unknown) = self.look_up(client, &own).await?;
        let mut scope = Scope {
            resources: resources.iter().filter(|resource| own.contains(&resource.id)).cloned().collect(),
            roots: ring.iter().flat_map(|ring| ring.spec.families().into_keys()).collect(),
            ..Scope::default()
        };
        let (mut tallies, templates) = self.survey(client, &resources, ring.is_none(), &mut scope).await;
        tallies.extend(unknown);
        if ring.is_some() && !self.dry_run {
            self.remove_ring(&rings).await?;
        }
        let mut belongings = belongings::remove(client, &self.ring, self.dry_run).await;
        if !self.dry_run {
            let (ring, writes) = (self.ring.clone(), Writes::default());
            let client = client.clone();
            let cleanup = cleanup::Cleanup { client, ring, writes, attempts: ATTEMPTS };
            for (id, end) in cleanup.take_labels_off(&resources, &scope).await {
                let tally = tallies.entry(id).or_default();
                *tally = Tally { found: tally.found, fault: end.fault.or(tally.fault.take()), ..end };
            }
        }
        belongings.extend(lease::remove(client, &self.ring, self.dry_run).await);
        let had_ring = ring.is_some();
        Ok(Report { ring: self.ring, dry_run: self.dry_run, had_ring, belongings, tallies, templates })
    }

    /// Looks at what there is before anything is done: a sharder that still runs takes labels off as well, and a policy puts
    /// some back until the API server has learned that it is gone.
    async fn survey(
        &self,
        client: &Client,
        resources: &[Arc<Resource>],
        infer: bool,
        scope: &mut Scope,
    ) -> (Tallies, Vec<Holder>) {
        let labels = RingLabels::of(&self.ring);
        let (mut tallies, mut found, mut holders) = (Tallies::new(), Vec::new(), Vec::new());
        for resource in resources {
            let look = templates::find(client, &labels, resource)
                .and_then(async |holders| Ok((holders, cleanup::list(client, &labels, resource).await?)));
            match look.await {
                Ok((some, objects)) => {
                    holders.extend(some);
                    found.push((resource.clone(), objects));
                }
                Err(error) => {
                    // What its objects control may be needed as it is.
                    scope.resources.retain(|one| one.id != resource.id);
                    tallies.entry(resource.id.clone()).or_default().fault = Some(explain(&error));
                }
            }
        }
        scope.holders = holders.iter().map(|holder| holder.uid.clone()).collect();
        if infer {
            scope.infer(&found);
        }
        for (resource, objects) in found {
            tallies.entry(resource.id.clone()).or_default().take_in((&resource, scope), objects);
        }
        // What another one of them makes is mended with that.
        holders.retain(|holder| holder.controller.as_ref().is_none_or(|uid| !scope.holders.contains(uid)));
        (tallies, holders)
    }

    fn failed(&self, why: String) -> CleanupError {
        CleanupError::Ring { ring: self.ring.clone(), why }
    }

    /// It goes first: proxies without ring refuse everything, and sharders put nothing back.
    async fn remove_ring(&self, rings: &Api<Ring>) -> Result<(), CleanupError> {
        match rings.delete(self.ring.name(), &DeleteParams::background()).await {
            Ok(_) => {}
            Err(error) if code(&error) == Some(404) => return Ok(()),
            Err(error) => return Err(self.failed(explain(&error))),
        }
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            match rings.get(self.ring.name()).await {
                Err(error) if code(&error) == Some(404) => return Ok(()),
                Err(error) => return Err(self.failed(explain(&error))),
                Ok(ring) if Instant::now() > deadline => {
                    return Err(self.failed(format!("its finalizers {:?} keep it", ring.metadata.finalizers)));
                }
                Ok(_) => sleep(GONE_INTERVAL).await,
            }
        }
    }

    /// Returns the resources to scan, `own` among them, and those of which nothing is known.
    async fn look_up(
        &self,
        client: &Client,
        own: &BTreeSet<GroupResource>,
    ) -> Result<(Vec<Arc<Resource>>, Tallies), CleanupError> {
        let (mut found, mut unknown) = (Vec::new(), Tallies::new());
        let mut fault = |id: GroupResource, error: String| {
            unknown.insert(id, Tally { fault: Some(error), ..Tally::default() });
        };
        for name in self.resources.union(own).filter(|_| !self.resources.is_empty()) {
            match discovery::resource(client, name).await {
                Ok(served) => found.push(resource(name.clone(), served)),
                Err(error) => fault(name.clone(), error.to_string()),
            }
        }
        if !self.resources.is_empty() {
            return Ok((found, unknown));
        }
        for name in discovery::groups(client).await? {
            let whole = |error: &LookUpError| {
                (GroupResource { group: name.clone(), resource: "*".to_owned() }, error.to_string())
            };
            match discovery::group(client, &name).await {
                Ok(group) => {
                    let (served, silent) = group.all();
                    if let Some((id, error)) = silent.map(whole) {
                        fault(id, error);
                    }
                    // What can't be listed and patched has no labels that a sharder has set.
                    let usable = served.into_iter().filter(|it| it.supports(&[verbs::LIST, verbs::PATCH]));
                    found.extend(usable.map(|it| {
                        resource(GroupResource { group: name.clone(), resource: it.api.plural.clone() }, it)
                    }));
                }
                Err(error) => {
                    let (id, error) = whole(&error);
                    fault(id, error);
                }
            }
        }
        Ok((found, unknown))
    }
}

fn resource(id: GroupResource, served: Served) -> Arc<Resource> {
    Arc::new(Resource::new(id, served.api, served.namespaced))
}
