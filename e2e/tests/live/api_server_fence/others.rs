//! Who is not hindered: users, controllers in other pods, the garbage collector, the end of a namespace.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, WebsiteSpec},
};
use serde_json::json;

use crate::api_server_fence::fixture::{DEADLINE, Fixture, OTHERS, child, config_maps, websites};

pub(crate) async fn users_other_controllers_and_the_garbage_collector_are_not_concerned() {
    let (fixture, _a, _b) = Fixture::fenced_and_collected().await;
    let website = fixture.website_of("a", "site").await;
    let name = website.name_any();
    config_maps(&fixture.admin).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    let patch = |by: &str| Patch::Merge(json!({"spec": {"content": by}}));
    websites(&fixture.admin).patch(&name, &PatchParams::default(), &patch("a user")).await.unwrap();

    // A pod like a shard's, with the same rights and a token of the same kind.
    let another = fixture.pod(OTHERS, "another-0").await;
    websites(&another.client).patch(&name, &PatchParams::default(), &patch("another controller")).await.unwrap();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"checked": "yes"}}}));
    config_maps(&another.client).patch("child", &PatchParams::default(), &labels).await.unwrap();
    let made = fixture.create(&another.client, "made-by-another").await.unwrap();
    assert!(fixture.shard_of(&made.metadata).is_some());
    websites(&another.client).delete("made-by-another", &DeleteParams::default()).await.unwrap();

    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    websites(&fixture.admin).delete(&name, &background).await.unwrap();
    eventually("the garbage collector deletes the child", DEADLINE, || async {
        let left = config_maps(&fixture.admin).get_opt("child").await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |_| Err("it is there".to_owned()))
    })
    .await
    .unwrap();
}

pub(crate) async fn a_namespace_ends_with_what_shards_own_in_it() {
    let (fixture, _a, _b) = Fixture::fenced_and_collected().await;
    let namespaces: Api<Namespace> = Api::all(fixture.admin.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "short-lived"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let sites: Api<Website> = Api::namespaced(fixture.admin.clone(), "short-lived");
    let maps: Api<ConfigMap> = Api::namespaced(fixture.admin.clone(), "short-lived");
    for index in 0..5 {
        let name = format!("site-{index}");
        let site = sites.create(&PostParams::default(), &Website::new(&name, WebsiteSpec::default())).await.unwrap();
        let made = maps.create(&PostParams::default(), &child(&site, &name)).await.unwrap();
        assert!(fixture.shard_of(&site.metadata).is_some() && fixture.shard_of(&made.metadata).is_some());
    }
    namespaces.delete("short-lived", &DeleteParams::default()).await.unwrap();
    eventually("the namespace is gone", DEADLINE, || async {
        let left = namespaces.get_opt("short-lived").await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |left| Err(format!("{:?}", left.status)))
    })
    .await
    .unwrap();
}
