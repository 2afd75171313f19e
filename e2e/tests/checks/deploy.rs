//! What `deploy/` installs: the Helm chart renders the same objects as the kustomize overlays, and every value of it counts.
//!
//! What Helm and kustomize themselves are asked is left to the second tier.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use kube::{ResourceExt as _, api::DynamicObject};
use ringside_e2e::{
    helm::{Chart, deploy, overlays},
    manifests,
    pages::files,
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

/// All components at once, by kustomize and by values of the chart.
fn everything() -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checks/deploy");
    (folder.join("everything"), format!("--values={}", folder.join("everything-values.yaml").display()))
}

#[test]
#[ignore = "left to --include-ignored: Helm and kubectl, which take minutes to build"]
fn chart_renders_what_kustomize_does() {
    let kubectl = toolchain::kubectl(&Environment::of_process()).unwrap();
    let overlay = |name: String| (deploy(&format!("kustomize/overlays/{name}")), chart().values_of(&name));
    for (folder, values) in overlays().unwrap().into_iter().map(overlay).chain([everything()]) {
        let mut rendered = by_key(chart().objects(SHARDER_NAMESPACE, &[&values]).unwrap());
        for (key, wanted) in by_key(manifests::kustomize(&kubectl, &folder).unwrap()) {
            assert_eq!(rendered.remove(&key).as_ref(), Some(&wanted), "{}: {key:?}", folder.display());
        }
        assert!(rendered.is_empty(), "{}: the chart alone has {:?}", folder.display(), rendered.keys());
    }
}

/// The harness reads the overlay without kustomize.
#[test]
#[ignore = "left to --include-ignored: kubectl, which takes minutes to build"]
fn default_overlay_has_no_objects_that_the_harness_misses() {
    let kubectl = toolchain::kubectl(&Environment::of_process()).unwrap();
    let folder = deploy("kustomize/overlays/default");
    let names = |objects: Vec<DynamicObject>| -> BTreeSet<_> { by_key(objects).into_keys().collect() };
    let kustomized = manifests::kustomize(&kubectl, &folder).unwrap();
    assert_eq!(names(manifests::read_folder(&folder).unwrap()), names(kustomized));
}

/// As kustomize and Helm read them: files that are there, with one object of each name.
#[test]
fn kustomizations_and_chart_have_the_same_files() {
    let (folder, _) = everything();
    let objects = manifests::read_folder(&folder).unwrap();
    assert_eq!(by_key(objects.clone()).len() + 1, objects.len(), "one Namespace, and no object twice");
    let listing = [folder, deploy("kustomize/overlays/default")];
    let listed = listing.map(|folder| fs::read_to_string(folder.join("kustomization.yaml")).unwrap()).concat();
    for component in fs::read_dir(deploy("kustomize/components")).unwrap() {
        let name = format!("components/{}\n", component.unwrap().file_name().to_string_lossy());
        assert!(listed.contains(&name), "{name} is not compared");
    }
    let kustomize = deploy("kustomize").canonicalize().unwrap();
    for file in fs::read_dir(deploy("helm/ringside/files")).unwrap() {
        let target = file.unwrap().path().canonicalize().unwrap();
        assert!(target.starts_with(&kustomize), "the chart has a file of its own: {}", target.display());
    }
    for overlay in overlays().unwrap() {
        assert!(deploy(&format!("helm/ringside/ci/{overlay}-values.yaml")).exists(), "{overlay} is not compared");
    }
}

/// Before Kubernetes 1.36 an API server can end where a policy that has them is compiled while another is evaluated
/// (kubernetes/kubernetes#135757).
#[test]
fn validating_policies_have_no_variables() {
    let objects = manifests::read_folder(&everything().0).unwrap();
    let policies = objects.iter().filter(|it| it.types.as_ref().unwrap().kind == "ValidatingAdmissionPolicy");
    let (with, without): (Vec<_>, Vec<_>) = policies.partition(|it| !it.data["spec"]["variables"].is_null());
    assert_eq!(with.iter().map(|it| it.name_any()).collect::<Vec<_>>(), [""; 0]);
    assert!(without.len() > 1, "the guards are not among what is installed");
}

/// A value, another one in JSON, and what has to be set for it to count.
const CHANGES: [(&str, &str, &str); 50] = [
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
    ("proxy.resources.requests", r#"{"cpu":"10m"}"#, "injector.enabled=true"),
    ("proxy.resources.limits", r#"{"memory":"64Mi"}"#, "injector.enabled=true"),
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
#[ignore = "left to --include-ignored: Helm, which takes minutes to build"]
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
    let text = fs::read_to_string(deploy("helm/ringside/values.yaml")).unwrap();
    let mut found = Vec::new();
    leaves(&serde_saphyr::from_str(&text).unwrap(), "", &mut found);
    let is_tried =
        |leaf: &String| CHANGES.iter().any(|(path, ..)| leaf == path || leaf.starts_with(&format!("{path}.")));
    let untried: Vec<_> = found.iter().filter(|leaf| !is_tried(leaf)).collect();
    assert!(untried.is_empty(), "values without a row above: {untried:?}");
}

#[test]
#[ignore = "left to --include-ignored: Helm, which takes minutes to build"]
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
#[ignore = "left to --include-ignored: Helm, which takes minutes to build"]
fn lint_finds_no_fault() {
    for overlay in overlays().unwrap() {
        let output = chart().run(&["lint", "--strict"], SHARDER_NAMESPACE, &[&chart().values_of(&overlay)]).unwrap();
        assert!(output.status.success(), "{overlay}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
#[ignore = "left to --include-ignored: Helm, which takes minutes to build"]
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
#[ignore = "left to --include-ignored: Helm, which takes minutes to build"]
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

/// cert-manager writes an authority into the webhooks at once, and a kubelet shows files a minute later. So a renewed certificate
/// has to be of the authority that is there. The chart renders the same objects.
#[test]
fn certificate_of_cert_manager_is_signed_by_an_authority_that_outlives_it() {
    let objects = manifests::read(&deploy("kustomize/components/cert-manager/certificate.yaml")).unwrap();
    let find = |kind: &str, name: &str| {
        let is_it = |object: &&DynamicObject| object.types.as_ref().unwrap().kind == kind && object.name_any() == name;
        &objects.iter().find(is_it).unwrap_or_else(|| panic!("{kind} {name}")).data["spec"]
    };
    let hours = |certificate: &Value| -> u32 {
        certificate["duration"].as_str().unwrap().trim_end_matches('h').parse().unwrap()
    };
    let leaf = find("Certificate", "ringside-sharder");
    let issuer = find("Issuer", leaf["issuerRef"]["name"].as_str().unwrap());
    let authority = find("Certificate", "ringside-sharder-ca");
    assert_eq!(issuer["ca"]["secretName"], authority["secretName"]);
    assert_eq!(authority["isCA"], json!(true));
    assert_eq!(authority["privateKey"]["rotationPolicy"], json!("Never"), "else its renewal is another authority");
    assert!(hours(authority) >= 10 * hours(leaf));
    assert_ne!(leaf["secretName"], authority["secretName"]);
}

/// The namespace of OpenShift names user and group, and no cluster need have a priority.
#[test]
fn sharder_names_no_user_and_no_priority_anywhere() {
    let objects = manifests::read_folder(&everything().0).unwrap();
    let spec = sharder(&objects);
    let container = &spec["containers"][0];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], json!(true));
    assert_eq!(container["image"], format!("ringside-sharder:{}", env!("CARGO_PKG_VERSION")));
    let tokens = json!(format!("--tokens-per-shard={DEFAULT_TOKENS_PER_SHARD}"));
    assert!(container["args"].as_array().unwrap().contains(&tokens), "{container}");
    // Patches too.
    for path in files("deploy/kustomize", "yaml") {
        let text = fs::read_to_string(&path).unwrap();
        let refused = ["runAsUser:", "runAsGroup:", "fsGroup:", "supplementalGroups:", "priorityClassName:"];
        let found = refused.iter().find(|word| text.contains(**word));
        assert_eq!(found, None, "{}", path.display());
    }
}
