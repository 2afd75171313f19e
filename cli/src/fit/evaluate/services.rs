//! The rules about Services that lead to its pods: webhooks, conversions, metrics and others.

use k8s_openapi::{api::core::v1::ServicePort, apimachinery::pkg::util::intstr::IntOrString};

use super::Seen;
use crate::fit::subject::{self, Subject};

/// The definitions that are converted by a Service of the controller's pods, with that Service.
fn conversions(subject: &Subject) -> Vec<(String, (&str, &str))> {
    let converted = subject.definitions.iter().filter_map(|definition| {
        let service =
            definition.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()?.service.as_ref()?;
        let place = (service.namespace.as_str(), service.name.as_str());
        subject.own_service(place)?;
        Some((definition.metadata.name.clone().unwrap_or_default(), place))
    });
    converted.collect()
}

/// R11.
pub(super) fn serves(subject: &Subject) -> Seen {
    let called: Vec<_> = subject.webhooks.iter().map(|webhook| webhook.service.1.as_str()).collect();
    let converting: Vec<_> = conversions(subject).into_iter().map(|(_, (_, name))| name).collect();
    let mut others = subject.own_services().filter(|service| {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        !called.contains(&name)
            && !converting.contains(&name)
            && !name.contains("webhook")
            && ports.clone().any(answers)
    });
    match others.next() {
        Some(service) => {
            let name = service.metadata.name.as_deref().unwrap_or_default();
            Seen::Suspected(format!("Service {name}"))
        }
        None if subject.live => Seen::Not(String::new()),
        None => Seen::Unknown,
    }
}

/// Whether a port may answer about objects: not one of metrics, probes or webhooks.
fn answers(port: &ServicePort) -> bool {
    let target = match &port.target_port {
        Some(IntOrString::String(name)) => name.as_str(),
        _ => "",
    };
    let name = port.name.as_deref().unwrap_or_default();
    let is_other = |name: &str| ["metrics", "webhook", "health", "probe"].iter().any(|word| name.contains(word));
    let number = match &port.target_port {
        Some(IntOrString::Int(number)) => *number,
        _ => port.port,
    };
    !is_other(name) && !is_other(target) && number != 9443
}

/// R12.
pub(super) fn admits(subject: &Subject) -> Seen {
    let own = |(namespace, name): &(String, String)| subject.own_service((namespace, name)).is_some();
    match subject.webhooks.iter().find(|webhook| own(&webhook.service)) {
        Some(webhook) => Seen::Met(webhook.configuration.clone()),
        None if subject.live => Seen::Not("serves no admission webhook".to_owned()),
        None => Seen::Not(String::new()),
    }
}

/// R13.
pub(super) fn converts(subject: &Subject) -> Seen {
    let ready_before = |place: (&str, &str)| {
        let spec = subject.own_service(place).and_then(|service| service.spec.as_ref());
        spec.and_then(|spec| spec.publish_not_ready_addresses).unwrap_or(false)
    };
    let conversions = conversions(subject);
    match conversions.iter().find(|(_, place)| !ready_before(*place)) {
        Some((definition, _)) => Seen::Met(definition.clone()),
        None if !conversions.is_empty() => Seen::Not("serves its conversion webhook before it is ready".to_owned()),
        None if subject.live => Seen::Not("serves no conversion webhook".to_owned()),
        None => Seen::Not(String::new()),
    }
}

/// R28.
pub(super) fn has_metrics(subject: &Subject) -> Seen {
    let ports = subject::containers(&subject.deployment).flat_map(|container| container.ports.iter().flatten());
    let mut names = ports.filter_map(|port| port.name.as_deref());
    match names.find(|name| name.contains("metrics")) {
        Some(name) => Seen::Met(format!("port {name}")),
        None => Seen::Not(String::new()),
    }
}
