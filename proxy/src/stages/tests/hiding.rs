//! The labels of the ring in answers about its resources, and in what is written without them.

use prost::Message;
use serde_json::{Value, json as value};

use super::{
    fencing::{DRAINING, Fenced, NOBODYS, OURS, THINGS},
    *,
};
use crate::{frames::behind_length, wire};

const OBJECT: &str = r#"{"metadata":{"name":"b","uid":"uid-b","labels":{"a":"b","s":"me"}},"d":"x"}"#;
const HIDDEN: &str = r#"{"metadata":{"name":"b","uid":"uid-b","labels":{"a":"b"         }}        }"#;
/// As client-go asks for built-in objects.
const EITHER: &str = "application/vnd.kubernetes.protobuf, */*";

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
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(EITHER));
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
            assert_eq!(headers[header::CONTENT_LENGTH], HeaderValue::from(OBJECT.len() + 1), "{uri}");
            let sent = lab.last().headers;
            assert_eq!(
                (&sent[header::ACCEPT], &sent[header::ACCEPT_ENCODING]),
                (&EITHER.parse().unwrap(), &"identity".parse().unwrap())
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
async fn a_client_that_accepts_yaml_alone_sees_them_and_is_counted() {
    let form = HeaderValue::from_static("application/yaml");
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
    assert_eq!(next("\" : \"me\"}}}\n").await, "            }}}\n");
    // A line that is whole does not wait for the next.
    assert_eq!(
        next("{\"type\":\"DELETED\",\"object\":{\"s\":\"x\"}}\n").await,
        "{\"type\":\"DELETED\",\"object\":{       }}\n"
    );
}

fn metadata(labels: &[(&str, &str)]) -> wire::AnyMetadata {
    let metadata = wire::Metadata {
        name: "b".into(),
        uid: "uid-b".into(),
        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..wire::Metadata::default()
    };
    wire::AnyMetadata { metadata: Some(metadata) }
}

fn labels_of(raw: &[u8]) -> Vec<String> {
    wire::AnyMetadata::decode(raw).unwrap().metadata.unwrap().labels.into_keys().collect()
}

#[tokio::test]
async fn answers_in_protobuf_have_no_labels_of_the_ring() {
    let object = metadata(&[("a", "b"), ("s", "me")]);
    let items = vec![object.encode_to_vec().into(), metadata(&[("s", "me"), ("d", "x")]).encode_to_vec().into()];
    let list = wire::wrap("v1", "ThingList", &wire::List { metadata: None, items });
    let object = wire::wrap("v1", "Thing", &object);
    let extension = wire::RawExtension { raw: object.clone() };
    let event = wire::WatchEvent { event_type: "ADDED".into(), object: Some(extension) }.encode_to_vec();
    let watch = behind_length(&event);
    for (uri, answer) in [
        ("/apis/x.io/v1/namespaces/a/things/b", &object),
        ("/apis/x.io/v1/things", &list),
        ("/apis/x.io/v1/things?watch=1", &watch),
    ] {
        let lab = Lab::hiding({
            let answer = answer.clone();
            move |_| {
                let length = HeaderValue::from(answer.len());
                let mut response = json(full(answer.clone()));
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
                response.headers_mut().insert(header::CONTENT_LENGTH, length);
                response
            }
        });
        let mut request = ask("GET", uri);
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(EITHER));
        let response = lab.send(request).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], PROTOBUF, "{uri}");
        assert_eq!(response.headers()[header::CONTENT_LENGTH], HeaderValue::from(answer.len()), "{uri}");
        let shown = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(shown.len(), answer.len(), "{uri}");
        let shown: Vec<Vec<String>> = if answer == &watch {
            let event = wire::WatchEvent::decode(shown.slice(4..)).unwrap();
            vec![labels_of(&wire::unwrap(&event.object.unwrap().raw).unwrap().raw)]
        } else if answer == &list {
            let list = wire::List::decode(wire::unwrap(&shown).unwrap().raw).unwrap();
            list.items.iter().map(|item| labels_of(item)).collect()
        } else {
            vec![labels_of(&wire::unwrap(&shown).unwrap().raw)]
        };
        let expected = if answer == &list { vec![vec!["a"], vec![]] } else { vec![vec!["a"]] };
        assert_eq!(shown, expected, "{uri}");
        assert_eq!(
            (&lab.last().headers[header::ACCEPT], lab.shared.metrics.were_unfiltered()),
            (&EITHER.parse().unwrap(), 0)
        );
    }
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
        let metadata = wire::Metadata {
            name: "b".into(),
            labels: [("a".into(), "b".into())].into(),
            resource_version: version.unwrap_or_default().into(),
            ..wire::Metadata::default()
        };
        wire::wrap("x.io/v1", "Thing", &wire::AnyMetadata { metadata: Some(metadata) })
    } else {
        value!({ "metadata": metadata }).to_string().into()
    };
    assert_eq!(fenced.write("PUT", uri, content_type, object).await, StatusCode::OK);
    let sent = fenced.lab.last();
    assert_eq!(sent.method, Method::PUT);
    if is_protobuf {
        let raw = wire::unwrap(&sent.body).unwrap().raw;
        return value!(wire::AnyMetadata::decode(raw).unwrap().metadata.unwrap().labels);
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
