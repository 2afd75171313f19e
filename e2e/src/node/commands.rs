//! The command lines and configuration files of a node's processes.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{
    GUEST,
    images::full,
    namespaces::{ADDRESS, Namespaces, PODS},
};
use crate::{control_plane::NODE, files::failed, toolchain::NodePrograms};

/// Where the files of one node are.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    /// A kubeconfig with all rights.
    pub(super) admin: PathBuf,
    /// The folder of the CNI plugins.
    pub(super) cni_plugins: PathBuf,
    /// The cgroup that all pods are in.
    pub(super) cgroup: String,
}

impl Layout {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn containerd_socket(&self) -> PathBuf {
        self.file("containerd.sock")
    }

    /// The kubelet's own kubeconfig.
    pub(super) fn kubelet_kubeconfig(&self) -> PathBuf {
        self.file("kubelet.kubeconfig")
    }

    /// Writes the configuration files that the command lines name.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let cni = self.file("cni");
        fs::create_dir(&cni).map_err(failed("create", &cni))?;
        for (path, content) in [
            (cni.join("10-pods.conflist"), self.pod_network().to_string()),
            (self.file("containerd.toml"), self.containerd_config()),
            (self.file("kubelet.json"), self.kubelet_config().to_string()),
            (self.file("kube-proxy.json"), self.kube_proxy_config().to_string()),
            // There is no DNS; the machine's own settings may lead to a file that is hidden in the node.
            (self.file("resolv.conf"), String::new()),
        ] {
            fs::write(&path, content).map_err(failed("write", &path))?;
        }
        Ok(())
    }

    pub(super) fn kubectl(&self) -> PathBuf {
        self.file("kubectl")
    }

    /// Writes a script that runs kubectl from outside.
    pub(super) fn write_kubectl(&self, namespaces: &Namespaces, kubectl: &Path) -> anyhow::Result<()> {
        let (network, kubeconfig) = (namespaces.network(), self.admin.display());
        let script = format!(
            "#!/bin/sh\nexec nsenter '--net={}' env 'KUBECONFIG={kubeconfig}' '{}' \"$@\"\n",
            network.display(),
            kubectl.display()
        );
        let path = self.kubectl();
        fs::write(&path, script)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o700)))
            .map_err(failed("write", &path))
    }

    fn pod_network(&self) -> Value {
        json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            // Else a pod that calls its own Service gets no answer when it is chosen itself.
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": self.file("addresses"),
                // The node itself is among the first.
                "ranges": [[{"subnet": PODS, "rangeStart": "10.88.0.10"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }]})
    }

    fn containerd_config(&self) -> String {
        // TOML's strings are those of JSON, as far as paths go.
        let text = |path: &Path| json!(path).to_string();
        let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
        format!(
            "version = 2\nroot = {root}\nstate = {state}\n[grpc]\naddress = {socket}\n\
             [{cri}]\nsandbox_image = {sandbox}\nrestrict_oom_score_adj = true\n\
             [{cri}.cni]\nbin_dir = {plugins}\nconf_dir = {cni}\n",
            root = text(&self.file("containerd")),
            state = text(&self.file("containerd-state")),
            socket = text(&self.containerd_socket()),
            // Without a command it does nothing until it is told to end.
            sandbox = json!(full(GUEST)),
            plugins = text(&self.cni_plugins),
            cni = text(&self.file("cni")),
        )
    }

    fn kubelet_config(&self) -> Value {
        let never = json!({"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%",
            "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"});
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "containerRuntimeEndpoint": format!("unix://{}", self.containerd_socket().display()),
            "podLogsDir": self.file("pod-logs"),
            "resolvConf": self.file("resolv.conf"),
            // A client that reaches it is inside: in the network of the node.
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            // A root of its own, so that several nodes, and a machine's real one, don't take each other's pods for lost.
            "cgroupRoot": format!("/{}", self.cgroup),
            "failCgroupV1": false,
            "failSwapOn": false,
            // The machine belongs to others as well: no pod is evicted for what they use.
            "evictionHard": never,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            // More than it has where the machine's hard limit is low.
            "maxOpenFiles": 20000,
            "oomScoreAdj": 0,
        })
    }

    fn kube_proxy_config(&self) -> Value {
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": self.admin},
            "mode": "iptables",
            "bindAddress": ADDRESS,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "hostnameOverride": NODE,
            "clusterCIDR": PODS,
            // These would be set for the whole machine.
            "conntrack": {"maxPerCore": 0, "min": 0},
        })
    }
}

pub(super) fn containerd(namespaces: &Namespaces, layout: &Layout) -> Command {
    let mut command = namespaces.command(Path::new("containerd"));
    command.arg("--config").arg(layout.file("containerd.toml"));
    command
}

/// Imports an image archive.
pub(super) fn import(namespaces: &Namespaces, layout: &Layout, archive: &Path) -> Command {
    let mut command = namespaces.command(Path::new("ctr"));
    // The namespace of containerd that the kubelet looks into.
    command.arg("--address").arg(layout.containerd_socket()).args(["--namespace", "k8s.io", "images", "import"]);
    command.arg(archive);
    command
}

pub(super) fn kubelet(namespaces: &Namespaces, programs: &NodePrograms, layout: &Layout) -> Command {
    let mut command = namespaces.command(&programs.kubelet);
    command.arg("--config").arg(layout.file("kubelet.json")).arg("--kubeconfig").arg(layout.kubelet_kubeconfig());
    command.arg("--root-dir").arg(layout.file("kubelet")).arg("--cert-dir").arg(layout.file("kubelet-certificates"));
    command.args([&format!("--hostname-override={NODE}"), &format!("--node-ip={ADDRESS}")]);
    command
}

pub(super) fn scheduler(namespaces: &Namespaces, programs: &NodePrograms, layout: &Layout) -> Command {
    let mut command = namespaces.command(&programs.kube_scheduler);
    for option in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(option).arg(&layout.admin);
    }
    command.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"]);
    command
}

pub(super) fn kube_proxy(namespaces: &Namespaces, programs: &NodePrograms, layout: &Layout) -> Command {
    let mut command = namespaces.command(&programs.kube_proxy);
    command.arg("--config").arg(layout.file("kube-proxy.json"));
    command
}
