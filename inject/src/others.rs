//! What other injectors add to pods, beside the proxy.
//!
//! Several of them look for the token of the pod's service account in the mounts of its containers. In a container that talks to
//! the proxy the folder of that token has another one, which is good for the proxy alone.

/// Containers of other injectors by their names: they talk to the proxy only where they are named.
const CONTAINERS: [&str; 9] = [
    "consul-dataplane",
    "daprd",
    "envoy-sidecar",
    "istio-proxy",
    "kuma-sidecar",
    "linkerd-proxy",
    "osm-sidecar",
    "secretless-broker",
    "vault-agent",
];

/// Whether another injector adds a container of this name.
pub(super) fn adds(container: &str) -> bool {
    CONTAINERS.contains(&container)
}
