//! What the API server writes down about requests: its audit policy.

use std::fs;

use serde_json::{Value, json};

use super::{Layout, Options};
use crate::files::failed;

/// The stage in which nothing is known but the question.
const ARRIVAL: [&str; 1] = ["RequestReceived"];

/// Writes the policy to where [`super::commands`] names it.
pub(super) fn write_policy(layout: &Layout, options: &Options) -> anyhow::Result<()> {
    let path = layout.file("audit-policy.yaml");
    let written = fs::write(&path, format!("{:#}\n", policy(options)));
    written.map_err(failed("write", &path))
}

/// Once a request was answered: its metadata; or of writes that they arrived, and the object that came out, and of watches
/// their beginning and end; where the API server is hindered, lists too. JSON is YAML as well.
fn policy(options: &Options) -> Value {
    let all = || json!([{"level": "Metadata", "omitStages": ARRIVAL}]);
    let rules = if options.audit_writes.is_empty() { all() } else { writes(options) };
    json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})
}

fn writes(options: &Options) -> Value {
    let resources = options.audit_writes.iter().map(|one| {
        // The subresources are written to as well.
        json!({"group": one.group, "resources": [one.resource, format!("{}/*", one.resource)]})
    });
    let resources: Vec<_> = resources.collect();
    // Where the API server is hindered it may be killed as well, and answers nothing of what it had begun.
    let omitted: &[&str] = if options.line_to_etcd { &[] } else { &ARRIVAL };
    // By a list of one name a proxy asks whose an object is, while it holds up a write.
    let read: &[&str] = if options.line_to_etcd { &["list", "watch"] } else { &["watch"] };
    json!([
        {"level": "Metadata", "verbs": read, "resources": resources, "omitStages": ARRIVAL},
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "RequestResponse", "resources": resources, "omitManagedFields": true, "omitStages": omitted},
        {"level": "None"},
    ])
}
