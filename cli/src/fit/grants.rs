//! What an account may, by the Roles that are bound to it.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::ResourceExt as _;

use super::subject::Grant;

/// Roles and their bindings.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Of single namespaces.
    pub roles: Vec<Role>,
    /// Of the cluster.
    pub cluster_roles: Vec<ClusterRole>,
    /// In single namespaces.
    pub bindings: Vec<RoleBinding>,
    /// In all namespaces.
    pub cluster_bindings: Vec<ClusterRoleBinding>,
}

impl Roles {
    /// Returns the rights of a service account; `None` where nothing is bound to it.
    #[must_use]
    pub fn of(&self, namespace: &str, account: &str) -> Option<Vec<Grant>> {
        let mut grants = Vec::new();
        let mut bound = false;
        for binding in &self.bindings {
            let place = binding.namespace().unwrap_or_else(|| "default".to_owned());
            if is_bound(binding.subjects.as_deref(), &place, (namespace, account)) {
                bound = true;
                let rules = self.rules(&binding.role_ref, &place);
                grants.extend(rules.into_iter().map(|rule| Grant { namespace: Some(place.clone()), rule }));
            }
        }
        for binding in &self.cluster_bindings {
            if is_bound(binding.subjects.as_deref(), "default", (namespace, account)) {
                bound = true;
                let rules = self.rules(&binding.role_ref, "");
                grants.extend(rules.into_iter().map(|rule| Grant { namespace: None, rule }));
            }
        }
        bound.then_some(grants)
    }

    fn rules(&self, role: &RoleRef, namespace: &str) -> Vec<PolicyRule> {
        if role.kind == "Role" {
            let is = |one: &&Role| {
                one.name_any() == role.name && one.namespace().unwrap_or_else(|| "default".to_owned()) == namespace
            };
            return self.roles.iter().filter(is).flat_map(|one| one.rules.clone().unwrap_or_default()).collect();
        }
        let named = self.cluster_roles.iter().filter(|one| one.name_any() == role.name);
        named.flat_map(|one| self.with_aggregated(one)).collect()
    }

    /// The rules of a role, and those that the controller manager adds to it in a cluster.
    fn with_aggregated(&self, role: &ClusterRole) -> Vec<PolicyRule> {
        let mut rules = role.rules.clone().unwrap_or_default();
        let selectors = role.aggregation_rule.iter().flat_map(|rule| rule.cluster_role_selectors.iter().flatten());
        let wanted: Vec<&BTreeMap<_, _>> = selectors.filter_map(|selector| selector.match_labels.as_ref()).collect();
        let is_wanted = |one: &&ClusterRole| {
            wanted.iter().any(|labels| labels.iter().all(|(key, value)| one.labels().get(key) == Some(value)))
        };
        if rules.is_empty() {
            rules.extend(
                self.cluster_roles.iter().filter(is_wanted).flat_map(|one| one.rules.clone().unwrap_or_default()),
            );
        }
        rules
    }
}

fn is_bound(subjects: Option<&[Subject]>, place: &str, (namespace, account): (&str, &str)) -> bool {
    subjects.unwrap_or_default().iter().any(|subject| match subject.kind.as_str() {
        "ServiceAccount" => subject.name == account && subject.namespace.as_deref().unwrap_or(place) == namespace,
        "Group" => {
            subject.name == "system:serviceaccounts" || subject.name == format!("system:serviceaccounts:{namespace}")
        }
        "User" => subject.name == format!("system:serviceaccount:{namespace}:{account}"),
        _ => false,
    })
}
