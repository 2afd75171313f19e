//! The command lines of a control plane's processes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use super::{ControlPlanePrograms, Options};

/// Where the files and ports of one control plane are.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    pub(super) api_port: u16,
    pub(super) etcd_client_port: u16,
    pub(super) etcd_peer_port: u16,
}

impl Layout {
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    pub(super) fn etcd(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.etcd_client_port).into()
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }
}

pub(super) fn etcd(programs: &ControlPlanePrograms, layout: &Layout) -> Command {
    let client = format!("http://127.0.0.1:{}", layout.etcd_client_port);
    let peer = format!("http://127.0.0.1:{}", layout.etcd_peer_port);
    let mut command = command(&programs.etcd, layout);
    command
        .args(["--data-dir", "etcd", "--unsafe-no-fsync", "--log-level", "warn"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")]);
    command
}

/// `etcd` is the port at which it finds etcd.
pub(super) fn api_server(programs: &ControlPlanePrograms, layout: &Layout, options: &Options, etcd: u16) -> Command {
    let mut command = command(&programs.kube_apiserver, layout);
    command
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd}"))
        .arg(format!("--secure-port={}", layout.api_port))
        .arg("--service-cluster-ip-range=10.0.0.0/24")
        .args(["--tls-cert-file=server.crt", "--tls-private-key-file=server.key", "--client-ca-file=ca.crt"])
        .args(["--service-account-key-file=accounts.pub", "--service-account-signing-key-file=accounts.key"])
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .args(["--token-auth-file=tokens.csv", "--allow-privileged=true"]);
    match options.node_address {
        None => command.args(["--bind-address=127.0.0.1", "--authorization-mode=RBAC"]),
        Some(address) => command
            .args(["--bind-address=0.0.0.0", &format!("--advertise-address={address}")])
            .args(["--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"])
            // Node names are not looked up in any DNS.
            .arg("--kubelet-preferred-address-types=InternalIP"),
    };
    if options.audit || !options.audit_writes.is_empty() {
        command.args(["--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log"]);
        // One file, whatever its size: it is read as a whole, and gone with the control plane.
        command.arg("--audit-log-maxsize=100000");
    }
    command.args(&options.api_server_flags);
    command
}

/// The controllers that a case without a node may need, by name: each of the others would keep watches of its own.
const CONTROLLERS: &str = "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,\
    root-ca-certificate-publisher-controller,deployment-controller,replicaset-controller,statefulset-controller,\
    horizontal-pod-autoscaler-controller";

pub(super) fn controller_manager(program: &Path, layout: &Layout, options: &Options) -> Command {
    let controllers = match options.node_address {
        None => CONTROLLERS,
        // One of them takes the taint of a new node away.
        Some(_) => "--controllers=*,-nodeipam",
    };
    let mut command = command(program, layout);
    command
        .args(["--kubeconfig=kubeconfig", "--authentication-kubeconfig=kubeconfig"])
        .args(["--authorization-kubeconfig=kubeconfig", "--root-ca-file=ca.crt"])
        .args(["--service-account-private-key-file=accounts.key", "--use-service-account-credentials"])
        .args([controllers, "--leader-elect=false", "--horizontal-pod-autoscaler-sync-period=5s"])
        // Each controller starts with requests for an account and a token of its own: at the default of 20 a second
        // that alone takes 5 s.
        .args(["--kube-api-qps=500", "--kube-api-burst=500"])
        .args(["--bind-address=127.0.0.1", "--secure-port=0"]);
    command
}

/// In the control plane's folder, so that all files have short names.
fn command(program: &Path, layout: &Layout) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&layout.dir);
    command
}
