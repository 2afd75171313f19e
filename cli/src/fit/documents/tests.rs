use proptest::prelude::*;

use super::*;

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NAME}\n\
    spec: {selector: {}, template: {spec: {containers: [{name: c, image: i}]}}}\n";

fn deployment(name: &str) -> String {
    DEPLOYMENT.replace("NAME", name)
}

fn refused(text: &str) -> String {
    Documents::parse(text).unwrap_err().to_string()
}

#[test]
fn the_only_deployment_is_taken() {
    let text =
        format!("# a comment\n---\n{}--- # another\n# nothing\n---\nkind: Other\napiVersion: x/v1\n", deployment("a"));
    let subject = Documents::parse(&text).unwrap().subject(None).unwrap();
    assert_eq!((subject.namespace(), subject.name()), ("default", "a"));
    assert!(subject.grants.is_none() && !subject.live);
}

#[test]
fn one_of_several_deployments_is_named() {
    let text = format!("{}---\n{}", deployment("a"), deployment("b"));
    let parse = || Documents::parse(&text).unwrap();
    for named in ["b", "default/b"] {
        assert_eq!(parse().subject(Some(named)).unwrap().name(), "b");
    }
    let text = parse().subject(None).unwrap_err().to_string();
    assert!(text.contains("default/a, default/b"), "{text}");
    let text = parse().subject(Some("c")).unwrap_err().to_string();
    assert!(text.contains("no Deployment c") && text.contains("default/a, default/b"), "{text}");
    assert_eq!(Documents::parse("").unwrap().subject(None).unwrap_err(), DocumentsError::NoDeployment);
}

#[test]
fn lists_are_opened() {
    let item = deployment("a").replace('\n', "\n  ");
    let text = format!("apiVersion: v1\nkind: List\nitems:\n- {item}\n");
    assert_eq!(Documents::parse(&text).unwrap().subject(None).unwrap().name(), "a");
}

#[test]
fn rights_of_the_account_are_found_with_aggregated_ones() {
    let text = format!(
        "{}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: all}}
aggregationRule: {{clusterRoleSelectors: [{{matchLabels: {{to: all}}}}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: part, labels: {{to: all}}}}
rules: [{{apiGroups: [x.io], resources: [things], verbs: [list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: all}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}}
subjects: [{{kind: ServiceAccount, name: default, namespace: default}}]
",
        deployment("a")
    );
    let subject = Documents::parse(&text).unwrap().subject(None).unwrap();
    assert_eq!(subject.granted("x.io", "things", &["list"]), [None].into());
    assert!(subject.granted("x.io", "things", &["watch"]).is_empty());
}

#[test]
fn errors_name_the_document_and_a_remedy() {
    let good = deployment("a");
    for (bad, named) in [
        ("a: [", "Correct it, or take it out"),
        ("a: {{ .Values.x }\nb: [", "helm template"),
        ("a: 1", "document 2 has no kind: take out"),
        ("kind: Deployment", "document 2 has no apiVersion: take out"),
        ("kind: Role\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {name: r}\nrules: 5", "document 2, Role r: "),
    ] {
        let text = refused(&format!("{good}---\n{bad}\n"));
        assert!(text.contains("document 2") && text.contains(named), "{bad}: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}(\n(---|- |  )?[a-z{}\\[\\]&*!|>:#'\" -]{0,40}){0,12}") {
        if let Err(error) = Documents::parse(&text) {
            prop_assert!(error.to_string().contains("document "));
        }
    }

    #[test]
    fn a_damaged_manifest_is_read_or_refused(at in 0..170usize, with in "[\\PC\n]{0,3}", name in "[a-z]{1,8}") {
        let mut text = deployment(&name);
        let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &with);
        if let Err(error) = Documents::parse(&text).and_then(|documents| documents.subject(None)) {
            prop_assert!(error.to_string().contains(": ") || error.to_string().contains(". "), "{error}");
        }
    }
}
