//! Each rule has a subject that meets it and one that does not.

use super::*;
use crate::fit::documents::Documents;

mod live;

/// A Deployment of `ns/controller`: more of its metadata, of its pods' spec and of its container.
fn deployment(metadata: &str, pod: &str, container: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: controller, namespace: ns{metadata}}}
spec:
  selector: {{matchLabels: {{app: c}}}}
  template:
    metadata: {{labels: {{app: c}}}}
    spec: {{serviceAccountName: sa{pod}, containers: [{{name: c, image: controller:1{container}}}]}}
"
    )
}

fn args(args: &str) -> String {
    deployment("", "", &format!(", args: [{args}]"))
}

/// A Deployment that mounts a projected token in the folder of its account's.
fn own_token(source: &str) -> String {
    let source = format!("serviceAccountToken: {{{source}path: token}}");
    let volumes = format!(", volumes: [{{name: t, projected: {{sources: [{{{source}}}]}}}}]");
    deployment("", &volumes, ", volumeMounts: [{name: t, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]")
}

fn env(env: &str) -> String {
    deployment("", "", &format!(", env: [{env}]"))
}

fn image(image: &str) -> String {
    deployment("", "", "").replace("controller:1", image)
}

/// A Deployment whose account has these rules: of the cluster, and of a namespace.
fn rights(cluster: &str, namespace: &str, role: &str) -> String {
    let subject = "subjects: [{kind: ServiceAccount, name: sa, namespace: ns}]";
    let api = "rbac.authorization.k8s.io";
    let mut text = deployment("", "", "");
    text.push_str(&format!(
        "---
{{apiVersion: {api}/v1, kind: ClusterRole, metadata: {{name: r}}, rules: [{cluster}]}}
---
{{apiVersion: {api}/v1, kind: ClusterRoleBinding, metadata: {{name: r}}, roleRef: {{apiGroup: {api}, kind: ClusterRole, name: r}}, {subject}}}
---
{{apiVersion: {api}/v1, kind: Role, metadata: {{name: r, namespace: {namespace}}}, rules: [{role}]}}
---
{{apiVersion: {api}/v1, kind: RoleBinding, metadata: {{name: r, namespace: {namespace}}}, roleRef: {{apiGroup: {api}, kind: Role, name: r}}, {subject}}}
"
    ));
    text
}

fn service(selector: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: ns}}, spec: {{selector: {{app: {selector}}}, ports: [{{port: 443}}]{more}}}}}\n"
    )
}

fn admission(service: &str) -> String {
    format!(
        "---\n{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {{name: w}}, webhooks: \
        [{{name: w, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {{service: {{name: {service}, namespace: ns}}}}}}]}}\n"
    )
}

const CONVERSION: &str = "---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.x.io}, spec: {group: x.io, scope: Namespaced,
  names: {plural: things, kind: Thing}, versions: [],
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: s, namespace: ns}}}}}}
";

const SCALER: &str = "---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h, namespace: ns},
  spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: TARGET}}}
";

const LEASES: &str = "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}";
const THINGS: &str = "{apiGroups: [x.io], resources: [things], verbs: [list, watch]}";

fn subject(text: &str) -> Subject {
    Documents::parse(text)
        .and_then(|documents| documents.subject(None))
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is found about a rule.
fn finding(id: &str, subject: &Subject) -> Option<Finding> {
    evaluate(&Rules::load().unwrap(), subject, &[]).into_iter().find(|finding| finding.id == id)
}

/// Whether a subject shows to meet a rule.
fn meets(id: &str, subject: &Subject) -> bool {
    let rules = Rules::load().unwrap();
    let rule = rules.get(id).unwrap();
    let found = finding(id, subject);
    let told = found.as_ref().is_some_and(|finding| finding.finding.starts_with(&format!("{}: ", rule.finding)));
    let mark = match rule.verdict {
        Verdict::No | Verdict::Fix => Mark::Unfit,
        Verdict::Ask => Mark::Ask,
        Verdict::Ok => Mark::Note,
    };
    assert!(!told || found.is_some_and(|finding| finding.mark == mark), "{id}");
    told
}

/// Whether a subject has something that makes its question more pressing.
fn is_suspected(id: &str, subject: &Subject) -> bool {
    finding(id, subject).is_some_and(|finding| finding.mark == Mark::Ask && finding.finding.contains("? It has "))
}

/// A rule, a subject that meets it, and one that does not.
type Case = (&'static str, String, String);

fn elections() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R01", args("--leader-elect=false"), args("--leader-elect")),
        ("R01", rights(THINGS, "ns", THINGS), rights(THINGS, "ns", LEASES)),
        ("R01", env("{name: ENABLE_LEADER_ELECTION, value: 'false'}"), env("{name: LEADER_ELECTION, value: 'true'}")),
        ("R01", image("ghcr.io/external-secrets/external-secrets:v0.9"), plain()),
        ("R02", args("--leader-election-namespace=kube-system"), args("--leader-election-namespace=ns")),
        ("R02", args("--leader-elect-resource-namespace, kube-system"), args("--leader-elect-resource-namespace, ns")),
        (
            "R02",
            env("{name: LEADER_ELECTION_NAMESPACE, value: other}"),
            env("{name: LEADER_ELECTION_NAMESPACE, value: $(NS)}"),
        ),
        ("R02", rights(THINGS, "kube-system", LEASES), rights(THINGS, "ns", LEASES)),
        ("R03", args("--leader-elect-resource-lock=endpoints"), args("--leader-elect-resource-lock=leases")),
    ]
}

fn known_by_name() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R04", image("ghcr.io/fluxcd/source-controller:v1"), plain()),
        ("R05", image("quay.io/strimzi/operator:0.45.0"), plain()),
        ("R06", image("ghcr.io/external-secrets/external-secrets:v0.9"), plain()),
        ("R07", image("registry.k8s.io/external-dns/external-dns:v0.15.0"), plain()),
        ("R07", image("external-dns"), image("external-dns").replace("image:", "args: [--policy=upsert-only], image:")),
        ("R08", image("public.ecr.aws/karpenter/controller@sha256:0"), plain()),
        ("R09", image("quay.io/jetstack/cert-manager-controller:v1.16"), plain()),
        ("R10", image("quay.io/jetstack/cert-manager-controller:v1.16"), plain()),
        ("R11", image("ghcr.io/kedacore/keda:2.16"), plain()),
    ]
}

fn webhooks() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R12", plain() + &service("c", "") + &admission("s"), plain() + &service("webhook", "") + &admission("s")),
        ("R13", plain() + &service("c", "") + CONVERSION, plain() + &service("other", "") + CONVERSION),
        (
            "R13",
            plain() + &service("c", "") + CONVERSION,
            plain() + &service("c", ", publishNotReadyAddresses: true") + CONVERSION,
        ),
    ]
}

fn pods() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R14", deployment("", ", hostNetwork: true", ""), plain()),
        (
            "R14",
            deployment("", ", hostNetwork: true", ""),
            deployment(
                "",
                ", hostNetwork: true, initContainers: [{name: ringside-proxy, args: ['--listen=127.0.0.1:7443']}]",
                "",
            ),
        ),
        (
            "R15",
            args("--jwt=/var/run/secrets/kubernetes.io/serviceaccount/token"),
            args("--jwt=/var/run/secrets/vault/token"),
        ),
        (
            "R15",
            deployment("", "", ", volumeMounts: [{name: t, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]"),
            deployment(
                "",
                "",
                ", volumeMounts: [{name: ringside, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]",
            ),
        ),
        ("R15", own_token("audience: vault, "), own_token("")),
        (
            "R16",
            env("{name: HTTPS_PROXY, value: 'http://proxy:3128'}"),
            env("{name: https_proxy, value: 'http://proxy:3128'}, {name: no_proxy, value: '.svc,127.0.0.1'}"),
        ),
    ]
}

fn rights_and_names() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R17", rights(LEASES, "ns", THINGS), rights(THINGS, "ns", LEASES)),
        ("R18", image("ghcr.io/external-secrets/external-secrets:v0.9"), plain()),
        ("R19", image("registry.k8s.io/cluster-api/cluster-api-controller:v1"), plain()),
        ("R20", image("xpkg.io/crossplane/crossplane:v1"), plain()),
        ("R21", rights("{apiGroups: [x.io], resources: [ippools], verbs: [get]}", "ns", LEASES), plain()),
        ("R22", image("xpkg.io/crossplane/crossplane:v1"), plain()),
        ("R23", image("bitnami/sealed-secrets-controller:0.27"), plain()),
    ]
}

fn programs() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R24", deployment(", annotations: {meta.helm.sh/release-name: web}", "", ""), plain()),
        ("R24", deployment(", labels: {app.kubernetes.io/managed-by: Helm}", "", ""), plain()),
        ("R24", deployment(", annotations: {argocd.argoproj.io/tracking-id: x}", "", ""), plain()),
        (
            "R24",
            deployment(
                ", ownerReferences: [{apiVersion: operators.coreos.com/v1alpha1, kind: ClusterServiceVersion, name: c, uid: u}]",
                "",
                "",
            ),
            plain(),
        ),
        (
            "R24",
            deployment(", labels: {app.kubernetes.io/managed-by: Helm}", "", ""),
            deployment(", labels: {app.kubernetes.io/managed-by: Helm, ringside.dev/inject: websites}", "", ""),
        ),
    ]
}

fn others() -> Vec<Case> {
    let plain = || deployment("", "", "");
    vec![
        ("R26", deployment("", "", ", command: [kopf, run, /main.py]"), deployment("", "", ", command: [/kopfx]")),
        ("R26", image("registry/my-kopf-operator:1"), plain()),
        ("R28", deployment("", "", ", ports: [{name: metrics, containerPort: 8080}]"), plain()),
        ("R29", plain() + &SCALER.replace("TARGET", "controller"), plain() + &SCALER.replace("TARGET", "other")),
        (
            "R31",
            rights("{apiGroups: [''], resources: [serviceaccounts/token], verbs: [create]}", "ns", LEASES),
            rights("{apiGroups: [''], resources: [serviceaccounts], verbs: [create]}", "ns", LEASES),
        ),
    ]
}

#[test]
fn each_rule_is_met_by_one_subject_and_not_by_another() {
    let cases = [elections(), known_by_name(), webhooks(), pods(), rights_and_names(), programs(), others()].concat();
    for (id, met, unmet) in &cases {
        assert!(meets(id, &subject(met)), "{id} is not seen in\n{met}");
        assert!(!meets(id, &subject(unmet)), "{id} is seen in\n{unmet}");
    }
    let tested = |id: &str| cases.iter().any(|(one, ..)| *one == id) || live::TESTED.contains(&id);
    let rules = Rules::load().unwrap().rules;
    let untested: Vec<_> = rules.iter().filter(|rule| rule.found == Found::Seen && !tested(&rule.id)).collect();
    assert!(untested.is_empty(), "rules that are seen, without a subject that meets them: {untested:?}");
}

#[test]
fn what_only_hints_at_a_rule_makes_its_question_say_so() {
    let cases = [
        ("R02", rights(LEASES, "kube-system", LEASES), rights(THINGS, "ns", LEASES)),
        ("R03", rights("{apiGroups: [''], resources: [endpoints], verbs: [update]}", "ns", THINGS), args("--x")),
        ("R04", args("--shard=1"), args("--x")),
        ("R07", args("--prune"), args("--x")),
        ("R09", args("--kube-api-qps=50"), args("--x")),
        ("R09", env("{name: MAX_CONCURRENT_RECONCILES, value: '5'}"), args("--x")),
        ("R11", deployment("", "", "") + &service("c", ""), deployment("", "", "") + &service("other", "")),
        ("R15", env("{name: VAULT_ADDR, value: 'https://vault'}"), args("--x")),
        (
            "R21",
            rights("{apiGroups: [''], resources: [services/status], verbs: [patch]}", "ns", LEASES),
            rights("{apiGroups: ['*'], resources: ['*'], verbs: ['*']}", "ns", LEASES),
        ),
    ];
    for (id, hinting, plain) in cases {
        assert!(is_suspected(id, &subject(&hinting)), "{id} is not suspected in\n{hinting}");
        assert!(!is_suspected(id, &subject(&plain)), "{id} is suspected in\n{plain}");
    }
}

#[test]
fn webhooks_and_metrics_are_no_service_of_the_leader() {
    let metrics = service("c", "").replace("{port: 443}", "{name: http-metrics, port: 8080}");
    for text in [metrics, service("c", "") + &admission("s"), service("c", "") + CONVERSION] {
        assert!(!is_suspected("R11", &subject(&(deployment("", "", "") + &text))), "{text}");
    }
}

#[test]
fn what_cannot_be_seen_is_asked_once() {
    let findings = evaluate(&Rules::load().unwrap(), &subject(&deployment("", "", "")), &[]);
    for rule in Rules::load().unwrap().rules.iter().filter(|rule| rule.found == Found::Asked) {
        let asked: Vec<_> = findings.iter().filter(|finding| finding.id == rule.id).collect();
        assert!(
            matches!(asked.as_slice(), [one] if one.mark == Mark::Ask && one.finding == rule.question),
            "{asked:?}"
        );
    }
    assert!(is_fit(&findings), "a question alone does not make it unfit");
}

#[test]
fn an_accepted_rule_is_noted_only() {
    let subject = subject(&deployment("", ", hostNetwork: true", ""));
    let rules = Rules::load().unwrap();
    assert!(!is_fit(&evaluate(&rules, &subject, &[])));
    let accepted = ["R14".to_owned(), "R22".to_owned()];
    let findings = evaluate(&rules, &subject, &accepted);
    assert!(is_fit(&findings));
    for id in accepted {
        let finding = findings.iter().find(|finding| finding.id == id).unwrap();
        assert!(finding.mark == Mark::Note && finding.finding.ends_with("(accepted)"), "{finding:?}");
    }
}
