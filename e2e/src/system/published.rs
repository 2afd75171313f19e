//! What an operator works on, and how a published one is started, which has options of its own.

use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Client, ResourceExt as _,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::SystemError;
use crate::{
    manifests,
    toolchain::{Environment, Operator},
    website::Website,
};

/// What an operator works on.
pub(crate) struct Subject {
    /// What the ring names, the resource of its objects first: each with what the operator makes of it in the ring.
    roots: Vec<(ApiResource, Vec<ApiResource>)>,
    /// The resources beside the ring that it writes to for these objects.
    pub(crate) beside: Vec<ApiResource>,
}

impl Subject {
    pub(crate) fn of(operator: Operator) -> Self {
        let secret = ApiResource::erase::<Secret>(&());
        match operator {
            Operator::Go | Operator::Python | Operator::Java | Operator::Rust | Operator::Node => Self {
                roots: vec![(ApiResource::erase::<Website>(&()), vec![ApiResource::erase::<ConfigMap>(&()), secret])],
                beside: Vec::new(),
            },
            Operator::CertManager => Self {
                roots: vec![(
                    resource("cert-manager.io/v1/Certificate"),
                    vec![
                        resource("cert-manager.io/v1/CertificateRequest"),
                        resource("acme.cert-manager.io/v1/Order"),
                        resource("acme.cert-manager.io/v1/Challenge"),
                    ],
                )],
                beside: vec![secret],
            },
            Operator::ExternalSecrets => {
                let external = resource("external-secrets.io/v1/ExternalSecret");
                let push = resource("external-secrets.io/v1alpha1/PushSecret");
                Self {
                    roots: vec![
                        (external.clone(), Vec::new()),
                        (push.clone(), Vec::new()),
                        (resource("external-secrets.io/v1/ClusterExternalSecret"), vec![external]),
                        (resource("external-secrets.io/v1alpha1/ClusterPushSecret"), vec![push]),
                    ],
                    beside: vec![secret],
                }
            }
        }
    }

    /// The resources of the ring, each once, that of its objects first.
    pub(crate) fn of_ring(&self, children: bool) -> Vec<ApiResource> {
        let roots = self.roots.iter().map(|(root, _)| root);
        let children = self.roots.iter().filter(|_| children).flat_map(|(_, children)| children);
        let mut all: Vec<ApiResource> = Vec::new();
        for one in roots.chain(children) {
            if !all.contains(one) {
                all.push(one.clone());
            }
        }
        all
    }

    /// The resources in a ring's spec.
    pub(crate) fn spec(&self, children: bool) -> Value {
        let name = |one: &ApiResource| json!({"group": one.group, "resource": one.plural});
        let root = |(root, of_it): &(ApiResource, Vec<ApiResource>)| {
            let mut root = name(root);
            root["controlledResources"] = of_it.iter().filter(|_| children).map(name).collect();
            root
        };
        self.roots.iter().map(root).collect()
    }
}

/// The resource of a group, a version and a kind.
fn resource(of: &str) -> ApiResource {
    let mut parts = of.split('/');
    let [group, version, kind] = [(); 3].map(|()| parts.next().unwrap_or_default());
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Defines the resources that a published operator brings along.
pub(super) async fn define(client: &Client, operator: Operator) -> Result<(), SystemError> {
    let files = tokio::task::spawn_blocking(move || operator.definitions(&Environment::of_process())).await;
    for file in files.map_err(anyhow::Error::from)?? {
        let definitions = manifests::read(&file)?;
        manifests::apply(client, &definitions).await?;
        for definition in definitions {
            manifests::served(client, &definition.name_any()).await?;
        }
    }
    Ok(())
}

/// Names the host after its first argument, and becomes the rest.
const ON_HOST: &str = r#"hostname "$1" && shift && exec "$@""#;

/// What starts a published operator in this Pod.
pub(super) fn command(operator: Operator, mut command: Command, pod: &str) -> Command {
    if operator == Operator::CertManager {
        // It calls itself after its host, as each Pod is one.
        return on_host(&command, pod);
    }
    // Several on one host.
    command.args(["--metrics-addr=0", "--concurrent=5"]);
    command
}

/// The same command on a host of this name.
fn on_host(command: &Command, host: &str) -> Command {
    let mut named = Command::new("unshare");
    named.args(["--uts", "--map-root-user", "/bin/sh", "-c", ON_HOST, "on-host", host]);
    named.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => named.env(key, value),
            None => named.env_remove(key),
        };
    }
    named
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::helm::deploy;

    #[test]
    fn the_subject_of_the_sample_is_that_of_the_examples_ring() {
        let ring = manifests::read(&deploy("example/ring.yaml")).unwrap().remove(0);
        assert_eq!(ring.data["spec"]["resources"], Subject::of(Operator::Go).spec(true));
    }

    #[test]
    fn a_command_on_a_host_has_that_name_and_its_own_environment() {
        let mut asks = Command::new("sh");
        asks.args(["-c", "echo $(hostname) $SAID"]).env("SAID", "hello");
        let output = on_host(&asks, "pod-7").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "pod-7 hello\n", "{output:?}");
    }
}
