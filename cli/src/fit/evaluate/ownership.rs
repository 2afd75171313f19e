//! The rules about who owns its Deployment, who scales it, and what it may.

use kube::ResourceExt as _;

use super::Seen;
use crate::{
    fit::subject::{Subject, grants_any},
    managed::Managed,
};

/// R17.
pub(super) fn has_roles_only(subject: &Subject) -> Seen {
    let Some(grants) = &subject.grants else { return Seen::Unknown };
    let is_custom = |group: &&String| group.contains('.') && !group.ends_with(".k8s.io");
    let reads = |namespaced: bool| {
        let these = grants.iter().filter(move |grant| grant.namespace.is_some() == namespaced);
        these.filter(|grant| grant.rule.verbs.iter().any(|verb| ["list", "watch", "*"].contains(&verb.as_str())))
    };
    let groups = |namespaced| reads(namespaced).flat_map(|grant| grant.rule.api_groups.iter().flatten());
    let everywhere = |group: &str| groups(false).any(|it| it == group || it == "*");
    match groups(true).filter(is_custom).find(|group| !everywhere(group)) {
        Some(group) => Seen::Met(format!("it may list {group} in single namespaces")),
        None if groups(false).next().is_some() => Seen::Not("may list its resources in all namespaces".to_owned()),
        None => Seen::Unknown,
    }
}

/// R21.
pub(super) fn hands_out(subject: &Subject) -> Seen {
    let is_pool = |name: &str| {
        let name = name.to_lowercase();
        ["ippool", "addresspool", "ipallocation", "ipamblock", "subnetpool", "portpool"]
            .iter()
            .any(|it| name.contains(it))
    };
    let grants = || subject.grants.iter().flatten();
    let resources = grants().flat_map(|grant| grant.rule.resources.iter().flatten());
    if let Some(pool) = resources.map(|name| name.split('/').next().unwrap_or_default()).find(|name| is_pool(name)) {
        return Seen::Met(format!("it works with {pool}"));
    }
    let writes = ["update", "patch"];
    let named = grants().any(|grant| {
        grants_any(&grant.rule, "", "services/status", &writes)
            && !grant.rule.resources.iter().flatten().any(|it| it == "*")
    });
    if named { Seen::Suspected("the right to write the status of Services".to_owned()) } else { Seen::Unknown }
}

/// R24.
pub(super) fn belongs_to_a_program(subject: &Subject) -> Seen {
    let of_pods = subject.pod_labels();
    if of_pods.keys().chain(subject.deployment.labels().keys()).any(|key| key.starts_with("ringside.dev/inject")) {
        return Seen::Not("its pods are injected by the webhook".to_owned());
    }
    if let Some(managed) = Managed::hinted(&subject.deployment.metadata) {
        return Seen::Met(managed.by);
    }
    if subject.live { Seen::Not("no program owns its Deployment".to_owned()) } else { Seen::Unknown }
}

/// R29.
pub(super) fn is_scaled(subject: &Subject) -> Seen {
    match subject.scalers.first() {
        Some(name) => Seen::Met(name.clone()),
        None => Seen::Not(String::new()),
    }
}

/// R31.
pub(super) fn asks_for_others(subject: &Subject) -> Seen {
    let named = |resource: &str, verb: &str| {
        let rules = subject.grants.iter().flatten().map(|grant| &grant.rule);
        rules.filter(|rule| !rule.verbs.iter().any(|it| it == "*")).any(|rule| grants_any(rule, "", resource, &[verb]))
    };
    if named("serviceaccounts/token", "create") {
        return Seen::Met("it may create tokens of service accounts".to_owned());
    }
    if named("serviceaccounts", "impersonate") { Seen::Met("it may impersonate".to_owned()) } else { Seen::Unknown }
}
