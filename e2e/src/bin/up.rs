//! Leaves a control plane running until Ctrl-C: `cargo run -p ringside-tests --bin up -- --dir DIR`.

use std::{fs, io::Write as _, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;
use ringside_e2e::{
    control_plane::{ControlPlane, Options},
    toolchain::{self, built},
};
use ringside_runtime::shutdown::Shutdown;

/// Starts etcd and a Kubernetes API server on loopback, without containers, and leaves them running until Ctrl-C.
#[derive(Parser)]
struct Arguments {
    /// Folder for the kubeconfig; made when it is not there
    #[arg(long)]
    dir: PathBuf,
    /// A further flag for the API server, such as --api-server-flag=--feature-gates=ShardedListAndWatch=true
    #[arg(long = "api-server-flag", value_name = "FLAG")]
    api_server_flags: Vec<String>,
    /// Start the controller manager as well, and build kubectl; the programs are in target/ringside-e2e
    #[arg(long)]
    all: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    fs::create_dir_all(&arguments.dir).with_context(|| format!("create {}", arguments.dir.display()))?;
    let kubeconfig = std::path::absolute(arguments.dir.join("kubeconfig"))?;
    let shutdown = Shutdown::on_signals()?;
    let options = Options {
        api_server_flags: arguments.api_server_flags,
        controller_manager: arguments.all,
        ..Options::default()
    };
    let kubectl = match arguments.all {
        true => built(toolchain::kubectl).await?,
        false => PathBuf::from("kubectl"),
    };
    let control_plane = tokio::select! {
        started = ControlPlane::start(options) => started?,
        () = shutdown.wait() => return Ok(()),
    };
    fs::copy(control_plane.kubeconfig_path(), &kubeconfig)
        .with_context(|| format!("write {}", kubeconfig.display()))?;
    let mut out = std::io::stdout();
    writeln!(out, "control plane at {}, logs in {}", control_plane.url(), control_plane.dir().display())?;
    writeln!(out, "\n  export KUBECONFIG={}", kubeconfig.display())?;
    writeln!(out, "  {} get namespaces\n", kubectl.display())?;
    writeln!(out, "Ctrl-C ends it.")?;
    shutdown.wait().await;
    fs::remove_file(&kubeconfig).with_context(|| format!("remove {}", kubeconfig.display()))?;
    Ok(())
}
