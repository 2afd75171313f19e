//! Writes of a status that say something about labels.
//!
//! Of a custom resource such a write changes the status alone, and the API server itself leaves the labels out. Of most
//! built-in resources it takes them as well: a client that `PUT`s a status from a template takes all labels off. The
//! webhook is not called for that, so only the policy keeps them. Ingresses are such a resource, and the control plane
//! has no controller for them that would write beside these tests.

use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::Ingress;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use ringside_e2e::eventually::eventually;
use ringside_ring::{ClusterRing, labels::ACKNOWLEDGER};
use serde_json::{Value, json};

use crate::{
    api_server_fence::fixture::{DEADLINE, Fixture},
    labels::{fixture::until_policy_acts, history::History},
    planes::Keeps,
};

const RING: &str = "labels-status";
const SHARDS: [&str; 2] = ["a", "b"];
const OBJECT: &str = "shop";

/// Shard and drain of the object.
type Owner = (Option<String>, Option<String>);

struct Ingresses {
    /// Gone before the system that it follows.
    history: History,
    objects: Api<Ingress>,
    fixture: Fixture,
}

impl Ingresses {
    /// A ring of Ingresses with one object, whose labels are the policy's alone to keep.
    async fn start() -> Self {
        let spec = json!({"resources": [
            {"group": "web.example.com", "resource": "websites"}, {"group": "networking.k8s.io", "resource": "ingresses"}]});
        let fixture = Fixture::on(Keeps::Policy, RING, json!({})).await;
        let ring = ClusterRing::new(RING, serde_json::from_value(spec.clone()).unwrap());
        fixture.system.allow(&ring, &[RING]).await.unwrap();
        fixture.apply_ring(spec).await;
        for shard in SHARDS {
            fixture.shard(shard).await;
        }
        // Where one of both was not counted yet the object might move.
        fixture.system.until_counted_are(SHARDS.len(), DEADLINE).await.unwrap();
        let history = History::follow::<Ingress>(&fixture.admin, &fixture.keys).await;
        let objects = Api::namespaced(fixture.admin.clone(), fixture.namespace());
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let object = json!({"metadata": {"name": OBJECT}, "spec": {"defaultBackend": backend}});
        objects.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let this = Self { history, objects, fixture };
        this.until_owned().await;
        until_policy_acts(&this.objects, &this.fixture.keys, OBJECT).await;
        this
    }

    /// Waits until the object has a shard that was not asked to release it; returns what its labels say then.
    async fn until_owned(&self) -> Owner {
        eventually("the object has a shard", DEADLINE, || async {
            let now = self.objects.get(OBJECT).await.map_err(|error| error.to_string())?;
            match self.owner(&now) {
                (Some(shard), None) if SHARDS.contains(&&*shard) => Ok((Some(shard), None)),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap()
    }

    fn owner(&self, object: &Ingress) -> Owner {
        let ownership = self.fixture.keys.ownership(object.metadata.labels.as_ref());
        (ownership.shard.map(str::to_owned), ownership.drain.map(str::to_owned))
    }

    /// Patches the status, and these labels with it; returns what the labels say then.
    async fn patch_status(&self, manager: &str, host: &str, labels: &Value) -> Owner {
        let parameters = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}, "status": status(host)}));
        let written = self.objects.patch_status(OBJECT, &parameters, &patch).await.unwrap();
        self.owner_after(&written, host)
    }

    /// What the labels say after a write of this status, which was carried out but for the labels.
    fn owner_after(&self, written: &Ingress, host: &str) -> Owner {
        assert_eq!(json!(written.status), status(host));
        self.owner(written)
    }

    /// Writes the status by a template without labels, and by patches with these: what the object's own labels say stays.
    async fn keeps(&self, owner: &Owner, patches: &[Value]) {
        let template = json!({"metadata": {"name": OBJECT}, "status": status("template")});
        let template: Ingress = serde_json::from_value(template).unwrap();
        let written = self.objects.replace_status(OBJECT, &PostParams::default(), &template).await.unwrap();
        assert_eq!(self.owner_after(&written, "template"), *owner, "a PUT of a template without labels");
        for (index, labels) in patches.iter().enumerate() {
            let after = self.patch_status("test", &format!("patch-{index}"), labels).await;
            assert_eq!(after, *owner, "a PATCH with {labels}");
        }
    }
}

/// Another status for each host.
fn status(host: &str) -> Value {
    json!({"loadBalancer": {"ingress": [{"hostname": format!("{host}.example.com")}]}})
}

pub(crate) async fn labels_are_kept_when_a_status_is_written() {
    let world = Ingresses::start().await;
    let (shard, drain) = (&world.fixture.keys.shard, &world.fixture.keys.drain);
    let owned = world.until_owned().await;
    let another = SHARDS.into_iter().find(|name| Some(*name) != owned.0.as_deref()).unwrap();
    let patches = [Value::Null, json!({shard: null}), json!({shard: another}), json!({shard: "nobody"})];
    world.keeps(&owned, &patches).await;

    // As our sharder asks our proxy, so that no other client can be taken for the shard that releases.
    let by_hand = Patch::Merge(json!({"metadata": {"labels": {drain: "by-hand.60000ms"}}}));
    let drained = world.objects.patch(OBJECT, &PatchParams::default(), &by_hand).await.unwrap();
    let drained = world.owner(&drained);
    assert_eq!(drained, (owned.0.clone(), Some("by-hand.60000ms".to_owned())));
    let patches =
        [Value::Null, json!({drain: null}), json!({drain: "of-another-move"}), json!({shard: another, drain: null})];
    world.keeps(&drained, &patches).await;

    // A release is not undone here either.
    let released = world.patch_status(ACKNOWLEDGER, "let-go", &json!({shard: null, drain: null})).await;
    assert_eq!(released, (None, None));
    assert_eq!(world.until_owned().await, owned);
    let lost = world.history.lost(&BTreeSet::from(SHARDS));
    assert!(lost.is_empty(), "taken from a live shard without drain: {lost:#?}");
}
