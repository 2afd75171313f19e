//! `ringside inject` and the injecting webhook on a real API server.

use std::{path::Path, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    apps::v1::Deployment,
    core::v1::{Namespace, Pod},
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
    system::{NAMESPACE, Return, Settings, System},
};
use ringside_ring::Ring;
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
    let expected = [r#""ringside" "/var/run/ringside""#.to_owned(), format!(r#""ringside" "{token}""#)];
    assert_eq!(mounts(&made, "containers/0"), expected);
    let [own, of_token] = &mounts(&made, "initContainers/0")[..] else { panic!("{proxy}") };
    assert_eq!(*own, expected[0]);
    assert!(
        of_token.starts_with(r#""kube-api-access-"#) && of_token.ends_with(&format!(r#" "{token}""#)),
        "{of_token}"
    );

    let other = pod("other", &json!({}));
    assert!(!is_injected(&pods.create(&dry_run, &other).await.unwrap()), "nobody asked");

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
    let rings: Api<Ring> = Api::all_with(client.clone(), &ring.kind());
    eventually("the ring names the pod", DEADLINE, || async {
        let status = rings.get(ring.name()).await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        match status.conditions.iter().find(|it| it.type_ == "PodsInjected") {
            Some(it) if it.status == "False" && it.message.contains("default/late;") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    system.check().unwrap();
}
