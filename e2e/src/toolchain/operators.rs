//! Operators: ordinary controllers of the same resource, each as the getting-started of its framework has it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::ValueEnum;

use super::{Environment, Need, libraries, programs, workspace};
use crate::files::failed;

/// Which operator a replica runs. Those of our own make the same children, so one goes on where another has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Operator {
    /// Go, by controller-runtime.
    #[default]
    Go,
    /// Python, by kopf: with handlers, a timer and a daemon.
    Python,
    /// Java, by the Java Operator SDK: with dependents in its default workflow.
    Java,
    /// Rust, by kube.
    Rust,
    /// Node, by the informers of @kubernetes/client-node.
    Node,
    /// The published controllers of cert-manager.
    #[value(skip)]
    CertManager,
    /// The published controllers of external-secrets.
    #[value(skip)]
    ExternalSecrets,
}

impl Operator {
    /// Whether replicas without Ringside keep all but one of them from working.
    pub const fn elects(self) -> bool {
        !matches!(self, Self::Rust | Self::Node | Self::ExternalSecrets)
    }

    /// Whether it is not ours: it reports nothing, and has options of its own.
    pub const fn is_published(self) -> bool {
        matches!(self, Self::CertManager | Self::ExternalSecrets)
    }

    /// Whether the owner references of children say `controller: true`.
    pub const fn marks_controllers(self) -> bool {
        !matches!(self, Self::Java)
    }

    /// The folder with its source.
    pub fn folder(self) -> PathBuf {
        let folder = match self {
            Self::Go => "operator",
            Self::Python => "operators/python",
            Self::Java => "operators/java",
            Self::Rust => "operators/rust",
            Self::Node => "operators/node",
            Self::CertManager => "published/cert-manager",
            Self::ExternalSecrets => "published/external-secrets",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
    }

    /// What is missing on this machine, and how to install it.
    pub(super) fn obstacle(self, environment: &Environment) -> Option<String> {
        match self {
            Self::Go | Self::Rust | Self::CertManager | Self::ExternalSecrets => None,
            Self::Python => libraries::without_python(environment),
            Self::Java => libraries::without_java(environment),
            Self::Node => libraries::without_node(environment),
        }
    }

    /// What starts it, once it is built or fetched. Blocks, perhaps for minutes.
    pub(crate) fn command(self, environment: &Environment) -> anyhow::Result<Command> {
        let folder = self.folder();
        match self {
            Self::Go => programs::operator(environment).map(Command::new),
            Self::Python => {
                let mut command = libraries::python(environment, &folder)?;
                command.args(["-m", "kopf", "run"]).arg(folder.join("website.py"));
                Ok(command)
            }
            Self::Java => {
                let mut command = libraries::java(environment, &folder, "WebsiteOperator.java")?;
                // One of several on a small machine.
                command.env("JAVA_TOOL_OPTIONS", "-Xmx160m -XX:+UseSerialGC -XX:TieredStopAtLevel=1");
                Ok(command)
            }
            Self::Rust => workspace::rust_operator(environment).map(Command::new),
            Self::Node => libraries::node(environment, &folder, "operator.mjs"),
            Self::CertManager => programs::cert_manager(environment).map(Command::new),
            Self::ExternalSecrets => programs::external_secrets(environment).map(Command::new),
        }
    }

    /// The definitions of its resources, which a published module brings along. Blocks.
    pub(crate) fn definitions(self, environment: &Environment) -> anyhow::Result<Vec<PathBuf>> {
        let (module, folder) = match self {
            Self::CertManager => ("github.com/cert-manager/cert-manager", "deploy/crds"),
            Self::ExternalSecrets => ("github.com/external-secrets/external-secrets", "config/crds/bases"),
            Self::Go | Self::Python | Self::Java | Self::Rust | Self::Node => return Ok(Vec::new()),
        };
        let folder = programs::source(environment, &self.folder(), module)?.join(folder);
        let files = fs::read_dir(&folder).map_err(failed("read", &folder))?;
        let mut paths = files.map(|file| file.map(|file| file.path())).collect::<Result<Vec<_>, _>>()?;
        paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".io_")));
        paths.sort();
        Ok(paths)
    }
}

impl From<Operator> for Need {
    fn from(operator: Operator) -> Self {
        match operator {
            Operator::Go => Self::Operator,
            other => Self::OperatorIn(other),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_missing_language_is_named_with_its_remedy() {
        let nothing = Environment { path: "/nowhere".into(), ..Environment::of_process() };
        for operator in [Operator::Python, Operator::Java, Operator::Node] {
            let told = Need::from(operator).obstacle(&nothing).unwrap();
            assert!(told.contains("install") && told.contains("apt-get install"), "{operator:?}: {told}");
        }
        for operator in [Operator::Go, Operator::Rust] {
            assert_eq!(Need::from(operator).obstacle(&nothing), None);
        }
    }

    #[test]
    fn every_operator_has_its_source() {
        for operator in Operator::value_variants().iter().chain(&[Operator::CertManager, Operator::ExternalSecrets]) {
            assert!(operator.folder().is_dir(), "{operator:?}");
        }
    }
}
