//! Where there can be no node, one line says why.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use ringside_e2e::{case, live::Case};

/// The cases.
pub(super) fn cases() -> [Case; 3] {
    [
        case!(without_root_one_line_says_so),
        case!(without_capabilities_one_line_says_so),
        case!(without_cgroups_one_line_says_so),
    ]
}

async fn without_root_one_line_says_so() {
    // Where another user may look for it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("node");
    fs::copy(env!("CARGO_BIN_EXE_node"), &copy).unwrap();
    one_line(&["setpriv", "--reuid=65534", "--clear-groups"], &copy, "needs root");
}

/// As root is in most containers.
async fn without_capabilities_one_line_says_so() {
    one_line(&["setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"], node(), "needs namespaces");
}

/// They are mounted read-only in containers that have capabilities, but not all privileges.
async fn without_cgroups_one_line_says_so() {
    let read_only = r#"
        for hierarchy in $(grep ' - cgroup' /proc/self/mountinfo | cut -d ' ' -f 5); do
            mount -o remount,bind,ro "$hierarchy" || exit 2
        done
        exec "$0""#;
    one_line(&["unshare", "--mount", "/bin/sh", "-c", read_only], node(), "needs cgroups");
}

fn node() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_node"))
}

/// Run like that the node says no more than one line, with these words.
fn one_line(line: &[&str], node: &Path, words: &str) {
    let output = Command::new(line[0]).args(&line[1..]).arg(node).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.lines().count() == 1 && text.contains(words), "{text}");
}
