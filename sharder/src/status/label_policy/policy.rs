//! What the policy says, in CEL.
//!
//! It runs before the webhooks do, and once: so a shard label that an object is created with was written by the client,
//! and what the webhook assigns in the same write is not undone. Only writes that change the labels get as far as a patch:
//! all others cost the evaluation of a few short conditions.

use kube::{core::DynamicObject, discovery::ApiResource};
use ringside_ring::{
    grace::CARRIES_GRACE,
    labels::{ACKNOWLEDGER, ADOPTION},
};
use serde_json::{Value, json};

use crate::{
    cel::{MANAGER, all_of, has_owner, names_one_of, quoted},
    keep::with_spec,
    snapshot::Snapshot,
};

/// The policy; none when there is nothing that it could be about.
pub(super) fn policy(snapshot: &Snapshot, kind: &ApiResource, sharder: &str) -> Option<DynamicObject> {
    let Expressions { conditions, variables, patch } = Expressions::of(snapshot, sharder);
    let condition = json!({"name": "labels-to-put-back", "expression": all_of(conditions)});
    let named = |list: &[(&str, String)]| {
        list.iter().map(|(name, it)| json!({"name": name, "expression": it})).collect::<Value>()
    };
    let spec = json!({
        "matchConstraints": {"resourceRules": rules(snapshot), "namespaceSelector": snapshot.namespace_selector},
        "matchConditions": [condition],
        "variables": named(&variables),
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        // What the webhook sets in the same write is not looked at again.
        "reinvocationPolicy": "Never",
        // As of the webhook: objects must be writable whatever happens here.
        "failurePolicy": "Ignore",
    });
    (!snapshot.named.is_empty()).then(|| object(snapshot, kind, spec))
}

/// The binding that puts the policy into effect.
pub(super) fn binding(snapshot: &Snapshot, kind: &ApiResource) -> Option<DynamicObject> {
    let spec = json!({"policyName": snapshot.ring.made_for()});
    (!snapshot.named.is_empty()).then(|| object(snapshot, kind, spec))
}

fn object(snapshot: &Snapshot, kind: &ApiResource, spec: Value) -> DynamicObject {
    with_spec(kind, snapshot.belonging(snapshot.ring.made_for()), spec)
}

/// The resources of the ring, and their statuses: with some of the built-in ones a write to the status can change labels.
fn rules(snapshot: &Snapshot) -> Vec<Value> {
    let rule = |name: &ringside_ring::cluster_ring::GroupResource| {
        json!({
            "apiGroups": [name.group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "scope": "*",
            "resources": [name.resource, format!("{}/status", name.resource)],
        })
    };
    snapshot.named.iter().map(rule).collect()
}

/// The parts of the policy that are CEL.
struct Expressions {
    /// All of them have to be true, the cheapest first.
    conditions: [String; 4],
    variables: [(&'static str, String); 5],
    patch: String,
}

impl Expressions {
    fn of(snapshot: &Snapshot, sharder: &str) -> Self {
        let (shard, drain) = (quoted(&snapshot.labels.shard), quoted(&snapshot.labels.drain));
        let path = |key: &str| quoted(&format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1")));
        let (shard_path, drain_path) = (path(&snapshot.labels.shard), path(&snapshot.labels.drain));
        let [sharder, acknowledger, adoption] = [sharder, ACKNOWLEDGER, ADOPTION].map(quoted);
        let (manager, pod, child, graced) = (MANAGER, POD, &is_child(snapshot), quoted(CARRIES_GRACE));
        let owned = &has_owner(snapshot, "true");
        let follows = &format!("({} && {owned})", one_of(snapshot, |name| snapshot.spec.is_controlled(name)));
        let new = |key: &str| format!("object.metadata.?labels[?{key}]");
        let old = |key: &str| format!("oldObject.metadata.?labels[?{key}]");
        let (new_shard, old_shard, new_drain, old_drain) = (new(&shard), old(&shard), new(&drain), old(&drain));
        Self {
            conditions: [
                // Who decides about the labels.
                format!("request.userInfo.username != {sharder}"),
                // A copy of another object (a user is no shard, and has none to give, not even an empty one; nor has a
                // shard to what it creates below an owner, which may be another's by now: the webhook looks); or a
                // change of the owner, or of a drain that is under way. A user may ask for a drain by hand, but not of
                // a child. A child goes with its owner, and no shard would release it.
                format!(
                    "request.operation == 'CREATE' \
                         ? {new_drain}.hasValue() || ({new_shard}.hasValue() && ({follows} || {pod} == '' || {new_shard}.value() != {pod})) \
                         : {new_shard} != {old_shard} || ({new_drain} != {old_drain} \
                         && ({child} ? {new_drain}.hasValue() : {old_drain}.hasValue()))"
                ),
                // Both labels taken off a drained object; by the shard itself, when it can be told who writes, and by what
                // acknowledges for it, where the drain says that something does.
                format!(
                    "request.operation == 'CREATE' || {new_shard}.hasValue() || {new_drain}.hasValue() \
                         || !{old_drain}.hasValue() || !({pod} in ['', {old_shard}.orValue('')]) \
                         || ({manager} != {acknowledger} && {old_drain}.orValue('').matches({graced}))"
                ),
                // The shard's own label added to an object that would be a child, and has no owner: its proxy does that
                // where the shard's controller was to create the object. To no object that has a shard.
                format!(
                    "request.operation == 'CREATE' || {manager} != {adoption} || !({child}) || {owned} \
                         || {old_shard}.hasValue() || {new_drain}.hasValue() || !({pod} in ['', {new_shard}.orValue('')])"
                ),
            ],
            variables: [
                (
                    "before",
                    "request.operation == 'UPDATE' && has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
                        .to_owned(),
                ),
                ("after", "has(object.metadata.labels) ? object.metadata.labels : {}".to_owned()),
                ("pod", pod.to_owned()),
                ("child", child.clone()),
                ("follows", follows.clone()),
            ],
            patch: format!(
                "(has(object.metadata.labels) ? [] : [JSONPatch{{op: 'add', path: '/metadata/labels', value: {{}}}}]) \
                 + ({shard} in variables.before \
                 ? [JSONPatch{{op: 'add', path: {shard_path}, value: variables.before[{shard}]}}] \
                 + ({drain} in variables.before && !variables.child \
                 ? [JSONPatch{{op: 'add', path: {drain_path}, value: variables.before[{drain}]}}] : []) \
                 : ({shard} in variables.after && (request.operation == 'UPDATE' || variables.follows || variables.pod == '' || variables.after[{shard}] != variables.pod) \
                 ? [JSONPatch{{op: 'remove', path: {shard_path}}}] : [])) \
                 + ({drain} in variables.after && (request.operation == 'CREATE' || variables.child) \
                 ? [JSONPatch{{op: 'remove', path: {drain_path}}}] : [])"
            ),
        }
    }
}

/// Whether the object goes with another one, and is never drained by itself.
fn is_child(snapshot: &Snapshot) -> String {
    one_of(snapshot, |name| snapshot.spec.is_controlled(name) && !snapshot.spec.is_main(name))
}

/// Whether the object is of one of these resources.
fn one_of(snapshot: &Snapshot, which: impl Fn(&ringside_ring::cluster_ring::GroupResource) -> bool) -> String {
    names_one_of(snapshot.named.iter().filter(|name| which(name))).unwrap_or_else(|| "false".to_owned())
}

/// The name of the writer's pod, which is a shard's name; empty for users, and for tokens that are not bound to a pod.
const POD: &str = "request.userInfo.?extra[?'authentication.kubernetes.io/pod-name'][?0].orValue('')";
