//! Manifests and columns as published for the contract's own implementation, on a real API server with a real sharder.

use std::time::Duration;

use http::{Request, header};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{Api, Client, api::PostParams};
use ringside_e2e::{
    case,
    live::Group,
    manifests::{apply, parse},
    ring_status::{status, until_condition},
};
use ringside_ring::ClusterRing;
use serde_json::{Value, json};

use crate::planes::{Keeps, plane};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "contract",
        vec![
            case!(the_published_manifest_is_accepted_as_it_stands),
            case!(a_ring_that_can_not_work_is_refused_with_a_reason_and_a_remedy),
        ],
    )
}

/// From the implementation chapter of the thesis, to the letter.
const EXAMPLE: &str = r#"
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata:
  name: example
  generation: 1
spec:
  resources:
  - group: ""
    resource: configmaps
    controlledResources:
    - group: ""
      resource: secrets
  namespaceSelector:
    matchLabels:
      role: project
status:
  observedGeneration: 1
  shards: 3
  availableShards: 3
  conditions:
  - lastTransitionTime: "2024-01-16T08:09:02Z"
    message: ClusterRing was successfully reconciled
    observedGeneration: 1
    reason: ReconciliationSucceeded
    status: "True"
    type: Ready
"#;

const DEADLINE: Duration = Duration::from_secs(30);

/// What `kubectl get clusterring NAME` prints, as a Table.
async fn table(client: &Client, ring: &str) -> Value {
    let request = Request::get(format!("/apis/sharding.timebertt.dev/v1alpha1/clusterrings/{ring}"));
    let request = request.header(header::ACCEPT, "application/json;as=Table;g=meta.k8s.io;v=v1");
    client.request(request.body(Vec::new()).unwrap()).await.unwrap()
}

async fn the_published_manifest_is_accepted_as_it_stands() {
    let plane = plane(Keeps::Both).await;
    let client = plane.control_plane().client();
    let example: ClusterRing = serde_saphyr::from_str(EXAMPLE).unwrap();
    plane.allow(&example, &["default"]).await.unwrap();
    apply(&client, &parse(EXAMPLE).unwrap()).await.unwrap();

    let ring = "example".parse().unwrap();
    until_condition(&client, &ring, "Ready", "True", DEADLINE).await.unwrap();
    let status = status(&client, &ring).await.unwrap();
    // What a user writes into the status counts for nothing; what the sharder found does.
    assert_eq!((status.observed_generation, status.shards, status.available_shards), (1, 0, 0));
    assert_eq!(status.conditions[0].reason, "ReconciliationSucceeded");
    assert_eq!(status.conditions[0].message, "ClusterRing was successfully reconciled");

    let table = table(&client, "example").await;
    let columns: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(columns, ["Name", "Ready", "Shards", "Objects", "Unassigned", "Draining", "Available", "Lone", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("example"), json!("True"), json!(0)]);

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client);
    let configuration = configurations.get("sharding-clusterring-50d858e0-example").await.unwrap();
    assert_eq!(configuration.metadata.labels.unwrap()["app.kubernetes.io/name"], "controller-sharding");
    let webhook = &configuration.webhooks.unwrap()[0];
    assert_eq!(webhook.name, "sharder.sharding.timebertt.dev");
    assert_eq!((webhook.failure_policy.as_deref(), webhook.timeout_seconds), (Some("Ignore"), Some(2)));
    let selected = webhook.namespace_selector.clone().unwrap().match_labels.unwrap();
    assert_eq!(selected["role"], "project");
    let unassigned = &webhook.object_selector.clone().unwrap().match_expressions.unwrap()[0];
    assert_eq!(unassigned.key, "shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example");
    assert_eq!(unassigned.operator, "DoesNotExist");
}

async fn a_ring_that_can_not_work_is_refused_with_a_reason_and_a_remedy() {
    let plane = plane(Keeps::Both).await;
    let rings: Api<ClusterRing> = Api::all(plane.control_plane().client());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |name: &str, resources: Value| {
        let ring = ClusterRing::new(name, serde_json::from_value(json!({"resources": resources})).unwrap());
        rings.create(&dry, &ring).await
    };
    let (main, secrets) = (json!({"resource": "configmaps"}), json!({"resource": "secrets"}));
    let with = |controlled: Value| json!([{"resource": "configmaps", "controlledResources": controlled}]);
    let of = |group: &str, resource: &str| json!({"group": group, "resource": resource});
    let (short, long) = ("a".repeat(63), "a".repeat(64));
    let ours = "take them out of the ring";
    for (name, bad, remedy) in [
        // A value of a label has no more.
        (&long, json!([main]), "63 characters at most"),
        (&short, json!([]), "name at least one resource in spec.resources"),
        (&short, json!([main, secrets, main]), "name it once"),
        (&short, with(json!([secrets, secrets])), "name it once"),
        (&short, with(json!([secrets, main])), "take it out there"),
        (&short, json!([main, of("coordination.k8s.io", "leases")]), ours),
        (&short, with(json!([of("coordination.k8s.io", "leases")])), ours),
        (&short, json!([of("sharding.timebertt.dev", "clusterrings")]), ours),
        (&short, json!([of("admissionregistration.k8s.io", "mutatingwebhookconfigurations")]), ours),
        (&short, with(json!([of("admissionregistration.k8s.io", "validatingadmissionpolicies")])), ours),
    ] {
        let refused = create(name, bad.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(remedy), "{bad}: {refused}");
    }
    let many = |count: usize| (0..count).map(|number| of("x.example.com", &format!("r{number}s"))).collect::<Value>();
    for good in [
        json!([main]),
        with(json!([secrets])),
        // A chain, link by link.
        json!([{"group": "apps", "resource": "deployments", "controlledResources": [main]}, with(json!([secrets]))[0]]),
        // The same name in another group.
        json!([of("", "events"), of("events.k8s.io", "events"), of("x.example.com", "leases")]),
        many(64),
        with(many(32)),
    ] {
        assert!(create(&short, good.clone()).await.is_ok(), "{good}");
    }
}
