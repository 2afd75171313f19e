//! Adds the proxy to the pod template of a workload, and takes it off again. Everything else in the object stays as it is.
//!
//! `container` makes the proxy's container, `environment` leads the controller to it, `hooks` has a pod that ends hand its objects
//! over first, `before` remembers on the template
//! what was there, so that [`uninject`] gives back what parses equal. All of it works on JSON, so fields that this version
//! doesn't know stay too.

use std::fmt;

use serde_json::{Map, Value, json};

mod before;
mod container;
mod environment;
mod hooks;
mod options;
mod others;
mod parts;
mod resources;
#[cfg(test)]
mod tests;
mod token;

use before::Before;
pub use options::{Injection, Ports, Sidecar};
use parts::{containers_of, items, remove, spec_of};
pub use resources::{Amounts, Resources};
pub use token::{TOKEN_VOLUME, has_token};

/// The name of the proxy's container.
pub const CONTAINER: &str = "ringside-proxy";
/// The annotation on a pod template that the proxy was added to; its value is the version that did so.
pub const INJECTED: &str = "ringside.dev/injected";
/// The label of pods and namespaces that ask the injector for the proxy. On a pod its value is the ring.
pub const LABEL: &str = "ringside.dev/inject";
/// The label's value on a pod that must not be injected.
pub const DISABLED: &str = "disabled";
/// The volume that proxy and controller share.
pub const VOLUME: &str = "ringside";
/// Where both mount it.
const FOLDER: &str = "/var/run/ringside";
/// Where a client in a pod looks for its token.
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What an injection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// What changed, a line each.
    pub changes: Vec<Change>,
    /// What its user should know.
    pub notes: Vec<String>,
}

/// A change to a pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Added(String),
    /// It was there, and said something else.
    Replaced(String),
    /// It was there.
    Removed(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(what) => write!(f, "+ {what}"),
            Self::Replaced(what) => write!(f, "~ {what}"),
            Self::Removed(what) => write!(f, "- {what}"),
        }
    }
}

/// Why a workload can't have the proxy added or taken off. The object is then as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It makes no pods, or not such as share the work of a controller.
    #[error("{0} is none of Deployment, StatefulSet, PodTemplate and Pod")]
    Kind(String),
    /// A field is not what Kubernetes has there.
    #[error("'{0}' is missing, or not of the right type")]
    Malformed(String),
    /// There is nothing to share the work of.
    #[error("its pod template has no containers")]
    NoContainers,
    /// A named container is not there.
    #[error("it has no container '{name}': name one of {}", .there.join(", "))]
    NoSuchContainer {
        /// The name.
        name: String,
        /// Those that there are.
        there: Vec<String>,
    },
    /// The proxy was added by other means.
    #[error(
        "it has a container '{CONTAINER}' that was not added by `ringside inject`: remove that with all that belongs to it first"
    )]
    ForeignProxy,
    /// The volume's name is taken.
    #[error("it has a volume '{0}' of its own: give that another name")]
    VolumeTaken(&'static str),
    /// A folder is taken that the controller is to find the proxy by.
    #[error(
        "container '{container}' mounts volume '{volume}' at {path}, where it is to find the proxy's token: mount that elsewhere"
    )]
    FolderTaken {
        /// The container.
        container: String,
        /// The volume.
        volume: String,
        /// Where it is mounted.
        path: String,
    },
    /// A variable stands there twice.
    #[error("container '{container}' has the variable {name} twice: remove one")]
    VariableTwice {
        /// The container.
        container: String,
        /// The variable.
        name: String,
    },
    /// There is nothing to take off.
    #[error("`ringside inject` has added nothing to it")]
    NotInjected,
}

type Object = Map<String, Value>;

/// Adds the proxy to a Deployment, a StatefulSet, a PodTemplate or a Pod. What an earlier injection added is taken off first, so the
/// same injection changes nothing, and another updates it.
///
/// # Errors
/// When the workload can't have it; the object is then unchanged.
pub fn inject(object: &mut Value, injection: &Injection) -> Result<Injected, Refusal> {
    let mut changed = object.clone();
    let (kind, template) = template_of(&mut changed)?;
    if is_marked(template) {
        take_off(template)?;
    }
    let injected = add(kind, template, injection)?;
    *object = changed;
    Ok(injected)
}

/// Takes off what [`inject`] added to it.
///
/// # Errors
/// When nothing was added, or the object is malformed; it is then unchanged.
pub fn uninject(object: &mut Value) -> Result<Vec<Change>, Refusal> {
    let mut changed = object.clone();
    let (_, template) = template_of(&mut changed)?;
    if !is_marked(template) {
        return Err(Refusal::NotInjected);
    }
    let changes = take_off(template)?;
    *object = changed;
    Ok(changes)
}

/// Whether [`inject`] has added the proxy to it.
#[must_use]
pub fn is_injected(object: &Value) -> bool {
    template_of(&mut object.clone()).is_ok_and(|(_, template)| is_marked(template))
}

/// Whether a container of a workload has the proxy's name, also one that was added by hand.
#[must_use]
pub fn has_proxy(workload: &Value) -> bool {
    ["initContainers", "containers"].iter().any(|list| {
        let containers = workload["spec"]["template"]["spec"][list].as_array();
        containers.into_iter().flatten().any(|container| container["name"] == CONTAINER)
    })
}

/// Whether it is of a kind that the proxy can be added to.
#[must_use]
pub fn is_workload(object: &Value) -> bool {
    Kind::of(object).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Workload,
    PodTemplate,
    Pod,
}

impl Kind {
    fn of(object: &Value) -> Option<Self> {
        match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
            ("apps/v1", "Deployment" | "StatefulSet") => Some(Self::Workload),
            ("v1", "PodTemplate") => Some(Self::PodTemplate),
            ("v1", "Pod") => Some(Self::Pod),
            _ => None,
        }
    }
}

/// What pods are made from, with its metadata and its spec: the object itself where it is a Pod.
fn template_of(object: &mut Value) -> Result<(Kind, &mut Object), Refusal> {
    let name = || object["kind"].as_str().unwrap_or("an object without kind").to_owned();
    let kind = Kind::of(object).ok_or_else(|| Refusal::Kind(name()))?;
    let (path, template) = match kind {
        Kind::Workload => ("spec.template", object.pointer_mut("/spec/template")),
        Kind::PodTemplate => ("template", object.pointer_mut("/template")),
        Kind::Pod => ("the object", Some(object)),
    };
    let template = template.and_then(Value::as_object_mut);
    template.map(|template| (kind, template)).ok_or_else(|| Refusal::Malformed(path.to_owned()))
}

fn is_marked(template: &Object) -> bool {
    template.get("metadata").and_then(|metadata| metadata.pointer("/annotations/ringside.dev~1injected")).is_some()
}

fn add(kind: Kind, template: &mut Object, injection: &Injection) -> Result<Injected, Refusal> {
    let mut injected = Injected::default();
    let mut before = Before::default();
    let spec = spec_of(template)?;
    check(spec, &injection.containers)?;
    let on_node = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let default = if on_node { Ports::on_node(&injection.ring) } else { Ports::DEFAULT };
    let ports = injection.ports.unwrap_or(default);
    let seconds = hooks::seconds(spec, injection.metrics);
    injected.notes.extend(seconds.err().map(str::to_owned));

    let volumes = items(spec, "volumes").to_vec();
    for (name, container) in containers_of(spec)? {
        let is_meant = match injection.containers.as_slice() {
            [] => !others::adds(&name),
            named => named.contains(&name),
        };
        if !is_meant {
            continue;
        }
        let mounts = before.list(container, "volumeMounts", &format!("{name}/volumeMounts"))?;
        if let Some(at) = token::mounted(kind, &volumes, mounts) {
            let mount = mounts.remove(at);
            // A Pod that is created gets none of the API server's back.
            if !token::is_added(kind, &mount) {
                before.mounts.insert(name.clone(), (at, mount));
            }
        }
        free(&name, mounts)?;
        mounts.push(token::sign());
        for path in [FOLDER, TOKEN_FOLDER] {
            mounts.push(json!({"name": VOLUME, "mountPath": path, "readOnly": true}));
        }
        injected.changes.push(Change::Added(format!("{name}: {FOLDER} and {TOKEN_FOLDER}")));
        environment::lead((&name, container), ports.listen, &mut before, &mut injected)?;
        if seconds.is_ok() {
            hooks::add((&name, container), ports.admin, &mut before, &mut injected)?;
        }
    }

    let volumes = before.list(spec, "volumes", "volumes")?;
    volumes.push(json!({"name": VOLUME, "emptyDir": {"medium": "Memory"}}));
    volumes.push(token::volume());
    injected.changes.push(Change::Added(format!("volumes {VOLUME} and {TOKEN_VOLUME}")));
    let key = match injection.sidecar {
        Sidecar::Native => "initContainers",
        Sidecar::Plain => "containers",
    };
    if injection.sidecar == Sidecar::Plain {
        injected.notes.push(
            "a plain container: the controller fails until the proxy has started, and may outlive it at its end"
                .to_owned(),
        );
    }
    let proxy = container::proxy(injection, ports, seconds.ok(), (on_node, spec));
    let list = before.list(spec, key, key)?;
    injected.changes.insert(0, Change::Added(format!("{key}[{}] {CONTAINER}", list.len())));
    list.push(proxy);
    before.mark(template)?;
    Ok(injected)
}

/// Refuses what can't have the proxy as a whole.
fn check(spec: &mut Object, wanted: &[String]) -> Result<(), Refusal> {
    let there: Vec<String> = containers_of(spec)?.into_iter().map(|(name, _)| name).collect();
    if there.is_empty() {
        return Err(Refusal::NoContainers);
    }
    if let Some(name) = wanted.iter().find(|name| !there.contains(name)) {
        return Err(Refusal::NoSuchContainer { name: name.clone(), there });
    }
    let named = |key: &str, name: &str| items(spec, key).iter().any(|item| item["name"] == name);
    if named("initContainers", CONTAINER) || named("containers", CONTAINER) {
        return Err(Refusal::ForeignProxy);
    }
    let taken = [VOLUME, TOKEN_VOLUME].into_iter().find(|volume| named("volumes", volume));
    taken.map_or(Ok(()), |volume| Err(Refusal::VolumeTaken(volume)))
}

/// Refuses a container that mounts something else where it is to find the proxy.
fn free(container: &str, mounts: &[Value]) -> Result<(), Refusal> {
    for mount in mounts {
        let path = mount["mountPath"].as_str().unwrap_or_default();
        let is_in = |folder: &str| {
            let path = resolved(path);
            path.strip_prefix(resolved(folder)).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if [FOLDER, TOKEN_FOLDER, token::SIGN].into_iter().any(is_in) {
            let volume = mount["name"].as_str().unwrap_or_default().to_owned();
            return Err(Refusal::FolderTaken { container: container.to_owned(), volume, path: path.to_owned() });
        }
    }
    Ok(())
}

/// Images have /var/run as a link to /run.
fn resolved(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    if path.starts_with("/var/run/") { &path["/var".len()..] } else { path }
}

fn take_off(template: &mut Object) -> Result<Vec<Change>, Refusal> {
    let before = Before::unmark(template)?;
    let mut changes = Vec::new();
    let spec = spec_of(template)?;
    for key in ["initContainers", "containers"] {
        if remove(spec, key, |item| item["name"] == CONTAINER) {
            changes.push(Change::Removed(format!("{key} {CONTAINER}")));
            before.tidy(spec, key, key);
        }
    }
    let is_ours = |item: &Value| item["name"] == VOLUME || item["name"] == TOKEN_VOLUME;
    if remove(spec, "volumes", is_ours) {
        changes.push(Change::Removed(format!("volumes {VOLUME} and {TOKEN_VOLUME}")));
        before.tidy(spec, "volumes", "volumes");
    }
    for (name, container) in containers_of(spec)? {
        if remove(container, "volumeMounts", is_ours) {
            changes.push(Change::Removed(format!("{name}: {FOLDER} and {TOKEN_FOLDER}")));
            before.mount_again(&name, container);
            before.tidy(container, "volumeMounts", &format!("{name}/volumeMounts"));
            changes.extend(environment::lead_back((&name, container), &before));
            changes.extend(hooks::take_off(&name, container, &before));
        }
    }
    Ok(changes)
}
