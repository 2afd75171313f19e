#![allow(clippy::unwrap_used)]

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;

use super::*;
use crate::{
    fixtures::FakeApi,
    injector::{DISABLED, LABEL, ring::RING},
    namespaces,
};

fn api(minor: &str) -> FakeApi {
    let api = FakeApi::default();
    api.put("/version", version(minor));
    api
}

fn version(minor: &str) -> Value {
    json!({"major": "1", "minor": minor, "gitVersion": "v", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
}

fn pod(metadata: &Value) -> Value {
    json!({"metadata": metadata, "spec": {"serviceAccountName": "operator", "containers": [{"name": "manager"}]}})
}

async fn answered(api: &FakeApi, rings: &str, pod: &Value) -> Value {
    let namespaces = namespaces::tests::annotated("operators", RINGS, rings);
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "operators", "operation": "CREATE", "object": pod}});
    let injector = Injector::new(api.client(), namespaces, ("proxy:1", Default::default()));
    let answer = injector.answer(&serde_json::to_vec(&review).unwrap()).await.unwrap();
    serde_json::to_value(answer).unwrap()["response"].clone()
}

/// The pod as the API server makes it by the answer.
fn patched(pod: &Value, answer: &Value) -> Value {
    let patch = STANDARD.decode(answer["patch"].as_str().unwrap()).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &serde_json::from_slice::<Patch>(&patch).unwrap()).unwrap();
    patched
}

fn args(pod: &Value) -> &Value {
    &pod["spec"]["initContainers"][0]["args"]
}

#[tokio::test]
async fn pod_gets_the_proxy_of_the_ring_that_it_or_its_namespace_names() {
    let api = api("33");
    for (metadata, rings, ring) in [
        (json!({"labels": {LABEL: "websites"}}), "operator=other", "websites"),
        (
            json!({"labels": {LABEL: "websites"}, "annotations": {RING: "controllerring/websites"}}),
            "",
            "controllerring/websites",
        ),
        (json!({"annotations": {RING: "websites"}}), "operator=other", "websites"),
        (json!({}), "another=other, operator=websites", "websites"),
    ] {
        let pod = pod(&metadata);
        let made = patched(&pod, &answered(&api, rings, &pod).await);
        assert_eq!(args(&made), &json!([format!("--ring={ring}")]));
        assert_eq!(made["spec"]["initContainers"][0]["image"], "proxy:1");
        let again = answered(&api, rings, &made).await;
        assert_eq!((again.get("patch"), &again["allowed"]), (None, &json!(true)), "it has it already");
    }
    for (metadata, rings) in
        [(json!({}), ""), (json!({}), "another=other"), (json!({"labels": {LABEL: DISABLED}}), "operator=websites")]
    {
        let answer = answered(&api, rings, &pod(&metadata)).await;
        assert_eq!(answer, json!({"uid": "u", "allowed": true}));
    }
}

#[tokio::test]
async fn pod_says_how() {
    let annotations = json!({OPTIONS: "--drain-grace=9s  --controller=always", CONTAINERS: "manager",
        REQUESTS: "cpu=10m", LIMITS: "cpu=500m"});
    let pod = pod(&json!({"labels": {LABEL: "websites"}, "annotations": annotations}));
    let made = patched(&pod, &answered(&api("33"), "", &pod).await);
    assert_eq!(args(&made), &json!(["--ring=websites", "--drain-grace=9s", "--controller=always"]));
    let expected = json!({"requests": {"cpu": "10m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}});
    assert_eq!(made["spec"]["initContainers"][0]["resources"], expected);
    let older = patched(&pod, &answered(&api("28"), "", &pod).await);
    assert_eq!(older["spec"]["containers"][1]["name"], ringside_inject::CONTAINER);
}

#[tokio::test]
async fn pod_that_can_not_have_the_proxy_is_refused_with_the_reason() {
    let labelled = |annotations: Value| pod(&json!({"labels": {LABEL: "websites"}, "annotations": annotations}));
    let silent = api("33");
    silent.intercept(|asked, _| (asked.path == "/version").then_some(StatusCode::SERVICE_UNAVAILABLE));
    for (api, pod, told) in [
        (api("33"), labelled(json!({CONTAINERS: "controller"})), "no container 'controller': name one of manager"),
        (api("33"), pod(&json!({"annotations": {RING: "A_B"}})), "A_B"),
        (api("33"), labelled(json!({LIMITS: "memory"})), "ringside.dev/proxy-limits: 'memory' is no amount"),
        (silent, labelled(json!({})), "can't read the API server's version"),
    ] {
        let answer = answered(&api, "", &pod).await;
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(answer["allowed"] == false && message.contains(told), "{answer}");
        assert!(message.starts_with("ringside-sharder: can't add the proxy of ring"), "{message}");
    }
}

#[tokio::test]
async fn pod_that_asks_for_a_plain_container_gets_one() {
    let pod = pod(&json!({"labels": {LABEL: "websites"}, "annotations": {PLAIN: "true"}}));
    let made = patched(&pod, &answered(&api("33"), "", &pod).await);
    assert_eq!(made["spec"]["containers"][1]["name"], ringside_inject::CONTAINER);
}

#[tokio::test(start_paused = true)]
async fn upgraded_server_is_noticed_and_one_that_does_not_answer_keeps_its_version() {
    let api = api("28");
    let injector = Injector::new(api.client(), namespaces::tests::known(&[]).0, ("proxy", Resources::default()));
    assert_eq!(injector.sidecar().await, Ok(Sidecar::Plain));
    api.put("/version", version("29"));
    assert_eq!(injector.sidecar().await, Ok(Sidecar::Plain), "it is remembered");
    tokio::time::advance(REMEMBERED).await;
    assert_eq!(injector.sidecar().await, Ok(Sidecar::Native));
    api.intercept(|asked, _| (asked.path == "/version").then_some(StatusCode::SERVICE_UNAVAILABLE));
    tokio::time::advance(REMEMBERED).await;
    assert_eq!(injector.sidecar().await, Ok(Sidecar::Native));
}
