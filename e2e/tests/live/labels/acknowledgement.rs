//! What looks like an acknowledgement, and is none: the labels of a drained object, taken off by whom it was not asked of.

use http::{Request, header};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use ringside_e2e::plain_shard::LEASE_RING;
use ringside_e2e::{
    eventually::eventually,
    system::{NAMESPACE, Settings, System},
    website::{Website, WebsiteSpec},
};
use ringside_ring::{RingLabels, labels::ACKNOWLEDGER};
use serde_json::{Value, json};

use crate::labels::fixture::DEADLINE;

/// Longer than any test: nobody renews it.
const LEASE_SECONDS: i32 = 120;

/// A shard that holds its Lease, and lets go of nothing by itself.
const SHARD: &str = "shard-0";

/// Shard and drain of the object.
type Owner = (Option<String>, Option<String>);

struct Drained {
    system: System,
    labels: RingLabels,
    websites: Api<Website>,
}

impl Drained {
    /// A system with one object that waits for its shard.
    async fn start(settings: Settings) -> Self {
        let mut system = System::start(settings).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        let client = system.control_plane().client();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(SHARD.to_owned()),
                labels: Some([(LEASE_RING.to_owned(), ring.to_string())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(SHARD.to_owned()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                ..LeaseSpec::default()
            }),
        };
        Api::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &lease).await.unwrap();
        system.until_counted_are(1, DEADLINE).await.unwrap();
        let websites: Api<Website> = Api::namespaced(client, NAMESPACE);
        websites.create(&PostParams::default(), &Website::new("site", WebsiteSpec::default())).await.unwrap();
        let this = Self { system, labels: RingLabels::of(&ring), websites };
        eventually("the object has its shard", DEADLINE, || async {
            match this.labels().await {
                (Some(shard), None) if shard == SHARD => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
        this
    }

    async fn labels(&self) -> Owner {
        self.owner_of(&self.websites.get("site").await.unwrap())
    }

    fn owner_of(&self, website: &Website) -> Owner {
        let ownership = self.labels.ownership(website.metadata.labels.as_ref());
        (ownership.shard.map(str::to_owned), ownership.drain.map(str::to_owned))
    }

    /// Changes labels of the object: by a Pod when one is named, else as a user. Returns those of the answer.
    async fn write(&self, pod: Option<&str>, labels: Value) -> Owner {
        self.write_as("", pod, labels).await
    }

    /// As a field manager.
    async fn write_as(&self, manager: &str, pod: Option<&str>, labels: Value) -> Owner {
        let path = format!("/apis/web.example.com/v1/namespaces/{NAMESPACE}/websites/site?fieldManager={manager}");
        let mut request = Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json");
        if let Some(pod) = pod {
            request = request
                .header("Impersonate-User", format!("system:serviceaccount:{NAMESPACE}:website-controller"))
                .header("Impersonate-Extra-authentication.kubernetes.io%2Fpod-name", pod);
        }
        let body = serde_json::to_vec(&json!({"metadata": {"labels": labels}})).unwrap();
        let client: Client = self.system.control_plane().client();
        let written: Website = client.request(request.body(body).unwrap()).await.unwrap();
        assert_eq!(written.name_any(), "site");
        self.owner_of(&written)
    }

    /// How often the API server has asked the webhook about a change of an object, or tried to.
    async fn reviews(&self) -> u64 {
        let client = self.system.control_plane().client();
        let metrics = client.request_text(Request::get("/metrics").body(vec![]).unwrap()).await.unwrap();
        let of_updates = |line: &&str| {
            line.starts_with("apiserver_admission_webhook_admission_duration_seconds_count{")
                && line.contains(r#"name="sharder.sharding.timebertt.dev""#)
                && line.contains(r#"operation="UPDATE""#)
        };
        let counts = metrics.lines().filter(of_updates).map(|line| line.rsplit(' ').next().unwrap());
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    }

    async fn until_assigned_anew(&self) {
        eventually("it is assigned anew", DEADLINE, || async {
            match self.labels().await {
                (Some(shard), None) if shard == SHARD => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    }

    /// Another Pod takes both labels off; then the shard does. Where a proxy has promised a grace, the shard's own controller
    /// does first.
    async fn only_its_shard_lets_go(&self) {
        let (shard, drain) = (&self.labels.shard, &self.labels.drain);
        let drained = (Some(SHARD.to_owned()), Some("by-hand".to_owned()));
        self.write(None, json!({drain: "by-hand"})).await;
        assert_eq!(self.labels().await, drained);
        self.write(Some("another-pod"), json!({shard: null, drain: null})).await;
        assert_eq!(self.labels().await, drained, "its shard works on it");
        let reviews = self.reviews().await;
        self.write(Some(SHARD), json!({shard: null, drain: null})).await;
        self.until_assigned_anew().await;
        assert_eq!(self.reviews().await, reviews, "the webhook would leave it alone");

        let promised = "by-hand.60000ms";
        self.write(None, json!({drain: promised})).await;
        let drained = (Some(SHARD.to_owned()), Some(promised.to_owned()));
        for manager in ["", "the-controller"] {
            self.write_as(manager, Some(SHARD), json!({shard: null, drain: null})).await;
            assert_eq!(self.labels().await, drained, "its controller works on it, by '{manager}'");
        }
        self.write_as(ACKNOWLEDGER, Some("another-pod"), json!({shard: null, drain: null})).await;
        assert_eq!(self.labels().await, drained);
        let reviews = self.reviews().await;
        self.write_as(ACKNOWLEDGER, Some(SHARD), json!({shard: null, drain: null})).await;
        self.until_assigned_anew().await;
        assert_eq!(self.reviews().await, reviews, "what waits for the controller is acknowledged without the webhook");
    }
}

pub(crate) async fn the_policy_tells_an_acknowledgement_from_stripped_labels() {
    let world = Drained::start(Settings { webhook: false, ..Settings::default() }).await;
    let (shard, drain) = (&world.labels.shard, &world.labels.drain);
    eventually("the policy acts", DEADLINE, || async {
        // The answer, as the sharder mends what the policy let pass.
        match world.write(None, json!({shard: "another"})).await {
            (Some(shard), None) if shard == SHARD => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    world.only_its_shard_lets_go().await;
    world.write(None, json!({drain: "by-hand"})).await;
    let drained = (Some(SHARD.to_owned()), Some("by-hand".to_owned()));
    world.write(None, json!({drain: null})).await;
    assert_eq!(world.labels().await, drained, "a drain is not withdrawn: its shard may be letting go just now");
    world.write(None, json!({drain: "of-another-move"})).await;
    assert_eq!(world.labels().await, drained);
    world.write(None, json!({shard: null})).await;
    assert_eq!(world.labels().await, drained);
}

pub(crate) async fn the_webhook_tells_an_acknowledgement_from_stripped_labels() {
    let world = Drained::start(Settings::without_label_policies()).await;
    world.only_its_shard_lets_go().await;
    assert!(world.reviews().await > 0, "it told apart what was none");
}
