//! What a ring's sharder would do with its objects, or would if its shards were others. It writes nothing.

use std::{num::NonZeroU32, str::FromStr, sync::Arc};

use kube::{Api, Client};
use ringside_ring::{Controller, Members, Ring, RingName, ShardName, Weight, lease::ShardState, members::Member};
use ringside_runtime::{
    clock::Boottime,
    explain::{code, explain},
};

mod count;
mod forecast;
mod namespaces;
mod scale;
mod text;

pub use self::forecast::Forecast;
use self::{count::count, namespaces::selected};
use crate::{leases::Leases, resources, rolls::Rolls, snapshot::Snapshot};

/// A shard that might be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedShard {
    /// Its name.
    pub name: ShardName,
    /// Its weight.
    pub weight: Weight,
}

impl FromStr for AddedShard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, weight) = text.split_once('=').map_or((text, None), |(name, weight)| (name, Some(weight)));
        let name = name.parse().map_err(|fault: ringside_ring::name::InvalidName| fault.to_string())?;
        let weight = weight.map_or(Ok(Weight::ONE), str::parse).map_err(|fault| fault.to_string())?;
        Ok(Self { name, weight })
    }
}

/// What is to be planned.
#[derive(Debug)]
pub struct Plan {
    /// The ring.
    pub ring: RingName,
    /// What the sharder has.
    pub tokens_per_shard: NonZeroU32,
    /// How many shards take part, with names that are made up where there are more than now.
    pub replicas: Option<usize>,
    /// Shards that would come, or would have another weight.
    pub add: Vec<AddedShard>,
    /// Shards that would go.
    pub remove: Vec<ShardName>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is no such ring.
    #[error("there is no {}: `kubectl get {}` lists those that there are", .0.titled(), .0.kind().names().plural)]
    NoRing(RingName),
    /// What the ring is made of can't be read.
    #[error("can't read {what}: {why}")]
    Read {
        /// What.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// Replicas of which group is not said.
    #[error(
        "the ring has groups of shards, and a number of replicas does not say of which: use --add-shard, which adds one of no group, and --remove-shard"
    )]
    Groups,
    /// There is no such shard to take away.
    #[error("the ring has no shard '{name}' that could be removed; it has: {}", .shards.join(", "))]
    NoShard {
        /// What was named.
        name: ShardName,
        /// Those that there are.
        shards: Vec<String>,
    },
}

impl Plan {
    /// Looks at everything once.
    ///
    /// # Errors
    /// When it is not known what the ring is. Objects that can't be read are in the forecast.
    pub async fn run(&self, client: &Client) -> Result<Forecast, PlanError> {
        let ring = self.read_ring(client).await?;
        if self.replicas.is_some() && !ring.spec.groups.is_empty() {
            return Err(PlanError::Groups);
        }
        let leases = Leases::look(client, &self.ring, self.tokens_per_shard).await;
        let leases = leases.map_err(unread("the Leases of the shards"))?;
        leases.confine([&ring]);
        let now = leases.members().unwrap_or_default().remove(&self.ring).unwrap_or_default();
        let rolls = Rolls::look(client, &leases, Arc::new(Boottime)).await.map_err(unread("the Pods of the shards"))?;
        let then = self.what_if(now.clone().replacing(rolls.outgoing(&self.ring)))?;
        let names = resources::concerned(&ring);
        let catalog = resources::look_up(client, &names, &resources::Catalog::new()).await;
        let snapshot = Snapshot::build(self.ring.clone(), &ring, &catalog, then, None, self.tokens_per_shard);
        let namespaces = selected(client, &snapshot.namespaces).await.map_err(unread("the namespaces"))?;
        let mut forecast = Forecast::new(&snapshot, &now, self.tokens_per_shard);
        forecast.problems.extend(leases.weight_faults(&self.ring).into_iter().chain(leases.faults(&self.ring)));
        count(client, &snapshot, namespaces, &mut forecast).await;
        Ok(forecast)
    }

    async fn read_ring(&self, client: &Client) -> Result<Ring, PlanError> {
        let rings: Api<Ring> = Api::all_with(client.clone(), &self.ring.kind());
        rings.get(self.ring.name()).await.map_err(|error| match code(&error) {
            Some(404) => PlanError::NoRing(self.ring.clone()),
            _ => unread("the ring")(error),
        })
    }

    /// The shards as they would be.
    fn what_if(&self, members: Members) -> Result<Members, PlanError> {
        let mut members = self.replicas.map_or(members.clone(), |replicas| scale::scaled(members, replicas));
        for name in &self.remove {
            let shards = || members.iter().map(|(shard, _)| shard.to_string()).collect();
            members = match members.clone().without(name) {
                Some(rest) => rest,
                None => return Err(PlanError::NoShard { name: name.clone(), shards: shards() }),
            };
        }
        let add = |members: Members, added: &AddedShard| {
            members.with(
                added.name.clone(),
                Member { state: ShardState::Ready, weight: added.weight, controller: Controller::Working },
            )
        };
        Ok(self.add.iter().fold(members, add))
    }
}

fn unread(what: &'static str) -> impl Fn(kube::Error) -> PlanError {
    move |error| PlanError::Read { what, why: explain(&error) }
}

#[cfg(test)]
mod tests;
