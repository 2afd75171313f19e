//! The variables by which a container finds the proxy.

use serde_json::{Value, json};

use crate::{Change, FOLDER, Injected, Object, Refusal, before::Before, items};

const KUBECONFIG: &str = "KUBECONFIG";
const HOST: &str = "KUBERNETES_SERVICE_HOST";
const PORT: &str = "KUBERNETES_SERVICE_PORT";
/// What takes requests elsewhere, in capitals or not.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
const NO_PROXY: &str = "NO_PROXY";
/// What is never taken elsewhere then.
const LOOPBACK: &str = "127.0.0.1,localhost";

/// Leads a container to the proxy.
pub(super) fn lead(
    (name, container): (&str, &mut Object),
    port: u16,
    before: &mut Before,
    injected: &mut Injected,
) -> Result<(), Refusal> {
    let place = format!("{name}/env");
    let mut former = before.env.remove(name).unwrap_or_default();
    let env = before.list(container, "env", &place)?;
    if let Some(twice) = [KUBECONFIG, HOST, PORT].iter().find(|name| named(env, name).count() > 1) {
        return Err(Refusal::VariableTwice { container: name.to_owned(), name: (*twice).to_owned() });
    }
    let mut new = Vec::new();
    let (kubeconfig, port) = (format!("{FOLDER}/kubeconfig"), port.to_string());
    for (variable, value) in [(KUBECONFIG, &*kubeconfig), (HOST, "127.0.0.1"), (PORT, &port)] {
        let ours = json!({"name": variable, "value": value});
        match env.iter_mut().find(|entry| entry["name"] == variable) {
            Some(entry) => {
                injected.changes.push(Change::Replaced(format!("{name}: env {variable}")));
                former.insert(variable.to_owned(), std::mem::replace(entry, ours));
            }
            None => new.push(ours),
        }
    }
    if env.iter().any(|entry| PROXIES.iter().any(|proxy| is_called(entry, proxy))) {
        let mut is_named = false;
        for entry in env.iter_mut().filter(|entry| is_called(entry, NO_PROXY)) {
            is_named = true;
            let variable = entry["name"].as_str().unwrap_or_default().to_owned();
            match with_loopback(entry) {
                Some(ours) if ours != *entry => {
                    injected.changes.push(Change::Replaced(format!("{name}: env {variable}")));
                    former.insert(variable, std::mem::replace(entry, ours));
                }
                Some(_) => {}
                None => {
                    injected.notes.push(format!("{name}: {variable} comes from elsewhere; it must name 127.0.0.1"));
                }
            }
        }
        if !is_named {
            new.push(json!({"name": NO_PROXY, "value": LOOPBACK}));
            former.insert(NO_PROXY.to_owned(), Value::Null);
        }
    }
    if !new.is_empty() {
        let names: Vec<_> = new.iter().filter_map(|entry| entry["name"].as_str()).collect();
        injected.changes.push(Change::Added(format!("{name}: env {}", names.join(", "))));
    }
    // Before all others, which may refer to them.
    env.splice(0..0, new);
    if !former.is_empty() {
        before.env.insert(name.to_owned(), former);
    }
    Ok(())
}

/// Gives a container the variables that it had.
pub(super) fn lead_back((name, container): (&str, &mut Object), before: &Before) -> Vec<Change> {
    let mut changes = Vec::new();
    let former = before.env.get(name);
    let former = |variable: &str| former.and_then(|former| former.get(variable)).filter(|entry| !entry.is_null());
    let was_added = before.env.get(name).is_some_and(|former| former.get(NO_PROXY) == Some(&Value::Null));
    let mut back = Vec::new();
    for entry in items(container, "env") {
        let variable = entry["name"].as_str().unwrap_or_default();
        let is_ours = match variable {
            KUBECONFIG | HOST | PORT => true,
            NO_PROXY if was_added => entry["value"] == LOOPBACK,
            // What a user has changed since is not ours.
            _ => former(variable).is_some_and(|former| with_loopback(former).as_ref() == Some(entry)),
        };
        match (is_ours, former(variable)) {
            (false, _) => back.push(entry.clone()),
            (true, Some(former)) => {
                changes.push(Change::Replaced(format!("{name}: env {variable}")));
                back.push(former.clone());
            }
            (true, None) => changes.push(Change::Removed(format!("{name}: env {variable}"))),
        }
    }
    if !changes.is_empty() {
        container.insert("env".to_owned(), back.into());
        before.tidy(container, "env", &format!("{name}/env"));
    }
    changes
}

/// The entry with loopback named; none where its value comes from elsewhere.
fn with_loopback(entry: &Value) -> Option<Value> {
    let value = match entry.get("value") {
        None | Some(Value::Null) if entry.get("valueFrom").is_some() => return None,
        None | Some(Value::Null) => "",
        Some(value) => value.as_str()?,
    };
    let mut changed = entry.clone();
    if !value.split(',').any(|host| host.trim() == "127.0.0.1") {
        let value = if value.is_empty() { LOOPBACK.to_owned() } else { format!("{value},{LOOPBACK}") };
        changed["value"] = value.into();
    }
    Some(changed)
}

fn named<'a>(env: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    env.iter().filter(move |entry| entry["name"] == name)
}

fn is_called(entry: &Value, name: &str) -> bool {
    entry["name"].as_str().is_some_and(|called| called.eq_ignore_ascii_case(name))
}
