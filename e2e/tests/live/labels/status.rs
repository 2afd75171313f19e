//! Writes of a status that say something about labels.
//!
//! Of a custom resource such a write changes the status alone, and the API server itself leaves the labels out. Of most
//! built-in resources it takes them as well: whoever `PUT`s a status from a template takes all labels off. The webhook is not
//! called for that, so only the policy keeps them. Ingresses are such a resource, and the control plane has no controller for
//! them that would write beside these tests.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::networking::v1::Ingress;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    plain_shard::{PlainShard, join_all},
    system::{NAMESPACE, Settings, System},
};
use ringside_ring::{ClusterRing, RingLabels, RingName, ShardName, labels::ACKNOWLEDGER};
use serde_json::{Value, json};

use crate::labels::{fixture::DEADLINE, history::History};

const RING: &str = "ingresses";
const SHARDS: [&str; 2] = ["ingresses-0", "ingresses-1"];
const OBJECT: &str = "shop";

/// Renewed often enough on any machine; nobody lets go of anything by itself.
const LEASE: Duration = Duration::from_secs(60);

/// Shard and drain of the object.
type Owner = (Option<String>, Option<String>);

struct Ingresses {
    /// Gone before the system that it follows, as the shards are.
    history: History,
    #[allow(dead_code, reason = "they renew their Leases until they are dropped")]
    shards: Vec<PlainShard>,
    labels: RingLabels,
    objects: Api<Ingress>,
    system: System,
}

impl Ingresses {
    /// A ring of Ingresses with one object, whose labels are the policy's alone to keep.
    async fn start() -> Self {
        let mut system = System::start(Settings { webhook: false, ..Settings::default() }).await.unwrap();
        let client = system.control_plane().client();
        system.start_sharders(1).await.unwrap();
        let spec = json!({"resources": [{"group": "networking.k8s.io", "resource": "ingresses"}]});
        let ring = ClusterRing::new(RING, serde_json::from_value(spec).unwrap());
        system.allow(&ring, &[NAMESPACE]).await.unwrap();
        Api::<ClusterRing>::all(client.clone()).create(&PostParams::default(), &ring).await.unwrap();
        let name: RingName = RING.parse().unwrap();
        let names = SHARDS.map(|shard| shard.parse::<ShardName>().unwrap());
        let shards = join_all(&client, NAMESPACE, &name, names, LEASE).await.unwrap();
        let labels = RingLabels::of(&name);
        let history = History::follow::<Ingress>(&client, &labels).await;
        let objects = Api::namespaced(client, NAMESPACE);
        let this = Self { history, shards, labels, objects, system };
        // Where one of both was not counted yet the object might move.
        this.until_shards_are_counted().await;
        this.create().await;
        this.until_the_policy_acts().await;
        this
    }

    async fn until_shards_are_counted(&self) {
        let rings: Api<ClusterRing> = Api::all(self.system.control_plane().client());
        eventually("the sharder counts the shards", DEADLINE, || async {
            let ring = rings.get(RING).await.map_err(|error| error.to_string())?;
            let available = ring.status.ok_or("there is no status")?.available_shards;
            if usize::try_from(available) == Ok(SHARDS.len()) { Ok(()) } else { Err(available.to_string()) }
        })
        .await
        .unwrap();
    }

    async fn create(&self) {
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let object = json!({"metadata": {"name": OBJECT}, "spec": {"defaultBackend": backend}});
        let object: Ingress = serde_json::from_value(object).unwrap();
        self.objects.create(&PostParams::default(), &object).await.unwrap();
        self.until_owned().await;
    }

    /// Waits until the object has a shard that was not asked to let go of it; returns what its labels say then.
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

    /// By a write of the object itself: what acts there is the same policy.
    async fn until_the_policy_acts(&self) {
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let strip = Patch::Merge(json!({"metadata": {"labels": {&self.labels.shard: null}}}));
        eventually("the policy acts", DEADLINE, || async {
            let stripped = self.objects.patch(OBJECT, &dry_run, &strip).await.map_err(|error| error.to_string())?;
            self.owner(&stripped).0.map(drop).ok_or_else(|| "the label would be gone".to_owned())
        })
        .await
        .unwrap();
    }

    fn owner(&self, object: &Ingress) -> Owner {
        let ownership = self.labels.ownership(object.metadata.labels.as_ref());
        (ownership.shard.map(str::to_owned), ownership.drain.map(str::to_owned))
    }

    /// Asks for a drain by hand, in the object itself.
    async fn drain(&self, value: &str) -> Owner {
        let drain = Patch::Merge(json!({"metadata": {"labels": {&self.labels.drain: value}}}));
        let drained = self.objects.patch(OBJECT, &PatchParams::default(), &drain).await.unwrap();
        self.owner(&drained)
    }

    /// `PUT`s a status by a template that knows nothing else than the name; returns what the labels say after it.
    async fn put_status(&self) -> Owner {
        let status = status("template");
        let template = json!({"metadata": {"name": OBJECT}, "status": status});
        let template: Ingress = serde_json::from_value(template).unwrap();
        let written = self.objects.replace_status(OBJECT, &PostParams::default(), &template).await.unwrap();
        self.owner_after(&written, &status)
    }

    /// Patches the status, and these labels with it.
    async fn patch_status(&self, manager: Option<&str>, host: &str, labels: &Value) -> Owner {
        let status = status(host);
        let parameters = PatchParams { field_manager: manager.map(str::to_owned), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}, "status": status}));
        let written = self.objects.patch_status(OBJECT, &parameters, &patch).await.unwrap();
        self.owner_after(&written, &status)
    }

    /// What the labels say after a write of this status, which was carried out but for the labels.
    fn owner_after(&self, written: &Ingress, status: &Value) -> Owner {
        assert_eq!(json!(written.status), *status);
        self.owner(written)
    }

    /// Writes the status by a template without labels, and by patches with these: what the object's own labels say stays.
    async fn keeps(&self, owner: &Owner, patches: &[(&str, Value)]) {
        assert_eq!(self.put_status().await, *owner, "a PUT of a template without labels");
        for (index, (what, labels)) in patches.iter().enumerate() {
            let after = self.patch_status(None, &format!("patch-{index}"), labels).await;
            assert_eq!(after, *owner, "a PATCH with {what}");
        }
    }
}

/// Another status for each host.
fn status(host: &str) -> Value {
    json!({"loadBalancer": {"ingress": [{"hostname": format!("{host}.example.com")}]}})
}

pub(crate) async fn labels_are_kept_when_a_status_is_written() {
    let world = Ingresses::start().await;
    let (shard, drain) = (&world.labels.shard, &world.labels.drain);
    let owned = world.until_owned().await;
    let another = SHARDS.into_iter().find(|name| Some(*name) != owned.0.as_deref()).unwrap();
    let patches = [
        ("all labels taken off", Value::Null),
        ("the shard label taken off", json!({shard: null})),
        ("another live shard", json!({shard: another})),
        ("a shard that nobody is", json!({shard: "nobody"})),
    ];
    world.keeps(&owned, &patches).await;

    // As our sharder asks our proxy, so that nobody else can be taken for the one who lets go.
    let drained = world.drain("by-hand.60000ms").await;
    assert_eq!(drained, (owned.0.clone(), Some("by-hand.60000ms".to_owned())));
    let patches = [
        ("all labels taken off a drained object", Value::Null),
        ("the drain taken off", json!({drain: null})),
        ("another drain", json!({drain: "of-another-move"})),
        ("another live shard instead of the drain", json!({shard: another, drain: null})),
    ];
    world.keeps(&drained, &patches).await;

    // What lets go is not undone here either.
    let let_go = world.patch_status(Some(ACKNOWLEDGER), "let-go", &json!({shard: null, drain: null})).await;
    assert_eq!(let_go, (None, None));
    assert_eq!(world.until_owned().await, owned);
    let lost = world.history.lost(&BTreeSet::from(SHARDS));
    assert!(lost.is_empty(), "taken from a live shard without drain: {lost:#?}");
}
