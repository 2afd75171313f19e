//! The hooks by which a pod that ends hands its objects over before its controller does.
//!
//! The proxy's own has it give its objects away, and the controller's waits for that. A kubelet runs both at once, and ends a
//! container after its own.

use ringside_ring::doing::LEFT;
use serde_json::{Value, json};

use crate::{Change, Injected, Object, Refusal, before::Before};

/// The seconds that a pod has to end, where it says nothing.
const DEFAULT_PERIOD: u64 = 30;
/// Those of them that remain for what comes after the hooks: the controller's end, and the proxy's.
const FOR_THE_END: u64 = 10;

/// The seconds that a pod with this spec has for its hooks, or why it has none. A kubelet asks the controller's from outside of the
/// pod, where the proxy listens for `metrics` alone.
pub(super) fn seconds(spec: &Object, metrics: bool) -> Result<u64, &'static str> {
    let period = spec.get("terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(DEFAULT_PERIOD);
    match period.checked_sub(FOR_THE_END) {
        None | Some(0) => Err(
            "terminationGracePeriodSeconds leaves no time to hand objects over before the end: with 30 there is, and with more for thousands of objects",
        ),
        Some(_) if !metrics => Err("without metrics a pod that ends does not hand its objects over first"),
        Some(seconds) => Ok(seconds),
    }
}

/// The proxy's.
pub(super) fn of_proxy(seconds: u64) -> Value {
    json!({"preStop": {"exec": {"command": ["/ringside-proxy", "leave", format!("--within={seconds}s")]}}})
}

/// Gives a container the controller's, which a kubelet asks at the pod's own address, and which is known as ours by its path. One
/// that has a hook keeps that.
pub(super) fn add(
    (name, container): (&str, &mut Object),
    admin: u16,
    before: &mut Before,
    injected: &mut Injected,
) -> Result<(), Refusal> {
    let place = place(name);
    let is_there = |hook: &Value| hook.as_object().is_none_or(|hook| !hook.is_empty());
    let own = container.get("lifecycle").and_then(|all| all.get("preStop")).filter(|hook| !hook.is_null());
    if own.is_some_and(is_there) {
        let note = "keeps its own preStop hook: in a roll-out it may end before its objects have another replica";
        injected.notes.push(format!("{name}: {note}"));
        return Ok(());
    }
    let lifecycle = before.map(container, "lifecycle", &place)?;
    let hook = before.map(lifecycle, "preStop", &format!("{place}/preStop"))?;
    hook.insert("httpGet".to_owned(), json!({"path": LEFT, "port": admin}));
    injected.changes.push(Change::Added(said(name)));
    Ok(())
}

/// Takes the controller's off again, where it is there.
pub(super) fn take_off(name: &str, container: &mut Object, before: &Before) -> Option<Change> {
    let place = place(name);
    let lifecycle = container.get_mut("lifecycle")?.as_object_mut()?;
    let hook = lifecycle.get_mut("preStop")?.as_object_mut()?;
    hook.get("httpGet").filter(|get| get["path"] == LEFT)?;
    hook.remove("httpGet");
    before.tidy(lifecycle, "preStop", &format!("{place}/preStop"));
    before.tidy(container, "lifecycle", &place);
    Some(Change::Removed(said(name)))
}

fn said(name: &str) -> String {
    format!("{name}: a preStop hook, which waits until its objects are handed over")
}

fn place(name: &str) -> String {
    format!("{name}/lifecycle")
}
