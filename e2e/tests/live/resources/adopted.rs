//! A resource whose objects follow an owner, or are placed by themselves where they have none.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, plain_shard::Acknowledger};
use serde_json::{Value, json};

use crate::resources::fixture::{DEADLINE, Fixture, Objects, Owner, config_maps, entry, home_of, secrets, team};

async fn give_owner(objects: &Objects, name: &str, references: Value) {
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": references}}));
    objects.api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

fn is_with(shard: &str) -> impl Fn(&Owner) -> bool {
    move |(of, drain)| of.as_deref() == Some(shard) && drain.is_none()
}

/// Secrets of ConfigMaps, and Secrets of none. One that is adopted goes to its owner's shard, once its own has released it; and
/// one that is freed goes to its own home.
pub(crate) async fn and_freed(fixture: &Fixture) {
    fixture.namespace("adopted", "adopted").await;
    let resources = json!([entry(&config_maps(), &[&secrets()]), entry(&secrets(), &[])]);
    let ring = fixture.ring("adopted", resources, team("adopted")).await;
    let shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let [owners, objects] = [config_maps(), secrets()].map(|resource| ring.objects(&resource, Some("adopted")));
    let owner = owners.create("owner").await;
    let with = owners.until_owned("owner").await;
    let home = |name: &str| home_of(&shards, ("Secret", "adopted", name));
    let elsewhere = |prefix: &str| (0..).map(|i| format!("{prefix}-{i}")).find(|name| home(name) != with).unwrap();
    let (elsewhere, child) = (elsewhere("adopted"), elsewhere("freed"));
    let apart = home(&elsewhere);

    objects.create(&elsewhere).await;
    objects.until(&elsewhere, "is at its own home", is_with(&apart)).await;
    objects.create_under(&child, &owner).await;
    objects.until(&child, "is with its owner", is_with(&with)).await;

    let types = owner.types.clone().unwrap();
    let reference = json!([{"apiVersion": types.api_version, "kind": types.kind, "name": "owner",
        "uid": owner.metadata.uid, "controller": true}]);
    give_owner(&objects, &elsewhere, reference).await;
    let is_asked = |(shard, drain): &Owner| shard.as_ref() == Some(&apart) && drain.is_some();
    objects.until(&elsewhere, "is drained", is_asked).await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &secrets(), |_| true);
    objects.until(&elsewhere, "is with its owner", is_with(&with)).await;

    give_owner(&objects, &child, json!(null)).await;
    objects.until(&child, "is at its own home", is_with(&apart)).await;
    // The API server takes the policy that tells the two apart.
    ring.change(json!({"fence": "APIServer"})).await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client());
    eventually("the fence's policy is there", DEADLINE, || async {
        match policies.get(&ring.name.made_for()).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error}, {:?}", ring.get().await?.status)),
        }
    })
    .await
    .unwrap();
    eventually("none is said to be lone", DEADLINE, || async {
        let counts = ring.get().await?.status.and_then(|status| status.objects);
        if counts.as_ref().is_some_and(|counts| counts.lone == Some(0)) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await
    .unwrap();
}
