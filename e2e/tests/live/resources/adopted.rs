//! A resource whose objects follow an owner, or are placed by themselves where they have none.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::Api;
use ringside_e2e::eventually::eventually;
use serde_json::json;

use crate::resources::fixture::{DEADLINE, Fixture, config_maps, entry, home_of, reference, secrets};

/// Secrets of ConfigMaps, and Secrets of none. One that is adopted goes to its owner's shard, once its own has released it; and
/// one that is freed goes to its own home.
pub(crate) async fn what_has_an_owner_goes_with_it_and_what_has_none_is_placed_by_itself(fixture: &Fixture) {
    let resources = json!([entry(&config_maps(), &[&secrets()]), entry(&secrets(), &[])]);
    let (ring, shards) = fixture.ready("adopted", resources, 2).await;
    let [owners, objects] = [config_maps(), secrets()].map(|resource| ring.own(&resource));
    let owner = owners.create("owner").await;
    let with = owners.until_owned("owner").await;
    let home = |name: &str| home_of(&shards, &secrets(), "adopted", name);
    let elsewhere = |prefix: &str| (0..).map(|i| format!("{prefix}-{i}")).find(|name| home(name) != with).unwrap();
    let (elsewhere, child) = (elsewhere("adopted"), elsewhere("freed"));
    let apart = home(&elsewhere);

    objects.create(&elsewhere).await;
    objects.until_with(&elsewhere, &apart).await;
    objects.create_under(&child, &owner).await;
    objects.until_with(&child, &with).await;

    objects.change(&elsewhere, json!({"ownerReferences": [reference(&owner)]})).await;
    assert_eq!(objects.until_drained(&elsewhere).await.0, Some(apart.clone()));
    let _acknowledger = ring.start_acknowledger(&secrets());
    objects.until_with(&elsewhere, &with).await;

    objects.change(&child, json!({"ownerReferences": null})).await;
    objects.until_with(&child, &apart).await;
    // The API server takes the policy that tells the two apart.
    ring.change(json!({"fence": "APIServer"})).await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client());
    eventually("the fence's policy is there, and none is said to be lone", DEADLINE, || async {
        policies.get(&ring.name.made_for()).await.map_err(|error| error.to_string())?;
        let counts = ring.get().await?.status.and_then(|status| status.objects);
        if counts.as_ref().is_some_and(|counts| counts.lone == Some(0)) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await
    .unwrap();
}
