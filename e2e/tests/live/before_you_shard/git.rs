//! Manifests with the ring's labels, which two appliers put into the cluster from then on.

use std::collections::BTreeSet;

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, website::Website};
use serde_json::{Value, json};

use super::{DEADLINE, World};

const APPLIERS: [&str; 2] = ["git-one", "git-other"];
const ROUNDS: usize = 3;

pub(super) async fn two_appliers(world: &World) {
    let [shard, another] = world.shards();
    let (site, key) = (&world.owned(shard).await[2], &world.labels.shard);
    let committed = json!({key: another.name(), "example.com/team": "web"});
    // The API server learns of the policy by a watch of its own.
    let kept = eventually("the policy acts", DEADLINE, || async {
        let trial = PatchParams::apply("trial").force().dry_run();
        let applied = apply(world, site, &trial, &committed).await.map_err(|error| error.to_string())?;
        let keeps = applied.labels().get(key).is_some_and(|label| label == shard.name());
        if keeps { Ok(()) } else { Err(format!("{:?}", applied.labels())) }
    });
    kept.await.unwrap();

    let (mut versions, applies) = (BTreeSet::new(), APPLIERS.len() * ROUNDS);
    for applier in APPLIERS.iter().cycle().take(applies) {
        let applied = apply(world, site, &PatchParams::apply(applier).force(), &committed).await.unwrap();
        assert_eq!(applied.labels()[key], shard.name(), "the policy keeps it");
        let owners = owners(&applied, key);
        assert!(owners.contains(applier), "{owners:?}");
        assert_eq!(owners.iter().filter(|owner| APPLIERS.contains(owner)).count(), 1, "to and fro: {owners:?}");
        versions.insert(applied.resource_version());
    }
    assert_eq!(versions.len(), applies, "each apply is a write");
    // Who does not force is refused.
    let refused = apply(world, site, &PatchParams::apply(APPLIERS[0]), &committed).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused:?}") };
    assert!(status.is_conflict() && status.message.contains(key), "{status:?}");

    // Without the ring's keys, as they should be committed: one write, by which the label is given up, and then none.
    let without = json!({"example.com/team": "web"});
    let mut versions = Vec::new();
    for applier in APPLIERS.iter().cycle().take(2 * applies) {
        let applied = apply(world, site, &PatchParams::apply(applier).force(), &without).await.unwrap();
        assert_eq!(applied.labels()[key], shard.name());
        versions.push(applied.resource_version());
    }
    let later: BTreeSet<_> = versions[APPLIERS.len()..].iter().collect();
    assert_eq!(later.len(), 1, "nothing is written any more: {versions:?}");
}

async fn apply(world: &World, site: &str, how: &PatchParams, labels: &Value) -> kube::Result<Website> {
    let manifest = json!({
        "apiVersion": "web.example.com/v1", "kind": "Website", "metadata": {"name": site, "labels": labels},
    });
    world.websites().patch(site, how, &Patch::Apply(manifest)).await
}

/// The managers that own a label.
fn owners<'a>(website: &'a Website, key: &str) -> Vec<&'a str> {
    let owns = |fields: &Value| fields["f:metadata"]["f:labels"].get(format!("f:{key}")).is_some();
    let managers = website.managed_fields().iter();
    let of_label = managers.filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| owns(&fields.0)));
    of_label.filter_map(|entry| entry.manager.as_deref()).collect()
}
