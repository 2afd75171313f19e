//! The controller's election through the whole stack.

use std::thread;

use tokio::time::timeout;

use super::*;
use crate::election::{Kept, Kind, LockName};

mod elsewhere;
mod followed;
mod waits;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

fn record(name: &str, version: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{version}"}},"spec":{{"holderIdentity":"a","leaseDurationSeconds":15,
        "acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":0}}}}"#
    )
}

fn write(method: &str, uri: &str, body: impl Into<Bytes>) -> Request<Body> {
    ask(method, uri).map(|_| full(body.into()))
}

fn merge_patch(uri: &str, body: impl Into<Bytes>) -> Request<Body> {
    let mut request = write("PATCH", uri, body);
    request.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    request
}

fn status(code: StatusCode) -> Response<Body> {
    let mut response = json(full(format!(r#"{{"kind":"Status","code":{}}}"#, code.as_u16())));
    *response.status_mut() = code;
    response
}

/// A dry run as the API server answers it: with what it would have stored.
fn would_store(code: StatusCode, lease: String) -> Response<Body> {
    let mut response = json(full(lease));
    *response.status_mut() = code;
    response
}

impl Lab {
    fn asked(&self) -> Vec<String> {
        self.seen.lock().iter().map(|seen| format!("{} {}", seen.method, seen.uri)).collect()
    }
}

#[tokio::test]
async fn the_first_write_of_an_election_is_a_dry_run_and_all_that_follows_is_answered_here() {
    let lab = Lab::new(|seen| match seen.method {
        Method::GET => status(StatusCode::NOT_FOUND),
        _ => would_store(StatusCode::CREATED, record("lock", "").replace(r#""ns""#, r#""ns","uid":"real""#)),
    });
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(lab.seen.lock().len(), 1, "the controller sees whether there is an old leader");
    let mut create = write("POST", &format!("{LEASES}?fieldManager=a+b"), record("lock", ""));
    create.headers_mut().insert("accept", HeaderValue::from_static("application/cbor,application/json"));
    create.headers_mut().insert("impersonate-user", HeaderValue::from_static("jane"));
    let created = lab.send(create).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    assert_eq!(lab.asked()[1..], [format!("POST {LEASES}?fieldManager=a+b&dryRun=All")]);
    let headers = lab.last().headers;
    assert_eq!(
        (&headers["accept"], &headers["impersonate-user"]),
        (&"application/json".parse().unwrap(), &"jane".parse().unwrap())
    );
    let created: serde_json::Value = serde_json::from_str(&text(created).await).unwrap();
    assert_eq!((&created["apiVersion"], &created["kind"]), (&"coordination.k8s.io/v1".into(), &"Lease".into()));
    assert_eq!(created["metadata"]["uid"], "real");
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::OK);
    let stale = lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", "77"))).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let renewal = lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", version))).await;
    assert_eq!(renewal.status(), StatusCode::OK);
    assert_eq!(lab.seen.lock().len(), 2);
}

#[tokio::test]
async fn what_the_api_server_refuses_makes_no_lock() {
    for code in [StatusCode::CONFLICT, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_GATEWAY] {
        for (method, media_type) in [
            ("PUT", "application/json"),
            ("PATCH", "application/merge-patch+json"),
            ("PATCH", "application/apply-patch+yaml"),
        ] {
            let lab = Lab::new(move |_| status(code));
            let mut request = write(method, &format!("{LEASES}/lock"), record("lock", "1"));
            request.headers_mut().insert("content-type", HeaderValue::from_static(media_type));
            let refused = lab.send(request).await;
            assert_eq!(refused.status(), code);
            assert_eq!(text(refused).await, format!(r#"{{"kind":"Status","code":{}}}"#, code.as_u16()), "as it is");
            assert_eq!(lab.asked(), [format!("{method} {LEASES}/lock?dryRun=All")], "nothing was written");
            assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), code, "reads are the API server's still");
        }
    }
}

#[tokio::test]
async fn a_dry_run_of_the_client_and_a_patch_that_begins_no_election_are_the_api_servers() {
    let lab = Lab::new(|_| json(full(r#"{"metadata":{"name":"lock"},"spec":{}}"#)));
    lab.send(write("PUT", &format!("{LEASES}/lock?dryRun=All"), record("lock", "1"))).await;
    lab.send(merge_patch(&format!("{LEASES}/lock"), r#"{"spec":{"holderIdentity":"node"}}"#)).await;
    let lease = format!("{LEASES}/lock");
    assert_eq!(
        lab.asked(),
        [format!("PUT {lease}?dryRun=All"), format!("PATCH {lease}?dryRun=All"), format!("PATCH {lease}")]
    );
}

#[tokio::test]
async fn a_deletion_of_many_leaves_the_locks_out() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
    let config_maps = "/api/v1/namespaces/ns/configmaps";
    lab.send(write("DELETE", LEASES, "")).await;
    lab.send(write("POST", LEASES, record("lock", ""))).await;
    lab.send(write("DELETE", &format!("{LEASES}?labelSelector=a"), "")).await;
    lab.send(write("DELETE", &format!("{LEASES}?fieldSelector=metadata.name%3Dlock"), "")).await;
    lab.send(write("DELETE", config_maps, "")).await;
    let spared = "fieldSelector=metadata.name%21%3Dlock";
    let asked = lab.asked();
    assert_eq!(asked[0], format!("DELETE {LEASES}"), "nothing is known for a lock yet");
    assert_eq!(
        asked[2..],
        [
            format!("DELETE {LEASES}?labelSelector=a&{spared}"),
            format!("DELETE {LEASES}?{spared}%2Cmetadata.name%3Dlock"),
            format!("DELETE {config_maps}"),
        ]
    );
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn whether_a_deletion_is_a_dry_run_its_body_says() {
    for (query, body, goes_on) in [("?dryRun=All", "{}", false), ("", r#"{"dryRun":["All"]}"#, true)] {
        let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
        lab.send(write("POST", LEASES, record("lock", ""))).await;
        let before = lab.asked().len();
        lab.send(write("DELETE", &format!("{LEASES}/lock{query}"), body)).await;
        assert_eq!(
            lab.asked().len() > before,
            goes_on,
            "{query} {body}: the real lock is not the controller's to delete"
        );
        let code = if goes_on { StatusCode::OK } else { StatusCode::NOT_FOUND };
        assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), code, "{query} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_shard_lease_the_controller_loses_its_lead() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
    assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    lab.shared.gate.close();
    let renewal = lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", ""))).await;
    assert_eq!(renewal.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn other_leases_reach_the_api_server_with_their_bodies_and_long_ones_are_refused() {
    let lab = Lab::new(|_| ok());
    lab.send(write(
        "PUT",
        &format!("{LEASES}/node"),
        r#"{"metadata":{"name":"node"},"spec":{"holderIdentity":"node"}}"#,
    ))
    .await;
    // As long as annotations and managedFields may make it.
    lab.send(write("PUT", &format!("{LEASES}/node"), vec![b' '; 3 << 20])).await;
    let methods: Vec<_> = lab.seen.lock().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::PUT, Method::PUT]);
    let long = lab.send(write("PUT", &format!("{LEASES}/node"), vec![b' '; (3 << 20) + 1])).await;
    assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_patch_that_takes_a_free_lease_makes_it_a_lock() {
    let lab = Lab::new(|_| would_store(StatusCode::OK, record("lock", "5")));
    let request = merge_patch(&format!("{LEASES}/lock"), r#"{"spec":{"holderIdentity":"a"}}"#);
    assert!(text(lab.send(request).await).await.contains(r#""holderIdentity":"a""#));
    assert_eq!(lab.asked(), [format!("PATCH {LEASES}/lock?dryRun=All")], "nothing was written");
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::OK);
    assert_eq!(lab.seen.lock().len(), 1);
}

/// The client that sends it read the lock as its own a moment ago. The proxy has found another holder since.
#[tokio::test]
async fn a_renewal_by_patch_takes_no_lock_of_somebody_else() {
    let lab = Lab::new(|_| would_store(StatusCode::OK, record("lock", "1").replace(r#""a""#, r#""old""#)));
    lab.real.is_held_by(&the_lock(), "old");
    let renewal = async |fields: &str| {
        lab.send(merge_patch(&format!("{LEASES}/lock"), format!(r#"{{"spec":{{{fields}}}}}"#))).await.status()
    };
    let time = r#""renewTime":"2026-01-01T00:00:01.000000Z""#;
    assert_eq!(renewal(time).await, StatusCode::CONFLICT);
    assert_eq!(lab.asked(), [format!("PATCH {LEASES}/lock?dryRun=All")], "it renews the lock for no holder either");
    assert_eq!(lab.real.holder(&the_lock()), "old");
    // One that says so takes it, in the version in which the API server has judged that.
    assert_eq!(renewal(&format!(r#""holderIdentity":"a",{time}"#)).await, StatusCode::OK);
    assert_eq!(lab.real.holder(&the_lock()), "ringside-example");
}

#[tokio::test]
async fn a_lease_in_a_body_that_can_not_be_read_is_refused_and_not_passed_by() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
    let lock = format!("{LEASES}/lock");
    for learned in [false, true] {
        if learned {
            assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
        }
        let before = lab.seen.lock().len();
        for (method, uri) in [("POST", LEASES), ("PUT", &lock), ("PATCH", &lock)] {
            for (name, value, status) in [("content-type", "application/cbor", 415), ("content-encoding", "gzip", 400)]
            {
                let mut request = write(method, uri, record("lock", ""));
                request.headers_mut().insert(name, HeaderValue::from_static(value));
                let refused = lab.send(request).await;
                assert_eq!(refused.status(), status, "{method}, {value}");
            }
        }
        assert_eq!(lab.seen.lock().len(), before, "the real Lease is not written");
    }
}

fn the_lock() -> LockName {
    LockName { kind: Kind::Lease, namespace: "ns".to_owned(), name: "lock".to_owned() }
}

#[tokio::test]
async fn who_is_told_to_lead_has_the_real_lock_held_by_the_ring() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
    assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    assert_eq!(lab.real.holder(&the_lock()), "ringside-example");
}

#[tokio::test]
async fn nobody_leads_beside_who_has_taken_the_real_lock_meanwhile() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, record("lock", "")));
    lab.real.is_held_by(&the_lock(), "old");
    let refused = lab.send(write("POST", LEASES, record("lock", ""))).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(!lab.shared.locks.knows(&the_lock()));
    assert_eq!(lab.asked(), [format!("POST {LEASES}?dryRun=All")], "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn what_the_ring_is_not_sure_to_hold_any_more_is_asked_for_before_a_renewal_is_answered() {
    let lab = Lab::new(|seen| match seen.method {
        Method::POST => would_store(StatusCode::CREATED, record("lock", "")),
        _ => status(StatusCode::CONFLICT),
    });
    assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    lab.real.is_held_by(&the_lock(), "old");
    let renewal = async || lab.send(write("PUT", &format!("{LEASES}/lock"), record("lock", ""))).await.status();
    assert_eq!(renewal().await, StatusCode::OK, "no other holder can have it yet");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(renewal().await, StatusCode::CONFLICT);
    assert_eq!(lab.asked().len(), 1, "a write that was made on what is answered here is not for the API server");
    assert!(!lab.shared.locks.knows(&the_lock()));
}

#[tokio::test]
async fn a_lock_that_another_shard_holds_for_the_ring_is_there_for_the_taking() {
    let lab = Lab::new(|_| json(full(record("lock", "5").replace(r#""a""#, r#""ringside-example""#))));
    lab.real.is_held_by(&the_lock(), "ringside-example");
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    assert_eq!(lab.get(&format!("{LEASES}/lock")).await.status(), StatusCode::OK);
    assert_eq!(lab.asked(), [format!("GET {LEASES}/lock")], "all else is answered here");
    assert_eq!(lab.real.holder(&the_lock()), "ringside-example");
}

#[tokio::test]
async fn what_is_read_and_not_the_rings_passes_as_it_came() {
    let leases = [record("lock", "5"), "no JSON".to_owned(), " ".repeat(9 << 20)];
    for lease in leases {
        let sent = lease.clone();
        let lab = Lab::new(move |_| json(full(sent.clone())));
        assert!(text(lab.get(&format!("{LEASES}/lock")).await).await == lease);
    }
}

/// The controller led by it before the proxy started again.
#[tokio::test]
async fn what_would_free_a_lock_of_the_ring_that_is_not_known_here_frees_it_for_the_controller_only() {
    let release =
        r#"{"metadata":{"name":"lock","namespace":"ns"},"spec":{"holderIdentity":"","leaseDurationSeconds":1}}"#;
    let lease = format!("{LEASES}/lock");
    for (method, media_type, body) in [
        ("PUT", "application/json", release),
        ("PATCH", "application/merge-patch+json", r#"{"spec":{"holderIdentity":null}}"#),
        ("DELETE", "application/json", ""),
    ] {
        for holder in ["ringside-example", "old"] {
            let lab = Lab::new(move |_| would_store(StatusCode::OK, release.to_owned()));
            lab.real.is_held_by(&the_lock(), holder);
            let mut request = write(method, &lease, body);
            request.headers_mut().insert("content-type", HeaderValue::from_static(media_type));
            let answer = lab.send(request).await.status();
            let passed = lab.asked().contains(&format!("{method} {lease}"));
            match holder {
                "old" => assert_eq!((answer, passed), (StatusCode::OK, true), "{method}"),
                _ => assert_eq!((answer, passed), (StatusCode::NOT_FOUND, false), "{method}"),
            }
            assert_eq!(lab.real.holder(&the_lock()), holder, "{method}");
        }
    }
}

#[tokio::test]
async fn one_lock_too_many_is_not_taken_for_the_ring() {
    let lab = Lab::new(|seen| {
        let name = seen.headers["x-lock"].to_str().unwrap();
        let padding = if name == "large" { "x".repeat((4 << 20) - 1_200) } else { String::new() };
        let annotations = format!(r#""metadata":{{"annotations":{{"x":"{padding}"}},"#);
        would_store(StatusCode::CREATED, record(name, "").replacen(r#""metadata":{"#, &annotations, 1))
    });
    let create = async |name: &'static str| {
        let mut request = write("POST", LEASES, record(name, ""));
        request.headers_mut().insert("x-lock", HeaderValue::from_static(name));
        lab.send(request).await.status()
    };
    assert_eq!(create("large").await, StatusCode::CREATED);
    assert_eq!(create("lock").await, StatusCode::FORBIDDEN);
    assert_eq!(lab.real.holder(&the_lock()), "");
}

#[tokio::test(start_paused = true)]
async fn where_somebody_else_may_lead_nothing_passes_but_what_tells_the_controller_so() {
    let (_open, respond) = streaming();
    let lab = Lab::new(move |seen| match seen.method {
        Method::POST => would_store(StatusCode::CREATED, record("lock", "")),
        _ if seen.uri.path() == "/api/v1/pods" => respond(seen),
        _ if seen.uri.query().is_some_and(|query| query.contains("watch=1&") && !query.contains("fieldSelector")) => {
            silent()
        }
        _ if seen.uri.path() == "/api/v1/secrets" => silent(),
        _ => json(full(record("lock", "7"))),
    });
    assert_eq!(lab.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::CREATED);
    let mut stream = lab.get("/api/v1/pods").await.into_body();
    let mut watches = Vec::new();
    for uri in ["/apis/x.io/v1/things?watch=1", "/api/v1/secrets?watch=1"] {
        watches.push(lab.get(uri).await.into_body());
    }
    for body in watches.iter_mut().chain([&mut stream]) {
        assert!(body.frame().now_or_never().is_none());
    }
    let (lock, things) = (format!("{LEASES}/lock"), "/apis/x.io/v1/things");
    let keeping = lab.shared.hold.keep(&lab.shared.locks);
    let controller = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        lab.real.is_held_by(&the_lock(), "old");
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(stream.frame().now_or_never().unwrap().unwrap().is_err(), "what is no watch is cut");
        assert!(watches.iter_mut().all(|body| body.frame().now_or_never().is_none()), "a watch says nothing");
        let asked = tokio::time::Instant::now();
        assert!(text(lab.get(&lock).await).await.contains(r#""resourceVersion":"7""#), "the real one");
        for one in ["", "&watch=1"] {
            let followed = lab.get(&format!("{LEASES}?fieldSelector=metadata.name%3Dlock{one}")).await;
            assert_eq!(followed.status(), StatusCode::OK, "{one}");
        }
        assert_eq!(asked.elapsed(), Duration::ZERO, "at once");
        let before = lab.seen.lock().len();
        let release =
            r#"{"metadata":{"name":"lock","namespace":"ns","resourceVersion":"7"},"spec":{"holderIdentity":""}}"#;
        let released = lab.send(write("PUT", &lock, release)).await;
        assert_eq!(released.status(), StatusCode::CONFLICT, "it would free what another leads by");
        for request in [ask("GET", things), write("POST", things, "{}"), ask("DELETE", "/api/v1/namespaces/a/pods/b")] {
            let refused = lab.send(request).await;
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(text(refused).await.contains("may have lost the lock"));
        }
        assert_eq!(lab.seen.lock().len(), before);
        assert_eq!(lab.get("/version").await.status(), StatusCode::OK);
        // Its time is 15 s.
        tokio::time::sleep_until(asked + Duration::from_secs(14)).await;
        let may_act = lab.shared.hold.lead(&lab.shared.locks, Duration::ZERO).await.is_ok();
        assert!(!may_act, "it tries for a while");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(lab.get(things).await.status(), StatusCode::OK, "it knows by now that it does not lead");
        for (body, says) in watches.iter_mut().zip([true, false]) {
            let told = timeout(Duration::from_secs(5), body.frame()).await.expect("it goes on").map(Result::unwrap);
            assert_eq!(told.is_some(), says, "{told:?}");
        }
    };
    tokio::select! {
        () = controller => {}
        never = keeping => match never {},
    }
}

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

fn annotated(version: &str) -> String {
    let record = r#"{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":15}"#;
    format!(
        r#"{{"metadata":{{"name":"lock","namespace":"ns","resourceVersion":"{version}","annotations":{{"control-plane.alpha.kubernetes.io/leader":"{record}"}}}}}}"#
    )
}

#[tokio::test]
async fn a_config_map_with_a_record_is_a_lock() {
    let lab = Lab::new(|_| would_store(StatusCode::CREATED, annotated("7")));
    let created = lab.send(write("POST", MAPS, annotated(""))).await;
    assert_eq!(created.status(), StatusCode::CREATED);
    let created: serde_json::Value = serde_json::from_str(&text(created).await).unwrap();
    assert_eq!((&created["apiVersion"], &created["kind"]), (&"v1".into(), &"ConfigMap".into()));
    assert_eq!(lab.get(&format!("{MAPS}/lock")).await.status(), StatusCode::OK);
    assert_eq!(lab.send(write("PUT", &format!("{MAPS}/lock"), annotated("7"))).await.status(), StatusCode::CONFLICT);
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(lab.send(write("PUT", &format!("{MAPS}/lock"), annotated(version))).await.status(), StatusCode::OK);
    let deleted = text(lab.send(write("DELETE", &format!("{MAPS}/lock"), "")).await).await;
    assert!(deleted.contains(r#""status":"Success""#) && !deleted.contains("group"), "{deleted}");
    let gone = text(lab.get(&format!("{MAPS}/lock")).await).await;
    assert!(gone.contains(r#"configmaps \"lock\" not found"#), "{gone}");
    assert_eq!(lab.asked(), [format!("POST {MAPS}?dryRun=All")], "nothing was written");
}

#[tokio::test]
async fn a_config_map_that_is_no_lock_costs_no_request_more() {
    let lab = Lab::new(|_| ok());
    let map = r#"{"metadata":{"name":"settings","annotations":{"a":"b"}},"data":{"a":"b"}}"#;
    let (settings, lock) = (format!("{MAPS}/settings"), format!("{MAPS}/lock"));
    let mut patch = write("PATCH", &settings, r#"{"metadata":{"annotations":{"a":"c"}}}"#);
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/merge-patch+json"));
    lab.send(write("POST", MAPS, map)).await;
    lab.send(write("PUT", &settings, map)).await;
    lab.send(patch).await;
    lab.get(&settings).await;
    lab.send(write("DELETE", &settings, "")).await;
    // Of another namespace, whatever is in it.
    lab.send(write("PUT", &lock.replace("ns/", "other/"), annotated("7"))).await;
    let expected = [
        format!("POST {MAPS}"),
        format!("PUT {settings}"),
        format!("PATCH {settings}"),
        format!("GET {settings}"),
        format!("DELETE {settings}"),
        format!("PUT {}", lock.replace("ns/", "other/")),
    ];
    assert_eq!(lab.asked(), expected);
}

/// What the controller is told has to outlive this proxy. No other request waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_waits_until_it_is_kept_and_a_disk_that_stalls_holds_up_no_other() {
    let (folder, deadline) = (tempfile::tempdir().unwrap(), Duration::from_secs(10));
    let handout = Handout::to(folder.path().to_owned());
    let stalled = handout.stall("leads");
    let locks = Arc::new(Locks::kept_in("ns".into(), Kept::new(handout)));
    let shared = Shared { locks: locks.clone(), ..Lab::new(|_| ok()).shared };
    let upstream = service_fn(|_: Request<Body>| async {
        Ok::<_, UpstreamError>(would_store(StatusCode::CREATED, record("lock", "")))
    });
    let mut create = tokio::spawn(stack(&shared, upstream).oneshot(write("POST", LEASES, record("lock", ""))));
    let (led, goes_on) = tokio::sync::oneshot::channel();
    // As the task does that renews the real locks.
    thread::spawn(move || {
        while locks.led().is_empty() {
            thread::yield_now();
        }
        led.send(())
    });
    timeout(deadline, goes_on).await.expect("it waits for the disk").unwrap();
    let told = timeout(Duration::from_millis(200), &mut create).await;
    assert!(told.is_err(), "the controller was told what is not kept");
    thread::spawn(move || std::fs::File::open(stalled).map(|mut it| std::io::copy(&mut it, &mut std::io::sink())));
    let created = timeout(deadline, create).await.expect("it waits for ever").unwrap().unwrap();
    assert_eq!(created.status(), StatusCode::CREATED);
}
