//! The rules about what its pods are: arguments, variables, network and folders.

use k8s_openapi::api::core::v1::VolumeMount;

use ringside_inject as inject;

use super::Seen;
use crate::fit::subject::{self, Subject, options};

/// Where Kubernetes mounts the token of a pod's account.
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The first option or variable whose name has one of these words.
fn named(subject: &Subject, words: &[&str]) -> Option<String> {
    let has = |name: &str| {
        let name = name.to_lowercase().replace('_', "-");
        words.iter().any(|word| name.contains(word))
    };
    let arguments = subject.arguments();
    let option = options(&arguments).into_iter().map(|(name, _)| name).find(|name| has(name));
    let variable = || subject.environment().map(|variable| &variable.name).find(|name| has(name)).cloned();
    option.map(|name| format!("--{name}")).or_else(variable)
}

/// R04.
pub(super) fn shards_itself(subject: &Subject) -> Seen {
    match named(subject, &["shard"]) {
        Some(option) => Seen::Suspected(format!("`{option}`")),
        None => Seen::Unknown,
    }
}

/// R07.
pub(super) fn deletes_unseen(subject: &Subject) -> Seen {
    match named(subject, &["prune", "orphan", "garbage", "gc-interval"]) {
        Some(option) => Seen::Suspected(format!("`{option}`")),
        None => Seen::Unknown,
    }
}

/// R09.
pub(super) fn keeps_to_a_total(subject: &Subject) -> Seen {
    let words = ["concurren", "qps", "burst", "rate-limit", "ratelimit", "quota", "max-parallel"];
    match named(subject, &words) {
        Some(option) => Seen::Suspected(format!("`{option}`")),
        None => Seen::Unknown,
    }
}

/// R14.
pub(super) fn uses_host_network(subject: &Subject) -> Seen {
    let uses = subject.pod().and_then(|pod| pod.host_network).unwrap_or(false);
    let sidecar = subject.sidecar();
    let chosen = options(&sidecar).iter().any(|(name, _)| name == "listen");
    if uses && !chosen { Seen::Met("its pod template says so".to_owned()) } else { Seen::Not(String::new()) }
}

/// R15.
pub(super) fn shows_its_token(subject: &Subject) -> Seen {
    for container in subject::containers(&subject.deployment) {
        let mounts = container.volume_mounts.iter().flatten();
        let is_over = |mount: &&VolumeMount| mount.mount_path.trim_end_matches('/').starts_with(TOKEN_FOLDER);
        // The volume of this name is what `ringside inject` puts there, in place of the account's own token.
        let is_own = |mount: &&VolumeMount| mount.name == inject::VOLUME || has_own_token(subject, &mount.name);
        if let Some(mount) = mounts.filter(is_over).find(|mount| !is_own(mount)) {
            return Seen::Met(format!("volume {} lies over the token folder", mount.name));
        }
    }
    let has_path = |text: &str| text.contains(TOKEN_FOLDER);
    if let Some(argument) = subject.arguments().iter().find(|argument| has_path(argument)) {
        return Seen::Met(format!("`{argument}`"));
    }
    if let Some(variable) = subject.environment().find(|it| it.value.as_deref().is_some_and(has_path)) {
        return Seen::Met(format!("variable {} names the token folder", variable.name));
    }
    match named(subject, &["vault", "oidc-token", "token-file"]) {
        Some(option) => Seen::Suspected(format!("`{option}`")),
        None => Seen::Unknown,
    }
}

/// Whether a volume has the token that the API server would mount as well.
fn has_own_token(subject: &Subject, name: &str) -> bool {
    let mut volumes = subject.pod().into_iter().flat_map(|pod| pod.volumes.iter().flatten());
    let volume = volumes.find(|volume| volume.name == name).and_then(|volume| serde_json::to_value(volume).ok());
    volume.is_some_and(|volume| inject::has_token(&volume))
}

/// R16.
pub(super) fn has_https_proxy(subject: &Subject) -> Seen {
    let value = |wanted: &str| {
        let mut found = subject.environment().filter(|variable| variable.name.eq_ignore_ascii_case(wanted));
        found.find(|variable| {
            variable.value_from.is_some() || variable.value.as_deref().is_some_and(|it| !it.is_empty())
        })
    };
    let Some(proxy) = value("HTTPS_PROXY") else { return Seen::Not(String::new()) };
    let except = value("NO_PROXY").and_then(|variable| variable.value.as_deref()).unwrap_or_default();
    let skips = except.split(',').map(str::trim).any(|one| one == "*" || one.starts_with("127.0.0."));
    let skips = skips || except.split(',').any(|one| one.trim() == "127.0.0.0/8");
    if skips { Seen::Not(String::new()) } else { Seen::Met(format!("variable {}", proxy.name)) }
}

/// R26.
pub(super) fn is_kopf(subject: &Subject) -> Seen {
    let sidecar = subject.sidecar();
    let is_word = |word: &String| word.split(['/', ' ']).any(|part| part == "kopf");
    let image = subject::containers(&subject.deployment)
        .filter_map(|container| container.image.as_deref())
        .any(|image| image.split(['/', ':', '@', '-', '_']).any(|part| part == "kopf"));
    let by =
        if subject.arguments().iter().any(is_word) {
            "its command"
        } else if image {
            "its image"
        } else if subject.grants.iter().flatten().any(|grant| {
            grant.rule.api_groups.iter().flatten().any(|group| group == "kopf.dev" || group == "zalando.org")
        }) {
            "its rights to peering objects"
        } else {
            return Seen::Not(String::new());
        };
    let mounts =
        subject::containers(&subject.deployment).flat_map(|container| container.volume_mounts.iter().flatten());
    let is_empty_folder = mounts.filter(|mount| mount.mount_path == TOKEN_FOLDER).any(|mount| mount.name != "ringside");
    if !sidecar.is_empty() && is_empty_folder {
        return Seen::Not("is built on kopf, with an empty token folder".to_owned());
    }
    Seen::Met(by.to_owned())
}
