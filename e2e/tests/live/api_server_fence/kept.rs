//! The policy itself: put back when a user changes it, gone when no ring asks for it, and what a ring says about it.

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    rbac::v1::ClusterRole,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use ringside_e2e::{eventually::eventually, manifests, system::Settings};
use ringside_ring::RingName;
use serde_json::json;

use crate::api_server_fence::fixture::{DEADLINE, Fixture, refused, touch, websites};
use crate::planes::Keeps;

fn policies(fixture: &Fixture) -> (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>, String) {
    let all = fixture.admin.clone();
    (Api::all(all.clone()), Api::all(all), fixture.ring.parse::<RingName>().unwrap().made_for())
}

pub(crate) async fn what_somebody_does_to_the_policy_is_undone_and_the_fence_is_not_in_place_meanwhile() {
    let (fixture, _a, b) = Fixture::fenced("fence-policy").await;
    let (policies, bindings, name) = policies(&fixture);
    let wanted = policies.get(&name).await.unwrap().spec;
    let bound = bindings.get(&name).await.unwrap().spec;
    let until_in_place_again = async || {
        let told = fixture.until_fenced("False").await;
        assert_eq!(told.reason, "Pending", "{told:?}");
        fixture.until_fenced("True").await;
    };

    // A condition that is never met switches it off, and server-side apply would leave it there.
    let off =
        json!([{"op": "add", "path": "/spec/matchConditions/-", "value": {"name": "off", "expression": "false"}}]);
    let off = Patch::<ValidatingAdmissionPolicy>::Json(serde_json::from_value(off).unwrap());
    policies.patch(&name, &PatchParams::default(), &off).await.unwrap();
    until_in_place_again().await;
    assert_eq!(policies.get(&name).await.unwrap().spec, wanted);

    let warn = json!({"spec": {"validationActions": ["Warn"]}});
    bindings.patch(&name, &PatchParams::default(), &Patch::Merge(warn)).await.unwrap();
    until_in_place_again().await;
    assert_eq!(bindings.get(&name).await.unwrap().spec, bound);

    policies.delete(&name, &DeleteParams::default()).await.unwrap();
    bindings.delete(&name, &DeleteParams::default()).await.unwrap();
    until_in_place_again().await;
    let website = fixture.website_of("a").await.name_any();
    refused("a write", websites(&b).patch(&website, &PatchParams::default(), &touch()).await);
}

pub(crate) async fn the_policy_goes_when_the_ring_does_not_ask_for_it_and_with_the_ring() {
    let (fixture, _a, b) = Fixture::fenced("fence-policy-goes").await;
    let (policies, bindings, name) = policies(&fixture);
    let gone = async || {
        eventually("policy and binding are gone", DEADLINE, || async {
            let policy = policies.get_opt(&name).await.map_err(|error| error.to_string())?;
            let binding = bindings.get_opt(&name).await.map_err(|error| error.to_string())?;
            if policy.is_none() && binding.is_none() { Ok(()) } else { Err("there is one".to_owned()) }
        })
        .await
        .unwrap();
    };
    let website = fixture.website_of("a").await.name_any();
    fixture.apply_ring(json!({"fence": "Proxy"})).await;
    gone().await;
    eventually("the condition is gone", DEADLINE, || async {
        fixture.condition("Fenced").await.map_or(Ok(()), |condition| Err(format!("{condition:?}")))
    })
    .await
    .unwrap();
    eventually("another shard's write passes", DEADLINE, || async {
        let written = websites(&b).patch(&website, &PatchParams::default(), &touch()).await;
        written.map(drop).map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    fixture.apply_ring(json!({"fence": "APIServer"})).await;
    fixture.until_fenced("True").await;
    fixture.rings().delete(fixture.ring, &DeleteParams::default()).await.unwrap();
    gone().await;
}

/// Neither by the sharder nor by the webhook.
pub(crate) async fn nothing_new_is_given_to_anybody_before_the_fence_is_around_it() {
    let fixture = Fixture::on(Keeps::Webhook, "fence-first", json!({"fence": "APIServer"})).await;
    let (_a, _b) = (fixture.shard("a").await, fixture.shard("b").await);
    let (policies, _, name) = policies(&fixture);
    fixture.create(&fixture.admin, "early").await.unwrap();
    fixture.until_owned("early").await;
    let policy = policies.get(&name).await.unwrap();
    assert!(policy.annotations().contains_key("ringside.dev/in-place"), "{:?}", policy.metadata);
}

pub(crate) async fn a_missing_permission_is_told_with_its_remedy_and_work_goes_on() {
    let fixture = Fixture::start(Settings::without_label_policies(), json!({})).await;
    let (_a, _b) = (fixture.shard("a").await, fixture.shard("b").await);
    let roles: Api<ClusterRole> = Api::all(fixture.admin.clone());
    for name in ["ringside-sharder", "ringside-ring-websites"] {
        let mut role = roles.get(name).await.unwrap();
        let resources = role.rules.iter_mut().flatten().flat_map(|rule| rule.resources.iter_mut().flatten());
        resources.filter(|it| it.starts_with("validatingadmissionpolic")).for_each(|it| it.insert_str(0, "no-"));
        roles.replace(name, &Default::default(), &role).await.unwrap();
    }
    manifests::aggregate_roles(&fixture.admin).await.unwrap();
    fixture.apply_ring(json!({"fence": "APIServer"})).await;
    eventually("the ring says what is missing", DEADLINE, || async {
        let (fenced, ready) = (fixture.condition("Fenced").await?, fixture.condition("Ready").await?);
        let told = [&fenced, &ready].into_iter().all(|condition| {
            condition.status == "False"
                && condition.message.contains("validatingadmissionpolicies")
                && condition.message.contains("ringside rbac")
        });
        if told { Ok(()) } else { Err(format!("{fenced:?} {ready:?}")) }
    })
    .await
    .unwrap();
    fixture.website_of("a").await;
}
