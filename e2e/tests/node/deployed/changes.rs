//! Pods come and go; every Website has an owner afterwards.

use std::{fmt::Debug, sync::Arc};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ContainerStateTerminated, ContainerStatus, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PostParams, VersionMatch, WatchEvent, WatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    website::{Website, WebsiteSpec},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use super::{DEADLINE, EXAMPLE};
use crate::Fixture;

/// Websites that are created while a pod can't start.
const NEW: usize = 20;

/// The proxy of such a pod runs and holds a Lease, and it is the only pod of the roll-out that stays.
pub(crate) async fn a_new_pod_whose_controller_can_not_start_gets_no_object(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let before = names(&deployed.pods(EXAMPLE).await);
    let example = deployed.api::<Deployment>().get(EXAMPLE).await.unwrap();
    let container = example.spec.unwrap().template.spec.unwrap().containers.remove(0);
    let change = async |image: &str| {
        let containers = json!([{"name": container.name, "image": image}]);
        let change = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        deployed.api::<Deployment>().patch(EXAMPLE, &Default::default(), &change).await.unwrap();
    };
    change("website-controller:no-such-version").await;
    let newcomer = eventually("a new pod holds its Lease", DEADLINE, || async {
        let leases = deployed.api::<Lease>().list(&Default::default()).await.map_err(|error| error.to_string())?;
        let pods = names(&deployed.pods(EXAMPLE).await);
        let is_new = |lease: &&Lease| {
            let name = lease.name_any();
            holder(lease) == name && pods.contains(&name) && !before.contains(&name)
        };
        leases.iter().find(is_new).map(ResourceExt::name_any).ok_or_else(|| format!("{pods:?}"))
    })
    .await
    .unwrap();
    let websites = deployed.websites();
    for number in 0..NEW {
        let metadata = ObjectMeta { name: Some(format!("new-{number}")), ..ObjectMeta::default() };
        let website = Website { metadata, spec: WebsiteSpec::default(), status: None };
        websites.create(&PostParams::default(), &website).await.unwrap();
    }
    deployed.change_all("while a pod can't start").await;
    let shares = deployed.settled().await;
    assert!(!shares.contains_key(&newcomer), "{newcomer} has none of {shares:?}");
    change(&container.image.clone().unwrap()).await;
    deployed.rolled_out("default", EXAMPLE).await.unwrap();
    for number in 0..NEW {
        websites.delete(&format!("new-{number}"), &DeleteParams::default()).await.unwrap();
    }
    deployed.settled().await;
}

/// Its hooks run as a kubelet runs them: what it has moves while its controller works.
pub(crate) async fn a_deleted_pod_hands_over_ends_in_order_and_releases_its_lease(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let _alone = deployed.membership.lock().await;
    deployed.settled().await;
    let pod = deployed.pods(EXAMPLE).await.remove(0);
    let name = pod.name_any();
    let lease = deployed.api::<Lease>().get(&name).await.unwrap();
    assert_eq!(holder(&lease), name);
    let pods = changes(deployed.api(), &pod).await;
    let leases = changes(deployed.api(), &lease).await;
    deployed.api::<Pod>().delete(&name, &DeleteParams::default()).await.unwrap();

    let released =
        until(leases, |event| matches!(event, WatchEvent::Modified(lease) if holder(lease).is_empty())).await;
    let shard = deployed.labels.naming(&name.parse().unwrap());
    let then = ListParams::default().labels(&shard).at(&released.resource_version().unwrap());
    let left = deployed.websites().list_metadata(&then.matching(VersionMatch::Exact)).await.unwrap();
    assert!(left.items.is_empty(), "not handed over before the Lease was released: {left:?}");
    let gone = until(pods, |event| matches!(event, WatchEvent::Deleted(_))).await;
    let status = gone.status.clone().unwrap();
    let proxy = end(status.init_container_statuses.as_deref().unwrap());
    let controller = end(status.container_statuses.as_deref().unwrap());
    assert_eq!((controller.exit_code, proxy.exit_code), (0, 0), "{controller:?} {proxy:?}");
    assert!(controller.finished_at <= proxy.finished_at, "{controller:?} {proxy:?}");
    // Both are revisions of the same etcd. A sharder that took the Lease away would have done so later.
    let revision = |version: Option<String>| version.unwrap().parse::<u64>().unwrap();
    assert!(revision(released.resource_version()) < revision(gone.resource_version()));
    deployed.rolled_out("default", EXAMPLE).await.unwrap();
    deployed.settled().await;
}

fn names(pods: &[Pod]) -> Vec<String> {
    pods.iter().map(ResourceExt::name_any).collect()
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// How the one container of them ended.
fn end(containers: &[ContainerStatus]) -> &ContainerStateTerminated {
    let state = containers[0].state.as_ref().and_then(|state| state.terminated.as_ref());
    state.unwrap_or_else(|| panic!("it has not ended: {containers:?}"))
}

type Changes<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// What happens to the object from now on.
async fn changes<K>(api: Api<K>, object: &K) -> Changes<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let only = WatchParams::default().fields(&format!("metadata.name={}", object.name_any()));
    api.watch(&only, &object.resource_version().unwrap()).await.unwrap().boxed()
}

/// The object of the first such event.
async fn until<K: Debug>(mut changes: Changes<K>, wanted: impl Fn(&WatchEvent<K>) -> bool) -> K {
    let found = async {
        loop {
            match changes.next().await.expect("the watch ended").unwrap() {
                event if !wanted(&event) => {}
                WatchEvent::Modified(object) | WatchEvent::Deleted(object) => return object,
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(DEADLINE, found).await.expect("it did not happen")
}
