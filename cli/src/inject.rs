//! The commands `inject` and `uninject`: add the proxy to a workload, in a file or in the cluster, and take it off again.

use std::{fs, io, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use ringside_inject::{self as inject, Amounts, Change, Injected, Injection, Ports, Resources, Sidecar};
use ringside_ring::RingName;
use ringside_runtime::config::parse_duration;
use serde_json::Value;

use crate::{
    cluster::Global,
    output::{Format, Said},
};

mod documents;
mod election;
mod live;
mod permissions;

use self::documents::Documents;

/// The arguments of `inject`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// The ring that the pods join.
    #[arg(long, value_name = "NAME")]
    ring: RingName,
    /// The proxy's image.
    #[arg(long, env = "RINGSIDE_PROXY_IMAGE", default_value = concat!("ringside-proxy:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// A container that talks to the API server; may be repeated. All of them, if none is named.
    #[arg(long, value_name = "NAME")]
    container: Vec<String>,
    /// How long a reconcile may go without a write; the proxy's default without it.
    #[arg(long, value_name = "DURATION", value_parser = checked_duration)]
    drain_grace: Option<String>,
    /// When the controller counts as working: while it is watching, or always.
    #[arg(long, value_parser = ["watching", "always"])]
    controller: Option<String>,
    /// Namespace of the controller's lock, if it elects its leader in another one.
    #[arg(long, value_name = "NAMESPACE")]
    election_namespace: Option<String>,
    /// Another option of the proxy, as --proxy-option=--election-lock=NAME; may be repeated.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    proxy_option: Vec<String>,
    /// Ports of the proxy, for the controller and for probes. For `hostNetwork` two free ones are chosen without it.
    #[arg(long, value_name = "LISTEN,ADMIN", value_parser = parse_ports)]
    ports: Option<Ports>,
    /// Shows the proxy's metrics to its own pod only.
    #[arg(long)]
    no_metrics: bool,
    /// Adds a plain container, as for Kubernetes before 1.29. In the cluster the versions of its API server and kubelets decide.
    #[arg(long)]
    plain_container: bool,
    /// What the proxy requests, in place of cpu=50m,memory=128Mi. A resource that is named here or in --proxy-limits loses both of its
    /// defaults; `none` is no amount.
    #[arg(long, value_name = "AMOUNTS", default_value = "", hide_default_value = true)]
    proxy_requests: Amounts,
    /// What the proxy may use, in place of memory=128Mi.
    #[arg(long, value_name = "AMOUNTS", default_value = "", hide_default_value = true)]
    proxy_limits: Amounts,
    /// Grants what sharder and proxies need for this ring and this workload, too.
    #[arg(long)]
    with_rbac: bool,
    /// Namespace of the sharder, for --with-rbac.
    #[arg(long, value_name = "NAMESPACE", default_value = "ringside-system")]
    sharder_namespace: String,
}

/// The arguments of `uninject`.
#[derive(Clone, Debug, clap::Args)]
pub struct UninjectArguments {
    #[command(flatten)]
    target: Target,
}

/// The workload, and what is done to it.
#[derive(Clone, Debug, clap::Args)]
struct Target {
    /// The workload, as NAMESPACE/NAME. With a file it may be left out where the file has only one.
    #[arg(value_name = "WORKLOAD", required_unless_present = "filename")]
    workload: Option<String>,
    /// File with the workload, which is printed changed, beside all else in it; `-` is the standard input.
    #[arg(long, short, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Kind of the workload in the cluster.
    #[arg(long, value_enum, default_value_t = WorkloadKind::Deployment)]
    kind: WorkloadKind,
    /// Says what would change: without asking the API server, or as it says.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRun::None, default_missing_value = "client")]
    dry_run: DryRun,
    /// Changes a workload too that another tool manages, or whose pods have a neighbour that interferes.
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkloadKind {
    Deployment,
    #[value(name = "statefulset")]
    StatefulSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    None,
    Client,
    Server,
}

/// What is done to a workload.
enum Action {
    Inject(Box<Injection>),
    Uninject,
}

impl Action {
    /// Does it to an object.
    fn change(&self, object: &mut Value) -> Result<Injected, inject::Refusal> {
        match self {
            Self::Inject(injection) => inject::inject(object, injection),
            Self::Uninject => Ok(Injected { changes: inject::uninject(object)?, notes: Vec::new() }),
        }
    }
}

/// The permissions that go along.
struct WithRbac {
    ring: RingName,
    sharder_namespace: String,
}

fn checked_duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned())
}

fn parse_ports(text: &str) -> Result<Ports, String> {
    let ports = text.split_once(',').and_then(|(listen, admin)| {
        let ports = Ports { listen: listen.trim().parse().ok()?, admin: admin.trim().parse().ok()? };
        (ports.listen != ports.admin && ports.listen > 0 && ports.admin > 0).then_some(ports)
    });
    ports.ok_or_else(|| format!("'{text}' is not two ports: write them as 7443,7444"))
}

/// Adds the proxy.
///
/// # Errors
/// When the workload can't be read, can't have the proxy, or can't be written.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let sidecar = if arguments.plain_container { Sidecar::Plain } else { Sidecar::Native };
    let with_rbac = arguments
        .with_rbac
        .then(|| WithRbac { ring: arguments.ring.clone(), sharder_namespace: arguments.sharder_namespace });
    let options = [
        ("drain-grace", arguments.drain_grace),
        ("controller", arguments.controller),
        ("election-namespace", arguments.election_namespace),
    ];
    let options = options.into_iter().filter_map(|(option, value)| Some(format!("--{option}={}", value?)));
    let options = options.chain(arguments.proxy_option).collect();
    let injection = Injection {
        ring: arguments.ring,
        image: arguments.image,
        containers: arguments.container,
        options,
        ports: arguments.ports,
        metrics: !arguments.no_metrics,
        sidecar,
        resources: Resources::default().chosen(&arguments.proxy_requests, &arguments.proxy_limits),
    };
    act(global, &arguments.target, Action::Inject(Box::new(injection)), with_rbac.as_ref()).await
}

/// Takes the proxy off.
///
/// # Errors
/// When the workload can't be read, has no proxy that was added by `inject`, or can't be written.
pub async fn run_uninject(global: &Global, arguments: UninjectArguments) -> anyhow::Result<Said> {
    act(global, &arguments.target, Action::Uninject, None).await
}

async fn act(global: &Global, target: &Target, action: Action, with_rbac: Option<&WithRbac>) -> anyhow::Result<Said> {
    match &target.filename {
        Some(file) => in_file(global, target, file, &action, with_rbac).await,
        None => live::act(global, target, action, with_rbac).await,
    }
}

async fn in_file(
    global: &Global,
    target: &Target,
    file: &PathBuf,
    action: &Action,
    with_rbac: Option<&WithRbac>,
) -> anyhow::Result<Said> {
    if target.dry_run == DryRun::Server {
        bail!("--dry-run=server asks the API server, which a file has not: write --dry-run");
    }
    let text = if file.as_os_str() == "-" { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = text.with_context(|| format!("can't read {}", file.display()))?;
    let mut documents = Documents::read(&text);
    let (at, mut object) = documents.workload(target.workload.as_deref())?;
    let injected = action.change(&mut object)?;
    if let Action::Inject(_) = action
        && let Some(refusal) = election::refusal_in_file(&text, &object)?
    {
        bail!(refusal);
    }
    let permissions = match with_rbac {
        Some(with) => permissions::of_file(global, with, &documents, &object).await?,
        None => Vec::new(),
    };
    if target.dry_run == DryRun::Client {
        return Ok(Said::good(lines(&injected, &permissions).join("\n")));
    }
    if global.output == Format::Json {
        bail!("a file is printed as it is, in YAML: leave -o json out");
    }
    documents.replace(at, &object, &injected.notes)?;
    permissions.iter().try_for_each(|object| documents.append(object))?;
    Ok(Said::good(documents.text()))
}

/// What changes, a line each.
fn lines(injected: &Injected, permissions: &[Value]) -> Vec<String> {
    let changes = injected.changes.iter().map(Change::to_string);
    let permissions = (!permissions.is_empty()).then(|| format!("+ {}", permissions::counted(permissions)));
    let notes = injected.notes.iter().map(|note| format!("! {note}"));
    changes.chain(permissions).chain(notes).collect()
}

#[cfg(test)]
mod tests;
