//! What a controller sees of the ring's labels, which is nothing, and what becomes of them as it writes without.

use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt as _, api::PostParams, client::Body};
use ringside_e2e::{control_plane::client_of, eventually::eventually, manifests, website::Website};

use crate::{
    labels::fixture::{DEADLINE, Fixture},
    planes::Keeps,
    watch_bytes,
};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const METADATA_LIST_IN_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
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
- {apiGroups: [web.example.com], resources: [websites], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: puts, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: puts}
subjects: [{kind: ServiceAccount, name: website-controller, namespace: NAMESPACE}]
";

/// A client of the proxy of this shard.
async fn client_through(fixture: &Fixture, shard: &str) -> Client {
    let shard = fixture.system.shards().find(|it| it.name() == shard).unwrap();
    client_of(&shard.kubeconfig()).await.unwrap()
}

fn request(target: &str, accept: &str) -> http::request::Builder {
    Request::get(target).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "gzip")
}

/// The watch up to the end of its first events.
async fn watch(client: &Client, target: &str) -> Vec<u8> {
    let response = client.send(request(target, EITHER).body(Body::empty()).unwrap()).await.unwrap();
    let (seen, reading) = watch_bytes::read(response, false);
    let shown = eventually("the watch has shown all", DEADLINE, || async {
        let seen = seen.lock().await;
        if has(&seen, "k8s.io/initial-events-end") { Ok(seen.clone()) } else { Err("not yet".to_owned()) }
    });
    let shown = shown.await.unwrap();
    reading.abort();
    shown
}

fn has(bytes: &[u8], part: impl AsRef<[u8]>) -> bool {
    bytes.windows(part.as_ref().len()).any(|it| it == part.as_ref())
}

pub(crate) async fn no_answer_shows_labels_of_the_ring() {
    let fixture = Fixture::on(Keeps::Both, "labels-hidden").await;
    fixture.until_children_follow().await;
    let name = "site-00000";
    let shard = fixture.until_owned::<Website>("nothing", name).await;
    let client = client_through(&fixture, &shard).await;
    let sees_labels = |answer: &[u8]| {
        [&fixture.labels.shard, &fixture.labels.drain].iter().any(|key| {
            // As it stands in JSON, and as it does in protobuf, behind its length.
            let length = u8::try_from(key.len()).unwrap();
            let in_protobuf = [&[0x0a, length][..], key.as_bytes()].concat();
            has(answer, format!("\"{key}\":")) || has(answer, in_protobuf)
        })
    };
    let namespace = fixture.system.namespace();
    let websites = format!("/apis/web.example.com/v1/namespaces/{namespace}/websites");
    let children = format!("/api/v1/namespaces/{namespace}/configmaps");
    for (target, forms) in [
        (&websites, &[JSON, TABLE, METADATA_LIST, METADATA_LIST_IN_PROTOBUF][..]),
        (&children, &[JSON, TABLE, METADATA_LIST, METADATA_LIST_IN_PROTOBUF, EITHER]),
        (&format!("{websites}/{name}"), &[JSON, TABLE, METADATA]),
        (&format!("{websites}/{name}/status"), &[JSON]),
        (&format!("{websites}?pretty=true"), &[JSON]),
    ] {
        for form in forms {
            let response = client.send(request(target, form).body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{target} as {form}");
            let answered = if form.starts_with(PROTOBUF) { PROTOBUF } else { JSON };
            assert!(
                response.headers()[header::CONTENT_TYPE].to_str().unwrap().starts_with(answered),
                "{target} as {form}"
            );
            let answer = response.into_body().collect().await.unwrap().to_bytes();
            assert!(has(&answer, name) && !sees_labels(&answer), "{target} as {form}");
        }
    }
    for target in [&websites, &children] {
        let shown = watch(&client, &format!("{target}?{WATCH}")).await;
        assert!(has(&shown, name) && !sees_labels(&shown), "{target}");
    }
}

/// A website that its controller has read, and writes back.
pub(crate) async fn a_put_keeps_them(fixture: &Fixture) {
    let (roles, name) = (PUTS.replace("NAMESPACE", fixture.system.namespace()), "site-00021");
    manifests::apply(&fixture.client(), &manifests::parse(&roles).unwrap()).await.unwrap();
    let owner = fixture.until_owned::<Website>("nothing", name).await;
    let client = client_through(fixture, &owner).await;
    let objects: Api<Website> = Api::namespaced(client, fixture.system.namespace());
    let put = eventually("the controller replaces the object", DEADLINE, || async {
        let mut read = objects.get(name).await.map_err(|error| error.to_string())?;
        assert!(!read.labels().contains_key(&fixture.labels.shard));
        read.annotations_mut().insert("example.com/replaced".to_owned(), "yes".to_owned());
        objects.replace(name, &PostParams::default(), &read).await.map_err(|error| error.to_string())
    });
    assert!(!put.await.unwrap().labels().contains_key(&fixture.labels.shard));
    let after = fixture.websites().get(name).await.unwrap();
    assert!(after.annotations().contains_key("example.com/replaced"));
    assert_eq!(fixture.owner(&after), Some(owner));
    a_put_in_protobuf_keeps_them(fixture, name).await;
}

/// A child that is written back as it was read: the API server skips the field that stands for the label.
async fn a_put_in_protobuf_keeps_them(fixture: &Fixture, name: &str) {
    let owner = fixture.until_owned::<ConfigMap>("nothing", name).await;
    let client = client_through(fixture, &owner).await;
    let target = format!("/api/v1/namespaces/{}/configmaps/{name}", fixture.system.namespace());
    let put = eventually("the controller replaces the child", DEADLINE, || async {
        let read = client.send(request(&target, PROTOBUF).body(Body::empty()).unwrap()).await.unwrap();
        let read = read.into_body().collect().await.unwrap().to_bytes();
        assert!(has(&read, [0xc2, 0x3e]) && !has(&read, &owner), "{}", read.escape_ascii());
        let put = Request::put(&target).header(header::CONTENT_TYPE, PROTOBUF).header(header::ACCEPT, PROTOBUF);
        let answer = client.send(put.body(Body::from(read.to_vec())).unwrap()).await.unwrap();
        let status = answer.status();
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", answer.escape_ascii()));
        }
        assert!(!has(&answer, &owner), "{}", answer.escape_ascii());
        Ok(())
    });
    put.await.unwrap();
    assert_eq!(fixture.owner(&fixture.objects::<ConfigMap>().get(name).await.unwrap()), Some(owner));
}
