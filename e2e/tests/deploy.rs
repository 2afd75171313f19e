//! What `deploy/` installs: the Helm chart renders the same objects as the kustomize overlays, and every value of it counts.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::OnceLock,
};

use kube::{ResourceExt as _, api::DynamicObject};
use ringside_e2e::{
    helm::{Chart, deploy, overlays},
    manifests,
    toolchain::{self, Environment},
};
use ringside_ring::{cluster_ring::SHARDER_NAMESPACE, placement::DEFAULT_TOKENS_PER_SHARD};
use serde_json::{Value, json};

fn chart() -> &'static Chart {
    static CHART: OnceLock<Chart> = OnceLock::new();
    CHART.get_or_init(|| Chart::find(&Environment::of_process()).unwrap())
}

/// Kind, namespace and name of an object.
type Key = (String, Option<String>, String);

/// Objects as they are compared. Helm has no Namespace in a chart, and its own annotation on what it keeps.
fn by_key(objects: Vec<DynamicObject>) -> BTreeMap<Key, Value> {
    let comparable = objects.into_iter().filter(|object| object.types.as_ref().unwrap().kind != "Namespace");
    comparable
        .map(|object| {
            let kind = object.types.clone().unwrap().kind;
            let key = (kind, object.namespace(), object.name_any());
            let mut value = serde_json::to_value(object).unwrap();
            if let Some(annotations) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.remove("helm.sh/resource-policy");
                if annotations.is_empty() {
                    value["metadata"].as_object_mut().unwrap().remove("annotations");
                }
            }
            (key, value)
        })
        .collect()
}

/// Fails unless kustomize makes of the folder what Helm makes of the values.
fn renders_the_same(folder: &Path, values: &str) {
    let kubectl = toolchain::kubectl(&Environment::of_process()).unwrap();
    let kustomized = by_key(manifests::kustomize(&kubectl, folder).unwrap());
    let mut rendered = by_key(chart().objects(SHARDER_NAMESPACE, &[values]).unwrap());
    for (key, wanted) in &kustomized {
        assert_eq!(rendered.remove(key).as_ref(), Some(wanted), "{}: {key:?}", folder.display());
    }
    assert!(rendered.is_empty(), "{}: the chart alone has {:?}", folder.display(), rendered.keys());
}

#[test]
fn each_overlay_renders_what_the_chart_does() {
    for overlay in overlays().unwrap() {
        renders_the_same(&deploy(&format!("kustomize/overlays/{overlay}")), &chart().values_of(&overlay));
    }
}

#[test]
fn all_components_render_what_the_chart_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy");
    let text = fs::read_to_string(folder.join("everything/kustomization.yaml")).unwrap();
    let default = fs::read_to_string(deploy("kustomize/overlays/default/kustomization.yaml")).unwrap();
    for component in fs::read_dir(deploy("kustomize/components")).unwrap() {
        let name = format!("components/{}\n", component.unwrap().file_name().to_string_lossy());
        assert!(text.contains(&name) || default.contains(&name), "{name} is not compared");
    }
    let values = format!("--values={}", folder.join("everything-values.yaml").display());
    renders_the_same(&folder.join("everything"), &values);
}

/// The harness reads the overlay without kustomize.
#[test]
fn default_overlay_has_no_objects_that_the_harness_misses() {
    let kubectl = toolchain::kubectl(&Environment::of_process()).unwrap();
    let folder = deploy("kustomize/overlays/default");
    let names = |objects: Vec<DynamicObject>| -> BTreeSet<_> { by_key(objects).into_keys().collect() };
    let kustomized = manifests::kustomize(&kubectl, &folder).unwrap();
    assert_eq!(names(manifests::read_folder(&folder).unwrap()), names(kustomized));
}

/// A value, another one in JSON, and what has to be set for it to count.
const CHANGES: [(&str, &str, &str); 48] = [
    ("image.registry", r#""registry.example.com""#, ""),
    ("image.pullPolicy", r#""Always""#, ""),
    ("image.pullSecrets", r#"[{"name": "registry"}]"#, ""),
    ("sharder.image.repository", r#""other""#, ""),
    ("sharder.image.tag", r#""9.9.9""#, ""),
    ("sharder.image.digest", r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#, ""),
    ("sharder.replicas", "3", ""),
    ("sharder.resources", r#"{"requests": {"cpu": "1"}}"#, ""),
    ("sharder.priorityClassName", r#""high""#, ""),
    ("sharder.podSecurityContext", r#"{"runAsUser": 1}"#, ""),
    ("sharder.podAnnotations", r#"{"a": "b"}"#, ""),
    ("sharder.topologyKeys", "[]", ""),
    ("sharder.hostNetwork", "true", ""),
    ("sharder.podDisruptionBudget.enabled", "false", ""),
    ("sharder.podDisruptionBudget.maxUnavailable", "2", ""),
    ("sharder.syncPeriod", r#""1m""#, ""),
    ("sharder.tokensPerShard", "100", ""),
    ("sharder.logFormat", r#""text""#, ""),
    ("sharder.extraArgs", r#"["--log-filter=debug"]"#, ""),
    ("sharder.nodeSelector", r#"{"a": "b"}"#, ""),
    ("sharder.tolerations", r#"[{"operator": "Exists"}]"#, ""),
    ("sharder.affinity", r#"{"nodeAffinity": {}}"#, ""),
    ("webhook.port", "10250", ""),
    ("webhook.url", r#""https://sharder.example.com""#, ""),
    ("webhook.certificate.source", r#""cert-manager""#, ""),
    ("webhook.certificate.duration", r#""24h""#, ""),
    ("webhook.certificate.issuerRef", r#"{"name": "ca"}"#, r#"webhook.certificate.source="cert-manager""#),
    ("crds.install", "false", ""),
    ("crds.keep", "false", ""),
    ("controllerRings.enabled", "true", ""),
    ("rbac.create", "false", ""),
    ("rbac.aggregateToView", "false", ""),
    ("guardPolicy.enabled", "false", ""),
    ("networkPolicy.enabled", "true", ""),
    ("networkPolicy.apiServerCIDRs", r#"["192.0.2.0/24"]"#, "networkPolicy.enabled=true"),
    ("networkPolicy.monitoringNamespace", r#""other""#, "networkPolicy.enabled=true"),
    ("monitoring.podMonitor.enabled", "true", ""),
    ("monitoring.podMonitor.labels", r#"{"a": "b"}"#, "monitoring.podMonitor.enabled=true"),
    ("monitoring.rules.enabled", "true", ""),
    ("monitoring.rules.labels", r#"{"a": "b"}"#, "monitoring.rules.enabled=true"),
    ("monitoring.rules.runbookBase", r#""https://docs.example.com/alerts.html""#, "monitoring.rules.enabled=true"),
    ("monitoring.dashboard.enabled", "true", ""),
    ("monitoring.dashboard.labels", r#"{"a": "b"}"#, "monitoring.dashboard.enabled=true"),
    ("injector.enabled", "true", ""),
    ("injector.failurePolicy", r#""Fail""#, "injector.enabled=true"),
    ("proxy.image.repository", r#""other""#, "injector.enabled=true"),
    ("proxy.image.tag", r#""9.9.9""#, "injector.enabled=true"),
    (
        "proxy.image.digest",
        r#""sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef""#,
        "injector.enabled=true",
    ),
];

/// What is rendered with these values set.
fn rendered(values: &[&str]) -> String {
    let flags: Vec<_> =
        values.iter().filter(|value| !value.is_empty()).flat_map(|value| ["--set-json", value]).collect();
    chart().text(SHARDER_NAMESPACE, &flags).unwrap()
}

#[test]
fn every_value_changes_what_is_rendered() {
    let mut before: BTreeMap<&str, String> = BTreeMap::new();
    for (path, other, with) in CHANGES {
        let unchanged = before.entry(with).or_insert_with(|| rendered(&[with]));
        assert_ne!(rendered(&[with, &format!("{path}={other}")]), *unchanged, "{path} counts for nothing");
    }
}

#[test]
fn every_value_is_tried() {
    fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
        match value.as_object().filter(|map| !map.is_empty()) {
            Some(map) => map.iter().for_each(|(key, value)| leaves(value, &format!("{path}.{key}"), found)),
            None => found.push(path.trim_start_matches('.').to_owned()),
        }
    }
    let text = fs::read_to_string(chart().folder().join("values.yaml")).unwrap();
    let mut found = Vec::new();
    leaves(&serde_saphyr::from_str(&text).unwrap(), "", &mut found);
    let is_tried =
        |leaf: &String| CHANGES.iter().any(|(path, ..)| leaf == path || leaf.starts_with(&format!("{path}.")));
    let untried: Vec<_> = found.iter().filter(|leaf| !is_tried(leaf)).collect();
    assert!(untried.is_empty(), "values without a row above: {untried:?}");
}

#[test]
fn schema_refuses_wrong_values() {
    for (value, said) in [
        ("sharder.replica=3", "additional properties 'replica' not allowed"),
        (r#"sharder.replicas="two""#, "at '/sharder/replicas': got string, want integer"),
        ("sharder.tokensPerShard=0", "/sharder/tokensPerShard"),
        (r#"sharder.syncPeriod="5 minutes""#, "/sharder/syncPeriod"),
        (r#"sharder.logFormat="xml""#, "/sharder/logFormat"),
        (r#"sharder.image.digest="0123""#, "/sharder/image/digest"),
        ("webhook.port=443", "/webhook/port"),
        (r#"webhook.url="http://sharder.example.com""#, "/webhook/url"),
        (r#"webhook.certificate.source="vault""#, "/webhook/certificate/source"),
        (r#"image.registry="registry.example.com/""#, "/image/registry"),
    ] {
        let refused = chart().text(SHARDER_NAMESPACE, &["--set-json", value]).unwrap_err().to_string();
        assert!(refused.contains(said), "{value}: {refused}");
    }
}

#[test]
fn lint_finds_no_fault() {
    for overlay in overlays().unwrap() {
        let output = chart().run(&["lint", "--strict"], SHARDER_NAMESPACE, &[&chart().values_of(&overlay)]).unwrap();
        assert!(output.status.success(), "{overlay}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn another_namespace_is_another_one_everywhere() {
    let text = chart().text("elsewhere", &[]).unwrap();
    let is_definition = |document: &&str| document.contains("kind: CustomResourceDefinition");
    let beside: String = text.split("\n---").filter(|document| !is_definition(document)).collect();
    assert!(!beside.contains(SHARDER_NAMESPACE), "{beside}");
    assert!(beside.contains("system:serviceaccount:elsewhere:ringside-sharder"));
}

fn sharder(objects: &[DynamicObject]) -> &Value {
    let deployment = objects.iter().find(|object| object.types.as_ref().unwrap().kind == "Deployment").unwrap();
    &deployment.data["spec"]["template"]["spec"]
}

#[test]
fn image_is_that_of_the_release_until_values_say_otherwise() {
    let image = |values: &[&str]| {
        let flags: Vec<_> = values.iter().flat_map(|value| ["--set", value]).collect();
        sharder(&chart().objects(SHARDER_NAMESPACE, &flags).unwrap())["containers"][0]["image"].clone()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(image(&[]), format!("ringside-sharder:{version}"));
    let mirror = "image.registry=registry.example.com/team";
    assert_eq!(image(&[mirror]), format!("registry.example.com/team/ringside-sharder:{version}"));
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let digested = image(&[mirror, "sharder.image.tag=v9", &format!("sharder.image.digest={digest}")]);
    assert_eq!(digested, format!("registry.example.com/team/ringside-sharder@{digest}"));
}

#[test]
fn pods_name_no_user_and_no_priority() {
    for overlay in overlays().unwrap() {
        let objects = chart().objects(SHARDER_NAMESPACE, &[&chart().values_of(&overlay)]).unwrap();
        let spec = sharder(&objects);
        for refused in ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "priorityClassName"] {
            assert!(!spec.to_string().contains(refused), "{overlay}: {refused}");
        }
        assert_eq!(spec["securityContext"]["runAsNonRoot"], json!(true), "{overlay}");
        let tokens = format!("--tokens-per-shard={DEFAULT_TOKENS_PER_SHARD}");
        assert!(spec["containers"][0]["args"].as_array().unwrap().contains(&json!(tokens)), "{overlay}");
    }
}
