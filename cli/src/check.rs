//! The command `check`: whether the cluster is fit for Ringside, or a controller for being shared.

use std::{io::Read as _, path::Path};

use anyhow::Context as _;
use serde::Serialize;

use crate::{
    cluster::Global,
    fit::{Finding, Mark, Rules, Subject, documents::Documents, evaluate, gather},
    output::{Said, render},
};

mod pod;
mod pre;
mod text;

pub use pre::TESTED;

/// The arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "what", required = true, multiple = true)]
pub struct Arguments {
    /// The Deployment of the controller, NAMESPACE/NAME; with --filename one of those in the file.
    #[arg(value_name = "NAMESPACE/DEPLOYMENT", group = "what")]
    deployment: Option<String>,
    /// Manifests of the controller, - for standard input. No cluster is asked.
    #[arg(long, short, value_name = "FILE", group = "what")]
    filename: Option<String>,
    /// Whether the cluster is fit for Ringside, before it is installed.
    #[arg(long, group = "what", conflicts_with_all = ["deployment", "filename", "accept"])]
    pre: bool,
    /// Rules that are solved, or whose question is answered.
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = parse_id)]
    accept: Vec<String>,
}

/// What is printed about a controller.
#[derive(Debug, Serialize)]
struct Report {
    deployment: String,
    fit: bool,
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unseen: Vec<String>,
}

/// Judges a controller.
///
/// # Errors
/// When it can't be looked at.
pub async fn run(arguments: &Arguments, global: &Global) -> anyhow::Result<Said> {
    if arguments.pre {
        return pre::run(global).await;
    }
    let subject = subject(arguments.deployment.as_deref(), arguments.filename.as_deref(), global).await?;
    let mut findings = evaluate(&Rules::load()?, &subject, &arguments.accept);
    if subject.live {
        findings.extend(pod::findings(&global.connect().await?.client, &subject.deployment).await?);
        findings.sort_by_key(|finding| finding.mark);
    }
    let report = Report {
        deployment: format!("{}/{}", subject.namespace(), subject.name()),
        fit: evaluate::is_fit(&findings),
        findings,
        unseen: subject.unseen,
    };
    let said = render(global.output, &report, text::of)?;
    Ok(if report.fit { Said::good(said) } else { Said::unhealthy(said) })
}

/// Takes the controller from a file, or from the cluster.
///
/// # Errors
/// When it can't be read.
pub async fn subject(deployment: Option<&str>, file: Option<&str>, global: &Global) -> anyhow::Result<Subject> {
    if let Some(file) = file {
        let text = read(file)?;
        let subject = Documents::parse(&text).and_then(|documents| documents.subject(deployment));
        return subject.with_context(|| file.to_owned());
    }
    let cluster = global.connect().await?;
    let (namespace, name) = cluster.split(deployment.context("name a Deployment, or a file by --filename")?);
    gather::gather(&cluster.client, namespace, name).await
}

fn read(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(Path::new(file)).with_context(|| format!("can't read {file}: name an existing file"))
}

fn parse_id(text: &str) -> Result<String, String> {
    let id = text.trim().to_uppercase();
    let rules = Rules::load().map_err(|error| error.to_string())?;
    rules.get(&id).map(|rule| rule.id.clone()).ok_or_else(|| format!("there is no rule {id}: `fit.md` has them all"))
}
