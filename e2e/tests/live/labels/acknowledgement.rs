//! What looks like an acknowledgement, and is none: the labels of a drained object, taken off by whom it was not asked of.

use kube::{
    Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use ringside_e2e::eventually::eventually;
use ringside_ring::labels::ACKNOWLEDGER;
use serde_json::{Value, json};

use crate::{
    api_server_fence::fixture::{DEADLINE, Fixture, SHARDS, websites},
    labels::fixture::until_policy_acts,
    planes::Keeps,
    webhook::calls::calls,
};

/// The shard of the object, which releases nothing by itself.
const SHARD: &str = "a";

/// An object that waits for its shard.
struct Drained {
    fixture: Fixture,
    name: String,
    /// With the token of the shard's Pod, and with that of another one.
    by_shard: Client,
    by_another: Client,
}

impl Drained {
    async fn at(fixture: Fixture) -> Self {
        let by_shard = fixture.shard(SHARD).await;
        let by_another = fixture.pod(SHARDS, "another").await;
        let name = fixture.website_of(SHARD).await.name_any();
        Self { fixture, name, by_shard, by_another }
    }

    /// Writes labels; `manager` is the field manager.
    async fn write(&self, by: &Client, manager: &str, labels: Value) {
        let manager = (!manager.is_empty()).then(|| manager.to_owned());
        let parameters = PatchParams { field_manager: manager, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        websites(by).patch(&self.name, &parameters, &patch).await.unwrap();
    }

    /// Takes both labels off.
    async fn strip(&self, by: &Client, manager: &str) {
        self.write(by, manager, json!({&self.fixture.keys.shard: null, &self.fixture.keys.drain: null})).await;
    }

    /// That the object is its shard's, with this drain or without.
    async fn is_drained(&self, drain: Option<&str>) -> Result<(), String> {
        let now = websites(&self.fixture.admin).get(&self.name).await.map_err(|error| error.to_string())?;
        let ownership = self.fixture.keys.ownership(now.metadata.labels.as_ref());
        let is = ownership.shard == Some(SHARD) && ownership.drain == drain;
        if is { Ok(()) } else { Err(format!("{ownership:?}")) }
    }

    async fn until_assigned_anew(&self) {
        eventually("it is assigned again", DEADLINE, || self.is_drained(None)).await.unwrap();
    }

    async fn drain(&self, drain: &str) {
        self.fixture.label(&self.name, Some(SHARD), Some(drain)).await;
        self.is_drained(Some(drain)).await.unwrap();
    }

    /// Another Pod takes both labels off; then the shard does. Where a proxy has promised a grace, the shard's own controller
    /// does first. An acknowledgement adds nothing to `reviews`.
    async fn only_its_shard_lets_go(&self, reviews: impl AsyncFn() -> u64) {
        self.drain("by-hand").await;
        self.strip(&self.by_another, "").await;
        self.is_drained(Some("by-hand")).await.expect("its shard works on it");
        let before = reviews().await;
        self.strip(&self.by_shard, "").await;
        self.until_assigned_anew().await;
        assert_eq!(reviews().await, before, "the webhook would leave it alone");

        let promised = "by-hand.60000ms";
        self.drain(promised).await;
        for (by, manager) in
            [(&self.by_shard, ""), (&self.by_shard, "the-controller"), (&self.by_another, ACKNOWLEDGER)]
        {
            self.strip(by, manager).await;
            self.is_drained(Some(promised)).await.unwrap_or_else(|seen| panic!("its controller works on it: {seen}"));
        }
        let before = reviews().await;
        self.strip(&self.by_shard, ACKNOWLEDGER).await;
        self.until_assigned_anew().await;
        assert_eq!(reviews().await, before, "what waits for the controller is acknowledged without the webhook");
    }
}

pub(crate) async fn the_policy_tells_an_acknowledgement_from_stripped_labels() {
    let world = Drained::at(Fixture::on(Keeps::Policy, "labels-acknowledged", json!({})).await).await;
    let Drained { fixture, name, .. } = &world;
    until_policy_acts(&websites(&fixture.admin), &fixture.keys, name).await;
    world.only_its_shard_lets_go(async || 0).await;
    world.drain("by-hand").await;
    for labels in [
        json!({&fixture.keys.drain: null}),
        json!({&fixture.keys.drain: "of-another-move"}),
        json!({&fixture.keys.shard: null}),
    ] {
        world.write(&fixture.admin, "", labels).await;
        world.is_drained(Some("by-hand")).await.expect("its shard may be releasing it just now");
    }
}

/// On a plane of its own, where nothing else is asked about.
pub(crate) async fn the_webhook_tells_an_acknowledgement_from_stripped_labels() {
    let world = Drained::at(Fixture::start(Keeps::Webhook.settings(), json!({})).await).await;
    let reviews = async || calls(&world.fixture.admin, "operation=\"UPDATE\"").await;
    world.only_its_shard_lets_go(&reviews).await;
    assert!(reviews().await > 0, "it told apart what was none");
}
