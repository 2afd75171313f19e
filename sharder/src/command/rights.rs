//! The command `rights`: prints the permissions that a ring needs beyond the sharder's manifest, for `kubectl apply`.

use std::{fs, io, path::PathBuf};

use ringside_ring::{
    ClusterRing, RingName,
    rights::{Shards, rights},
};
use ringside_runtime::config::{Faults, parse_namespace};
use serde_json::Value;

/// The options as they were given.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// File with the ClusterRing; `-` is the standard input.
    #[arg(long, short, value_name = "FILE")]
    filename: PathBuf,
    /// Namespace of shards, and the ServiceAccount of their Pods where these have the proxy; may be repeated.
    #[arg(long, value_name = "NAMESPACE[/SERVICE-ACCOUNT]", required = true)]
    shards: Vec<Shards>,
    /// Namespace of the sharder.
    #[arg(long, env = "RINGSIDE_NAMESPACE", default_value = "sharding-system")]
    namespace: String,
}

/// Whose permissions are printed.
#[derive(Debug)]
pub struct Rights {
    file: PathBuf,
    shards: Vec<Shards>,
    namespace: String,
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The file can't be read.
    #[error("can't read {}: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It holds no ring.
    #[error("{} is no ClusterRing: {why}", .file.display())]
    NoRing {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// The permissions can't be written as YAML.
    #[error("can't write YAML: {0}")]
    Yaml(String),
}

impl Arguments {
    pub(super) fn check(self) -> Result<Rights, Faults> {
        let Self { filename: file, shards, namespace } = self;
        let mut faults = Faults::new();
        let namespace = faults.check("--namespace", parse_namespace(&namespace)).unwrap_or_default();
        for one in &shards {
            faults.check("--shards", parse_namespace(&one.namespace));
        }
        faults.finish()?;
        Ok(Rights { file, shards, namespace })
    }
}

impl Rights {
    /// Returns the objects as YAML.
    ///
    /// # Errors
    /// When the file can't be read, or holds no ClusterRing.
    pub fn print(&self) -> Result<String, RightsError> {
        let is_stdin = self.file.as_os_str() == "-";
        let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(&self.file) };
        let text = text.map_err(|source| RightsError::Read { file: self.file.clone(), source })?;
        let no_ring = |why: String| RightsError::NoRing { file: self.file.clone(), why };
        let object: Value = serde_saphyr::from_str(&text).map_err(|error| no_ring(error.to_string()))?;
        if object["kind"] != "ClusterRing" {
            return Err(no_ring(format!("its kind is {}", object["kind"])));
        }
        let ring: ClusterRing = serde_json::from_value(object).map_err(|error| no_ring(error.to_string()))?;
        let name = ring.metadata.name.unwrap_or_default();
        let name: RingName =
            name.parse().map_err(|fault: ringside_ring::name::InvalidName| no_ring(fault.to_string()))?;
        let objects = rights(&name, &ring.spec, &self.namespace, &self.shards);
        let documents = objects.iter().map(serde_saphyr::to_string).collect::<Result<Vec<_>, _>>();
        Ok(documents.map_err(|error| RightsError::Yaml(error.to_string()))?.join("---\n"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn example(file: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/example").join(file)
    }

    fn of(file: PathBuf) -> Rights {
        Rights {
            file,
            shards: vec!["default/website-controller".parse().unwrap()],
            namespace: "sharding-system".to_owned(),
        }
    }

    fn objects(text: &str) -> Vec<Value> {
        serde_saphyr::from_multiple(text).unwrap()
    }

    #[test]
    fn the_examples_roles_are_those_of_its_ring_and_the_controllers_own() {
        let deployed = objects(&fs::read_to_string(example("roles.yaml")).unwrap());
        let (printed, own): (Vec<_>, Vec<_>) = deployed
            .into_iter()
            .partition(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("ringside-")));
        let fresh = objects(&of(example("ring.yaml")).print().unwrap());
        assert!(
            printed == fresh,
            "deploy/example/roles.yaml is out of date; replace its first part with the output of\n  \
             cargo run -p ringside-sharder -- rights -f deploy/example/ring.yaml --shards default/website-controller"
        );
        assert!(own.iter().all(|object| object["metadata"]["name"] == "website-controller"), "{own:?}");
    }

    #[test]
    fn a_file_without_ring_is_refused_with_a_reason() {
        let fault = |file: PathBuf| of(file).print().unwrap_err().to_string();
        assert!(fault(example("nothing.yaml")).starts_with("can't read "));
        assert!(fault(example("deployment.yaml")).contains(" is no ClusterRing: "));
    }
}
