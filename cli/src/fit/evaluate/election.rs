//! The rules about leader elections: none, elsewhere, or by a lock that the proxy can't answer for.

use super::Seen;
use crate::fit::subject::{Lock, Subject, options};

/// What a controller's command line and variables say about leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    On,
    Off,
    NotNamed,
}

fn switch(subject: &Subject) -> Switch {
    let arguments = subject.arguments();
    let options = options(&arguments);
    let is_switch = |name: &str| {
        let name = name.replace('_', "-");
        (name.contains("leader-elect") || name.contains("leaderelect"))
            && !["namespace", "id", "name", "duration", "deadline", "period", "lock", "type", "release"]
                .iter()
                .any(|other| name.split('-').any(|word| word == *other))
    };
    let by_argument = options.iter().filter(|(name, _)| is_switch(name)).map(|(_, value)| value.map(str::to_owned));
    let by_variable = subject.environment().filter(|variable| is_switch(&variable.name.to_lowercase()));
    let mut said = by_argument.chain(by_variable.map(|variable| variable.value.clone()));
    match said.next() {
        None => Switch::NotNamed,
        Some(Some(value)) if ["false", "0", "no", "off"].contains(&value.to_lowercase().as_str()) => Switch::Off,
        Some(_) => Switch::On,
    }
}

/// R01.
pub(super) fn elects_nobody(subject: &Subject) -> Seen {
    if let Some(Lock::Lease(namespace, name) | Lock::OwnedByPod(namespace, name)) = subject.locks.first() {
        return Seen::Not(format!("elects a leader: a pod of it holds {namespace}/{name}"));
    }
    let locks = [("coordination.k8s.io", "leases"), ("", "configmaps"), ("", "endpoints")];
    let may = locks.iter().any(|(group, resource)| !subject.granted(group, resource, &["update", "patch"]).is_empty());
    match switch(subject) {
        Switch::Off => Seen::Met("an argument or a variable turns it off".to_owned()),
        Switch::On => Seen::Not("elects a leader, as its arguments or variables say".to_owned()),
        Switch::NotNamed if subject.grants.is_some() && !may => Seen::Met("it may write no Lease".to_owned()),
        Switch::NotNamed if may && subject.live => {
            Seen::Suspected("the right to write a lock, and none of its pods holds a Lease".to_owned())
        }
        Switch::NotNamed => Seen::Unknown,
    }
}

/// R02.
pub(super) fn elects_elsewhere(subject: &Subject) -> Seen {
    let own = subject.namespace();
    let sidecar = subject.sidecar();
    let named = options(&sidecar);
    let answered = named.iter().find(|(name, _)| name == "election-namespace").and_then(|(_, value)| *value);
    let elsewhere = |namespace: &str| namespace != own && answered != Some(namespace) && !namespace.contains('$');
    let is_answered =
        |answered: &str| Seen::Not(format!("its elections in {answered} are answered, as the sidecar says"));
    let holds_in =
        |there: &str| subject.locks.iter().any(|lock| matches!(lock, Lock::Lease(namespace, _) if namespace == there));
    if let Some(answered) = answered.filter(|there| holds_in(there)) {
        return is_answered(answered);
    }
    if !subject.locks.is_empty() {
        let foreign = subject.locks.iter().find_map(|lock| match lock {
            Lock::Lease(namespace, name) if elsewhere(namespace) => Some(format!("{namespace}/{name}")),
            _ => None,
        });
        return foreign.map_or_else(|| Seen::Not(String::new()), Seen::Met);
    }
    let is_place = |name: &str| {
        let name = name.to_lowercase().replace('_', "-");
        name.contains("leader") && name.contains("elect") && name.ends_with("namespace")
    };
    let arguments = subject.arguments();
    let options = options(&arguments);
    let by_argument = options.iter().filter(|(name, _)| is_place(name)).find_map(|(_, value)| *value);
    let mut variables = subject.environment().filter(|variable| is_place(&variable.name));
    let by_variable = variables.find_map(|variable| variable.value.as_deref());
    if let Some(namespace) = by_argument.or(by_variable) {
        return if elsewhere(namespace) { Seen::Met(namespace.to_owned()) } else { Seen::Not(String::new()) };
    }
    if let Some(answered) = answered {
        return is_answered(answered);
    }
    let places = subject.granted("coordination.k8s.io", "leases", &["update", "patch"]);
    let mut foreign = places.iter().flatten().filter(|namespace| elsewhere(namespace));
    match foreign.next() {
        Some(namespace) if !places.contains(&Some(own)) && !places.contains(&None) => {
            Seen::Met(format!("it may write Leases in {namespace} only"))
        }
        Some(namespace) => Seen::Suspected(format!("the right to write Leases in {namespace}, too")),
        None => Seen::Not(String::new()),
    }
}

/// R03.
pub(super) fn elects_by_another_lock(subject: &Subject) -> Seen {
    let owned = subject.locks.iter().find_map(|lock| match lock {
        Lock::OwnedByPod(namespace, name) => Some(format!("ConfigMap {namespace}/{name}")),
        Lock::Lease(..) => None,
    });
    if let Some(lock) = owned {
        return Seen::Met(lock);
    }
    let arguments = subject.arguments();
    let options = options(&arguments);
    let is_kind = |name: &str| name.contains("leader") && (name.ends_with("lock") || name.ends_with("type"));
    let kinds = options.iter().filter(|(name, _)| is_kind(name)).filter_map(|(_, value)| *value);
    if let Some(kind) = kinds.clone().find(|kind| *kind == "endpoints") {
        return Seen::Met(format!("its arguments say {kind}"));
    }
    if kinds.count() > 0 || subject.locks.iter().any(|lock| matches!(lock, Lock::Lease(..))) {
        return Seen::Not(String::new());
    }
    let writes = |group: &str, resource: &str| !subject.granted(group, resource, &["update", "patch"]).is_empty();
    if writes("", "endpoints") && !writes("coordination.k8s.io", "leases") {
        return Seen::Suspected("the right to write Endpoints, and none to write Leases".to_owned());
    }
    if writes("coordination.k8s.io", "leases") { Seen::Not(String::new()) } else { Seen::Unknown }
}
