//! What a controller sees of the ring's labels, which is nothing, and what becomes of them as it writes without.

use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use ringside_e2e::{
    control_plane::client_of,
    eventually::eventually,
    manifests, system,
    website::{Website, child},
};
use ringside_ring::RingLabels;

use crate::{
    labels::fixture::{DEADLINE, Fixture, Labelled},
    planes::Keeps,
    watch_bytes,
};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// As client-go asks for built-in objects.
const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";
/// It shows all that there is, and then a bookmark.
const WATCH: &str = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&\
    timeoutSeconds=60";
/// What the operator of the tests does not need: it patches.
const PUTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: puts, namespace: NAMESPACE}
rules:
- {apiGroups: ['', web.example.com], resources: [websites, configmaps], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: puts, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: puts}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: NAMESPACE}]
";
/// A shard that joins.
const NEWCOMER: &str = "shard-2";

/// What a controller gets of the API server through its proxy.
struct Controller {
    client: Client,
    admin_port: u16,
    labels: RingLabels,
}

impl Controller {
    async fn of(fixture: &Fixture, shard: &str) -> Self {
        let shard = fixture.system.shards().find(|it| it.name() == shard).unwrap();
        let client = client_of(&shard.kubeconfig()).await.unwrap();
        Self { client, admin_port: shard.admin_port(), labels: fixture.labels.clone() }
    }

    fn objects<K: Labelled>(&self, fixture: &Fixture) -> Api<K> {
        Api::namespaced(self.client.clone(), fixture.system.namespace())
    }

    fn request(target: &str, accept: &str) -> http::request::Builder {
        Request::get(target).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "gzip")
    }

    async fn get(&self, target: &str, accept: &str) -> (HeaderMap, Vec<u8>) {
        let request = Self::request(target, accept).body(Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{target} as {accept}");
        let headers = response.headers().clone();
        (headers, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    /// The watch up to the end of its first events.
    async fn watch(&self, target: &str, websocket: bool) -> Vec<u8> {
        let mut request = Self::request(target, EITHER);
        if websocket {
            request = request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::ORIGIN, "http://localhost")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
        }
        let response = self.client.send(request.body(Body::empty()).unwrap()).await.unwrap();
        let (seen, reading) = watch_bytes::read(response, websocket);
        let shown = eventually("the watch has shown all", DEADLINE, || async {
            let seen = seen.lock().await;
            if has(&seen, "k8s.io/initial-events-end") { Ok(seen.clone()) } else { Err("not yet".to_owned()) }
        });
        let shown = shown.await.unwrap();
        reading.abort();
        shown
    }

    /// Whether an answer has a label of the ring.
    fn sees_labels(&self, answer: &[u8]) -> bool {
        [&self.labels.shard, &self.labels.drain].iter().any(|key| has(answer, &format!("\"{key}\":")))
    }

    /// What a controller that copies the labels of an object makes of it.
    async fn copy(&self, fixture: &Fixture, name: &str) -> ConfigMap {
        let website: Website = self.objects(fixture).get(name).await.unwrap();
        let mut copy = child(&website, &format!("copy-{name}"));
        copy.data = Some([("labels".to_owned(), serde_json::to_string(website.labels()).unwrap())].into());
        let apply = PatchParams::apply("copies").force();
        self.objects::<ConfigMap>(fixture).patch(&copy.name_any(), &apply, &Patch::Apply(&copy)).await.unwrap()
    }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|it| it == text.as_bytes())
}

pub(crate) async fn no_answer_shows_labels_of_the_ring() {
    let fixture = Fixture::on(Keeps::Both, "labels-hidden").await;
    fixture.until_children_follow().await;
    let name = "site-00000";
    let shard = fixture.owner(&fixture.websites().get(name).await.unwrap()).unwrap();
    let controller = Controller::of(&fixture, &shard).await;
    let namespace = fixture.system.namespace();
    let websites = format!("/apis/web.example.com/v1/namespaces/{namespace}/websites");
    let children = format!("/api/v1/namespaces/{namespace}/configmaps");
    for (target, forms) in [
        (&websites, &[JSON, TABLE, METADATA_LIST][..]),
        (&children, &[JSON, TABLE, METADATA_LIST, EITHER]),
        (&format!("{websites}/{name}"), &[JSON, TABLE, METADATA]),
        (&format!("{websites}/{name}/status"), &[JSON]),
        (&format!("{websites}?pretty=true"), &[JSON]),
    ] {
        for form in forms {
            let (headers, answer) = controller.get(target, form).await;
            assert!(has(&answer, name) && !controller.sees_labels(&answer), "{target} as {form}");
            assert!(headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(JSON), "{target} as {form}");
        }
    }
    for target in [&websites, &children] {
        for websocket in [false, true] {
            let shown = controller.watch(&format!("{target}?{WATCH}"), websocket).await;
            assert!(has(&shown, name) && !controller.sees_labels(&shown), "{target}, WebSocket: {websocket}");
        }
    }
    // What is in protobuf alone passes, and is counted.
    let (headers, answer) = controller.get(&children, PROTOBUF).await;
    assert_eq!(headers[header::CONTENT_TYPE], PROTOBUF);
    assert!(has(&answer, &fixture.labels.shard));
    let metrics = system::metrics(controller.admin_port).await.unwrap();
    let counted = metrics.lines().find(|line| line.starts_with("ringside_proxy_unfiltered_requests_total{"));
    assert!(counted.is_some_and(|line| line.ends_with(" 1")), "{metrics}");
    fixture.assert_nobody_lost_anything();
}

/// As of a pod template: each change of it would be a roll-out of the workload.
pub(crate) async fn a_copy_of_labels_stays_the_same_as_its_object_moves() {
    let mut fixture = Fixture::on(Keeps::Both, "labels-in-children").await;
    for shard in ["shard-0", "shard-1"] {
        let controller = Controller::of(&fixture, shard).await;
        for website in controller.objects::<Website>(&fixture).list(&ListParams::default()).await.unwrap() {
            controller.copy(&fixture, &website.name_any()).await;
        }
    }
    fixture.system.add_shard(NEWCOMER).await.unwrap();
    fixture.system.until_balanced(DEADLINE).await.unwrap();
    fixture.system.until_settled(DEADLINE).await.unwrap();
    let controller = Controller::of(&fixture, NEWCOMER).await;
    let moved = controller.objects::<Website>(&fixture).list(&ListParams::default()).await.unwrap();
    assert!(!moved.items.is_empty());
    for name in moved.iter().map(kube::ResourceExt::name_any) {
        let before = eventually("the copy has moved, too", DEADLINE, || async {
            let copy: ConfigMap = fixture.objects().get(&format!("copy-{name}")).await.map_err(|it| it.to_string())?;
            let is_with = fixture.owner(&copy).as_deref() == Some(NEWCOMER);
            if is_with { Ok(copy) } else { Err(format!("{:?}", copy.metadata.labels)) }
        });
        let before = before.await.unwrap();
        let after = controller.copy(&fixture, &name).await;
        assert_eq!((after.data, after.metadata.resource_version), (before.data, before.metadata.resource_version));
    }
}

/// A website and a child that their controller has read, and writes back.
pub(crate) async fn a_put_keeps_them(fixture: &Fixture) {
    let roles = PUTS.replace("NAMESPACE", fixture.system.namespace());
    manifests::apply(&fixture.client(), &manifests::parse(&roles).unwrap()).await.unwrap();
    kept_by_put::<Website>(fixture, "site-00021").await;
}

/// The same of a child.
pub(crate) async fn a_put_of_a_child_keeps_them(fixture: &Fixture) {
    fixture.until_children_follow().await;
    kept_by_put::<ConfigMap>(fixture, "site-00022").await;
}

async fn kept_by_put<K: Labelled + serde::Serialize>(fixture: &Fixture, name: &str) {
    let owner = fixture.owner(&fixture.objects::<K>().get(name).await.unwrap()).unwrap();
    let objects: Api<K> = Controller::of(fixture, &owner).await.objects(fixture);
    let put = eventually("the controller replaces the object", DEADLINE, || async {
        let mut read = objects.get(name).await.map_err(|error| error.to_string())?;
        assert!(!read.labels().contains_key(&fixture.labels.shard));
        read.annotations_mut().insert("example.com/replaced".to_owned(), "yes".to_owned());
        objects.replace(name, &PostParams::default(), &read).await.map_err(|error| error.to_string())
    });
    assert!(!put.await.unwrap().labels().contains_key(&fixture.labels.shard));
    let after = fixture.objects::<K>().get(name).await.unwrap();
    assert!(after.annotations().contains_key("example.com/replaced"));
    assert_eq!(fixture.owner(&after), Some(owner));
}
