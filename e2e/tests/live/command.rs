//! The program `ringside`, run as a person does.

use std::{path::Path, process::Command};

use ringside_e2e::toolchain::{self, built};

/// Runs it with this kubeconfig. Returns its exit code, and what it printed.
pub(crate) async fn ringside(kubeconfig: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(built(toolchain::ringside).await.unwrap().cli);
    command.args(arguments).env("KUBECONFIG", kubeconfig);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    println!("$ ringside {}\n{text}", arguments.join(" "));
    (output.status.code().unwrap(), text)
}
