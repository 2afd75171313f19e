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
    /// The resource of its objects.
    pub(crate) root: ApiResource,
    /// What it makes of them, as far as that is in the ring.
    pub(crate) children: Vec<ApiResource>,
    /// The resources beside the ring that it writes to for these objects.
    pub(crate) beside: Vec<ApiResource>,
}

impl Subject {
    pub(crate) fn of(operator: Operator) -> Self {
        let resource = |group: &str, kind: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
        };
        let secret = ApiResource::erase::<Secret>(&());
        match operator {
            Operator::Go | Operator::Python | Operator::Java | Operator::Rust | Operator::Node => Self {
                root: ApiResource::erase::<Website>(&()),
                children: vec![ApiResource::erase::<ConfigMap>(&()), secret],
                beside: Vec::new(),
            },
            Operator::CertManager => Self {
                root: resource("cert-manager.io", "Certificate", "certificates"),
                children: vec![
                    resource("cert-manager.io", "CertificateRequest", "certificaterequests"),
                    resource("acme.cert-manager.io", "Order", "orders"),
                    resource("acme.cert-manager.io", "Challenge", "challenges"),
                ],
                beside: vec![secret],
            },
        }
    }

    /// The resources of the ring, the root first.
    pub(crate) fn of_ring(&self, children: bool) -> Vec<ApiResource> {
        let children = self.children.iter().filter(|_| children);
        std::iter::once(&self.root).chain(children).cloned().collect()
    }

    /// The resources in a ring's spec.
    pub(crate) fn spec(&self, children: bool) -> Value {
        let name = |one: &ApiResource| json!({"group": one.group, "resource": one.plural});
        let mut root = name(&self.root);
        root["controlledResources"] = self.children.iter().filter(|_| children).map(name).collect();
        json!([root])
    }
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
    command.arg("--metrics-addr=0");
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
