//! What interferes with the sidecar, by what a dry run of a Pod answered; and what to do.

use std::fmt;

use ringside_inject::{CONTAINER, TOKEN_VOLUME, VOLUME};
use serde_json::{Map, Value};

use super::containers;

/// A neighbour that interferes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interference {
    /// A webhook that decodes Pods by old types makes the sidecar an init container that never ends.
    DropsRestartPolicy {
        /// Those that it may be.
        webhooks: Vec<String>,
    },
    /// The sidecar does not come out of admission.
    NoSidecar {
        /// Those that may take it away.
        webhooks: Vec<String>,
    },
    /// Another injector's container gets the proxy's token for the pod's own.
    TakesToken {
        /// The container.
        container: String,
    },
    /// The Pod is refused.
    Refused {
        /// By what.
        by: Refuser,
        /// What the API server said.
        message: String,
        /// What the sidecar asks.
        asks: String,
    },
}

/// What refuses a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refuser {
    /// A quota counts what the sidecar does not say.
    QuotaWithoutAmount {
        /// Its name.
        quota: String,
        /// What it counts, as `limits.cpu`.
        counts: Vec<String>,
    },
    /// A quota has too little left.
    QuotaExceeded {
        /// Its name.
        quota: String,
    },
    /// The limits of a namespace: their least, their most, or how far request and limit may be apart.
    LimitRange,
    /// A Pod Security Standard, a policy or a webhook.
    Admission,
}

impl Interference {
    /// What is the matter.
    #[must_use]
    pub fn finding(&self) -> String {
        match self {
            Self::DropsRestartPolicy { webhooks } => format!(
                "{} drops `restartPolicy` of the sidecar: its types of Pods are older than Kubernetes 1.28",
                one_of("a webhook", webhooks)
            ),
            Self::NoSidecar { webhooks } => {
                format!(
                    "a Pod comes out of admission without the sidecar; {} may do that",
                    one_of("a webhook", webhooks)
                )
            }
            Self::TakesToken { container } => {
                format!("container {container} of another injector gets the proxy's token for the pod's own")
            }
            Self::Refused { by, message, .. } => match by {
                Refuser::QuotaWithoutAmount { quota, .. } | Refuser::QuotaExceeded { quota } => {
                    format!("ResourceQuota {quota} refuses a Pod with the sidecar: {message}")
                }
                Refuser::LimitRange => format!("a LimitRange refuses a Pod with the sidecar: {message}"),
                Refuser::Admission => format!("a Pod with the sidecar is refused: {message}"),
            },
        }
    }

    /// What happens then.
    #[must_use]
    pub fn consequence(&self) -> &'static str {
        match self {
            Self::DropsRestartPolicy { .. } | Self::Refused { .. } => {
                "No new pod comes up: a rollout stands half done."
            }
            Self::NoSidecar { .. } => "The controller works on all objects, past the ring.",
            Self::TakesToken { .. } => "Its server answers 401 or 403.",
        }
    }

    /// What to do.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::DropsRestartPolicy { .. } => {
                "Add it with --plain-container (annotation ringside.dev/plain-container: \
                 \"true\"), or turn on the injector, which puts the field back (value injector.enabled)."
                    .to_owned()
            }
            Self::NoSidecar { .. } => "Exclude these pods there. Pods that ask by label need the injector (value \
                 injector.enabled)."
                .to_owned(),
            Self::TakesToken { container } => remedy_of_injector(container),
            Self::Refused { by, asks, .. } => match by {
                Refuser::QuotaWithoutAmount { counts, .. } => {
                    format!("Name amounts with {}{OTHER_WAYS}", options(counts))
                }
                Refuser::QuotaExceeded { .. } => format!(
                    "Raise the quota, or ask less with --proxy-requests and --proxy-limits{OTHER_WAYS} The sidecar asks: {asks}."
                ),
                Refuser::LimitRange => {
                    format!(
                        "Choose amounts with --proxy-requests and --proxy-limits{OTHER_WAYS} The sidecar asks: {asks}."
                    )
                }
                Refuser::Admission => "Exempt these pods, or change what the message names.".to_owned(),
            },
        }
    }
}

impl fmt::Display for Interference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {} {}", self.finding().trim_end_matches('.'), self.consequence(), self.remedy())
    }
}

/// The same for pods that the injector changes.
const OTHER_WAYS: &str =
    " (annotations ringside.dev/proxy-requests and ringside.dev/proxy-limits; value proxy.resources).";

fn one_of(what: &str, names: &[String]) -> String {
    match names {
        [] => what.to_owned(),
        [name] => format!("{what} of {name}"),
        names => format!("{what} of {}", names.join(", ")),
    }
}

/// The options that name what a quota counts, as `requests.memory` or `limits.cpu`.
fn options(counts: &[String]) -> String {
    let amount = |resource: &str| match resource {
        "cpu" => "50m",
        "memory" => "128Mi",
        _ => "AMOUNT",
    };
    let list = |key: &str| {
        let names = counts.iter().filter_map(|counted| match counted.split_once('.') {
            Some((of, resource)) => (of == key).then_some(resource),
            // A quota may name the resource alone, which is its request.
            None => (key == "requests").then_some(counted.as_str()),
        });
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut requests, limits) = (list("requests"), list("limits"));
    // Both defaults of a resource go where one is named.
    requests.extend(limits.iter().filter(|name| !requests.contains(name)).cloned().collect::<Vec<_>>());
    let said = |names: &[String], of_limit: bool| {
        let amount = |name: &String| match (name.as_str(), of_limit) {
            ("cpu", true) => "cpu=500m".to_owned(),
            (name, _) => format!("{name}={}", amount(name)),
        };
        names.iter().map(amount).collect::<Vec<_>>().join(",")
    };
    let requests = (!requests.is_empty()).then(|| format!("--proxy-requests={}", said(&requests, false)));
    let limits = (!limits.is_empty()).then(|| format!("--proxy-limits={}", said(&limits, true)));
    requests.into_iter().chain(limits).collect::<Vec<_>>().join(" ")
}

/// How another injector is led to the pod's own token, by the container that it adds.
fn remedy_of_injector(container: &str) -> String {
    let annotation = match container.split('-').next() {
        Some("vault") => Some("vault.hashicorp.com/agent-service-account-token-volume-name"),
        Some("kuma") => Some("kuma.io/service-account-token-volume"),
        _ => None,
    };
    match annotation {
        Some(annotation) => format!("Annotate the pod template: {annotation}: {TOKEN_VOLUME}."),
        None => format!(
            "Let it mount the volume {TOKEN_VOLUME}. Or use the injector instead of `ringside inject`: it sees the pods after \
             webhooks whose names sort before ringside-injector."
        ),
    }
}

/// What came back of a Pod that was admitted, beside what was sent.
pub(super) fn compare(sent: &Value, back: &Value, webhooks: &[String]) -> Vec<Interference> {
    let named = |pod: &Value, name: &str| containers(pod).any(|container| container["name"] == name);
    let mut found = Vec::new();
    if named(back, CONTAINER) {
        let init = back.pointer("/spec/initContainers").and_then(Value::as_array);
        let mut native = init.into_iter().flatten().filter(|container| container["name"] == CONTAINER);
        if native.any(|container| container["restartPolicy"] != "Always") {
            found.push(Interference::DropsRestartPolicy { webhooks: webhooks.to_vec() });
        }
    } else {
        found.push(Interference::NoSidecar { webhooks: webhooks.to_vec() });
    }
    let is_added = |container: &&Map<String, Value>| {
        let name = container["name"].as_str().unwrap_or_default();
        name != CONTAINER && !named(sent, name)
    };
    let takes = |container: &&Map<String, Value>| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        mounts.into_iter().flatten().any(|mount| mount["name"] == VOLUME)
    };
    let name = |container: &Map<String, Value>| container["name"].as_str().unwrap_or_default().to_owned();
    let takers = containers(back).filter(is_added).filter(takes).map(name);
    found.extend(takers.map(|container| Interference::TakesToken { container }));
    found
}

/// Why a Pod was refused, by what the API server said.
pub(super) fn refused(message: &str, pod: &Value) -> Interference {
    let between = |before: &str, end: &str| {
        let rest = message.split_once(before)?.1;
        Some(rest.split(end).next().unwrap_or_default().trim().to_owned())
    };
    // The last is of a limit that a LimitRange adds, below what the sidecar requests.
    let of_limit_range = [
        "usage per Container is",
        "usage per Pod is",
        "limit to request ratio per Container is",
        "limit to request ratio per Pod is",
        "must be less than or equal to",
    ];
    let by = if let Some(quota) = between("failed quota: ", ":") {
        let counts = between("must specify ", " for:").unwrap_or_default();
        let counts = counts.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect();
        Refuser::QuotaWithoutAmount { quota, counts }
    } else if let Some(quota) = between("exceeded quota: ", ",") {
        Refuser::QuotaExceeded { quota }
    } else if of_limit_range.iter().any(|part| message.contains(part)) {
        Refuser::LimitRange
    } else {
        Refuser::Admission
    };
    let asks = containers(pod).find(|container| container["name"] == CONTAINER);
    let asks = asks.and_then(|container| container.get("resources")).map_or_else(String::new, Value::to_string);
    Interference::Refused { by, message: message.to_owned(), asks }
}
