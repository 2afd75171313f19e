//! `ringside inject` and the injecting webhook on a real API server.

use std::{path::Path, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    apps::v1::Deployment,
    core::v1::{Namespace, Pod, ResourceQuota},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::Group,
    manifests,
    ring_status::{condition, until_status},
    system::{NAMESPACE, Return, Settings, System},
};
use serde_json::{Value, json};

use crate::{
    command::ringside,
    planes::{Keeps, plane},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "inject",
        vec![
            case!(published_controllers_are_accepted_with_the_proxy).works(),
            case!(workload_is_injected_and_given_back),
            case!(pods_get_the_proxy_at_their_creation),
            case!(neighbours_are_named_before_anything_is_written).costs("namespaces with quotas, limits and a policy"),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(60);

async fn published_controllers_are_accepted_with_the_proxy() {
    let plane = plane(Keeps::Both).await;
    let (client, kubeconfig) = (plane.control_plane().client(), plane.control_plane().kubeconfig_path());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/manifests");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let (_, text) = ringside(&kubeconfig, &["inject", "--ring=websites", "-f", file.to_str().unwrap()]).await;
        let mut deployments: Vec<DynamicObject> = manifests::parse(&text).unwrap();
        deployments.retain(|object| object.types.as_ref().is_some_and(|types| types.kind == "Deployment"));
        let [deployment] = &mut deployments[..] else { panic!("{}", file.display()) };
        deployment.metadata.namespace = Some(NAMESPACE.to_owned());
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::erase::<Deployment>(&()));
        let made = api.create(&dry_run, deployment).await.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let inits = made.data.pointer("/spec/template/spec/initContainers").and_then(Value::as_array).unwrap();
        assert_eq!(inits.last().unwrap()["restartPolicy"], "Always", "{}", file.display());
        names.push(deployment.name_any());
    }
    assert_eq!(names.len(), 10, "{names:?}");
}

async fn workload_is_injected_and_given_back() {
    let plane = plane(Keeps::Both).await;
    let mut system = System::on(&plane, "inject", Keeps::Both.settings()).await.unwrap();
    system.start_ring().await.unwrap();
    let (client, namespace) = (system.control_plane().client(), system.namespace().to_owned());
    let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let container = json!({"name": "manager", "image": "m", "env": [{"name": "KUBECONFIG", "value": "/mine"}]});
    let template = json!({"metadata": {"labels": {"app": "m"}},
        "spec": {"serviceAccountName": "manager", "containers": [container]}});
    let manager = json!({"metadata": {"name": "manager"},
        "spec": {"selector": {"matchLabels": {"app": "m"}}, "template": template}});
    let before = api.create(&PostParams::default(), &serde_json::from_value(manager).unwrap()).await.unwrap();
    let template = |deployment: Deployment| deployment.spec.unwrap().template;

    let kubeconfig = system.control_plane().kubeconfig_path();
    let workload = format!("{namespace}/manager");
    let types = async |command: &str, expected: i32| {
        let words: Vec<_> = command.split_whitespace().chain([&*workload]).collect();
        let (code, text) = ringside(&kubeconfig, &words).await;
        assert_eq!(code, expected, "{text}");
        text.trim_end().to_owned()
    };
    let text = types("inject --ring=inject --with-rbac --dry-run=server", 0).await;
    assert!(text.ends_with("was not changed (dry run)"), "{text}");
    assert!(text.contains("+ initContainers[0] ringside-proxy\n") && text.contains("+ permissions: "), "{text}");
    assert_eq!(template(api.get("manager").await.unwrap()), template(before.clone()), "nothing was written");

    let text = types("inject --ring=inject --with-rbac", 0).await;
    assert!(text.ends_with(&format!("Deployment {workload} changed")), "{text}");
    let injected = api.get("manager").await.unwrap();
    assert_eq!(injected.metadata.generation, Some(2));
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), &namespace);
    let bound = bindings.list(&ListParams::default()).await.unwrap();
    let subjects: Vec<_> = bound.items.iter().flat_map(|one| one.subjects.iter().flatten()).collect();
    for account in ["manager", "website-controller"] {
        assert!(subjects.iter().any(|one| one.name == account), "{account}: another workload's stays bound");
    }
    assert!(types("inject --ring=inject --with-rbac", 0).await.ends_with("is as it should be"));
    assert_eq!(api.get("manager").await.unwrap().metadata.generation, Some(2), "no pod is replaced");

    // Another tool's is left to that.
    let helm = json!({"metadata": {"annotations": {"meta.helm.sh/release-name": "web"}}});
    // Which is a generation of its own: those of Deployments count their annotations.
    let theirs = api.patch("manager", &PatchParams::default(), &Patch::Merge(helm)).await.unwrap();
    assert!(types("uninject", 2).await.contains("managed by Helm release \"web\""));
    assert_eq!(api.get("manager").await.unwrap().metadata.generation, theirs.metadata.generation);
    assert!(types("uninject --force", 0).await.ends_with("changed"));
    assert_eq!(template(api.get("manager").await.unwrap()), template(before));
    assert!(types("uninject --force", 0).await.ends_with("has no sidecar of `ringside inject`"), "it is done");
}

fn pod(name: &str, labels: &Value) -> Pod {
    let pod = json!({"metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "manager", "image": "m"}]}});
    serde_json::from_value(pod).unwrap()
}

fn mounts(pod: &Value, container: &str) -> Vec<String> {
    let mounts = pod.pointer(&format!("/spec/{container}/volumeMounts")).and_then(Value::as_array).unwrap();
    mounts.iter().map(|mount| format!("{} {}", mount["name"], mount["mountPath"])).collect()
}

/// Pods that a webhook or a client with old types wrote have the sidecar as it was.
async fn sidecar_is_kept(pods: &Api<Pod>, mut made: Value) {
    let without_policy = |pod: &mut Value| {
        pod["spec"]["initContainers"][0].as_object_mut().unwrap().remove("restartPolicy").unwrap();
    };
    let policy = |pod: Pod| serde_json::to_value(pod).unwrap()["spec"]["initContainers"][0]["restartPolicy"].clone();
    without_policy(&mut made);
    made["metadata"]["annotations"]["updated"] = "by a client with old types".into();
    let updated =
        pods.replace("manager-0", &PostParams::default(), &serde_json::from_value(made.clone()).unwrap()).await;
    assert_eq!(policy(updated.unwrap()), "Always");
    made["metadata"] = json!({"name": "manager-1", "annotations": {"ringside.dev/injected": "0"}});
    let created = pods.create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await;
    assert_eq!(policy(created.unwrap()), "Always");
}

/// A namespace with a Deployment, and what interferes there.
fn neighbourhood(namespace: &str, more: &str) -> Vec<DynamicObject> {
    const TEXT: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: NAMESPACE}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 10m, memory: 32Mi}}}]}
---
"#;
    manifests::parse(&format!("{TEXT}{more}").replace("NAMESPACE", namespace)).unwrap()
}

const QUOTA: &str = r#"
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: NAMESPACE}
spec: {hard: {limits.cpu: "4", limits.memory: 4Gi}}
"#;

/// The policy does what a webhook with types of Pods from before Kubernetes 1.28 does.
const OLD_TYPES: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: has-a-sidecar, expression: "has(object.spec.initContainers) && has(object.spec.initContainers[0].restartPolicy)"}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/spec/initContainers/0/restartPolicy"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
"#;

fn limits(limit: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: LimitRange, metadata: {{name: l, namespace: NAMESPACE}}, \
         spec: {{limits: [{{type: Container, {limit}}}]}}}}"
    )
}

async fn neighbours_are_named_before_anything_is_written() {
    let plane = plane(Keeps::Both).await;
    let (client, kubeconfig) = (plane.control_plane().client(), plane.control_plane().kubeconfig_path());
    let inject = async |namespace: &str, more: &[&str]| {
        let workload = format!("{namespace}/web");
        let words = ["inject", &workload, "--ring=websites"];
        ringside(&kubeconfig, &[&words, more].concat()).await
    };
    let generation = async |namespace: &str| {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        deployments.get("web").await.unwrap().metadata.generation
    };
    let of_quota = ["--proxy-requests=cpu=50m", "--proxy-limits=cpu=500m"];
    for (namespace, more, told, remedy) in [
        ("near-quota", QUOTA.to_owned(), "ResourceQuota q refuses a Pod with the sidecar", &of_quota[..]),
        ("near-most", limits("max: {memory: 64Mi}"), "a LimitRange refuses a Pod", &["--proxy-limits=memory=64Mi"]),
        (
            "near-least",
            limits("min: {memory: 32Mi}, max: {cpu: 20m}"),
            "a LimitRange refuses",
            &["--proxy-limits=cpu=20m"],
        ),
        ("near-ratio", limits("maxLimitRequestRatio: {memory: 2}"), "", &[]),
        ("near-old-types", OLD_TYPES.to_owned(), "drops `restartPolicy` of the sidecar", &["--plain-container"]),
    ] {
        manifests::apply(&client, &neighbourhood(namespace, &more)).await.unwrap();
        if namespace == "near-quota" {
            // What the controller manager does.
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
            let hard = json!({"limits.cpu": "4", "limits.memory": "4Gi"});
            let status = json!({"status": {"hard": hard, "used": {"limits.cpu": "0", "limits.memory": "0"}}});
            quotas.patch_status("q", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        }
        // The API server sees limits and policies a moment later.
        eventually(namespace, DEADLINE, || async {
            let (code, text) = inject(namespace, &["--dry-run=server"]).await;
            let expected = if told.is_empty() { 0 } else { 2 };
            if code == expected && text.contains(told) { Ok(()) } else { Err(format!("{code}: {text}")) }
        })
        .await
        .unwrap();
        if !told.is_empty() {
            assert_eq!(inject(namespace, &[]).await.0, 2);
            assert_eq!(generation(namespace).await, Some(1), "nothing was written");
            let (_, text) = ringside(&kubeconfig, &["check", &format!("{namespace}/web")]).await;
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("× POD ") && text.contains("(docs: neighbours)"), "{text}");
        }
        let (code, text) = inject(namespace, remedy).await;
        assert!(code == 0 && text.contains("changed"), "{code}: {text}");
    }
}

async fn pods_get_the_proxy_at_their_creation() {
    let mut system = System::start(Settings { injector: true, ..Settings::default() }).await.unwrap();
    let client = system.control_plane().client();
    // It lets no webhook be called by URL, as it is here.
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete("ringside-sharder-guard", &Default::default()).await.unwrap();
    system.start_sharders(1).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let labelled = json!({"ringside.dev/inject": "websites"});
    let is_injected = |pod: &Pod| pod.annotations().contains_key("ringside.dev/injected");
    let until = async |what: &str, pod: &Pod| {
        eventually(what, DEADLINE, || async {
            match pods.create(&dry_run, pod).await {
                Ok(made) if is_injected(&made) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .unwrap();
    };
    until("a pod that asks for it gets the proxy", &pod("early", &labelled)).await;

    let made = pods.create(&PostParams::default(), &pod("manager-0", &labelled)).await.unwrap();
    let made = serde_json::to_value(made).unwrap();
    let proxy = &made["spec"]["initContainers"][0];
    assert_eq!((&proxy["name"], &proxy["restartPolicy"]), (&json!("ringside-proxy"), &json!("Always")));
    // The controller's token is the proxy's; the API server mounts none of its own beside.
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    let sign = r#""ringside-token" "/var/run/secrets/ringside.dev/serviceaccount""#.to_owned();
    let expected = [sign, r#""ringside" "/var/run/ringside""#.to_owned(), format!(r#""ringside" "{token}""#)];
    assert_eq!(mounts(&made, "containers/0"), expected);
    let of_token = format!(r#""ringside-token" "{token}""#);
    assert_eq!(mounts(&made, "initContainers/0"), [expected[1].clone(), of_token]);
    sidecar_is_kept(&pods, made).await;

    let other = pod("other", &json!({}));
    assert!(!is_injected(&pods.create(&dry_run, &other).await.unwrap()), "it was not asked for");

    // By the namespace, for the pods of an account.
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let asks = json!({"metadata": {"labels": {"ringside.dev/inject": "enabled"},
        "annotations": {"ringside.dev/rings": "default=websites"}}});
    namespaces.patch(NAMESPACE, &PatchParams::default(), &Patch::Merge(asks)).await.unwrap();
    until("a pod whose namespace asks for it gets the proxy", &other).await;
    let without = pod("without", &json!({"ringside.dev/inject": "disabled"}));
    assert!(!is_injected(&pods.create(&dry_run, &without).await.unwrap()));

    // One that comes up while no sharder answers is named by the next leader.
    let ring = system.start_ring().await.unwrap();
    system.kill_sharders().await.unwrap();
    let late = pods.create(&PostParams::default(), &pod("late", &labelled)).await.unwrap();
    assert!(!is_injected(&late));
    system.return_sharders(Return::SamePod).await.unwrap();
    until_status(&client, &ring, "the ring names the pod", DEADLINE, |status| {
        let told = condition(status, "PodsInjected")?;
        let names_it = told.status == "False" && told.message.contains("default/late;");
        if names_it { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await
    .unwrap();
    system.check().unwrap();
}
