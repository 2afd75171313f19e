//! Rules, dashboard and runbook say the same, and name only what there is.

use std::{collections::BTreeSet, fs};

use ringside_e2e::pages::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The alerts of the rules, each with its text.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let alerts = rules.split("  - alert: ").skip(1).filter_map(|rule| rule.split_once('\n'));
    alerts.map(|(name, rule)| (name, rule.split("\n- name:").next().unwrap())).collect()
}

#[test]
fn every_alert_leads_to_its_part_of_the_runbook() {
    let (rules, page) = (read("deploy/monitoring/rules.yaml"), read("docs/src/alerts.md"));
    let alerts = alerts(&rules);
    assert!(alerts.len() > 10, "{} alerts", alerts.len());
    for (name, rule) in &alerts {
        for part in ["summary: \"", "description: \"", "severity: "] {
            assert!(rule.contains(part), "{name} has no {part}");
        }
        let runbook = format!("runbook_url: docs/src/alerts.md#{}", name.to_lowercase());
        assert!(rule.lines().any(|line| line.trim() == runbook), "{name} has no {runbook}");
    }
    // mdBook and GitHub make the anchor of a heading of one word from its small letters.
    let parts: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(parts, alerts.iter().map(|(name, _)| *name).collect());
}

/// One that no metric can make fire is none; one that fires for a well cluster too does not tell which is ill.
#[test]
fn every_alert_is_seen_to_fire_for_the_ill_one_of_two_clusters() {
    let (rules, tests) = (read("deploy/monitoring/rules.yaml"), read("deploy/monitoring/rules.test.yaml"));
    let ill = tests.split("- name: ").find(|test| test.starts_with("of two clusters one is ill")).unwrap();
    let fires: BTreeSet<_> = ill
        .split("alertname: ")
        .skip(1)
        .filter(|expectation| expectation.contains("exp_labels") && expectation.contains("cluster: ill"))
        .map(|expectation| expectation.lines().next().unwrap())
        .collect();
    assert_eq!(fires, alerts(&rules).into_iter().map(|(name, _)| name).collect());
}

#[test]
fn the_rules_of_the_operator_are_those_of_the_file() {
    let (rules, object) = (read("deploy/monitoring/rules.yaml"), read("deploy/monitoring/prometheusrule.yaml"));
    let groups = rules.lines().skip_while(|line| *line != "groups:").map(|line| format!("  {line}"));
    let of_object = object.lines().skip_while(|line| *line != "spec:").skip(1);
    assert!(groups.eq(of_object), "make prometheusrule.yaml again, as it says at its head");
}

/// The metrics that the example's proxies and the sharder show are found by their ports' names.
#[test]
fn the_ports_that_are_scraped_are_those_of_the_manifests() {
    let monitors = read("deploy/monitoring/podmonitor.yaml");
    let ports: Vec<_> = monitors.lines().filter_map(|line| line.trim().strip_prefix("- port: ")).collect();
    assert_eq!(ports, ["admin", "ringside-admin"]);
    let proxy = read("deploy/example/deployment.yaml");
    let injected = read("inject/src/container.rs");
    assert!(injected.contains(r#"{"name": "ringside-admin", "containerPort": ports.admin}"#));
    assert!(proxy.contains("- name: ringside-admin\n          containerPort: 6444\n"));
    assert!(proxy.contains("- name: RINGSIDE_ADMIN_LISTEN\n          value: \"[::]:6444\"\n"));
    let sharder = read("deploy/kustomize/base/sharder/deployment.yaml");
    assert!(sharder.contains("- name: admin\n          containerPort: 8080\n"));
    let selector = "app.kubernetes.io/name: ringside-sharder\n";
    assert!(monitors.contains(selector) && sharder.contains(selector));
}
