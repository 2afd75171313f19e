//! Reads a controller's manifests from YAML or JSON documents.

use k8s_openapi::{
    api::{
        admissionregistration::v1::{
            MutatingWebhookConfiguration, ServiceReference, ValidatingWebhookConfiguration, WebhookClientConfig,
        },
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::Service,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    grants::Roles,
    subject::{Subject, Webhook},
};

/// Why manifests can't be judged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DocumentsError {
    /// It is no YAML.
    #[error("document {number} is no YAML: {cause}. {}", remedy(.is_template))]
    NotYaml {
        /// Counted from one.
        number: usize,
        /// Why.
        cause: String,
        /// Whether it looks like a template.
        is_template: bool,
    },
    /// It is no object of Kubernetes.
    #[error("document {0} has no {1}: take out what is no object of Kubernetes")]
    NoObject(usize, &'static str),
    /// It is not as its kind asks.
    #[error(
        "document {number}, {kind} {name}: {cause}. Correct it: `kubectl apply --dry-run=client -f FILE` says more"
    )]
    Malformed {
        /// Counted from one.
        number: usize,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        cause: String,
    },
    /// There is none.
    #[error("there is no Deployment in it: add the controller's")]
    NoDeployment,
    /// The one that was named is not there.
    #[error("there is no Deployment {0} in it, but {1}: name one of these")]
    NotFound(String, String),
    /// There are several.
    #[error("there are several Deployments in it: name one of {0}")]
    Several(String),
}

fn remedy(is_template: &bool) -> &'static str {
    if *is_template {
        "It looks like a template: render it, as by `helm template`"
    } else {
        "Correct it, or take it out"
    }
}

/// The documents of a file.
#[derive(Debug, Default)]
pub struct Documents {
    deployments: Vec<Deployment>,
    subject: Subject,
    roles: Roles,
    scaled: Vec<(String, String)>,
}

impl Documents {
    /// Parses the documents of a text.
    ///
    /// # Errors
    /// With the first document that can't be read.
    pub fn parse(text: &str) -> Result<Self, DocumentsError> {
        let mut documents = Self::default();
        for (index, document) in split(text).into_iter().enumerate() {
            let number = index + 1;
            let value: Value = serde_saphyr::from_str(&document).map_err(|error| DocumentsError::NotYaml {
                number,
                cause: error.to_string().lines().next().unwrap_or_default().trim_end_matches('.').to_owned(),
                is_template: document.contains("{{"),
            })?;
            documents.add(number, value)?;
        }
        Ok(documents)
    }

    /// Takes the controller of a Deployment, `NAMESPACE/NAME` or a name alone, or of the only one.
    ///
    /// # Errors
    /// When there is none, or it is not clear which.
    pub fn subject(mut self, named: Option<&str>) -> Result<Subject, DocumentsError> {
        let names: Vec<_> = self.deployments.iter().map(full_name).collect();
        let position = match named {
            _ if names.is_empty() => return Err(DocumentsError::NoDeployment),
            Some(named) => {
                let is = |one: &String| one == named || one.split_once('/').is_some_and(|(_, name)| name == named);
                let found = names.iter().position(is);
                found.ok_or_else(|| DocumentsError::NotFound(named.to_owned(), names.join(", ")))?
            }
            None if names.len() > 1 => return Err(DocumentsError::Several(names.join(", "))),
            None => 0,
        };
        self.subject.deployment = self.deployments.swap_remove(position);
        let account = account(&self.subject.deployment);
        self.subject.grants = self.roles.of(self.subject.namespace(), &account);
        let name = self.subject.name().to_owned();
        let scalers = self.scaled.into_iter().filter(|(target, _)| *target == name);
        self.subject.scalers = scalers.map(|(_, scaler)| scaler).collect();
        Ok(self.subject)
    }

    fn add(&mut self, number: usize, value: Value) -> Result<(), DocumentsError> {
        if value.is_null() {
            return Ok(());
        }
        let Some(kind) = value["kind"].as_str().map(str::to_owned) else {
            return Err(DocumentsError::NoObject(number, "kind"));
        };
        if value["apiVersion"].as_str().is_none() {
            return Err(DocumentsError::NoObject(number, "apiVersion"));
        }
        match kind.as_str() {
            "Deployment" => self.deployments.push(typed(number, value)?),
            "Role" => self.roles.roles.push(typed(number, value)?),
            "ClusterRole" => self.roles.cluster_roles.push(typed(number, value)?),
            "RoleBinding" => self.roles.bindings.push(typed(number, value)?),
            "ClusterRoleBinding" => self.roles.cluster_bindings.push(typed(number, value)?),
            "Service" if value["apiVersion"] == "v1" => {
                self.subject.services.push(with_namespace(typed(number, value)?));
            }
            "CustomResourceDefinition" => {
                let definition: CustomResourceDefinition = typed(number, value)?;
                self.subject.definitions.push(definition);
            }
            "ValidatingWebhookConfiguration" => self.subject.webhooks.extend(validating(&typed(number, value)?)),
            "MutatingWebhookConfiguration" => self.subject.webhooks.extend(mutating(&typed(number, value)?)),
            "HorizontalPodAutoscaler" => {
                let scaler: HorizontalPodAutoscaler = typed(number, value)?;
                self.scaled.extend(scaled(&scaler));
            }
            _ if kind.ends_with("List") => {
                let items = value.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
                for item in items {
                    self.add(number, item)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The account of a Deployment's pods.
#[must_use]
pub fn account(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let named = pod.and_then(|pod| pod.service_account_name.clone().or_else(|| pod.service_account.clone()));
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// The Deployment that an autoscaler scales, and the autoscaler's name.
#[must_use]
pub fn scaled(scaler: &HorizontalPodAutoscaler) -> Option<(String, String)> {
    let target = &scaler.spec.as_ref()?.scale_target_ref;
    (target.kind == "Deployment").then(|| (target.name.clone(), scaler.name_any()))
}

/// The webhooks of a configuration that Services answer.
pub fn validating(configuration: &ValidatingWebhookConfiguration) -> impl Iterator<Item = Webhook> {
    let clients = configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
    webhooks("ValidatingWebhookConfiguration", configuration.name_any(), clients)
}

/// The same of a mutating one.
pub fn mutating(configuration: &MutatingWebhookConfiguration) -> impl Iterator<Item = Webhook> {
    let clients = configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config);
    webhooks("MutatingWebhookConfiguration", configuration.name_any(), clients)
}

fn webhooks<'a>(
    kind: &'static str,
    name: String,
    clients: impl Iterator<Item = &'a WebhookClientConfig>,
) -> impl Iterator<Item = Webhook> {
    let services = clients.filter_map(|client| client.service.as_ref());
    services.map(move |ServiceReference { namespace, name: service, .. }| Webhook {
        configuration: format!("{kind} {name}"),
        service: (namespace.clone(), service.clone()),
    })
}

fn with_namespace(mut service: Service) -> Service {
    service.metadata.namespace.get_or_insert_with(|| "default".to_owned());
    service
}

fn full_name(deployment: &Deployment) -> String {
    format!("{}/{}", deployment.namespace().unwrap_or_else(|| "default".to_owned()), deployment.name_any())
}

fn typed<K: DeserializeOwned>(number: usize, value: Value) -> Result<K, DocumentsError> {
    let text = |value: &Value| value.as_str().unwrap_or("without a name").to_owned();
    let (kind, name) = (text(&value["kind"]), text(&value["metadata"]["name"]));
    serde_json::from_value(value).map_err(|error| DocumentsError::Malformed {
        number,
        kind,
        name,
        cause: error.to_string(),
    })
}

/// The documents of a text, without those that are empty or comments alone.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("---") {
            Some(rest) if rest.is_empty() || rest.starts_with([' ', '\t']) => documents.push(format!("{rest}\n")),
            _ => {
                if let Some(document) = documents.last_mut() {
                    document.push_str(line);
                    document.push('\n');
                }
            }
        }
    }
    let has_content = |document: &String| {
        document.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with('#') && line != "...")
    };
    documents.retain(has_content);
    documents
}

#[cfg(test)]
mod tests;
