//! Clients that go on from before their resource joined the ring, or left it.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use tokio::time::timeout;

use super::*;
use crate::{policy::Policy, views::fixtures::leaving};

const WATCH: &str = "/apis/x.io/v1/namespaces/a/things?watch=1";

/// A lab whose ring takes the resource in, or gives it up, while the collection is at 10.
fn changed(joins: bool, answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Lab {
    let lab = Lab::new(answer);
    let with: std::collections::BTreeSet<_> = [things()].into();
    let with = Policy { families: [(things(), Vec::new())].into(), resources: with, ..Policy::default() }
        .after(&Policy::default());
    let policy = if joins { with } else { Policy::default().after(&with) };
    lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
    lab
}

fn is_question(seen: &Seen) -> bool {
    seen.uri.query().is_some_and(|query| query.contains("limit=1"))
}

fn at_ten(seen: &Seen) -> Response<Body> {
    if is_question(seen) {
        return json(full(r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#));
    }
    silent()
}

#[tokio::test]
async fn a_watch_from_before_the_change_is_told_to_list_again_and_one_from_after_goes_on() {
    for joins in [true, false] {
        let lab = changed(joins, at_ten);
        for (from, stale) in [("9", true), ("10", false), ("11", false), ("0", false), ("", false)] {
            let mut body = lab.get(&format!("{WATCH}&resourceVersion={from}")).await.into_body();
            let Some(first) = body.frame().now_or_never() else {
                assert!(!stale, "{from}");
                continue;
            };
            assert!(stale, "{from}");
            let event: serde_json::Value =
                serde_json::from_slice(&first.unwrap().unwrap().into_data().unwrap()).unwrap();
            assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
            assert!(body.frame().await.is_none());
        }
        let questions: Vec<_> = lab.seen.lock().iter().filter(|seen| is_question(seen)).cloned().collect();
        assert_eq!(questions.len(), 1, "the version is read once");
        assert_eq!(questions[0].uri.path(), "/apis/x%2Eio/v1/namespaces/a/things");
    }
}

/// A client may send a body with what it reads, and compress it: the proxy's question has none, and says nothing of one.
#[tokio::test]
async fn a_question_says_nothing_of_the_body_of_the_request_that_it_is_asked_for() {
    let lab = changed(true, at_ten);
    let mut request = ask("GET", &format!("{WATCH}&resourceVersion=11"));
    *request.body_mut() = full("{}");
    let about_body = [("content-length", "2"), ("content-type", "application/json"), ("expect", "100-continue")];
    for (name, value) in about_body {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    lab.send(request).await;
    let seen = lab.seen.lock().clone();
    let (question, real) = (seen.iter().find(|seen| is_question(seen)).unwrap(), seen.last().unwrap());
    for (name, value) in about_body {
        assert!(!question.headers.contains_key(name), "{name}");
        assert_eq!(real.headers[name], value);
    }
}

#[tokio::test]
async fn a_page_of_a_list_from_before_the_change_is_gone() {
    let lab = changed(true, at_ten);
    for (version, code) in [(9, 410), (10, 200)] {
        let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":"a"}}"#);
        let token = BASE64_URL_SAFE_NO_PAD.encode(token);
        let page = lab.get(&format!("/apis/x.io/v1/things?limit=5&continue={token}")).await;
        assert_eq!(page.status(), code, "{version}");
    }
}

#[tokio::test]
async fn a_watch_from_before_a_gap_in_the_lease_is_told_to_list_again() {
    let at = Arc::new(Mutex::new(10));
    let lab = changed(true, {
        let at = at.clone();
        move |seen| match is_question(seen) {
            true => json(full(format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[]}}"#, at.lock()))),
            false => at_ten(seen),
        }
    });
    let goes_on = async || {
        let mut body = lab.get(&format!("{WATCH}&resourceVersion=10")).await.into_body();
        body.frame().now_or_never().is_none()
    };
    assert!(goes_on().await);
    *at.lock() = 20;
    assert!(goes_on().await, "nothing moves unnoticed while the Lease is held");
    lab.shared.gate.close();
    lab.shared.gate.open(term());
    assert!(!goes_on().await);
}

#[tokio::test]
async fn a_read_is_not_older_than_its_term_and_than_the_last_drain() {
    let lab = changed(true, at_ten);
    drop(lab.get(WATCH).await);
    let streamed = "&resourceVersionMatch=NotOlderThan&sendInitialEvents=true";
    assert!(lab.last().uri.query().unwrap().ends_with(streamed));
    for (version, is_kept) in [(9, false), (10, true), (14, true)] {
        assert_eq!(is_kept_at(&lab, version).await, is_kept, "{version}");
    }
    let _drained = lab.shared.fence.drained(leaving(things(), None, 15), Duration::ZERO, 0);
    for (version, is_kept) in [(14, false), (15, true)] {
        assert_eq!(is_kept_at(&lab, version).await, is_kept, "{version}");
    }
}

/// Whether a list that may be as old as `version` is sent on as it is.
async fn is_kept_at(lab: &Lab, version: u64) -> bool {
    drop(lab.get(&format!("/apis/x.io/v1/things?resourceVersion={version}")).await);
    lab.last().uri.query().unwrap().contains(&format!("resourceVersion={version}&"))
}

/// As of another past, which is not to come back.
#[tokio::test]
async fn what_was_seen_before_etcd_was_restored_does_not_count() {
    let lab = changed(true, at_ten);
    let drained = |version: u64| {
        let object = leaving(things(), None, version);
        lab.shared.views.gone(&object);
        drop(lab.shared.fence.drained(object, Duration::ZERO, 0));
    };
    drained(5_000);
    assert!(is_kept_at(&lab, 10).await);
    let page = async |version: u64| {
        let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":"a"}}"#);
        let token = BASE64_URL_SAFE_NO_PAD.encode(token);
        lab.get(&format!("/apis/x.io/v1/things?limit=5&continue={token}")).await.status()
    };
    assert_eq!(page(11).await, StatusCode::OK);
    drained(12);
    assert!(!is_kept_at(&lab, 11).await, "what is seen from then on counts");
    assert_eq!(page(11).await, StatusCode::GONE);
}

#[tokio::test]
async fn the_version_is_read_before_the_first_list_so_that_its_watch_goes_on() {
    let lab = changed(true, at_ten);
    drop(lab.get("/apis/x.io/v1/things?limit=500").await);
    assert!(is_question(&lab.seen.lock()[0]) && lab.seen.lock()[1].uri.query().unwrap().contains("limit=500"));
}

#[tokio::test]
async fn who_may_not_list_goes_on_and_any_other_refusal_is_the_answer() {
    for (code, passes) in [(403, true), (404, false), (500, false)] {
        let lab = changed(true, move |seen| {
            let mut response = if is_question(seen) { ok() } else { at_ten(seen) };
            if is_question(seen) {
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
            }
            response
        });
        for asked in 1..3 {
            let status = lab.get(&format!("{WATCH}&resourceVersion=9")).await.status();
            assert_eq!(status.as_u16(), if passes { 200 } else { code });
            assert_eq!(lab.seen.lock().iter().filter(|seen| is_question(seen)).count(), asked, "it is asked again");
        }
    }
}

#[tokio::test]
async fn a_list_under_way_is_cut_when_its_resource_joins_or_leaves() {
    for joins in [true, false] {
        let (server, respond) = streaming();
        let lab = Lab::new(respond);
        let of = |with: bool| if with { sharding(&[things()]) } else { sharding(&[]) };
        lab.shared.knowledge.send_replace(of(!joins));
        let mut body = lab.get("/apis/x.io/v1/things").await.into_body();
        server.unbounded_send("{").unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        lab.shared.knowledge.send_replace(of(joins));
        assert!(body.frame().await.unwrap().is_err());
    }
}

/// As where one object's conversion webhook does not answer.
#[tokio::test(start_paused = true)]
async fn a_question_that_hangs_is_given_up_and_blocks_no_others() {
    let lab = Lab::stuck(|seen| {
        let hangs = is_question(seen) && seen.uri.path().contains("/namespaces/a/");
        (!hangs).then(|| at_ten(seen))
    });
    let policy =
        Policy { families: [(things(), Vec::new())].into(), resources: [things()].into(), ..Policy::default() };
    lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy.after(&Policy::default()))));
    let questions = || lab.seen.lock().iter().filter(|seen| is_question(seen)).count();
    for asked in 1..3 {
        let answer = timeout(Duration::from_secs(12), lab.get(WATCH)).await.expect("it waits for ever");
        assert_eq!((answer.status(), questions()), (StatusCode::SERVICE_UNAVAILABLE, asked));
        assert!(text(answer).await.contains("did not say within 10s at which resourceVersion things.x.io are"));
    }
    let mut hanging = Box::pin(lab.get(WATCH));
    assert!(timeout(Duration::from_millis(1), &mut hanging).await.is_err());
    let other = timeout(Duration::from_secs(2), lab.get("/apis/x.io/v1/namespaces/b/things")).await;
    assert_eq!(other.expect("it waits for the question of another").status(), StatusCode::OK);
    let same = timeout(Duration::from_millis(1), lab.get(WATCH)).await;
    assert_eq!(same.expect("it is known by now").status(), StatusCode::OK);
}
