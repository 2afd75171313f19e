//! The command `plan`: what a ring's sharder would do with its objects, or would if its shards were others. It writes nothing.

use std::{num::NonZeroU32, str::FromStr, sync::Arc};

use clap::ValueEnum;
use kube::{Api, Client};
use ringside_ring::{
    ClusterRing, Controller, Members, RingName, ShardName, Weight, lease::ShardState, members::Member,
    placement::DEFAULT_TOKENS_PER_SHARD,
};
use ringside_runtime::{
    client::ConnectError,
    clock::Boottime,
    config::Faults,
    explain::{code, explain},
};

mod count;
mod forecast;
mod namespaces;
mod text;

pub use self::forecast::Forecast;
use self::{count::count, namespaces::selected};
use super::of_ring::OfRing;
use crate::{config::parse_tokens, leases::Leases, resources, rolls::Rolls, snapshot::Snapshot};

/// The options as they were given.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    of: OfRing,
    /// Tokens that a shard has on the hash ring: what the sharder has.
    #[arg(long, env = "RINGSIDE_TOKENS_PER_SHARD", value_name = "NUMBER", default_value_t = DEFAULT_TOKENS_PER_SHARD.to_string())]
    tokens_per_shard: String,
    /// Says what would be if there were this shard as well, or this one had that weight; may be repeated.
    #[arg(long = "add-shard", value_name = "NAME[=WEIGHT]")]
    add: Vec<String>,
    /// Says what would be if there were no such shard; may be repeated.
    #[arg(long = "remove-shard", value_name = "NAME")]
    remove: Vec<String>,
    /// How it is said.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Ends with 2 when something would be written.
    #[arg(long)]
    exit_code: bool,
}

/// How a plan is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people.
    Text,
    /// One JSON object.
    Json,
}

/// A shard that might be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Added {
    name: ShardName,
    weight: Weight,
}

impl FromStr for Added {
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
    ring: RingName,
    of: OfRing,
    tokens_per_shard: NonZeroU32,
    add: Vec<Added>,
    remove: Vec<ShardName>,
    output: Output,
    exit_code: bool,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not known where the API server is.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is no such ring.
    #[error("there is no ClusterRing '{0}': `kubectl get clusterrings` lists those that there are")]
    NoRing(RingName),
    /// What the ring is made of can't be read.
    #[error("can't read {what}: {why}")]
    Read {
        /// What.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// There is no such shard to take away.
    #[error("the ring has no shard '{name}' that --remove-shard could take away; it has: {}", .shards.join(", "))]
    NoShard {
        /// What was named.
        name: ShardName,
        /// Those that there are.
        shards: Vec<String>,
    },
}

impl Arguments {
    pub(super) fn check(self) -> Result<Plan, Faults> {
        let mut faults = Faults::new();
        let ring = self.of.check(&mut faults);
        let tokens = faults.check("--tokens-per-shard", parse_tokens(&self.tokens_per_shard));
        let add: Vec<_> = self.add.iter().filter_map(|text| faults.check("--add-shard", text.parse())).collect();
        let remove: Vec<_> =
            self.remove.iter().filter_map(|text| faults.check("--remove-shard", text.parse())).collect();
        faults.finish()?;
        // Whatever is missing was noted as a fault.
        let (ring, tokens_per_shard) = ring.zip(tokens).ok_or_else(Faults::new)?;
        let Self { of, output, exit_code, .. } = self;
        Ok(Plan { ring, of, tokens_per_shard, add, remove, output, exit_code })
    }
}

impl Plan {
    /// Looks at everything once.
    ///
    /// # Errors
    /// When it is not known what the ring is. Objects that can't be read are in the forecast.
    pub async fn run(&self) -> Result<Forecast, PlanError> {
        let client = self.of.connect()?;
        let ring = self.read_ring(&client).await?;
        let leases = Leases::look(&client, &self.ring).await.map_err(unread("the Leases of the shards"))?;
        leases.confine([&ring]);
        let now = leases.members().unwrap_or_default().remove(&self.ring).unwrap_or_default();
        let rolls =
            Rolls::look(&client, &leases, Arc::new(Boottime)).await.map_err(unread("the Pods of the shards"))?;
        let then = self.what_if(now.clone().replacing(rolls.outgoing(&self.ring)))?;
        let names = resources::concerned(&ring);
        let catalog = resources::look_up(&client, &names, &resources::Catalog::new()).await;
        let snapshot = Snapshot::build(self.ring.clone(), &ring, &catalog, then, None, self.tokens_per_shard)
            .with_unweighed(leases.weight_faults(&self.ring))
            .with_lease_faults(leases.faults(&self.ring));
        let namespaces = selected(&client, &snapshot.namespaces).await.map_err(unread("the namespaces"))?;
        let mut forecast = Forecast::new(&snapshot, &now, self.tokens_per_shard);
        count(&client, &snapshot, &namespaces, &mut forecast).await;
        Ok(forecast)
    }

    async fn read_ring(&self, client: &Client) -> Result<ClusterRing, PlanError> {
        let rings: Api<ClusterRing> = Api::all(client.clone());
        rings.get(self.ring.as_str()).await.map_err(|error| match code(&error) {
            Some(404) => PlanError::NoRing(self.ring.clone()),
            _ => unread("the ClusterRing")(error),
        })
    }

    /// The shards as they would be.
    fn what_if(&self, mut members: Members) -> Result<Members, PlanError> {
        for name in &self.remove {
            let shards = || members.iter().map(|(shard, _)| shard.to_string()).collect();
            members = match members.clone().without(name) {
                Some(rest) => rest,
                None => return Err(PlanError::NoShard { name: name.clone(), shards: shards() }),
            };
        }
        let add = |members: Members, added: &Added| {
            members.with(
                added.name.clone(),
                Member { state: ShardState::Ready, weight: added.weight, controller: Controller::Working },
            )
        };
        Ok(self.add.iter().fold(members, add))
    }
}

impl Forecast {
    /// What is printed, and the exit code: 1 when not all could be looked at.
    pub fn said(&self, plan: &Plan) -> (String, u8) {
        let text = match plan.output {
            Output::Text => self.to_string(),
            Output::Json => format!("{:#}", self.json()),
        };
        let code = match (self.is_complete(), self.has_changes() && plan.exit_code) {
            (false, _) => 1,
            (true, true) => 2,
            (true, false) => 0,
        };
        (text, code)
    }
}

fn unread(what: &'static str) -> impl Fn(kube::Error) -> PlanError {
    move |error| PlanError::Read { what, why: explain(&error) }
}

#[cfg(test)]
mod tests;
