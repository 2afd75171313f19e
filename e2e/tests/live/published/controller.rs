//! What differs between published controllers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use ringside_e2e::{checker::Landed, toolchain::Operator};
use serde_json::Value;

/// A published controller, which makes a Secret of each of its objects.
pub(super) struct Controller {
    pub(super) operator: Operator,
    /// The name of its Deployment.
    pub(super) deployment: &'static str,
    /// What all of its objects name, in YAML.
    pub(super) beside: &'static str,
    /// How many more objects it makes something of, because of that.
    pub(super) made_beside: usize,
    /// The kind of its objects.
    pub(super) kind: [&'static str; 3],
    /// The spec of an object that was changed so often.
    pub(super) spec: fn(index: usize, change: usize) -> Value,
    /// The name of an object's Secret.
    pub(super) secret: fn(index: usize) -> String,
    /// Whether it is done with an object that was changed so often, and whose Secret is this one.
    pub(super) is_final: fn(&DynamicObject, &Secret, change: usize) -> bool,
    /// Whether it would have done that without Ringside, too.
    pub(super) is_its_own: fn(&Landed) -> bool,
    /// How often it worked once more than asked, by what it made, by resource, for an object of so many versions.
    pub(super) again: fn(made: &BTreeMap<String, usize>, versions: usize) -> usize,
    /// Of so many versions, it may work on one once more.
    pub(super) may_again: Option<usize>,
}

/// The `Ready` condition of an object, where it is true.
pub(super) fn ready(root: &DynamicObject) -> Option<&Value> {
    let conditions = root.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Ready" && one["status"] == "True")
}
