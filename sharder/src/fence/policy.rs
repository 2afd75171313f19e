//! The ValidatingAdmissionPolicy of a ring, and its binding: what the API server lets a shard write.
//!
//! Every field that the API server would default is spelled out, so that what is stored can be compared with what is wanted.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::admissionregistration::v1::{
        AuditAnnotation, MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
        ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
        Validation,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    core::{DynamicObject, Resource},
    discovery::ApiResource,
};
use ringside_ring::{cluster_ring::GroupResource, grace::CARRIES_GRACE, labels::ACKNOWLEDGER};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cel::{MANAGER, POD_NAME, RESOURCE, has_owner, is_owned, of_group},
    keep::with_spec,
    snapshot::Snapshot,
};

// Names in braces stand for the expressions of [`Terms`]; other names are filled in where they are used. The policy has no
// `variables`: an API server before Kubernetes 1.36 can crash where such a policy is compiled while another one is evaluated
// (kubernetes/kubernetes#135757).

/// What stands before the list of accounts in the condition on who asks.
const WHO: &str = "request.userInfo.username in ";

/// The shard's pod: empty where the token names none.
const POD: &str = "has(request.userInfo.extra) && '{pod-name}' in request.userInfo.extra \
    && size(request.userInfo.extra['{pod-name}']) > 0 ? request.userInfo.extra['{pod-name}'][0] : ''";
/// A label of the stored object: there is none before it is created.
const OLD: &str = "oldObject != null ? oldObject.?metadata.?labels[?'{key}'].orValue('') : ''";
/// A label of the object as it would be: there is none once it is deleted.
const NEW: &str = "object != null ? object.?metadata.?labels[?'{key}'].orValue('') : ''";

/// Whether objects of this resource go with others.
const CONTROLLED: &str = "{resource} in {controlled}";
/// Whether the object goes with another one. Of a resource that is a main one as well, that is what has an owner of the ring. While
/// a kind is not served, an owner of that kind counts only where it controls the object.
const CHILD: &str = "{resource} in {controlled} && (!({resource} in {either}) || {has-owner})";

/// Only what is the shard's own, or has no shard.
const OWN: &str = "{was} == '' || {was} == {pod}";
const OWN_MESSAGE: &str = "{pod} == '' \
    ? 'the object belongs to shard \"' + {was} + '\" of {kind} \"{ring}\", and this token of a shard names no pod, so it may write to none that has an owner: use a token that is bound to the pod' \
    : 'the object belongs to shard \"' + {was} + '\" of {kind} \"{ring}\", and this is shard \"' + {pod} + '\"'";
/// What is created gets its shard from the webhook, which has run before. A main object may go to any shard. One that
/// follows an owner goes to the shard that works on that owner. No other shard may create it.
const CREATED: &str = "request.operation != 'CREATE' || ({drain} == '' \
    && ({shard} in ['', {pod}] || !{child}))";
const CREATED_MESSAGE: &str = "'a shard creates objects of {kind} \"{ring}\" without labels of the ring, or with its own name; \
this one would belong to shard \"' + {shard} + '\", and this is shard \"' + {pod} + '\"'";
/// The labels stay as they are, but for an acknowledgement: both labels go after a drain. Where the drain says that
/// something acknowledges for the shard, only that may take them off. The webhook names no shard in that write: its
/// choice would look like the shard's own. The sharder assigns the object after it. An object that follows its owner
/// may come to the shard that writes it.
const KEPT: &str = "request.operation != 'UPDATE' \
    || ({shard} == {was} && {drain} == {was-drain}) \
    || ({drain} == '' && {shard} == '' && {was-drain} != '' \
    && ({manager} == '{acknowledger}' || !{was-drain}.matches('{graced}'))) \
    || ({drain} == '' && {was} == '' && {shard} == {pod} && {child})";
const KEPT_MESSAGE: &str = "'a shard leaves the labels of {kind} \"{ring}\" as they are: it gives an object away only by \
removing both of them after it was asked to'";

/// The labels of a Binding become those of its Pod (`PodTopologyLabels`, from Kubernetes 1.35 on).
const BOUND: &str = "request.operation != 'CREATE' || !({resource} == '/bindings' \
    || ({resource} == '/pods' && request.?subResource.orValue('') == 'binding')) \
    || ({shard} == '' && {drain} == '')";
const BOUND_MESSAGE: &str =
    "'a Binding with labels of {kind} \"{ring}\" would give its Pod to shard \"' + {shard} + '\"'";

/// What goes to an object without showing its owner. It is noted in the audit log, as this policy can't judge it. Of
/// what is created below an object (a binding, an eviction, a token) the API server shows that alone, and so it is with
/// a binding that names its pod itself. What is created for an owner has no label where the webhook was not asked, or
/// knows no shard. What does not apply to a request, such as a subresource, is missing from it.
const UNSEEN: &str = "request.operation == 'CONNECT' || request.?subResource.orValue('') == 'scale' \
    || (request.operation == 'CREATE' && (request.?subResource.orValue('') != '' || {resource} == '/bindings' \
    || ({resource} in {controlled} && {shard} == '' \
    && {is-owned}))) \
    ? 'pod ' + {pod} + ': ' + request.operation \
    + (request.?subResource.orValue('') != '' ? ' ' + request.subResource : '') + ' of ' \
    + {resource} + ' ' + request.?namespace.orValue('') + '/' \
    + (request.?name.orValue('') != '' ? request.name : object.?metadata.?name.orValue('')) : ''";

/// The ring's policy when its shards use these accounts.
pub(super) fn policy(snapshot: &Snapshot, accounts: &BTreeSet<String>) -> DynamicObject {
    object::<ValidatingAdmissionPolicy>(snapshot, json!(spec(snapshot, accounts)))
}

/// What puts it into effect.
pub(super) fn binding(snapshot: &Snapshot) -> DynamicObject {
    let spec = ValidatingAdmissionPolicyBindingSpec {
        policy_name: Some(snapshot.ring.made_for()),
        // Also in the audit log, with which rule it was.
        validation_actions: Some(vec!["Deny".to_owned(), "Audit".to_owned()]),
        ..Default::default()
    };
    object::<ValidatingAdmissionPolicyBinding>(snapshot, json!(spec))
}

fn object<K: Resource<DynamicType = ()>>(snapshot: &Snapshot, spec: Value) -> DynamicObject {
    with_spec(&ApiResource::erase::<K>(&()), snapshot.belonging(snapshot.ring.made_for()), spec)
}

/// What a policy says. An API server of another version may store more than is known here, and that is no difference.
pub(super) fn spec_of(policy: &DynamicObject) -> Option<ValidatingAdmissionPolicySpec> {
    ValidatingAdmissionPolicySpec::deserialize(&policy.data["spec"]).ok()
}

/// The accounts that a policy names, as far as it is one of ours.
pub(super) fn accounts(policy: &DynamicObject) -> BTreeSet<String> {
    let conditions = spec_of(policy).and_then(|spec| spec.match_conditions).unwrap_or_default();
    let lists = conditions.iter().filter_map(|condition| condition.expression.strip_prefix(WHO));
    lists.filter_map(|list| serde_json::from_str::<BTreeSet<String>>(list).ok()).flatten().collect()
}

fn spec(snapshot: &Snapshot, accounts: &BTreeSet<String>) -> ValidatingAdmissionPolicySpec {
    let terms = Terms::of(snapshot);
    let rule = |expression: &str, message: &str| Validation {
        expression: terms.fill_in(expression),
        message: None,
        message_expression: Some(terms.fill_in(message)),
        reason: Some("Forbidden".to_owned()),
    };
    ValidatingAdmissionPolicySpec {
        // Only writes of shards are concerned, whatever else goes wrong in here.
        match_conditions: Some(vec![MatchCondition {
            name: "shards".to_owned(),
            expression: format!("{WHO}{}", json!(accounts)),
        }]),
        match_constraints: Some(MatchResources {
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(snapshot.namespace_selector.clone()),
            object_selector: Some(LabelSelector::default()),
            resource_rules: Some(rules(&snapshot.named)),
            exclude_resource_rules: None,
        }),
        variables: None,
        validations: Some(vec![
            rule(OWN, OWN_MESSAGE),
            rule(CREATED, CREATED_MESSAGE),
            rule(KEPT, KEPT_MESSAGE),
            rule(BOUND, BOUND_MESSAGE),
        ]),
        failure_policy: Some("Fail".to_owned()),
        audit_annotations: Some(vec![AuditAnnotation {
            key: "unseen".to_owned(),
            value_expression: terms.fill_in(&UNSEEN.replace("{is-owned}", &is_owned())),
        }]),
        param_kind: None,
    }
}

/// What the names in braces stand for.
struct Terms(Vec<(&'static str, String)>);

impl Terms {
    fn of(snapshot: &Snapshot) -> Self {
        let (shard, drain) = (&snapshot.labels.shard, &snapshot.labels.drain);
        let label = |template: &str, key: &str| format!("({})", template.replace("{key}", key));
        let controlled: BTreeSet<_> =
            snapshot.spec.resources.iter().flat_map(|main| &main.controlled_resources).map(cel_name).collect();
        let main: BTreeSet<_> =
            snapshot.named.iter().filter(|name| snapshot.spec.is_main(name)).map(cel_name).collect();
        Self(vec![
            // First, as it has others in it.
            ("{child}", format!("({})", child(snapshot, &controlled.intersection(&main).collect()))),
            ("{pod}", format!("({})", POD.replace("{pod-name}", POD_NAME))),
            ("{was}", label(OLD, shard)),
            ("{was-drain}", label(OLD, drain)),
            ("{shard}", label(NEW, shard)),
            ("{drain}", label(NEW, drain)),
            ("{resource}", format!("({RESOURCE})")),
            // A list of strings in JSON is one in CEL.
            ("{controlled}", json!(controlled).to_string()),
            ("{manager}", format!("({MANAGER})")),
            ("{kind}", snapshot.ring.kind().names().kind.to_owned()),
            ("{ring}", snapshot.ring.name().to_owned()),
            ("{acknowledger}", ACKNOWLEDGER.to_owned()),
            // Last, as it has braces of its own.
            ("{graced}", CARRIES_GRACE.to_owned()),
        ])
    }

    fn fill_in(&self, template: &str) -> String {
        self.0.iter().fold(template.to_owned(), |text, (name, expression)| text.replace(name, expression))
    }
}

/// Whether the object goes with another one, where these resources are main and controlled ones. Of a ring without such the policy
/// says nothing of kinds, and stays the same while one is not served.
fn child(snapshot: &Snapshot, either: &BTreeSet<&String>) -> String {
    if either.is_empty() {
        return CONTROLLED.to_owned();
    }
    let has_owner = has_owner(snapshot, &of_groups(snapshot));
    CHILD.replace("{either}", &json!(either).to_string()).replace("{has-owner}", &has_owner)
}

/// Whether an `owner` is of a group of the ring. By what the spec says alone: that is known also while a resource is not served.
fn of_groups(snapshot: &Snapshot) -> String {
    let groups: BTreeSet<&str> = snapshot.named.iter().map(|name| &*name.group).collect();
    groups.into_iter().map(of_group).collect::<Vec<_>>().join(" || ")
}

fn cel_name(resource: &GroupResource) -> String {
    format!("{}/{}", resource.group, resource.resource)
}

/// One rule a group: each resource by name, and with what lies below it, such as its status. A resource that is not served
/// yet is among them as well. What binds a Pod goes to another resource too.
fn rules(named: &[GroupResource]) -> Vec<NamedRuleWithOperations> {
    let mut rules: Vec<NamedRuleWithOperations> = Vec::new();
    for name in named {
        let groups = Some(vec![name.group.clone()]);
        let mut resources = vec![name.resource.clone(), format!("{}/*", name.resource)];
        if cel_name(name) == "/pods" {
            resources.push("bindings".to_owned());
        }
        match rules.iter_mut().find(|rule| rule.api_groups == groups) {
            Some(rule) => rule.resources.get_or_insert_default().extend(resources),
            None => rules.push(NamedRuleWithOperations {
                api_groups: groups,
                api_versions: Some(vec!["*".to_owned()]),
                operations: Some(["CREATE", "UPDATE", "DELETE", "CONNECT"].map(str::to_owned).to_vec()),
                resources: Some(resources),
                resource_names: None,
                scope: Some("*".to_owned()),
            }),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::snapshot::tests::snapshot;

    #[test]
    fn the_accounts_are_read_back_from_the_policy() {
        let two: BTreeSet<_> = ["system:serviceaccount:a:b", "system:serviceaccount:c:d"].map(str::to_owned).into();
        for set in [two, BTreeSet::new()] {
            let mut policy = policy(&snapshot(), &set);
            assert_eq!(accounts(&policy), set);
            policy.data["spec"]["matchConditions"][0]["expression"] = "false".into();
            assert_eq!(accounts(&policy), BTreeSet::new());
        }
    }

    #[test]
    fn the_policy_names_the_ring_s_resources_and_keys_and_none_of_its_shards() {
        let policy = policy(&snapshot(), &["system:serviceaccount:a:b".to_owned()].into());
        assert_eq!(policy.metadata.name.as_deref(), Some("sharding-clusterring-50d858e0-example"));
        assert_eq!(policy.metadata.owner_references.as_ref().unwrap()[0].uid, "ring-uid");
        assert_eq!(binding(&snapshot()).data["spec"]["policyName"].as_str(), policy.metadata.name.as_deref());
        let spec = spec_of(&policy).unwrap();
        let rules = spec.match_constraints.unwrap().resource_rules.unwrap();
        assert_eq!(rules.len(), 1);
        let resources = ["configmaps", "configmaps/*", "secrets", "secrets/*"].map(str::to_owned);
        assert_eq!(rules[0].resources.as_deref(), Some(&resources[..]));
        assert_eq!(spec.variables, None, "they can end an API server before Kubernetes 1.36");
        let rules = spec.validations.unwrap().into_iter();
        let mut expressions: Vec<_> =
            rules.flat_map(|rule| [Some(rule.expression), rule.message_expression]).flatten().collect();
        expressions.extend(spec.audit_annotations.unwrap().into_iter().map(|it| it.value_expression));
        assert!(expressions[0].contains("shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example"));
        assert!(expressions[2].contains(r#" in ["/secrets"]"#));
        // What is left of braces counts repetitions.
        let mut braces = expressions.iter().flat_map(|expression| expression.split('{').skip(1));
        assert!(braces.all(|rest| rest.starts_with(|it: char| it.is_ascii_digit())), "{expressions:?}");
    }
}
