//! A client that has nothing but what a container has: a service account's folder, and where the API server is.
//!
//! client-go and kube-rs look for the folder at one fixed path. A mount namespace of its own gives each client another
//! one there, and a user namespace the right to do so to who is not root.

use std::{
    env,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

/// By way of the working folder: what is mounted may hide the folder's path.
const MOUNT: &str = r#"
set -e
cd "$1"
mount -t tmpfs none /run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind . /var/run/secrets/kubernetes.io/serviceaccount
cd /
host=$2 port=$3
shift 3
exec env -i KUBERNETES_SERVICE_HOST="$host" KUBERNETES_SERVICE_PORT="$port" "$@"
"#;

/// The program in such a container: arguments can be added, variables and a working folder can't.
pub fn command(program: &Path, folder: &Path, api_server: SocketAddr) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "/bin/sh", "-c", MOUNT, "in-cluster"]).arg(folder);
    command.args([api_server.ip().to_string(), api_server.port().to_string()]).arg(program);
    command
}

/// Why there can be no such container on this machine, if so.
pub fn unavailable() -> Option<String> {
    let mut probe = command(Path::new("true"), &env::temp_dir(), ([127, 0, 0, 1], 1).into());
    match probe.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("mount namespaces: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Some(format!("start unshare (of util-linux): {error}")),
    }
}
