//! The command `cleanup`: takes a ring off the cluster when no sharder does, or looks whether one did.

use std::{sync::Arc, time::Duration};

use kube::{Api, Client, api::DeleteParams, discovery::verbs};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::GroupResource};
use ringside_runtime::{
    client::ConnectError,
    config::Faults,
    discovery::{self, LookUpError, Served},
    explain::{code, explain},
};
use tokio::time::{Instant, sleep};

use super::{of_ring::OfRing, report::Report};
use crate::{
    assign::writes::Writes,
    cleanup::{self, Tallies, Tally, belongings},
    resources::Resource,
};

/// How long a ring may take to go: it does at once, but for finalizers that others set.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// How often that is looked at.
const GONE_INTERVAL: Duration = Duration::from_millis(200);
/// Somebody waits for the end of it, and can start it again.
const ATTEMPTS: usize = 3;

/// The options as they were given.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    of: OfRing,
    /// Looks through the objects of this resource only, as in `websites.example.com`; may be repeated. Without it through
    /// those of all resources that the API server serves.
    #[arg(long = "resource", value_name = "RESOURCE")]
    resources: Vec<String>,
    /// Only says what there is.
    #[arg(long)]
    dry_run: bool,
}

/// What is to be cleaned up.
#[derive(Debug)]
pub struct Cleanup {
    ring: RingName,
    of: OfRing,
    resources: Vec<GroupResource>,
    dry_run: bool,
}

/// Why nothing was cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// It is not known where the API server is.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The ring is still there: its sharder would put everything back.
    #[error("can't delete ClusterRing '{ring}', and as long as it is there its sharder puts the labels back: {why}")]
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

impl Arguments {
    pub(super) fn check(self) -> Result<Cleanup, Faults> {
        let mut faults = Faults::new();
        let ring = self.of.check(&mut faults);
        let parsed = self.resources.iter().map(|name| faults.check("--resource", parse_resource(name)));
        let resources = parsed.collect::<Vec<_>>();
        faults.finish()?;
        // Whatever is missing was noted as a fault.
        let ring = ring.ok_or_else(Faults::new)?;
        let resources = resources.into_iter().flatten().collect();
        Ok(Cleanup { ring, of: self.of, resources, dry_run: self.dry_run })
    }
}

/// As `kubectl` names it: the plural, and the group after a dot.
fn parse_resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    if resource.is_empty() {
        return Err(format!("'{text}' is no resource: write its plural name, and its group after a dot if it has one"));
    }
    Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
}

impl Cleanup {
    /// Takes the ring off, or looks what there is of it.
    ///
    /// # Errors
    /// When it could not begin. What could not be taken off is in the report.
    pub async fn run(self) -> Result<Report, CleanupError> {
        let client = self.of.connect()?;
        let (resources, unknown) = self.look_up(&client).await?;
        let mut tallies = self.count(&client, &resources).await;
        tallies.extend(unknown);
        let had_ring = self.remove_ring(&client).await?;
        let belongings = belongings::remove(&client, &self.ring, self.dry_run).await;
        if !self.dry_run {
            let (ring, writes) = (self.ring.clone(), Writes::default());
            let cleanup = cleanup::Cleanup { client, ring, writes, attempts: ATTEMPTS };
            for (id, end) in cleanup.take_labels_off(&resources).await {
                let tally = tallies.entry(id).or_default();
                *tally = Tally { found: tally.found, ..end };
            }
        }
        Ok(Report { ring: self.ring, dry_run: self.dry_run, had_ring, belongings, tallies })
    }

    /// What there is before anything is done: a sharder that still runs takes labels off as well, and a policy puts some back
    /// until the API server has learned that it is gone.
    async fn count(&self, client: &Client, resources: &[Arc<Resource>]) -> Tallies {
        let labels = RingLabels::of(&self.ring);
        let mut tallies = Tallies::new();
        for resource in resources {
            tallies.insert(resource.id.clone(), cleanup::count(client, &labels, resource).await);
        }
        tallies
    }

    /// Returns whether there was one. It goes first: proxies without ring refuse everything, and sharders put nothing back.
    async fn remove_ring(&self, client: &Client) -> Result<bool, CleanupError> {
        let rings: Api<ClusterRing> = Api::all(client.clone());
        let failed = |why: String| CleanupError::Ring { ring: self.ring.clone(), why };
        if self.dry_run {
            return Ok(rings.get(self.ring.as_str()).await.is_ok());
        }
        match rings.delete(self.ring.as_str(), &DeleteParams::background()).await {
            Ok(_) => {}
            // Also where nobody has heard of ClusterRings.
            Err(error) if code(&error) == Some(404) => return Ok(false),
            Err(error) => return Err(failed(explain(&error))),
        }
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            match rings.get(self.ring.as_str()).await {
                Err(error) if code(&error) == Some(404) => return Ok(true),
                Err(error) => return Err(failed(explain(&error))),
                Ok(ring) if Instant::now() > deadline => {
                    return Err(failed(format!("its finalizers {:?} keep it", ring.metadata.finalizers)));
                }
                Ok(_) => sleep(GONE_INTERVAL).await,
            }
        }
    }

    /// The resources to look through, and those of which nothing is known.
    async fn look_up(&self, client: &Client) -> Result<(Vec<Arc<Resource>>, Tallies), CleanupError> {
        let (mut found, mut unknown) = (Vec::new(), Tallies::new());
        let mut fault = |id: GroupResource, error: String| {
            unknown.insert(id, Tally { fault: Some(error), ..Tally::default() });
        };
        for name in &self.resources {
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
    Arc::new(Resource { id, api: served.api, namespaced: served.namespaced })
}
