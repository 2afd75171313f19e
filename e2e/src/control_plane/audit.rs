//! What the API server writes down about requests: its audit policy.

use std::fs;

use serde_json::{Value, json};

use super::{ControlPlaneError, Layout, Options};

/// Writes the policy to where [`super::commands`] names it.
pub(super) fn write_policy(layout: &Layout, options: &Options) -> Result<(), ControlPlaneError> {
    let path = layout.file("audit-policy.yaml");
    let written = fs::write(&path, format!("{:#}\n", policy(options)));
    written.map_err(|source| ControlPlaneError::File { action: "write", path, source })
}

/// Once a request was answered: its metadata, or of writes the object that came out. JSON is YAML as well.
fn policy(options: &Options) -> Value {
    let rules = if options.audit_writes.is_empty() { json!([{"level": "Metadata"}]) } else { writes(options) };
    json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules})
}

fn writes(options: &Options) -> Value {
    let resources = options.audit_writes.iter().map(|one| {
        // The subresources are written to as well.
        json!({"group": one.group, "resources": [one.resource, format!("{}/*", one.resource)]})
    });
    json!([
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "RequestResponse", "resources": resources.collect::<Vec<_>>(), "omitManagedFields": true},
        {"level": "None"},
    ])
}
