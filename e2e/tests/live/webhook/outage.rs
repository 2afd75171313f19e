//! Without the webhook, without any sharder: objects can be created, and have an owner as soon as a sharder is back.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, PostParams},
};
use ringside_e2e::{
    eventually::{enough, eventually, in_time},
    system::{NAMESPACE, Return, Settings},
    website::{Website, WebsiteSpec, child},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::webhook::fixture::{DEADLINE, Fixture};

/// Objects that are created while there is no sharder.
const CREATED: usize = 20;

/// Whether they come back in their Pods or in others.
pub(crate) async fn after_an_outage_of_all_sharders_every_object_has_an_owner() {
    let mut fixture = Fixture::start(Settings::default()).await;
    for pods in [Return::SamePod, Return::OtherPod] {
        fixture.system.kill_sharders().await.unwrap();
        for _ in 0..CREATED {
            assert!(!fixture.is_labelled(&fixture.create().await), "a sharder runs");
        }
        fixture.system.return_sharders(pods).await.unwrap();
        fixture.until_assigned().await;
        fixture.until_answered().await;
    }
}

/// What is promised: so soon after its creation an object has a label by the controller alone; and what the one that waits
/// longest may take beyond.
const ALONE: Duration = Duration::from_secs(1);
const ALLOWANCE: Duration = Duration::from_secs(2);
/// How many of each resource are created one after the other.
const OBJECTS: usize = 40;

pub(crate) async fn without_its_webhook_configuration_the_sharder_assigns_objects_right_after_their_creation() {
    let fixture = Fixture::start(Settings::default()).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    let name = fixture.ring.made_for();
    let away = tokio::spawn(async move {
        loop {
            // That it is not there is what it is for.
            let _ = configurations.delete(&name, &DeleteParams::default()).await;
            sleep(Duration::from_millis(20)).await;
        }
    });
    let owner = eventually("the API server no longer calls the webhook", DEADLINE, || async {
        let website = fixture.create().await;
        if fixture.is_labelled(&website) { Err("it was called".to_owned()) } else { Ok(website) }
    });
    let owner = owner.await.unwrap();
    fixture.until_assigned().await;
    assigned_alone(&fixture, |name| Website::new(name, WebsiteSpec::default())).await;
    assigned_alone::<ConfigMap>(&fixture, |name| child(&owner, name)).await;
    away.abort();
}

/// Asserts how long objects had no label, from the answer to their creation. Such as met the webhook all the same are left out:
/// the sharder writes its configuration again and again.
async fn assigned_alone<K>(fixture: &Fixture, object: impl Fn(&str) -> K)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let objects: Api<K> = Api::namespaced(fixture.client(), NAMESPACE);
    let mut took = Vec::new();
    for number in 0..OBJECTS {
        let name = format!("{}-alone-{number}", K::plural(&()));
        let created = objects.create(&PostParams::default(), &object(&name)).await.unwrap();
        let since = Instant::now();
        if fixture.is_labelled(&created) {
            continue;
        }
        eventually("the object has its label", DEADLINE, || async {
            let now = objects.get(&name).await.map_err(|error| error.to_string())?;
            if fixture.is_labelled(&now) { Ok(()) } else { Err(format!("{:?}", now.meta().labels)) }
        })
        .await
        .unwrap();
        took.push(since.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    enough("objects that did not meet the webhook", took.len(), OBJECTS / 2);
    took.sort_unstable();
    in_time("nine in ten have labels", took[(took.len() - 1) * 9 / 10], ALONE);
    in_time("all have labels", took[took.len() - 1], ALONE + ALLOWANCE);
}
