//! A Pod's identity without a kubelet: a Pod object, and a token that the API server binds to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::{control_plane::ControlPlane, files::failed};

/// Longer than any test. The proxy reads its token once from a kubeconfig; renewal is the kubelet's work.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// A Pod object, and a kubeconfig with a token that is bound to it. The API server stops to accept the token a few
/// seconds after the Pod was deleted.
#[derive(Debug)]
pub struct ShardIdentity {
    namespace: String,
    pod: String,
    uid: String,
    kubeconfig: PathBuf,
}

impl ShardIdentity {
    /// Creates the Pod `namespace/pod`, asks for a token of `service_account` that is bound to it, and writes a
    /// kubeconfig with it into `dir`. The ServiceAccount is there already, with the permissions that it needs.
    pub async fn create(
        control_plane: &ControlPlane,
        namespace: &str,
        service_account: &str,
        pod: &str,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let client = control_plane.client();
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let created = pods.create(&PostParams::default(), &pod_object(service_account, pod)?).await;
        let created = created.with_context(|| format!("create the Pod {namespace}/{pod}"))?;
        let uid = created.uid().context("the API server's answer has no uid of the Pod")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
        let spec = json!({"audiences": [], "boundObjectRef": bound, "expirationSeconds": TOKEN_SECONDS});
        let request = serde_json::from_value(json!({ "spec": spec }))?;
        let answer = accounts
            .create_token_request(service_account, &PostParams::default(), &request)
            .await
            .with_context(|| format!("request a token of the ServiceAccount {namespace}/{service_account}"))?;
        let token = answer.status.context("the API server's answer has no token")?.token;
        let kubeconfig = dir.join(format!("{pod}.kubeconfig"));
        control_plane.write_kubeconfig(&kubeconfig, &token, namespace)?;
        Ok(Self { namespace: namespace.to_owned(), pod: pod.to_owned(), uid, kubeconfig })
    }

    /// The Pod's name, which is the shard's.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// The Pod's namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Pod's uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// A kubeconfig that connects straight to the API server, as this Pod.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// From now on the kubeconfig connects to this URL instead of the API server's.
    pub fn connect_to(&self, control_plane: &ControlPlane, url: &str) -> anyhow::Result<()> {
        let kubeconfig = fs::read_to_string(&self.kubeconfig).map_err(failed("read", &self.kubeconfig))?;
        fs::write(&self.kubeconfig, kubeconfig.replace(&control_plane.url(), url))
            .map_err(failed("change", &self.kubeconfig))
    }

    /// Deletes the Pod, as happens after its containers have ended. Without a node it is gone at once.
    pub async fn delete(&self, client: &Client) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let deleted = pods.delete(&self.pod, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete the Pod {}/{}", self.namespace, self.pod))
    }
}

/// A Pod that every level of Pod Security admits, and no scheduler takes.
fn pod_object(service_account: &str, name: &str) -> serde_json::Result<Pod> {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "serviceAccountName": service_account,
            // Where there is a node, too.
            "schedulerName": "nobody",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "controller",
                "image": "website-controller:1.0.0",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    }))
}
