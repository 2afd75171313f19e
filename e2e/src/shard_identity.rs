//! A Pod's identity without a kubelet: a Pod object, and a token that the API server binds to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
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
        let created = pods(&client, namespace)
            .create(&PostParams::default(), &pod_object(service_account, pod)?)
            .await
            .with_context(|| format!("create the Pod {namespace}/{pod}"))?;
        let uid = created.uid().context("the API server's answer has no uid of the Pod")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let answer = accounts
            .create_token_request(service_account, &PostParams::default(), &token_request(pod, &uid))
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
        let deleted = pods(client, &self.namespace).delete(&self.pod, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete the Pod {}/{}", self.namespace, self.pod))
    }
}

fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// A Pod that nobody schedules: it stands for the processes that the harness runs.
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

fn token_request(pod: &str, uid: &str) -> TokenRequest {
    TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.to_owned()),
                uid: Some(uid.to_owned()),
            }),
            expiration_seconds: Some(TOKEN_SECONDS),
        },
        ..TokenRequest::default()
    }
}
