//! A real node to play with: `cargo run -p ringside-tests --bin node`.

use std::{
    ffi::OsString,
    io::Write as _,
    process::{ExitCode, ExitStatus},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use ringside_e2e::{
    control_plane::Options,
    node::{Node, with_node},
};
use ringside_runtime::shutdown::Shutdown;

/// Starts a Kubernetes node that runs pods, and its control plane, in a network of its own; needs root.
///
/// It has the images that deploy/ names, and `guest:1` for test pods.
#[derive(Parser)]
struct Arguments {
    /// A further flag for the API server
    #[arg(long = "api-server-flag", value_name = "FLAG")]
    api_server_flags: Vec<String>,
    /// A command to run beside the node, with KUBECONFIG set; without one the node stays until Ctrl-C
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> ExitCode {
    play(Arguments::parse()).unwrap_or_else(|error| {
        // One line, where the backtrace of a missing package would be many.
        let _ = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

fn play(arguments: Arguments) -> Result<ExitCode> {
    let options = Options { api_server_flags: arguments.api_server_flags, ..Options::default() };
    with_node(options, async |node| match arguments.command.split_first() {
        None => stay(&node).await.map(|()| ExitCode::SUCCESS),
        Some((program, arguments)) => run(&node, program, arguments).await.map(exit_code),
    })?
}

async fn stay(node: &Node) -> Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let mut out = std::io::stdout();
    writeln!(out, "The node is ready, logs in {}. It has a network of its own, so use\n", node.dir().display())?;
    writeln!(out, "  {} get pods --all-namespaces\n", node.kubectl().display())?;
    writeln!(out, "Ctrl-C ends it.")?;
    shutdown.wait().await;
    Ok(())
}

async fn run(node: &Node, program: &OsString, arguments: &[OsString]) -> Result<ExitStatus> {
    let shutdown = Shutdown::on_signals()?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env("KUBECONFIG", node.control_plane().kubeconfig_path()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("start {}", program.display()))?;
    tokio::select! {
        status = child.wait() => Ok(status?),
        () = shutdown.wait() => {
            child.kill().await?;
            Ok(child.wait().await?)
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
