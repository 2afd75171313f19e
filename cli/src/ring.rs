//! The command `ring`: drafts a ClusterRing for a controller.

use clap::Subcommand;
use ringside_runtime::config::parse_object_name;

use crate::{check, cluster::Global, fit::Rules, output::Said};

mod draft;

/// The arguments of `ring`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Prints a ring for a controller, by its rights and the owner references in the cluster, or as it was tried. Writes nothing.
    Init(Init),
}

/// The arguments of `ring init`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "of", required = true, multiple = true)]
struct Init {
    /// The Deployment of the controller, NAMESPACE/NAME; with --filename one of those in the file.
    #[arg(value_name = "NAMESPACE/DEPLOYMENT", group = "of")]
    deployment: Option<String>,
    /// Manifests of the controller, - for standard input. No cluster is asked, so children are questions.
    #[arg(long, short, value_name = "FILE", group = "of")]
    filename: Option<String>,
    /// The name of the ring; without it that of its resource, or of the Deployment.
    #[arg(long, value_name = "NAME", value_parser = parse_object_name)]
    name: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When the controller can't be looked at, or has no resource that a ring could share.
pub async fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<Said> {
    let Command::Init(Init { deployment, filename, name }) = &arguments.command;
    let mut subject = check::subject(deployment.as_deref(), filename.as_deref(), global).await?;
    if !subject.live {
        subject.populations = crate::fit::resources::of_manifests(&subject);
    }
    let known = Rules::load()?.known.into_iter().find(|known| known.is(&subject.deployment));
    let known = known.filter(|known| !known.ring.is_empty());
    Ok(Said::good(draft::ring(&subject, known.as_ref(), name.as_deref())?))
}
