//! The labels of the ring in answers about its resources, and in what is written without them.

use prost::Message;
use serde_json::{Value, json as value};

use super::{
    fencing::{DRAINING, Fenced, NOBODYS, OURS, THINGS},
    *,
};
use crate::wire;

const OBJECT: &str = r#"{"metadata":{"name":"b","uid":"uid-b","labels":{"a":"b","s":"me"}},"d":"x"}"#;
const HIDDEN: &str = r#"{"metadata":{"name":"b","uid":"uid-b","labels":{"a":"b"}}}"#;

/// What an API server answers so in this form, and the answer's headers.
async fn answered(uri: &str, form: &'static str) -> (String, HeaderMap, Lab) {
    let lab = Lab::hiding(move |seen| {
        if seen.uri.query().is_some_and(|query| query.contains("fieldSelector")) {
            return json(full(format!(r#"{{"items":[{OBJECT}]}}"#)));
        }
        let mut response = json(full(format!("{OBJECT}\n")));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
        response.headers_mut().insert(header::CONTENT_LENGTH, (OBJECT.len() + 1).into());
        response
    });
    let mut request = ask("GET", uri);
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/vnd.kubernetes.protobuf, */*"));
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let response = lab.send(request).await;
    let headers = response.headers().clone();
    let body = text(response).await;
    (body.trim_end().to_owned(), headers, lab)
}

#[tokio::test]
async fn answers_about_the_rings_resources_have_no_labels_of_the_ring() {
    for uri in
        ["/apis/x.io/v1/things", "/apis/x.io/v1/namespaces/a/things/b", "/apis/x.io/v1/namespaces/a/things/b/status"]
    {
        for form in ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"] {
            let (body, headers, lab) = answered(uri, form).await;
            assert_eq!(body, HIDDEN, "{uri} {form}");
            assert!(!headers.contains_key(header::CONTENT_LENGTH), "{uri}");
            let sent = lab.last().headers;
            assert_eq!(
                (&sent[header::ACCEPT], &sent[header::ACCEPT_ENCODING]),
                (&"*/*".parse().unwrap(), &"identity".parse().unwrap())
            );
        }
    }
}

#[tokio::test]
async fn everything_else_passes_as_it_is() {
    for (uri, form) in [
        ("/api/v1/pods", "application/json"),
        ("/apis/x.io/v1", "application/json"),
        ("/apis/x.io/v1/namespaces/a/things/b/proxy/x", "application/json"),
        ("/apis/x.io/v1/namespaces/a/things/b/log", "text/plain"),
    ] {
        assert_eq!(answered(uri, form).await.0, OBJECT, "{uri}");
    }
}

#[tokio::test]
async fn a_client_that_accepts_no_json_sees_them_and_is_counted() {
    let form = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
    let of = form.clone();
    let lab = Lab::hiding(move |_| {
        let mut response = json(full(OBJECT));
        response.headers_mut().insert(header::CONTENT_TYPE, of.clone());
        response
    });
    let mut request = ask("GET", "/apis/x.io/v1/things");
    request.headers_mut().insert(header::ACCEPT, form.clone());
    assert_eq!(text(lab.send(request).await).await, OBJECT);
    assert_eq!((&lab.last().headers[header::ACCEPT], lab.shared.metrics.were_unfiltered()), (&form, 1));
    lab.get("/apis/x.io/v1/things").await;
    assert_eq!(lab.shared.metrics.were_unfiltered(), 1);
}

#[tokio::test]
async fn a_label_cut_between_two_pieces_does_not_pass_and_the_rest_comes_at_once() {
    let (sender, respond) = streaming();
    let lab = Lab::hiding(respond);
    let mut body = lab.get("/apis/x.io/v1/things?watch=1").await.into_body();
    let mut next = async |text| {
        sender.unbounded_send(text).unwrap();
        String::from_utf8(body.frame().await.unwrap().unwrap().into_data().unwrap().to_vec()).unwrap()
    };
    assert_eq!(
        next(r#"{"type":"ADDED","object":{"labels":{"a":"b", "s"#).await,
        r#"{"type":"ADDED","object":{"labels":{"a":"b""#
    );
    assert_eq!(next("\" : \"me\"}}}\n").await, "}}}\n");
    // A line that is whole does not wait for the next.
    assert_eq!(
        next("{\"type\":\"DELETED\",\"object\":{\"s\":\"x\"}}\n").await,
        "{\"type\":\"DELETED\",\"object\":{}}\n"
    );
}

/// The labels that a PUT of thing `b` has as it reaches the API server. It names a version, and has one label.
async fn put(fenced: &Fenced, uri: &str, content_type: &str) -> Value {
    put_of(fenced, uri, content_type, Some("7")).await
}

async fn put_of(fenced: &Fenced, uri: &str, content_type: &str, version: Option<&str>) -> Value {
    let mut metadata = value!({"name": "b", "labels": {"a": "b"}});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let is_protobuf = content_type == PROTOBUF;
    let object = if is_protobuf {
        let metadata = wire::Ownership {
            name: Some("b".into()),
            labels: [("a".into(), "b".into())].into(),
            resource_version: version.map(str::to_owned),
            ..wire::Ownership::default()
        };
        wire::wrap("x.io/v1", "Thing", &wire::OwnedObject { metadata: Some(metadata) })
    } else {
        value!({ "metadata": metadata }).to_string().into()
    };
    assert_eq!(fenced.write("PUT", uri, content_type, object).await, StatusCode::OK);
    let sent = fenced.lab.last();
    assert_eq!(sent.method, Method::PUT);
    if is_protobuf {
        let raw = wire::unwrap(&sent.body).unwrap().raw;
        return value!(wire::OwnedObject::decode(raw).unwrap().metadata.unwrap().labels);
    }
    serde_json::from_slice::<Value>(&sent.body).unwrap()["metadata"]["labels"].clone()
}

#[tokio::test]
async fn a_put_of_what_is_ours_gets_back_the_label_that_its_writer_does_not_see() {
    let (bare, whole) = (value!({"a": "b"}), value!({"a": "b", "s": "me"}));
    let [thing, status, scale] = ["", "/status", "/scale"].map(|subresource| format!("{THINGS}/b{subresource}"));
    for (labels, uri, content_type, expected) in [
        (OURS, &thing, "application/json", &whole),
        (OURS, &status, "application/json", &whole),
        (OURS, &scale, "application/json", &bare),
        (OURS, &thing, PROTOBUF, &whole),
        (OURS, &status, PROTOBUF, &whole),
        (OURS, &scale, PROTOBUF, &bare),
        (OURS, &thing, "application/yaml", &bare),
        (NOBODYS, &thing, "application/json", &bare),
        (NOBODYS, &thing, PROTOBUF, &bare),
    ] {
        let fenced = Fenced::hiding();
        fenced.thing(labels);
        assert_eq!(&put(&fenced, uri, content_type).await, expected, "{labels:?} {uri} {content_type}");
    }
    for content_type in ["application/json", PROTOBUF] {
        // Without any label it would count as released, before it is.
        let draining = Fenced::hiding();
        draining.thing(DRAINING);
        let known = draining.drained();
        assert_eq!(put(&draining, &thing, content_type).await, whole);
        drop(known);
        let shown = Fenced::new();
        shown.thing(OURS);
        assert_eq!(put(&shown, &thing, content_type).await, bare);
    }
}

#[tokio::test]
async fn a_put_that_replaces_any_version_comes_as_it_is() {
    for content_type in ["application/json", PROTOBUF] {
        for version in [None, Some(""), Some("0")] {
            let fenced = Fenced::hiding();
            fenced.thing(OURS);
            let labels = put_of(&fenced, &format!("{THINGS}/b"), content_type, version).await;
            assert_eq!(labels, value!({"a": "b"}), "{content_type} {version:?}");
        }
    }
}
