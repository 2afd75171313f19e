//! Nodes whose kubelets are too old for native sidecars.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::cluster::pages;

/// The oldest minor version of Kubernetes 1 with native sidecars.
pub const OLDEST_MINOR: u32 = 29;
/// Nodes are large.
const PAGE: u32 = 100;

/// Kubelets that know no native sidecars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OldKubelets {
    /// How many nodes have one.
    pub count: usize,
    /// A node with one, and its version.
    pub example: (String, String),
}

impl OldKubelets {
    /// What that means.
    #[must_use]
    pub fn told(&self) -> String {
        let Self { count, example: (node, version) } = self;
        let of = if *count == 1 { "kubelet is" } else { "kubelets are" };
        format!(
            "{count} {of} older than 1.{OLDEST_MINOR} (node {node}: {version}) and would wait for ever for a native sidecar to end"
        )
    }
}

/// Looks for them.
///
/// # Errors
/// When nodes can't be listed.
pub async fn old_kubelets(client: &Client) -> Result<Option<OldKubelets>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut old = Vec::new();
    let list = async |page: &ListParams| nodes.list(page).await;
    pages(PAGE, list, |node| {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let version = info.map(|info| &info.kubelet_version).filter(|version| is_old(version));
        old.extend(version.map(|version| (node.name_any(), version.clone())));
    })
    .await?;
    let count = old.len();
    Ok(old.into_iter().next().map(|example| OldKubelets { count, example }))
}

/// Whether a kubelet's version, as `v1.28.9-gke.1`, has no native sidecars. One that can't be read is not old.
fn is_old(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(1)), Some(Ok(minor))) if minor < OLDEST_MINOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_is_old_before_native_sidecars() {
        for (version, expected) in [
            ("v1.28.9", true),
            ("v1.28.15-gke.100", true),
            ("v1.29.0", false),
            ("v1.37.1+k3s1", false),
            ("v2.0.0", false),
            ("", false),
        ] {
            assert_eq!(is_old(version), expected, "{version}");
        }
    }
}
