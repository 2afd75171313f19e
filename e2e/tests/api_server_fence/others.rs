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

use crate::ground::{DEADLINE, Ground, OTHERS, child, config_maps, websites};

pub(crate) async fn users_other_controllers_and_the_garbage_collector_are_not_concerned() {
    let (ground, _a, _b) = Ground::fenced().await;
    let website = ground.website_of("a", "site").await;
    let name = website.name_any();
    config_maps(&ground.admin).create(&PostParams::default(), &child(&website, "child")).await.unwrap();
    let patch = |by: &str| Patch::Merge(json!({"spec": {"content": by}}));
    websites(&ground.admin).patch(&name, &PatchParams::default(), &patch("a user")).await.unwrap();

    // A pod like a shard's, with the same rights and a token of the same kind.
    let another = ground.pod(OTHERS, "another-0").await;
    websites(&another.client).patch(&name, &PatchParams::default(), &patch("another controller")).await.unwrap();
    let labels = Patch::Merge(json!({"metadata": {"labels": {"checked": "yes"}}}));
    config_maps(&another.client).patch("child", &PatchParams::default(), &labels).await.unwrap();
    let made = ground.create(&another.client, "made-by-another").await.unwrap();
    assert!(ground.shard_of(&made.metadata).is_some());
    websites(&another.client).delete("made-by-another", &DeleteParams::default()).await.unwrap();

    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    websites(&ground.admin).delete(&name, &background).await.unwrap();
    eventually("the garbage collector deletes the child", DEADLINE, || async {
        let left = config_maps(&ground.admin).get_opt("child").await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |_| Err("it is there".to_owned()))
    })
    .await
    .unwrap();
}

pub(crate) async fn a_namespace_ends_with_what_shards_own_in_it() {
    let (ground, _a, _b) = Ground::fenced().await;
    let namespaces: Api<Namespace> = Api::all(ground.admin.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "short-lived"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let sites: Api<Website> = Api::namespaced(ground.admin.clone(), "short-lived");
    let maps: Api<ConfigMap> = Api::namespaced(ground.admin.clone(), "short-lived");
    for index in 0..5 {
        let name = format!("site-{index}");
        let site = sites.create(&PostParams::default(), &Website::new(&name, WebsiteSpec::default())).await.unwrap();
        let made = maps.create(&PostParams::default(), &child(&site, &name)).await.unwrap();
        assert!(ground.shard_of(&site.metadata).is_some() && ground.shard_of(&made.metadata).is_some());
    }
    namespaces.delete("short-lived", &DeleteParams::default()).await.unwrap();
    eventually("the namespace is gone", DEADLINE, || async {
        let left = namespaces.get_opt("short-lived").await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |left| Err(format!("{:?}", left.status)))
    })
    .await
    .unwrap();
}
