//! What is delivered for monitoring in `deploy/monitoring`, judged by Prometheus's own tool.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ringside_e2e::{case, live::Group, toolchain::Environment};
use serde_json::Value;

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!(the_alerts_come_when_they_should_and_not_otherwise),
        case!(every_query_of_the_dashboard_can_be_evaluated),
    ];
    Group::new("alerts", cases.into_iter().map(|case| case.unless(without_promtool)).collect())
}

fn without_promtool() -> Option<String> {
    let missing = Environment::of_process().find_on_path("promtool").is_none();
    missing.then(|| "promtool is missing: apt-get install --no-install-recommends prometheus".to_owned())
}

fn delivered(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring").join(file)
}

/// Runs promtool on a file. Its words, where it does not accept it.
async fn promtool(what: &'static str, file: PathBuf) -> Result<(), String> {
    let judged = tokio::task::spawn_blocking(move || Command::new("promtool").args([what, "rules"]).arg(file).output());
    let output = judged.await.unwrap().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() { Ok(()) } else { Err(said) }
}

async fn the_alerts_come_when_they_should_and_not_otherwise() {
    promtool("test", delivered("rules.test.yaml")).await.unwrap();
}

/// The queries of all panels, with values for what Grafana puts in.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(delivered("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let filled = |query: &str| query.replace("$__rate_interval", "5m");
    queries
        .map(|query| ["$cluster", "$namespace", "$ring"].iter().fold(filled(query), |q, name| q.replace(name, ".*")))
        .collect()
}

async fn every_query_of_the_dashboard_can_be_evaluated() {
    let queries = queries();
    assert!(queries.len() > 30, "{queries:?}");
    let left: Vec<_> = queries.iter().filter(|query| query.contains('$')).collect();
    assert!(left.is_empty(), "a variable that the dashboard does not define: {left:?}");
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, query) in queries.iter().enumerate() {
        writeln!(rules, "  - record: panel_{number}\n    expr: {}", serde_json::to_string(query).unwrap()).unwrap();
    }
    let file = std::env::temp_dir().join(format!("ringside-dashboard-{}.yaml", std::process::id()));
    fs::write(&file, rules).unwrap();
    let judged = promtool("check", file.clone()).await;
    fs::remove_file(file).unwrap();
    judged.unwrap();
}
