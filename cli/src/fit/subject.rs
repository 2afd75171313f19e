//! What is known of a controller when it is judged: a snapshot, from manifests or from a cluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Container, EnvVar, PodSpec, Service},
        rbac::v1::PolicyRule,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use ringside_ring::cluster_ring::GroupResource;

/// The name of the sidecar's container.
const SIDECAR: &str = "ringside-proxy";

/// Labels by their keys.
pub type Labels = BTreeMap<String, String>;

/// A controller, and what surrounds it.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Its Deployment.
    pub deployment: Deployment,
    /// The rights of its account; `None` where no Role was found.
    pub grants: Option<Vec<Grant>>,
    /// The definitions of custom resources.
    pub definitions: Vec<CustomResourceDefinition>,
    /// Admission webhooks that are reached by a Service.
    pub webhooks: Vec<Webhook>,
    /// The Services of its namespace.
    pub services: Vec<Service>,
    /// The names of autoscalers of its Deployment.
    pub scalers: Vec<String>,
    /// The locks that its pods hold.
    pub locks: Vec<Lock>,
    /// What its objects are like; empty where no cluster was asked.
    pub populations: Vec<Population>,
    /// Objects of it, each with an object that it controls.
    pub relations: Vec<Relation>,
    /// Whether a cluster was asked, so that what is not here is not there.
    pub live: bool,
    /// What could not be looked at, and why.
    pub unseen: Vec<String>,
}

/// A rule of a Role, where it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The namespace; `None` for all.
    pub namespace: Option<String>,
    /// The rule.
    pub rule: PolicyRule,
}

/// An admission webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The kind and name of its configuration.
    pub configuration: String,
    /// The namespace and name of its Service.
    pub service: (String, String),
}

/// A lock of a leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// A Lease, by its namespace and name.
    Lease(String, String),
    /// A ConfigMap that is owned by the leader's pod.
    OwnedByPod(String, String),
}

/// The objects of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Population {
    /// The resource.
    pub resource: GroupResource,
    /// The kind of its objects.
    pub kind: String,
    /// Whether it is one of the controller's own custom resources.
    pub own: bool,
    /// Whether the controller may create its objects.
    pub created: bool,
    /// Whether the controller may read its objects.
    pub read: bool,
    /// How many there are.
    pub total: usize,
    /// How many follow an owner of each resource of [`Subject::populations`]: their controller, or their only owner of these.
    pub controlled_by: BTreeMap<GroupResource, usize>,
    /// How many have an owner of each, among several of which none is their controller.
    pub owned_by: BTreeMap<GroupResource, usize>,
    /// How many follow nothing: they have no controller, and no or several owners of these.
    pub uncontrolled: usize,
    /// How many were made with `generateName`.
    pub generated: usize,
}

/// An object of the controller, and one that it controls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relation {
    /// Kind, namespace and name of the first.
    pub root: String,
    /// Its labels.
    pub root_labels: Labels,
    /// Kind of the second.
    pub child_kind: String,
    /// Kind, namespace and name of the second.
    pub child: String,
    /// Its labels.
    pub labels: Labels,
    /// The labels of its pods, if it has some.
    pub pods: Option<Labels>,
}

impl Subject {
    /// The namespace of the Deployment.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.deployment.metadata.namespace.as_deref().unwrap_or("default")
    }

    /// The name of the Deployment.
    #[must_use]
    pub fn name(&self) -> &str {
        self.deployment.metadata.name.as_deref().unwrap_or_default()
    }

    /// The spec of its pods.
    #[must_use]
    pub fn pod(&self) -> Option<&PodSpec> {
        self.deployment.spec.as_ref()?.template.spec.as_ref()
    }

    /// The labels of its pods.
    #[must_use]
    pub fn pod_labels(&self) -> Labels {
        let template = self.deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default()
    }

    /// The variables of its containers.
    pub fn environment(&self) -> impl Iterator<Item = &EnvVar> {
        containers(&self.deployment).flat_map(|container| container.env.iter().flatten())
    }

    /// The command lines of its containers, word by word.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        containers(&self.deployment).flat_map(words).collect()
    }

    /// The command line of the sidecar, if it is there already.
    #[must_use]
    pub fn sidecar(&self) -> Vec<String> {
        let pod = self.pod();
        let all = pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten().chain(&pod.containers));
        all.filter(|container| container.name == SIDECAR).flat_map(words).collect()
    }

    /// The Service of this name, if it leads to the controller's pods.
    #[must_use]
    pub fn own_service(&self, (namespace, name): (&str, &str)) -> Option<&Service> {
        let is = |service: &&Service| service.metadata.name.as_deref() == Some(name);
        self.own_services().filter(|_| namespace == self.namespace()).find(is)
    }

    /// The Services that lead to the controller's pods.
    pub fn own_services(&self) -> impl Iterator<Item = &Service> {
        let labels = self.pod_labels();
        let is_here = |service: &Service| service.metadata.namespace.as_deref().is_none_or(|it| it == self.namespace());
        self.services.iter().filter(move |service| {
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            is_here(service)
                && selector.is_some_and(|selector| {
                    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
                })
        })
    }

    /// Whether some rule grants a verb on a resource, and in which namespaces: `None` is all of them.
    pub fn granted(&self, group: &str, resource: &str, verbs: &[&str]) -> BTreeSet<Option<&str>> {
        let grants = self.grants.iter().flatten();
        let these = grants.filter(|grant| grants_any(&grant.rule, group, resource, verbs));
        these.map(|grant| grant.namespace.as_deref()).collect()
    }
}

/// Whether a rule grants one of these verbs on a resource.
#[must_use]
pub fn grants_any(rule: &PolicyRule, group: &str, resource: &str, verbs: &[&str]) -> bool {
    let has = |list: &[String], one: &str| list.iter().any(|it| it == one || it == "*");
    has(rule.api_groups.as_deref().unwrap_or_default(), group)
        && has(rule.resources.as_deref().unwrap_or_default(), resource)
        && verbs.iter().any(|verb| has(&rule.verbs, verb))
}

/// The containers of a Deployment's pods without the sidecar and without those that end before the others start.
pub fn containers(deployment: &Deployment) -> impl Iterator<Item = &Container> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    containers.filter(|container| container.name != SIDECAR)
}

fn words(container: &Container) -> impl Iterator<Item = String> {
    container.command.iter().chain(&container.args).flatten().cloned()
}

/// Splits an argument into an option's name without its dashes, in lower case, and its value behind an equals sign.
#[must_use]
pub fn option(argument: &str) -> Option<(String, Option<&str>)> {
    let named = argument.strip_prefix('-')?;
    let named = named.strip_prefix('-').unwrap_or(named);
    let (name, value) = named.split_once('=').map_or((named, None), |(name, value)| (name, Some(value)));
    Some((name.to_lowercase(), value))
}

/// The options of a command line, each with its value behind an equals sign or in the next word.
#[must_use]
pub fn options(arguments: &[String]) -> Vec<(String, Option<&str>)> {
    let next = |index: usize| arguments.get(index + 1).map(String::as_str).filter(|next| !next.starts_with('-'));
    let parsed = arguments.iter().enumerate().filter_map(|(index, argument)| {
        let (name, value) = option(argument)?;
        Some((name, value.or_else(|| next(index))))
    });
    parsed.collect()
}
