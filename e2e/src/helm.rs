//! Runs Helm on the chart of `deploy/helm/ringside`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, ensure};
use kube::api::DynamicObject;

use crate::{
    files::failed,
    manifests,
    toolchain::{self, Environment},
};

/// The chart, with the Helm that renders it.
#[derive(Clone, Debug)]
pub struct Chart {
    helm: PathBuf,
    folder: PathBuf,
}

impl Chart {
    /// Finds or builds Helm. The first time this takes minutes.
    pub fn find(environment: &Environment) -> anyhow::Result<Self> {
        let folder = deploy("helm/ringside");
        Ok(Self { helm: toolchain::helm(environment)?, folder })
    }

    /// Copies the chart into a folder as the release 0.1.1, which has the same images.
    pub fn next_release(&self, folder: &Path) -> anyhow::Result<Self> {
        let copied = folder.join("next");
        let status = Command::new("cp").arg("-rL").arg(&self.folder).arg(&copied).status()?;
        ensure!(status.success(), "copy the chart: {status}");
        let file = copied.join("Chart.yaml");
        let text = fs::read_to_string(&file).map_err(failed("read", &file))?;
        let next = text.replace("\nversion: 0.1.0\n", "\nversion: 0.1.1\n");
        ensure!(next != text, "the chart has another version than 0.1.0: {text}");
        fs::write(&file, next).map_err(failed("write", &file))?;
        Ok(Self { helm: self.helm.clone(), folder: copied })
    }

    /// Helm.
    pub fn program(&self) -> &Path {
        &self.helm
    }

    /// The folder of the chart.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Renders it for a namespace, as text.
    pub fn text(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.run(&["template", "ringside"], namespace, arguments)?;
        ensure!(output.status.success(), "helm template: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Renders it for a namespace.
    pub fn objects(&self, namespace: &str, arguments: &[&str]) -> anyhow::Result<Vec<DynamicObject>> {
        manifests::parse(&self.text(namespace, arguments)?)
    }

    /// Runs a command of Helm that takes the chart.
    pub fn run(&self, command: &[&str], namespace: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut helm = Command::new(&self.helm);
        helm.args(command).arg(&self.folder).args(["--namespace", namespace]).args(arguments);
        helm.output().context("start helm")
    }

    /// The flags for an overlay of `deploy/kustomize` with the same outcome.
    pub fn values_of(&self, overlay: &str) -> String {
        format!("--values={}", self.folder.join(format!("ci/{overlay}-values.yaml")).display())
    }
}

/// A file or folder of `deploy`.
pub fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

/// The names of the overlays in `deploy/kustomize`.
pub fn overlays() -> anyhow::Result<Vec<String>> {
    let entries = fs::read_dir(deploy("kustomize/overlays")).context("list the overlays")?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}
