//! Elections in another namespace than the controller's own.

use super::*;
use crate::election::Elsewhere;

const SYSTEM: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The record of a lock in `kube-system`, as client-go writes it.
fn of(holder: &str) -> String {
    record("lock", "5").replace(r#""ns""#, r#""kube-system""#).replace(r#""a""#, &format!(r#""{holder}""#))
}

fn in_system() -> LockName {
    LockName { namespace: "kube-system".to_owned(), ..the_lock() }
}

/// An API server on which the lock has this holder, and takes what it is sent.
fn held_by(holder: &'static str) -> Lab {
    Lab::new(move |seen| match seen.method {
        Method::GET => json(full(of(holder))),
        _ if seen.body.is_empty() => ok(),
        _ => would_store(StatusCode::OK, String::from_utf8(seen.body.to_vec()).unwrap()),
    })
}

#[tokio::test]
async fn an_election_elsewhere_is_answered_where_its_holder_names_the_pod() {
    for holder in ["me", "me_6a7f0000-0000-4000-8000-000000000000", "me-external-cert-manager-controller"] {
        for (method, media_type, uri) in [
            ("POST", "application/json", SYSTEM.to_owned()),
            ("PUT", "application/json", format!("{SYSTEM}/lock")),
            ("PATCH", "application/merge-patch+json", format!("{SYSTEM}/lock")),
        ] {
            let lab = held_by("");
            assert!(
                text(lab.get(&format!("{SYSTEM}/lock")).await).await.contains(r#""holderIdentity":"""#),
                "the real one"
            );
            let mut begins = write(method, &uri, of(holder));
            begins.headers_mut().insert("content-type", HeaderValue::from_static(media_type));
            assert!(lab.send(begins).await.status().is_success(), "{method}");
            assert_eq!(lab.asked()[1..], [format!("{method} {uri}?dryRun=All")], "nothing was written");
            assert_eq!(lab.real.holder(&in_system()), "ringside-example");
            assert_eq!(lab.real.holder(&the_lock()), "");
            let read = text(lab.get(&format!("{SYSTEM}/lock")).await).await;
            assert!(read.contains(holder) && read.contains("kube-system"), "{read}");
            assert_eq!(lab.seen.lock().len(), 2, "all else is answered here");
        }
    }
}

#[tokio::test]
async fn an_old_leader_elsewhere_is_waited_for() {
    let lab = held_by("old_6a7f");
    lab.real.is_held_by(&in_system(), "old_6a7f");
    assert!(text(lab.get(&format!("{SYSTEM}/lock")).await).await.contains("old_6a7f"));
    // It has just renewed, past the controller's back.
    let refused = lab.send(write("PUT", &format!("{SYSTEM}/lock"), of("me_1"))).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(lab.real.holder(&in_system()), "old_6a7f");
}

#[tokio::test]
async fn what_another_shard_holds_elsewhere_for_the_ring_is_there_for_the_taking() {
    let lab = held_by("ringside-example");
    lab.real.is_held_by(&in_system(), "ringside-example");
    assert_eq!(lab.get(&format!("{SYSTEM}/lock")).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(lab.send(write("POST", SYSTEM, of("me_1"))).await.status(), StatusCode::CREATED);
    assert_eq!(lab.asked(), [format!("GET {SYSTEM}/lock")], "all else is answered here");
}

/// Heartbeats of nodes, locks of others, and what does not look like a lock.
#[tokio::test]
async fn leases_elsewhere_that_are_data_pass_at_no_request_more() {
    let no_lock = of("me").replace("acquireTime", "x");
    for lease in [of("node-7"), of("me-2_6a7f"), of("other"), no_lock, "no JSON".to_owned()] {
        let lab = held_by("node-7");
        lab.send(write("PUT", &format!("{SYSTEM}/lock"), lease.clone())).await;
        assert_eq!(lab.asked(), [format!("PUT {SYSTEM}/lock")], "{lease}");
        assert_eq!(lab.last().body, lease);
    }
    let lab = held_by("node-7");
    lab.send(merge_patch(&format!("{SYSTEM}/lock"), r#"{"spec":{"leaseDurationSeconds":16}}"#)).await;
    assert_eq!(lab.asked(), [format!("PATCH {SYSTEM}/lock")]);
    assert!(!lab.shared.locks.knows(&in_system()));
}

/// A part that one replica alone may run elects elsewhere on purpose.
#[tokio::test]
async fn an_election_elsewhere_passes_beside_one_that_is_answered_and_where_the_user_named_a_namespace() {
    let led = held_by("");
    assert_eq!(led.send(write("POST", LEASES, record("lock", ""))).await.status(), StatusCode::OK);
    let mut named = held_by("");
    let locks = Arc::new(Locks::new("ns".into()).with_elsewhere(Elsewhere::Nowhere));
    named.shared = Shared { locks, ..named.shared };
    let upstream = service_fn(|request: Request<Body>| async move {
        assert_eq!(request.uri().query(), None, "no dry run");
        Ok::<_, UpstreamError>(ok())
    });
    named.stack = BoxCloneService::new(stack(&named.shared, upstream));
    for lab in [led, named] {
        lab.send(write("PUT", &format!("{SYSTEM}/lock"), of("me_1"))).await;
        assert!(!lab.shared.locks.knows(&in_system()));
        assert_eq!(lab.real.holder(&in_system()), "");
    }
}

#[tokio::test]
async fn an_election_elsewhere_that_the_shard_may_not_hold_is_refused_and_shows_in_readiness() {
    let (mut lab, health) = (held_by(""), Health::new());
    let locks = Arc::new(Locks::new("ns".into()).with_check(health.check("locks", Probe::Ready)));
    lab.shared = Shared { locks, ..lab.shared };
    let upstream =
        service_fn(|_: Request<Body>| async { Ok::<_, UpstreamError>(would_store(StatusCode::OK, of("me_1"))) });
    lab.stack = BoxCloneService::new(stack(&lab.shared, upstream));
    lab.real.refuse(Some(StatusCode::FORBIDDEN));
    let begin = async || lab.send(write("PUT", &format!("{SYSTEM}/lock"), of("me_1"))).await.status();
    assert_eq!(begin().await, StatusCode::FORBIDDEN);
    let told = health.failures(Probe::Ready);
    assert!(told[0].contains("kube-system") && told[0].contains("get, create and update"), "{told:?}");
    lab.real.refuse(None);
    assert_eq!(begin().await, StatusCode::OK);
    assert!(health.failures(Probe::Ready).is_empty());
}
