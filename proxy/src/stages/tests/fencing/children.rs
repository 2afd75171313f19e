//! What is written under an owner.

use super::*;

const WATCH: &str = "/apis/x.io/v1/parts?watch=1&resourceVersion=5&timeoutSeconds=300";
const APPLY: &str = "application/apply-patch+yaml";

fn child(owner: Option<Value>) -> Value {
    value!({"apiVersion": "x.io/v1", "kind": "Part", "metadata": {"name": "p", "ownerReferences": owner.map(|it| vec![it])}})
}

/// A part with these owners, of which none controls it.
fn plainly(owners: &[(&str, &str)]) -> Value {
    let mut part = child(None);
    let reference = |(kind, name): &(&str, &str)| {
        let mut owner = owner(kind, name);
        owner["controller"] = value!(false);
        owner
    };
    part["metadata"]["ownerReferences"] = owners.iter().map(reference).collect();
    part
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_an_only_owner_that_was_let_go() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let body = plainly(&[("Thing", "b")]).to_string();
    assert_eq!(fenced.write("POST", PARTS, "application/json", body.clone()).await, 200);
    fenced.let_go().await;
    fenced.thing(OTHERS);
    assert_eq!(fenced.write("POST", PARTS, "application/json", body).await, 409);
    // Nor is a part that is there, and names it so.
    let plain = plainly(&[("Thing", "b")])["metadata"]["ownerReferences"][0].clone();
    fenced.put(&format!("{PARTS}/p"), NOBODYS, Some(plain));
    assert_eq!(fenced.write("PATCH", &format!("{PARTS}/p"), "application/merge-patch+json", "{}").await, 409);
    // Of several none counts.
    let several = plainly(&[("Thing", "b"), ("Thing", "c")]).to_string();
    assert_eq!(fenced.write("POST", PARTS, "application/json", several).await, 200);
}

fn in_protobuf() -> Bytes {
    let reference = wire::OwnerReference {
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        name: "b".into(),
        uid: "uid-b".into(),
        controller: Some(true),
    };
    let metadata = wire::Metadata { owner_references: vec![reference], ..wire::Metadata::default() };
    wire::wrap("x.io/v1", "Part", &wire::AnyMetadata { metadata: Some(metadata) })
}

/// Every way to write a part under the thing `b`.
fn writes() -> Vec<(&'static str, String, &'static str, Bytes)> {
    let (one, object) = (format!("{PARTS}/p"), Bytes::from(child(Some(owner("Thing", "b"))).to_string()));
    let escaped =
        object.iter().map(|byte| if *byte == b'-' { "\\u002d".into() } else { char::from(*byte).to_string() });
    let escaped: String = escaped.collect();
    let adopt = value!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner("Thing", "b")}]);
    vec![
        ("POST", PARTS.into(), "application/json", object.clone()),
        ("POST", PARTS.into(), "application/json", escaped.into()),
        ("POST", PARTS.into(), "application/yaml", object.clone()),
        ("POST", PARTS.into(), "application/vnd.kubernetes.protobuf", in_protobuf()),
        ("PUT", one.clone(), "application/json", object.clone()),
        ("PATCH", one.clone(), APPLY, object.clone()),
        ("PATCH", one.clone(), "application/merge-patch+json", object.clone()),
        ("PATCH", one.clone(), "application/strategic-merge-patch+json", object),
        ("PATCH", one, "application/json-patch+json", adopt.to_string().into()),
    ]
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_an_owner_that_was_let_go() {
    for (method, uri, form, body) in writes() {
        let fenced = Fenced::new();
        fenced.thing(OURS);
        assert_eq!(fenced.write(method, &uri, form, body.clone()).await, 200, "{method} {form}");
        fenced.let_go().await;
        for labels in [DRAINING, NOBODYS, OTHERS] {
            fenced.thing(labels);
            assert_eq!(fenced.write(method, &uri, form, body.clone()).await, 409, "{labels:?} {method} {form}");
        }
        assert_eq!(fenced.reached(method), 1, "{method} {form}");
        fenced.thing(OURS);
        assert_eq!(fenced.write(method, &uri, form, body).await, 200, "it came back: {method} {form}");
    }
}

#[tokio::test]
async fn nothing_is_written_under_an_owner_of_another_shard_that_nothing_is_known_of() {
    for (method, uri, form, body) in writes() {
        let fenced = Fenced::new();
        fenced.thing(OTHERS);
        assert_eq!(fenced.write(method, &uri, form, body.clone()).await, 409, "{method} {form}");
        fenced.objects.lock().clear();
        assert_eq!(fenced.write(method, &uri, form, body).await, 200, "an owner that is gone: {method} {form}");
    }
}

#[tokio::test]
async fn an_owner_is_asked_about_once_and_one_that_is_not_the_rings_never() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let body = child(Some(owner("Thing", "b"))).to_string();
    for _ in 0..3 {
        assert_eq!(fenced.write("POST", PARTS, "application/json", body.clone()).await, 200);
    }
    assert_eq!(fenced.questions(), 1);
    let deployment =
        value!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "1", "controller": true});
    for owner in [None, Some(deployment)] {
        assert_eq!(fenced.write("POST", PARTS, "application/json", child(owner).to_string()).await, 200);
    }
    assert_eq!(fenced.lab.seen.lock().iter().filter(|it| it.method == "GET").count(), 2, "a kind and an object");
}

#[tokio::test]
async fn an_owner_that_is_known_is_not_asked_about_for_its_child() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Thing", "b")));
    let merge = "application/merge-patch+json";
    for (uri, questions) in [(format!("{THINGS}/b/status"), 1), (format!("{PARTS}/p"), 2), (format!("{PARTS}/p"), 2)] {
        assert_eq!(fenced.write("PATCH", &uri, merge, "{}").await, 200);
        assert_eq!(fenced.questions(), questions, "{uri}");
    }
    // But of a child without owner, which the API server's own fence lets every shard write to,
    fenced.put(&format!("{PARTS}/q"), NOBODYS, Some(owner("Thing", "b")));
    assert_eq!(fenced.write("PATCH", &format!("{PARTS}/q"), merge, "{}").await, 200);
    assert_eq!(fenced.questions(), 4);
    // and where that does not see who writes.
    assert_eq!(fenced.write("PATCH", &format!("{PARTS}/p/scale"), merge, "{}").await, 200);
    assert_eq!(fenced.questions(), 6);
}

#[tokio::test]
async fn kinds_of_owners_are_remembered_up_to_a_bound_and_counted() {
    let objects = Objects::default();
    let served = objects.clone();
    let lab = Lab::new(move |seen| match seen.uri.path().strip_prefix("/apis/x.io/v") {
        // Whatever version it is.
        Some(version) if !version.contains('/') => {
            answer(&served, &Seen { uri: "/apis/x.io/v1".parse().unwrap(), ..seen.clone() })
        }
        _ => answer(&served, seen),
    });
    let fenced = Fenced::over(lab, objects);
    for (versions, known, evicted) in [(1..=1, 1, 0), (1..=256, 256, 0), (257..=257, 1, 256), (258..=258, 2, 256)] {
        for version in versions.clone() {
            let owner = value!({"apiVersion": format!("x.io/v{version}"), "kind": "Thing", "name": "b", "uid": "uid-b",
                "controller": true});
            assert_eq!(fenced.write("POST", PARTS, "application/json", child(Some(owner)).to_string()).await, 200);
        }
        assert_eq!(fenced.lab.shared.metrics.known_kinds(), (known, evicted), "{versions:?}");
    }
}

/// The API server's own fence does not see who writes then.
#[tokio::test]
async fn what_is_created_as_somebody_else_is_judged_by_its_owner_as_it_is() {
    let fenced = Fenced::new();
    let body = child(Some(owner("Thing", "b"))).to_string();
    let create = || {
        let mut request = ask("POST", PARTS).map(|_| full(body.clone()));
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
        request.headers_mut().insert("impersonate-user", HeaderValue::from_static("jane"));
        request
    };
    for (labels, expected) in [(OURS, 200), (OURS, 200), (OTHERS, 409)] {
        fenced.thing(labels);
        assert_eq!(fenced.lab.send(create()).await.status(), expected, "{labels:?}");
    }
    assert_eq!(fenced.questions(), 3, "one for each");
}

#[tokio::test(start_paused = true)]
async fn a_child_goes_with_its_owner_and_so_does_a_childs_child() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let (one, two) = (format!("{PARTS}/p"), format!("{PARTS}/q"));
    fenced.put(&one, OURS, Some(owner("Thing", "b")));
    fenced.put(&two, OURS, Some(owner("Part", "p")));
    let merge = "application/merge-patch+json";
    for uri in [&two, &two, &one] {
        assert_eq!(fenced.write("PATCH", &format!("{uri}/status"), merge, "{}").await, 200);
        assert_eq!(fenced.questions(), 3, "all of them are known");
    }
    // The owner was released, and the labels of what it controls are not moved yet.
    fenced.let_go().await;
    fenced.thing(NOBODYS);
    for uri in [&one, &two] {
        assert_eq!(fenced.status("DELETE", uri).await, 409, "{uri}");
        assert_eq!(fenced.write("PATCH", uri, merge, "{}").await, 409, "{uri}");
    }
    let grandchild = child(Some(owner("Part", "p"))).to_string();
    assert_eq!(fenced.write("POST", PARTS, "application/json", grandchild).await, 409);
}

#[tokio::test]
async fn a_body_whose_owners_cannot_be_read_is_refused() {
    let fenced = Fenced::new();
    for (form, body, status) in [
        ("application/json", r#"{"metadata":{"ownerReferences":[],"ownerReferences":[]}}"#.to_owned(), 400),
        ("application/json", "{".into(), 400),
        ("text/plain", "{}".into(), 415),
        ("application/apply-patch+cbor", "{}".into(), 415),
        ("application/json", " ".repeat(4 << 20), 413),
    ] {
        assert_eq!(fenced.write("POST", PARTS, form, body).await, status, "{form}");
    }
    assert_eq!(fenced.reached("POST"), 0);
    assert_eq!(fenced.write("POST", THINGS, "application/json", "{").await, 200, "no object controls things");
}

#[tokio::test(start_paused = true)]
async fn children_of_an_owner_that_was_let_go_are_not_deleted_with_others() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    for (name, owner) in [("p", Some(owner("Thing", "b"))), ("q", None)] {
        fenced.put(&format!("{PARTS}/{name}"), OURS, owner);
    }
    let uri = format!("{PARTS}?labelSelector=a&fieldSelector=b&resourceVersion=0&dryRun=All");
    assert_eq!(fenced.status("DELETE", &uri).await, 200);
    let question = fenced.lab.seen.lock()[0].uri.to_string();
    assert_eq!(question, format!("{PARTS}?fieldSelector=b&labelSelector=s%3Dme%2C%21d%2Ca&limit=100"));
    fenced.let_go().await;
    fenced.thing(NOBODYS);
    assert_eq!(fenced.status("DELETE", &uri).await, 409);
    assert_eq!(fenced.reached("DELETE"), 1);
    fenced.objects.lock().remove(&format!("{PARTS}/p"));
    assert_eq!(fenced.status("DELETE", &uri).await, 200, "those that are left have no owner");
}

/// A shard whose watches on parts go on, until a test ends them.
fn watching() -> (Fenced, Arc<Mutex<Vec<mpsc::UnboundedSender<BoxError>>>>) {
    let (objects, ends) = (Objects::default(), Arc::<Mutex<Vec<_>>>::default());
    let (served, opened) = (objects.clone(), ends.clone());
    let lab = Lab::new(move |seen| {
        if !seen.uri.query().is_some_and(|query| query.contains("watch=1")) {
            return answer(&served, seen);
        }
        let (end, ended) = mpsc::unbounded::<BoxError>();
        opened.lock().push(end);
        json(boxed(StreamBody::new(ended.map(|error| Err::<Frame<Bytes>, _>(BodyError::from(error))))))
    });
    let fenced = Fenced::over(lab, objects);
    fenced.thing(OURS);
    (fenced, ends)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_under_an_owner_while_the_watch_on_its_children_is_broken_off() {
    let body = child(Some(owner("Thing", "b"))).to_string();
    let foreign =
        value!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "uid-d", "controller": true});
    let theirs = ["closed", "in time", "unowned", "another's"].map(|how| (how, false));
    let broken = ["lease", "late lease", "server"].map(|how| (how, true));
    for (how, interrupts) in broken.into_iter().chain(theirs) {
        let (fenced, ends) = watching();
        let mut watch = fenced.lab.get(WATCH).await.into_body();
        assert!(watch.frame().now_or_never().is_none());
        match how {
            "lease" => fenced.lab.shared.gate.close(),
            "late lease" => {
                advance(Duration::from_secs(300)).await;
                fenced.lab.shared.gate.close();
            }
            "in time" => advance(Duration::from_secs(300)).await,
            _ => {}
        }
        match how {
            "closed" => {}
            "lease" | "late lease" => assert!(watch.frame().now_or_never().is_none(), "it is silent"),
            _ => {
                ends.lock().clear();
                assert!(watch.frame().await.is_none());
            }
        }
        drop(watch);
        fenced.lab.shared.gate.open(term());
        advance(GRACE).await;
        let mut request = ask("POST", PARTS).map(|_| match how {
            "unowned" => full(child(None).to_string()),
            "another's" => full(child(Some(foreign.clone())).to_string()),
            _ => full(body.clone()),
        });
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let (answer, _again) = tokio::join!(fenced.lab.send(request), async {
            tokio::time::sleep(GRACE).await;
            fenced.lab.get(WATCH).await
        });
        // At a 503 some clients would not look again: client-go with Retry-After, fabric8 whatever it says. At a 409 many
        // would take it for there.
        let expected = if interrupts { StatusCode::PRECONDITION_FAILED } else { StatusCode::OK };
        assert_eq!((answer.status(), fenced.reached("POST")), (expected, usize::from(!interrupts)), "{how}");
        assert!(!answer.headers().contains_key(header::RETRY_AFTER));
        advance(GRACE).await;
        for (method, uri, form, body) in writes() {
            assert_eq!(fenced.write(method, &uri, form, body).await, 200, "{method} once it is back: {how}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nor_is_it_where_another_proxy_was_there_before_until_the_watch_is() {
    let (older, newer) = ("Bearer secret.0", "Bearer secret.1");
    // Of the last, one and the same controller may have read its token again.
    for (tokens, refused) in [(vec![older], true), (vec![newer], false), (vec![older, newer], true)] {
        let (fenced, _ends) = watching();
        let send = |token: &str, mut request: Request<Body>| {
            request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_str(token).unwrap());
            fenced.lab.send(request)
        };
        for token in &tokens {
            assert_eq!(send(token, ask("GET", THINGS)).await.status(), StatusCode::OK);
        }
        let create = || {
            let mut request = ask("POST", PARTS).map(|_| full(child(Some(owner("Thing", "b"))).to_string()));
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            send(tokens.last().unwrap(), request).map(|answer| answer.status())
        };
        let (status, watch) = tokio::join!(create(), async {
            tokio::time::sleep(GRACE).await;
            send(tokens.last().unwrap(), ask("GET", WATCH)).await
        });
        let expected = if refused { StatusCode::PRECONDITION_FAILED } else { StatusCode::OK };
        assert_eq!((status, fenced.reached("POST")), (expected, usize::from(!refused)), "{tokens:?}");
        advance(GRACE).await;
        assert_eq!(create().await, StatusCode::OK, "its events were taken in meanwhile");
        drop(watch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_waited_for_in_vain_is_not_waited_for_again_after_the_next_gap() {
    let minute = Duration::from_secs(60);
    for how in ["broken off", "before"] {
        let (fenced, ends) = watching();
        if how == "broken off" {
            let mut watch = fenced.lab.get(WATCH).await.into_body();
            ends.lock().clear();
            assert!(watch.frame().await.is_none());
        } else {
            fenced.lab.get(THINGS).await;
            fenced.lab.shared.views.follow_others();
        }
        let create = || fenced.write("POST", PARTS, "application/json", child(Some(owner("Thing", "b"))).to_string());
        let lose = async || {
            let term = fenced.lab.shared.gate.pass(GRACE).await.unwrap();
            fenced.lab.shared.gate.close();
            fenced.lab.shared.lost(&term);
            fenced.lab.shared.gate.open(self::term());
            advance(GRACE).await;
        };
        advance(minute / 2).await;
        lose().await;
        assert_eq!(create().await, StatusCode::PRECONDITION_FAILED, "it could not be back all the time: {how}");
        advance(minute).await;
        lose().await;
        assert_eq!(create().await, StatusCode::OK, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_waits_for_a_watch_holds_the_drain_of_the_owner() {
    let (fenced, ends) = watching();
    let mut watch = fenced.lab.get("/apis/x.io/v1/parts?watch=1&resourceVersion=5").await.into_body();
    ends.lock().clear();
    assert!(watch.frame().await.is_none());
    drop(watch);
    let body = child(Some(owner("Thing", "b"))).to_string();
    let mut writing = Box::pin(fenced.write("POST", PARTS, "application/json", body));
    assert!((&mut writing).now_or_never().is_none());
    let guard = fenced.drained();
    assert!(timeout(2 * GRACE, guard.wait_idle()).await.is_err(), "who is at work on the owner waits for the answer");
    assert_eq!(writing.await, StatusCode::PRECONDITION_FAILED);
    guard.wait_idle().await;
    assert!(guard.close());
}
