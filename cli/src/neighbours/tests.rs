#![allow(clippy::unwrap_used)]

use std::{collections::VecDeque, sync::Mutex};

use kube::client::Body;
use ringside_inject::{Injection, Resources, Sidecar, TOKEN_VOLUME, VOLUME, inject};

use super::{interference::Refuser, *};

fn workload() -> Value {
    let mut workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}}});
    inject(&mut workload, &injection()).unwrap();
    workload
}

fn injection() -> Injection {
    Injection {
        ring: "websites".parse().unwrap(),
        image: "proxy".to_owned(),
        containers: Vec::new(),
        options: Vec::new(),
        ports: None,
        metrics: true,
        sidecar: Sidecar::Native,
        resources: Resources::default(),
    }
}

/// What an API server does with the Pods that it is asked for, one after the other.
type Admission = Box<dyn FnMut(Value) -> Result<Value, (u16, &'static str)> + Send>;

/// The neighbours that a workload has beside such an API server, and the Pods that it was asked for.
async fn asked(workload: &Value, admissions: Vec<Admission>) -> (Neighbours, usize) {
    let script = std::sync::Arc::new(Mutex::new((VecDeque::from(admissions), 0)));
    let shared = std::sync::Arc::clone(&script);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let script = std::sync::Arc::clone(&shared);
        async move {
            let (parts, body) = request.into_parts();
            if parts.uri.path().ends_with("mutatingwebhookconfigurations") {
                let rules = json!([{"operations": ["CREATE"], "resources": ["pods"]}]);
                let of = |name: &str| {
                    json!({"metadata": {"name": name}, "webhooks": [{"name": "w", "rules": rules,
                        "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]})
                };
                let list = json!({"kind": "List", "metadata": {}, "items": [of("ringside-injector"), of("z-old")]});
                return Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(
                    list.to_string().into_bytes(),
                )));
            }
            assert!(parts.uri.query().unwrap().contains("dryRun=All") && parts.method == "POST", "{:?}", parts.uri);
            let pod = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
            let admit = {
                let mut script = script.lock().unwrap();
                script.1 += 1;
                script.0.pop_front()
            };
            let (code, answer) = match admit.expect("one more Pod than expected")(pod) {
                Ok(pod) => (201, pod),
                Err((code, message)) => (
                    code,
                    json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "x"}),
                ),
            };
            let mut response = http::Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok(response)
        }
    });
    let found = ask(&Client::new(service, "default"), "default", workload).await;
    let count = script.lock().unwrap().1;
    (found, count)
}

fn admits() -> Admission {
    Box::new(Ok)
}

fn refuses(code: u16, message: &'static str) -> Admission {
    Box::new(move |_| Err((code, message)))
}

/// A webhook with old types.
fn drops(mut pod: Value) -> Value {
    let containers = pod.pointer_mut("/spec/initContainers").and_then(Value::as_array_mut).unwrap();
    containers.iter_mut().for_each(|container| drop(container.as_object_mut().unwrap().remove("restartPolicy")));
    pod
}

#[tokio::test]
async fn pod_that_comes_back_as_it_was_sent_has_no_neighbours_that_interfere() {
    assert_eq!(asked(&workload(), vec![admits()]).await, (Neighbours::default(), 1));
}

#[tokio::test]
async fn webhook_that_drops_restart_policy_is_named_behind_the_refusal_of_probes_and_hooks() {
    let invalid = (422, "Pod \"web-\" is invalid: spec.initContainers[0].lifecycle: Forbidden");
    let of_an_init_container = |pod: &Value| {
        let fields = ["startupProbe", "readinessProbe", "livenessProbe", "lifecycle"];
        fields.iter().filter(|field| !pod["spec"]["initContainers"][0][*field].is_null()).count()
    };
    let refuses: Admission = Box::new(move |pod| {
        assert_eq!(of_an_init_container(&pod), 4, "all that it may not have");
        Err(invalid)
    });
    let admits_bare: Admission =
        Box::new(move |pod| if of_an_init_container(&pod) == 0 { Ok(drops(pod)) } else { Err(invalid) });
    let (neighbours, count) = asked(&workload(), vec![refuses, admits(), admits_bare]).await;
    assert_eq!((neighbours.found.len(), count), (1, 3));
    let told = neighbours.found[0].to_string();
    assert!(told.contains("a webhook of z-old drops") && told.contains("--plain-container"), "{told}");
    assert!(told.contains("injector.enabled"), "{told}");
}

#[tokio::test]
async fn refusal_names_its_cause_and_the_remedy() {
    for (message, by, parts) in [
        (
            "pods \"web-\" is forbidden: failed quota: q: must specify limits.cpu,limits.memory for: ringside-proxy",
            Refuser::QuotaWithoutAmount {
                quota: "q".to_owned(),
                counts: vec!["limits.cpu".to_owned(), "limits.memory".to_owned()],
            },
            "ResourceQuota q|--proxy-requests=cpu=50m,memory=128Mi --proxy-limits=cpu=500m,memory=128Mi|ringside.dev/proxy-limits",
        ),
        (
            "pods \"web-\" is forbidden: exceeded quota: q, requested: requests.memory=160Mi, used: requests.memory=1Gi, limited: x",
            Refuser::QuotaExceeded { quota: "q".to_owned() },
            "ResourceQuota q|requested: requests.memory=160Mi|Raise the quota|\"memory\":\"128Mi\"",
        ),
        (
            "pods \"web-\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 128Mi",
            Refuser::LimitRange,
            "a LimitRange|usage per Container is 64Mi|--proxy-limits",
        ),
        (
            "pods \"web-\" is forbidden: memory max limit to request ratio per Container is 4, but provided ratio is 8.000000",
            Refuser::LimitRange,
            "ratio per Container is 4|--proxy-requests",
        ),
        ("admission webhook \"p.example\" denied the request: no", Refuser::Admission, "p.example|Exempt"),
    ] {
        let refusals = vec![refuses(403, message), admits(), refuses(403, message)];
        let (neighbours, _) = asked(&workload(), refusals).await;
        let [found] = &neighbours.found[..] else { panic!("{neighbours:?}") };
        let told = found.to_string();
        assert!(parts.split('|').all(|part| told.contains(part)), "{told}");
        assert!(matches!(found, Interference::Refused { by: it, .. } if *it == by), "{found:?}");
    }
}

#[tokio::test]
async fn what_refuses_the_workload_already_is_no_neighbour_of_the_sidecar() {
    let message = "pods \"web-\" is forbidden: error looking up service account default/web";
    let without: Admission = Box::new(move |pod| {
        assert_eq!(
            (containers(&pod).count(), &pod["metadata"]["labels"]["ringside.dev/inject"]),
            (1, &json!("disabled"))
        );
        Err((403, message))
    });
    let (neighbours, count) = asked(&workload(), vec![refuses(403, message), without]).await;
    assert!(
        count == 2 && neighbours.found.is_empty() && neighbours.notes[0].contains("service account"),
        "{neighbours:?}"
    );
    let forbidden = refuses(403, "pods is forbidden: User \"jane\" cannot create resource \"pods\" in API group \"\"");
    let (neighbours, _) = asked(&workload(), vec![forbidden]).await;
    assert!(neighbours.found.is_empty() && neighbours.notes[0].contains("missing permission"), "{neighbours:?}");
}

#[test]
fn container_of_another_injector_with_the_proxys_token_is_told_with_its_remedy() {
    let sent = pod_of(&workload()).unwrap();
    let with = |name: &str, volume: &str| {
        let mut back = sent.clone();
        let mount = json!({"name": volume, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
        back["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": name, "volumeMounts": [mount]}));
        compare(&sent, &back, &[])
    };
    assert_eq!(with("vault-agent", TOKEN_VOLUME), [], "the pod's own token");
    for (name, remedy) in [
        ("vault-agent", "vault.hashicorp.com/agent-service-account-token-volume-name: ringside-token"),
        ("kuma-sidecar", "kuma.io/service-account-token-volume: ringside-token"),
        ("linkerd-proxy", "use the injector"),
    ] {
        let [found] = &with(name, VOLUME)[..] else { panic!("{name}") };
        assert!(found.to_string().contains(remedy) && found.finding().contains(name), "{found}");
    }
    let mut without = sent.clone();
    without["spec"]["initContainers"] = json!([]);
    assert!(matches!(compare(&sent, &without, &[])[..], [Interference::NoSidecar { .. }]));
}

#[test]
fn pod_of_a_stateful_set_has_its_claims() {
    let mut set = workload();
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
    let pod = pod_of(&set).unwrap();
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["persistentVolumeClaim"]["claimName"] == "data"));
}
