//! kopf keeps what it knew over a list, so nothing repairs it from outside after a gap: the kubelet restarts it, as its proxy
//! says.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams},
};
use ringside_e2e::{
    eventually::eventually,
    manifests,
    toolchain::{self, Environment},
};
use serde_json::{Value, json};

use super::{
    DEADLINE, Deployed, deploy, one_of,
    restarted::{probed, restart_by_gap, was_told},
};
use crate::Fixture;

const NAME: &str = "kopf-controller";

/// A ring of its own in a namespace of its own, beside the others: nobody else waits for it.
const NAMESPACE: &str = "kopf";
const SETTING: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: kopf}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: kopf-controller, namespace: kopf}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: touched, namespace: kopf}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kopf-sharding, labels: {ringside.dev/aggregate-to-sharder: 'true'}}
rules:
- {apiGroups: [''], resources: [serviceaccounts], verbs: [get, list, watch, patch]}
- {apiGroups: [sharding.timebertt.dev], resources: [clusterrings/status], resourceNames: [kopf], verbs: [get, patch]}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, mutatingadmissionpolicies, mutatingadmissionpolicybindings]
  resourceNames: [sharding-clusterring-87953e99-kopf]
  verbs: [get, create, patch, update, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kopf-shards, namespace: kopf}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create, update, patch, delete]}
- {apiGroups: [''], resources: [pods], verbs: [get]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kopf-shards, namespace: kopf}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kopf-shards}
subjects: [{kind: ServiceAccount, name: ringside-sharder, namespace: ringside-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kopf-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: kopf-controller, namespace: kopf}]
---
apiVersion: sharding.timebertt.dev/v1alpha1
kind: ClusterRing
metadata: {name: kopf}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kopf}}
  resources: [{group: '', resource: serviceaccounts}]
";

/// Where Kubernetes mounts a service account's token.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The interpreter of this machine, with kopf. Pods see it where it is: there is no image of it.
pub(crate) struct Interpreter {
    executable: String,
    prefix: String,
    packages: String,
    operator: PathBuf,
}

impl Interpreter {
    /// Fetches kopf, where that was not done before.
    pub(crate) fn of_machine() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors/kopf");
        let mut python = toolchain::python(&Environment::of_process(), &folder).unwrap();
        let packages = python.get_envs().find(|(name, _)| *name == "PYTHONPATH").and_then(|(_, value)| value);
        let packages = packages.unwrap().to_str().unwrap().to_owned();
        let told = python.args(["-c", "import sys; print(sys.executable); print(sys.base_prefix)"]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let (executable, prefix) = told.trim_end().split_once('\n').unwrap();
        let (executable, prefix) = (executable.to_owned(), prefix.to_owned());
        Self { executable, prefix, packages, operator: folder.join("operator.py") }
    }

    /// What a container needs of the machine.
    fn folders(&self) -> Vec<String> {
        let operators = self.operator.parent().unwrap().to_str().unwrap();
        let system = ["/usr", "/lib", "/lib64"].into_iter().filter(|folder| Path::new(folder).exists());
        let own = [&*self.prefix, &*self.packages, operators];
        system.chain(own.into_iter().filter(|folder| !folder.starts_with("/usr"))).map(str::to_owned).collect()
    }

    /// The example, with kopf for a controller.
    fn deployment(&self, example: &DynamicObject) -> DynamicObject {
        let mut deployment = one_of(&probed(example), NAME);
        deployment.metadata.namespace = Some(NAMESPACE.to_owned());
        let pod = &mut deployment.data["spec"]["template"]["spec"];
        pod["serviceAccountName"] = json!(NAME);
        pod["initContainers"][0]["args"] = json!([format!("--ring={NAMESPACE}")]);
        let controller = &mut pod["containers"][0];
        // Longer than an interpreter takes from its start to its first request beside much else.
        controller["livenessProbe"]["failureThreshold"] = json!(30);
        // For the folders to be mounted into.
        controller["image"] = json!(ringside_e2e::node::GUEST);
        controller["command"] = json!([self.executable]);
        controller["args"] =
            json!(["-m", "kopf", "run", "--standalone", "--namespace", NAMESPACE, self.operator.to_str()]);
        // Without a name of its own kopf asks for its user's, which has none.
        let environment =
            [("PYTHONPATH", &*self.packages), ("PYTHONDONTWRITEBYTECODE", "1"), ("POD_ID", "kopf-in-a-pod")];
        add(&mut controller["env"], environment.map(|(name, value)| json!({"name": name, "value": value})));
        // As the documentation says: kopf would take the token there to the API server, past the proxy.
        let mounts = controller["volumeMounts"].as_array_mut().unwrap();
        let folder = mounts.iter_mut().find(|mount| mount["mountPath"] == TOKEN).unwrap();
        folder["name"] = json!("no-token");
        let folders: Vec<_> = self.folders().into_iter().enumerate().collect();
        let mounts = folders
            .iter()
            .map(|(number, path)| json!({"name": format!("host-{number}"), "mountPath": path, "readOnly": true}));
        add(&mut controller["volumeMounts"], mounts);
        let volumes = folders.iter().map(
            |(number, path)| json!({"name": format!("host-{number}"), "hostPath": {"path": path, "type": "Directory"}}),
        );
        add(&mut pod["volumes"], volumes.chain([json!({"name": "no-token", "emptyDir": {}})]));
        deployment
    }
}

fn add(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    list.as_array_mut().unwrap().extend(items);
}

pub(crate) async fn kopf_from_before_a_gap_is_restarted_by_its_liveness_probe(fixture: Arc<Fixture>) {
    let deployed = &fixture.deployed().await;
    let interpreter = fixture.python.as_ref().unwrap();
    manifests::apply(&deployed.client, &manifests::parse(SETTING).unwrap()).await.unwrap();
    let example = manifests::read(&deploy("example/deployment.yaml")).unwrap();
    manifests::apply(&deployed.client, &[interpreter.deployment(&example[0])]).await.unwrap();
    deployed.rolled_out(NAMESPACE, NAME).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(deployed.client.clone(), NAMESPACE);
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = pod.name_any();
    touch_and_see(deployed, &pods, &name, "before the gap").await;
    restart_by_gap(&pods, &pod).await;
    touch_and_see(deployed, &pods, &name, "after the gap").await;
    let events: Api<Event> = Api::namespaced(deployed.client.clone(), NAMESPACE);
    was_told(&events, &name, &["failed liveness probe, will be restarted"]).await;
    let deployments: Api<Deployment> = Api::namespaced(deployed.client.clone(), NAMESPACE);
    deployments.delete(NAME, &DeleteParams::default()).await.unwrap();
}

/// Changes an object of the ring, and waits until the operator says in its log that it saw that.
async fn touch_and_see(deployed: &Deployed, pods: &Api<Pod>, pod: &str, touch: &str) {
    let accounts: Api<ServiceAccount> = Api::namespaced(deployed.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": touch}}}));
    accounts.patch("touched", &PatchParams::default(), &patch).await.unwrap();
    let of_controller = LogParams { container: Some("controller".to_owned()), ..LogParams::default() };
    let sees = eventually("kopf sees the object of its shard", DEADLINE, || async {
        let log = pods.logs(pod, &of_controller).await.map_err(|error| error.to_string())?;
        if log.lines().any(|line| line == format!("saw {touch}")) { Ok(()) } else { Err(log) }
    });
    sees.await.unwrap();
}
