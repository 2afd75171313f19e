//! The alerts of `deploy/prometheus-rules.yaml`, judged by Prometheus's own tool.

use std::{path::Path, process::Command};

use ringside_e2e::{case, live::Group, toolchain::Environment};

/// The cases.
pub(crate) fn group() -> Group {
    let case = case!(the_alerts_come_when_they_should_and_not_otherwise);
    Group::new("alerts", vec![case.unless(without_promtool)])
}

fn without_promtool() -> Option<String> {
    let missing = Environment::of_process().find_on_path("promtool").is_none();
    missing.then(|| "promtool is missing: apt-get install --no-install-recommends prometheus".to_owned())
}

async fn the_alerts_come_when_they_should_and_not_otherwise() {
    let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus-rules.test.yaml");
    let judged =
        tokio::task::spawn_blocking(move || Command::new("promtool").args(["test", "rules"]).arg(test).output());
    let output = judged.await.unwrap().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}
