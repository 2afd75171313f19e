//! Programs that cases need, prepared before the first of them: nothing is built while a clock runs.

use std::{
    collections::BTreeSet,
    fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::bail;

use super::{Environment, Operator, before, libraries, programs, workspace};

/// What a case needs to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Proxy, sharder and the command.
    Ringside,
    /// Proxy and sharder of the version that landed last.
    Before,
    /// etcd and the API server.
    ControlPlane,
    /// The API server of the minor version before.
    NeighbouringApiServer,
    /// The sample operator, in Go.
    Operator,
    /// One in another language.
    OperatorIn(Operator),
    /// The controller manager.
    ControllerManager,
    /// kubectl.
    Kubectl,
    /// Helm.
    Helm,
    /// The operator that shards itself.
    OwnShard,
    /// The sharder that is not ours.
    OtherSharder,
    /// What takes part in elections by the code of client-go and controller-runtime.
    Elector,
    /// The same by a crate for kube-rs.
    RustElector,
    /// Java, with the libraries of this folder of `electors/`.
    Java(&'static str),
    /// Python, with the libraries of this folder of `electors/`.
    Python(&'static str),
}

impl Need {
    /// What every case needs.
    pub const BASE: [Self; 3] = [Self::Ringside, Self::ControlPlane, Self::Operator];

    /// What is missing on this machine, and how to install it.
    pub fn obstacle(self, environment: &Environment) -> Option<String> {
        match self {
            Self::Before => before::without_history(environment),
            Self::OperatorIn(operator) => operator.obstacle(environment),
            Self::Java(_) => libraries::without_java(environment),
            Self::Python(_) => libraries::without_python(environment),
            _ => None,
        }
    }

    /// Builds or fetches it, where that is not done yet. Blocks, perhaps for minutes.
    pub fn prepare(self, environment: &Environment) -> anyhow::Result<()> {
        let electors = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors");
        match self {
            Self::Ringside => workspace::ringside(environment).map(drop),
            Self::Before => before::ringside_before(environment).map(drop),
            Self::ControlPlane => programs::control_plane(environment).map(drop),
            Self::NeighbouringApiServer => programs::neighbouring_api_server(environment).map(drop),
            Self::Operator => programs::operator(environment).map(drop),
            Self::OperatorIn(operator) => operator.command(environment).map(drop),
            Self::ControllerManager => programs::kube_controller_manager(environment).map(drop),
            Self::Kubectl => programs::kubectl(environment).map(drop),
            Self::Helm => programs::helm(environment).map(drop),
            Self::OwnShard => programs::own_shard(environment).map(drop),
            Self::OtherSharder => programs::other_sharder(environment).map(drop),
            Self::Elector => programs::elector(environment).map(drop),
            Self::RustElector => workspace::rust_elector(environment).map(drop),
            Self::Java(folder) => libraries::java(environment, &electors.join(folder), "").map(drop),
            Self::Python(folder) => libraries::python(environment, &electors.join(folder)).map(drop),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ringside => "ringside-proxy, ringside-sharder and ringside",
            Self::Before => "proxy and sharder of the version before",
            Self::ControlPlane => "etcd and kube-apiserver",
            Self::NeighbouringApiServer => "kube-apiserver of the minor version before",
            Self::Operator => "the sample operator",
            Self::OperatorIn(Operator::Go) => "the sample operator in Go",
            Self::OperatorIn(Operator::Python) => "the sample operator in Python, by pip",
            Self::OperatorIn(Operator::Java) => "the sample operator in Java, by Maven",
            Self::OperatorIn(Operator::Rust) => "the sample operator in Rust",
            Self::OperatorIn(Operator::Node) => "the sample operator in Node, by npm",
            Self::OperatorIn(Operator::CertManager) => "cert-manager",
            Self::OperatorIn(Operator::ExternalSecrets) => "external-secrets",
            Self::ControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Helm => "Helm",
            Self::OwnShard => "the operator that shards itself",
            Self::OtherSharder => "another sharder",
            Self::Elector => "electors of client-go",
            Self::RustElector => "an elector of other Rust crates",
            Self::Java(_) => "a Java client, by Maven",
            Self::Python(_) => "kopf, by pip",
        })
    }
}

/// What was asked for before the first case, and whether that has begun.
struct Prepared {
    names: BTreeSet<String>,
    is_sealed: bool,
}

static PREPARED: Mutex<Prepared> = Mutex::new(Prepared { names: BTreeSet::new(), is_sealed: false });

/// Notes that something is asked for, which may take a build.
///
/// # Errors
/// When cases run, and it was not prepared before them: on another machine it would be built now.
pub(super) fn ask(name: &str) -> anyhow::Result<()> {
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if prepared.is_sealed && !prepared.names.contains(name) {
        bail!("{name} was not prepared before the first case: name it in what the case needs (`Case::needs`)");
    }
    prepared.names.insert(name.to_owned());
    Ok(())
}

/// Refuses what was not prepared until now.
pub(crate) fn seal() {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).is_sealed = true;
}
