#![allow(clippy::unwrap_used)]

use clap::Parser;
use serde_json::json;

use super::*;
use crate::exit::Exit;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(Debug, Parser)]
struct UninjectLine {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    arguments: UninjectArguments,
}

async fn inject_file(file: &str, more: &[&str]) -> anyhow::Result<String> {
    let line = Line::try_parse_from([&["inject", "--ring=websites", "-f", file], more].concat())?;
    let said = run(&line.global, line.arguments).await?;
    assert_eq!(said.exit, Exit::Good);
    Ok(said.text)
}

async fn uninject_file(file: &str) -> anyhow::Result<String> {
    let line = UninjectLine::try_parse_from(["uninject", "-f", file])?;
    Ok(run_uninject(&line.global, line.arguments).await?.text)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(text, options).unwrap()
}

/// The manifests of ten projects, as they publish them.
fn manifests() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/manifests");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let manifests: Vec<_> =
        files.map(|file| (file.display().to_string(), fs::read_to_string(&file).unwrap())).collect();
    assert_eq!(manifests.len(), 10);
    manifests
}

#[tokio::test]
async fn published_manifests_are_given_back_as_they_parse() {
    for (name, text) in manifests() {
        let (original, all) = (file(&text), objects(&text));
        let once = inject_file(path(&original), &[]).await.unwrap();
        assert!(once.contains("ringside.dev/injected"), "{name}");
        let injected = file(&once);
        assert_eq!(inject_file(path(&injected), &[]).await.unwrap(), once, "{name}: the second changes nothing");
        let back = uninject_file(path(&injected)).await.unwrap();
        assert_eq!(objects(&back), all, "{name}");
        let changed = objects(&once).into_iter().zip(&all).filter(|(new, old)| new != *old);
        assert_eq!(changed.map(|(new, _)| new["kind"].clone()).collect::<Vec<_>>(), ["Deployment"], "{name}");
        assert!(text.contains("# Licence: "), "{name}");
    }
}

const WORKLOAD: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: web}
spec:
  template:
    spec:
      containers:
      - name: manager
        args: [\"--yes=on\", 'a: b', \"0644\", \"1e3\", \"1:20\", 'no', \"two\\nlines \"]
      volumes:
      - name: v
        configMap: {name: c, defaultMode: 0644}
";

#[tokio::test]
async fn other_documents_stay_byte_by_byte() {
    let before = "# a comment\n---\n# {{ no yaml: [ }}\nkind:   Thing   # kept\n---\n";
    let after = "---  # last\na:  !!str 1\ntext: |\n  ---\n  x\n";
    let whole = format!("{before}{WORKLOAD}{after}");
    let text = inject_file(path(&file(&whole)), &[]).await.unwrap();
    assert!(text.starts_with(before) && text.ends_with(after), "{text}");
    let back = uninject_file(path(&file(&text))).await.unwrap();
    assert!(back.starts_with(before) && back.ends_with(after), "{back}");
    let parse = |text: &str| objects(&text[before.len()..text.len() - after.len()]);
    assert_eq!(parse(&back), parse(&whole));
    let volumes = &parse(&text)[0]["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["configMap"]["defaultMode"], 420, "a file mode, as kubectl reads it");
}

#[tokio::test]
async fn one_of_several_workloads_is_named() {
    let other = WORKLOAD.replace("name: manager, namespace: web", "name: other");
    let both = file(&format!("{WORKLOAD}---\n{other}"));
    let fault = |result: anyhow::Result<String>| result.unwrap_err().to_string();
    assert_eq!(
        fault(inject_file(path(&both), &[]).await),
        "the file has several workloads: name one of web/manager, other"
    );
    assert!(fault(inject_file(path(&both), &["third"]).await).contains("no such workload: name one of web/manager"));
    for named in ["manager", "web/manager"] {
        let text = inject_file(path(&both), &[named]).await.unwrap();
        assert!(text.ends_with(&other) && text.matches("ringside.dev/injected").count() == 1, "{text}");
    }
    assert!(fault(inject_file(path(&file("a: b\n")), &[]).await).contains("no Deployment"));
    assert!(fault(inject_file(path(&file("a: [\n")), &[]).await).contains("no YAML"));
    assert!(fault(uninject_file(path(&file(WORKLOAD))).await).contains("has added nothing"));
}

#[tokio::test]
async fn dry_run_tells_what_would_change() {
    let text = inject_file(path(&file(WORKLOAD)), &["--dry-run"]).await.unwrap();
    assert_eq!(
        text,
        "+ initContainers[0] ringside-proxy\n\
         + manager: /var/run/ringside and /var/run/secrets/kubernetes.io/serviceaccount\n\
         + manager: env KUBECONFIG, KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT\n\
         + manager: a preStop hook, which waits until its objects are handed over\n\
         + volumes ringside and ringside-token"
    );
}

#[tokio::test]
async fn permissions_come_with_the_ring_of_the_file() {
    let ring = include_str!("../../../deploy/example/ring.yaml");
    let whole = file(&format!("{ring}---\n{WORKLOAD}"));
    let text = inject_file(path(&whole), &["--with-rbac", "--plain-container"]).await.unwrap();
    let added = &objects(&text)[2..];
    assert!(added.iter().any(|object| object["kind"] == "ClusterRole"), "{text}");
    let subjects = added.iter().filter_map(|object| object.get("subjects"));
    let ours = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "web"}]);
    assert!(subjects.into_iter().any(|subjects| *subjects == ours), "{text}");
    assert!(text.contains("# a plain container: "), "{text}");
    let told = inject_file(path(&whole), &["--with-rbac", "--dry-run"]).await.unwrap();
    assert!(told.contains("+ permissions: ") && told.contains(" RoleBinding"), "{told}");
}

#[tokio::test]
async fn options_of_the_proxy_are_its_arguments() {
    let options = ["--drain-grace=5s", "--election-namespace=kube-system", "--proxy-option=--election-lock=a"];
    let text = inject_file(path(&file(WORKLOAD)), &options).await.unwrap();
    let args = &objects(&text)[0]["spec"]["template"]["spec"]["initContainers"][0]["args"];
    let expected = ["--ring=websites", "--drain-grace=5s", "--election-namespace=kube-system", "--election-lock=a"];
    assert_eq!(*args, json!(expected));
    let wrong = inject_file(path(&file(WORKLOAD)), &["--drain-grace=long"]).await.unwrap_err();
    assert!(wrong.to_string().contains("--drain-grace"), "{wrong}");
}

#[tokio::test]
async fn controller_that_elects_elsewhere_gets_no_sidecar_that_is_not_told_so() {
    let elects = |option: &str| WORKLOAD.replace(r#""--yes=on""#, &format!("{option:?}"));
    let cert_manager = WORKLOAD.replace(
        "- name: manager\n",
        "- name: manager\n        image: quay.io/jetstack/cert-manager-controller:v1.20.0\n",
    );
    for text in [elects("--leader-election-namespace=kube-system"), cert_manager] {
        for more in [&[][..], &["--dry-run"]] {
            let refused = inject_file(path(&file(&text)), more).await.unwrap_err().to_string();
            assert!(refused.contains("R02") && refused.contains("`--election-namespace`"), "{refused}");
        }
        let told = inject_file(path(&file(&text)), &["--election-namespace=kube-system"]).await.unwrap();
        assert!(told.contains("--election-namespace=kube-system"), "{told}");
    }
    let at_home = inject_file(path(&file(&elects("--leader-election-namespace=web"))), &[]).await;
    assert!(at_home.is_ok(), "{at_home:?}");
}

#[test]
fn ports_are_two_different_ones() {
    assert_eq!(parse_ports("7443,7444"), Ok(Ports { listen: 7443, admin: 7444 }));
    for bad in ["7443", "7443,7443", "0,1", "a,b", "70000,1"] {
        assert!(parse_ports(bad).unwrap_err().contains("7443,7444"), "{bad}");
    }
}
