//! Reads and writes of objects by name.

use http_body_util::BodyExt;
use prost::Message;

use super::*;
use crate::policy::Policy;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A get of the thing in a form, of an API server that answers so.
async fn read(uri: &str, form: &str, body: impl Into<Bytes>) -> Response<Body> {
    let (form, body) = (form.to_owned(), body.into());
    let lab = Lab::new(move |seen| {
        if seen.uri.query().is_some_and(|query| query.contains("fieldSelector")) {
            let metadata = metadata("b", OTHERS, None);
            return json(full(value!({"items": [{"metadata": metadata}]}).to_string()));
        }
        let mut response = json(full(body.clone()));
        response.headers_mut().insert(header::CONTENT_TYPE, form.parse().unwrap());
        response
    });
    Fenced::over(lab, Objects::default()).lab.get(uri).await
}

fn message(labels: Labels) -> Bytes {
    let pairs = [("s", labels.0), ("d", labels.1)];
    let labels = pairs.into_iter().filter_map(|(key, it)| Some((key.to_owned(), it?.to_owned()))).collect();
    let metadata = wire::Metadata { labels, uid: "uid-b".into(), ..wire::Metadata::default() };
    wire::wrap("x.io/v1", "Thing", &wire::AnyMetadata { metadata: Some(metadata) })
}

/// A namespace lies in none, though its path looks as if it lay in itself.
#[tokio::test]
async fn a_namespace_is_fenced_as_any_other_object() {
    let lab = Lab::new(|seen| match seen.uri.path() {
        "/api/v1/namespaces" => {
            let metadata = value!({"name": "b", "uid": "uid-b", "labels": {"s": "other"}});
            json(full(value!({"items": [{"metadata": metadata}]}).to_string()))
        }
        "/api/v1/namespaces/b/namespaces" => {
            let mut unknown = json(full("404 page not found"));
            *unknown.status_mut() = StatusCode::NOT_FOUND;
            unknown
        }
        _ => ok(),
    });
    lab.shared
        .knowledge
        .send_replace(sharding(&[GroupResource { group: String::new(), resource: "namespaces".into() }]));
    for (method, path) in [("DELETE", "b"), ("PATCH", "b"), ("PATCH", "b/status"), ("PUT", "b/finalize")] {
        let mut request = ask(method, &format!("/api/v1/namespaces/{path}")).map(|_| full("{}"));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
        assert_eq!(lab.send(request).await.status(), 409, "{method} {path}");
    }
}

/// Its body would have to be read for the Pod that it is about.
#[tokio::test]
async fn a_binding_that_does_not_name_its_pod_in_the_path_is_refused_where_pods_are_the_rings() {
    let lab = Lab::new(|_| ok());
    for (resource, status) in [("pods", 403), ("configmaps", 200)] {
        let sharded = GroupResource { group: String::new(), resource: resource.into() };
        lab.shared.knowledge.send_replace(sharding(&[sharded]));
        let binding = ask("POST", "/api/v1/namespaces/default/bindings").map(|_| full("{}"));
        assert_eq!(lab.send(binding).await.status(), status, "{resource}");
    }
}

#[tokio::test]
async fn what_a_get_shows_to_be_anothers_is_not_known_for_ours_any_more() {
    let fenced = Fenced::new();
    let uri = format!("{THINGS}/b");
    let patch = async || fenced.write("PATCH", &uri, "application/merge-patch+json", "{}").await;
    fenced.thing(OURS);
    assert_eq!((patch().await, patch().await, fenced.questions()), (StatusCode::OK, StatusCode::OK, 1));
    // As a child moves, and what a user labels by hand: without a drain.
    fenced.thing(OTHERS);
    assert_eq!(fenced.status("GET", &uri).await, 404);
    assert_eq!(patch().await, 409);
}

#[tokio::test]
async fn a_get_by_name_is_decided_by_the_labels_in_the_answer() {
    let uri = format!("{THINGS}/b");
    for (labels, status) in [(OURS, 200), (NOBODYS, 200), (OTHERS, 404), (DRAINING, 404)] {
        let metadata = metadata("b", labels, None);
        let whole = value!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": metadata, "rows": {}}).to_string();
        let partial = value!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        let table = value!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {},
            "rows": [{"cells": ["b"], "object": partial}]});
        for (form, body) in [
            ("application/json", Bytes::from(whole.clone())),
            ("application/json", partial.to_string().into()),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", table.to_string().into()),
            ("application/yaml", format!("kind: Thing\nmetadata: {metadata}\n").into()),
            (PROTOBUF, message(labels)),
        ] {
            for uri in [uri.clone(), format!("{uri}/status")] {
                let response = read(&uri, form, body.clone()).await;
                assert_eq!(response.status(), status, "{labels:?} {form} {uri}");
                if status == 200 {
                    let passed = response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(passed, body, "it passes as it came");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_before_a_drain_and_comes_after_it_is_not_shown() {
    let objects = Objects::default();
    let served = objects.clone();
    let lab = Lab::new(move |seen| {
        let mut response = answer(&served, seen);
        response.extensions_mut().insert(Late(5 * GRACE));
        response
    });
    let fenced = Fenced::over(lab, objects);
    fenced.thing(OURS);
    let uri = format!("{THINGS}/b");
    let get = async || fenced.status("GET", &uri).await;
    assert_eq!(get().await, 200);
    assert_eq!(tokio::join!(get(), fenced.let_go()).0, 404, "it was released meanwhile");
    let guard = fenced.drained();
    assert_eq!(get().await, 404, "it is being released");
    drop(guard);
    assert_eq!(get().await, 200, "it is back, or its drain was withdrawn");
}

/// The proxy's own watch on what drains may show that a moment after the controller's.
#[tokio::test(start_paused = true)]
async fn what_the_answer_shows_to_be_newer_than_its_drain_is_back() {
    let objects = Objects::default();
    let served = objects.clone();
    let lab = Lab::new(move |seen| {
        let mut response = answer(&served, seen);
        response.extensions_mut().insert(Late(GRACE));
        response
    });
    let fenced = Fenced::over(lab, objects);
    let get = async |labels: Labels, version: &str| {
        fenced.thing(labels);
        fenced.objects.lock().get_mut(&format!("{THINGS}/b")).unwrap()["resourceVersion"] = version.into();
        fenced.status("GET", &format!("{THINGS}/b")).await
    };
    let versions = [("6", 404), ("7", 404), ("8", 200), ("10", 200), ("x", 404)];
    let drained_at_7 = fenced.drained();
    for (version, status) in versions {
        assert_eq!(get(OURS, version).await, status, "{version}");
    }
    assert_eq!(get(DRAINING, "8").await, 404, "it is asked for once more");
    drop(drained_at_7);
    // The watch says so while the answer is on its way.
    for (version, status) in versions {
        let taken_back = async {
            let drained_at_7 = fenced.drained();
            tokio::time::sleep(GRACE / 2).await;
            drop(drained_at_7);
        };
        assert_eq!(tokio::join!(get(OURS, version), taken_back).0, status, "{version}, meanwhile");
    }
}

#[tokio::test]
async fn what_shows_no_labels_is_decided_by_asking() {
    let uri = format!("{THINGS}/b");
    let table = value!({"apiVersion": "meta.k8s.io/v1", "kind": "Table", "rows": [{"cells": ["b"]}]}).to_string();
    let long = format!(r#"{{"spec":"{}","metadata":{}}}"#, "x".repeat(9 << 20), metadata("b", OURS, None));
    for (form, body) in [("application/json", table), ("application/cbor", "?".into()), ("application/json", long)] {
        assert_eq!(read(&uri, form, body).await.status(), 404, "{form}");
    }
    for subresource in ["scale", "log", "anything"] {
        assert_eq!(read(&format!("{uri}/{subresource}"), "application/json", "{}").await.status(), 404);
    }
}

#[tokio::test]
async fn an_object_that_breaks_off_does_not_look_whole() {
    let (sender, broken) = streaming();
    let lab = Lab::new(move |seen| {
        let is_question = seen.uri.query().is_some();
        let ours = value!({"items": [{"metadata": metadata("b", OURS, None)}]}).to_string();
        if is_question { json(full(ours)) } else { broken(seen) }
    });
    let fenced = Fenced::over(lab, Objects::default());
    sender.unbounded_send("{\"metadata\":{\"labels\":{\"s\":\"other\"}}").unwrap();
    sender.unbounded_send(GONE).unwrap();
    let mut body = fenced.lab.get(&format!("{THINGS}/b")).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn what_shows_no_labels_and_is_gone_by_the_time_that_they_are_asked_for_is_not_shown() {
    let lab = Lab::new(|seen| {
        let is_question = seen.uri.query().is_some();
        json(full(if is_question { r#"{"items":[]}"# } else { r#"{"kind":"Table","rows":[{"cells":["secret"]}]}"# }))
    });
    let answer = Fenced::over(lab, Objects::default()).lab.get(&format!("{THINGS}/b")).await;
    assert_eq!(answer.status(), 404);
    assert!(!text(answer).await.contains("secret"));
}

#[tokio::test]
async fn what_is_not_shown_looks_as_if_it_were_not_there() {
    let fenced = Fenced::new();
    fenced.thing(OTHERS);
    let answer = fenced.lab.get(&format!("{THINGS}/b")).await;
    let status: Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!((&status["reason"], &status["code"]), (&value!("NotFound"), &value!(404)));
    assert_eq!(status["details"], value!({"name": "b", "group": "x.io", "kind": "things"}));
    let head = fenced.lab.send(ask("HEAD", &format!("{THINGS}/b"))).await;
    assert_eq!((head.status(), text(head).await.as_str()), (StatusCode::NOT_FOUND, ""));
    let mut request = ask("GET", &format!("{THINGS}/b"));
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(PROTOBUF));
    let bytes = fenced.lab.send(request).await.into_body().collect().await.unwrap().to_bytes();
    let status = wire::Status::decode(wire::unwrap(&bytes).unwrap().raw).unwrap();
    let details = status.details.unwrap();
    assert_eq!((status.code, status.reason.as_str(), details.name.as_str()), (404, "NotFound", "b"));
}

#[tokio::test(start_paused = true)]
async fn an_unlabelled_object_is_shown_unless_this_shard_has_let_it_go() {
    let fenced = Fenced::new();
    fenced.thing(NOBODYS);
    let uri = format!("{THINGS}/b");
    assert_eq!(fenced.status("GET", &uri).await, 200);
    fenced.let_go().await;
    assert_eq!(fenced.status("GET", &uri).await, 404);
    fenced.thing(OURS);
    assert_eq!(fenced.status("GET", &uri).await, 200, "it came back");
    assert_eq!(fenced.questions(), 0);
}

#[tokio::test]
async fn a_ring_may_let_its_shards_read_every_object_by_name() {
    let fenced = Fenced::new();
    fenced.thing(OTHERS);
    let families = [(things(), Vec::new())].into();
    let policy = Policy { resources: [things()].into(), families, read_by_all: [things()].into(), ..Policy::default() };
    fenced.lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
    for path in ["b", "b/status", "b/scale"] {
        assert_eq!(fenced.status("GET", &format!("{THINGS}/{path}")).await, 200, "{path}");
    }
    assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, 409, "but not write it");
    assert_eq!(fenced.status("GET", &format!("{THINGS}/b/exec")).await, 409, "nor connect to it");
}

const WRITES: [(&str, &str); 7] = [
    ("PUT", "b"),
    ("PATCH", "b"),
    ("DELETE", "b"),
    ("PUT", "b/status"),
    ("PATCH", "b/status"),
    ("PUT", "b/scale"),
    ("POST", "b/eviction"),
];

#[tokio::test]
async fn a_write_is_refused_unless_the_object_is_ours_or_nobodys() {
    for (labels, status) in [(OURS, 200), (DRAINING, 409), (NOBODYS, 200), (OTHERS, 409)] {
        for (method, path) in WRITES {
            let fenced = Fenced::new();
            fenced.thing(labels);
            assert_eq!(fenced.status(method, &format!("{THINGS}/{path}")).await, status, "{labels:?} {method} {path}");
            assert_eq!(fenced.reached(method), usize::from(status == 200), "{labels:?} {method} {path}");
        }
    }
    let fenced = Fenced::new();
    assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, 200, "of what is not there the API server decides");
}

#[tokio::test(start_paused = true)]
async fn what_was_drained_before_this_proxy_looked_on_is_not_written_to_nor_has_anything_created_under_it() {
    // Whether what was drained before is known, and whether this drain is.
    for (case, listed, known) in
        [("before", false, true), ("may be", false, false), ("since", true, true), ("to be seen", true, false)]
    {
        let (fenced, status) = (Fenced::new(), if listed { 200 } else { 409 });
        fenced.thing(DRAINING);
        if listed {
            fenced.listed();
        }
        let guard = known.then(|| fenced.found_drained());
        for (method, path) in WRITES {
            let answered = fenced.status(method, &format!("{THINGS}/{path}")).await;
            assert_eq!(answered, status, "{case} {method} {path}");
        }
        let child = value!({"metadata": metadata("p", NOBODYS, Some(owner("Thing", "b")))}).to_string();
        assert_eq!(fenced.write("POST", PARTS, "application/json", child).await, status, "{case}");
        // Taken back, the labels count.
        drop(guard);
        fenced.thing(OURS);
        assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, 200, "{case}");
    }
    // Another hold on the Lease: it may have been away in between.
    let fenced = Fenced::new();
    fenced.thing(DRAINING);
    let _guard = fenced.drained();
    fenced.lab.shared.gate.close();
    fenced.lab.shared.gate.open(term());
    assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, 409);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_of_what_was_drained_before_holds_no_drain() {
    let fenced = Fenced::new();
    fenced.thing(DRAINING);
    let guard = fenced.found_drained();
    let tries_again_and_again = async {
        loop {
            assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, 409);
            tokio::time::sleep(GRACE / 2).await;
        }
    };
    let quiet = timeout(GRACE * 2, guard.wait_idle());
    tokio::select! {
        quiet = quiet => quiet.unwrap(),
        () = tries_again_and_again => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_proxy_before_may_have_let_go_of_is_not_written_to_until_it_has_an_owner() {
    for (labels, status) in [(OURS, 200), (DRAINING, 409), (NOBODYS, 409), (OTHERS, 409)] {
        let fenced = Fenced::new();
        fenced.lab.shared.fence.follow_another();
        fenced.listed();
        fenced.thing(labels);
        assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, status, "{labels:?}");
        assert_eq!(fenced.reached("PUT"), usize::from(status == 200), "{labels:?}");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let later = if labels == OTHERS { 409 } else { 200 };
        assert_eq!(fenced.status("PUT", &format!("{THINGS}/b")).await, later, "{labels:?}");
    }
}

#[tokio::test]
async fn an_object_is_asked_about_once_in_a_hold_and_again_where_the_api_servers_fence_is_blind() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let uri = format!("{THINGS}/b");
    for _ in 0..3 {
        fenced.status("PUT", &uri).await;
        fenced.status("PATCH", &format!("{uri}/status")).await;
    }
    assert_eq!(fenced.questions(), 1);
    let question = fenced.lab.seen.lock()[0].clone();
    assert_eq!(question.uri.to_string(), format!("{THINGS}?fieldSelector=metadata%2Ename%3Db"));
    for (method, path) in [("PUT", "/scale"), ("POST", "/binding"), ("POST", "/exec"), ("GET", "/portforward")] {
        let before = fenced.questions();
        fenced.status(method, &format!("{uri}{path}")).await;
        assert_eq!(fenced.questions(), before + 1, "{method} {path}");
    }
    let before = fenced.questions();
    let mut request = ask("PUT", &uri);
    request.headers_mut().insert("impersonate-user", HeaderValue::from_static("jane"));
    fenced.lab.send(request).await;
    assert_eq!(fenced.questions(), before + 1);
    let asked_as: Vec<_> =
        fenced.lab.seen.lock().iter().rev().take(2).map(|it| it.headers.contains_key("impersonate-user")).collect();
    assert_eq!(asked_as, [true, false], "the write as jane, the question as the shard");
    let unseen = ["subresource", "impersonation"].map(|what| fenced.lab.shared.metrics.were_unseen(what));
    assert_eq!(unseen, [4, 1], "those are counted, and what the API server's fence sees is not");
    // Another hold on the Lease: it may have moved in between.
    fenced.lab.shared.gate.close();
    fenced.lab.shared.gate.open(term());
    fenced.thing(OTHERS);
    assert_eq!(fenced.status("PUT", &uri).await, 409);
}

#[tokio::test(start_paused = true)]
async fn a_write_to_what_was_let_go_is_refused_until_its_labels_say_that_it_is_back() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let uri = format!("{THINGS}/b");
    assert_eq!(fenced.status("PUT", &uri).await, 200);
    fenced.let_go().await;
    // The acknowledgement on its way; done; the next owner.
    for labels in [DRAINING, NOBODYS, OTHERS] {
        fenced.thing(labels);
        for (method, path) in WRITES {
            assert_eq!(fenced.status(method, &format!("{THINGS}/{path}")).await, 409, "{labels:?} {method} {path}");
        }
    }
    fenced.thing(OURS);
    for _ in 0..3 {
        assert_eq!(fenced.status("PUT", &uri).await, 200, "it came back");
    }
    let asked = fenced.questions();
    fenced.status("PUT", &uri).await;
    assert_eq!(fenced.questions(), asked);
}

#[tokio::test]
async fn who_may_not_ask_may_not_write_and_is_told_why() {
    for (answer, status) in [(403, 403), (401, 403), (500, 503), (429, 503), (404, 200)] {
        let lab = Lab::new(move |seen| {
            let mut response = ok();
            if seen.uri.query().is_some() {
                *response.status_mut() = StatusCode::from_u16(answer).unwrap();
            }
            response
        });
        let fenced = Fenced::over(lab, Objects::default());
        let response = fenced.lab.send(ask("PUT", &format!("{THINGS}/b"))).await;
        assert_eq!(response.status(), status, "{answer}");
        assert_eq!(text(response).await.contains("allow the pod's service account to list"), status == 403);
        assert_eq!(fenced.reached("PUT"), usize::from(answer == 404));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_the_rings_passes_and_so_do_events_about_what_moved() {
    let fenced = Fenced::new();
    fenced.let_go().await;
    for (method, uri) in [
        ("POST", "/api/v1/namespaces/a/events"),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/a/events/b.1"),
        ("PUT", "/api/v1/namespaces/a/secrets/b"),
    ] {
        let event = value!({"involvedObject": {"uid": "uid-b"}, "regarding": {"uid": "uid-b"}}).to_string();
        assert_eq!(fenced.write(method, uri, "application/json", event).await, 200, "{uri}");
    }
    assert_eq!(fenced.questions(), 0);
}

/// What stands behind an object's `proxy` is another server: only the owner of the object counts here.
#[tokio::test]
async fn what_is_for_somebody_behind_the_api_server_passes_as_it_is() {
    let fenced = Fenced::new();
    let behind = format!("{THINGS}/b/proxy/measurements?resourceVersion=0");
    let compressed = || {
        let mut request = ask("POST", &behind);
        request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        request
    };
    fenced.thing(OURS);
    assert_eq!(fenced.lab.send(compressed()).await.status(), StatusCode::OK);
    assert_eq!(fenced.lab.last().uri, *behind);
    assert_eq!(fenced.status("GET", &behind).await, StatusCode::OK);
    assert_eq!(fenced.lab.last().uri, *behind);
    fenced.thing(OTHERS);
    assert_eq!(fenced.lab.send(compressed()).await.status(), StatusCode::CONFLICT);
}
