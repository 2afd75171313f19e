//! What is under way holds a drain.

use super::*;
use crate::body::BODY_SILENCE;

/// A shard whose API server never answers a write.
fn stuck() -> (Fenced, Arc<tokio::sync::Notify>) {
    let (objects, sent) = (Objects::default(), Arc::new(tokio::sync::Notify::new()));
    let (served, arrived) = (objects.clone(), sent.clone());
    let lab = Lab::stuck(move |seen| {
        let reads = seen.method == "GET";
        if !reads {
            arrived.notify_one();
        }
        reads.then(|| answer(&served, seen))
    });
    (Fenced::over(lab, objects), sent)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_answered_holds_the_drain_also_after_the_client_is_gone() {
    for (method, uri) in
        [("PUT", format!("{THINGS}/b")), ("PATCH", format!("{THINGS}/b/status")), ("DELETE", format!("{PARTS}/p"))]
    {
        let (fenced, sent) = stuck();
        fenced.thing(OURS);
        fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Thing", "b")));
        let guard = fenced.drained();
        let mut writing = Box::pin(fenced.lab.send(ask(method, &uri)));
        tokio::select! {
            _ = &mut writing => unreachable!("the API server does not answer"),
            () = sent.notified() => {}
        }
        assert!(holds(&guard, 60 * GRACE).await, "{method} {uri}");
        drop(writing);
        assert!(holds(&guard, Duration::from_secs(34)).await, "the API server may be at it: {method} {uri}");
        assert!(!holds(&guard, 2 * GRACE).await, "{method} {uri}");
    }
}

/// The API server deletes what it listed at the beginning, for as long as its requests may take.
#[tokio::test(start_paused = true)]
async fn deletion_of_many_holds_the_drain_as_long_as_it_is_under_way() {
    const ANSWERED: Duration = Duration::from_secs(100);
    const LATEST: Duration = Duration::from_secs(65);
    let parts = format!("{PARTS}?fieldSelector=x%3Dy");
    for (lost, uri) in [(false, THINGS), (true, THINGS), (false, &parts)] {
        let objects = Objects::default();
        let served = objects.clone();
        let lab = Lab::new(move |seen| {
            let mut response = answer(&served, seen);
            if seen.method == Method::DELETE {
                response.extensions_mut().insert(Late(ANSWERED));
            }
            response
        });
        let fenced = Fenced::over(lab, objects);
        fenced.thing(OURS);
        fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Thing", "b")));
        let guard = fenced.drained();
        assert!(timeout(GRACE, fenced.status("DELETE", uri)).await.is_err(), "the client gives up");
        if lost {
            fenced.lab.shared.gate.close();
            assert!(holds(&guard, LATEST).await);
        } else {
            assert!(holds(&guard, ANSWERED - GRACE).await, "{uri}");
        }
        assert!(!holds(&guard, 2 * GRACE).await, "{uri}, lost: {lost}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_write_whose_client_is_gone_is_waited_for_while_the_lease_is_held() {
    for lost in [false, true] {
        let objects = Objects::default();
        let served = objects.clone();
        let lab = Lab::new(move |seen| {
            let mut response = answer(&served, seen);
            if seen.method != "GET" {
                response.extensions_mut().insert(Late(5 * GRACE));
            }
            response
        });
        let fenced = Fenced::over(lab, objects);
        fenced.thing(OURS);
        let guard = fenced.drained();
        assert!(timeout(GRACE, fenced.status("PUT", &format!("{THINGS}/b"))).await.is_err(), "the client gives up");
        assert_eq!(fenced.lab.shared.upgraded.len(), 1);
        if lost {
            fenced.lab.shared.gate.close();
        }
        assert!(holds(&guard, 4 * GRACE + GRACE / 2).await, "it was answered half a grace ago");
        assert_eq!(fenced.lab.shared.upgraded.len(), 0);
        assert_eq!(fenced.lab.shared.fence.is_idle(), !lost);
        assert_eq!(holds(&guard, 2 * GRACE).await, lost, "what was broken off may be carried out");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_under_the_object_holds_its_drain() {
    let (fenced, sent) = stuck();
    fenced.thing(OURS);
    let child = value!({"metadata": {"ownerReferences": [owner("Thing", "b")]}}).to_string();
    let mut request = ask("POST", PARTS).map(|_| full(child));
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut writing = Box::pin(fenced.lab.send(request));
    tokio::select! {
        _ = &mut writing => unreachable!("the API server does not answer"),
        () = sent.notified() => {}
    }
    // Begun before the drain was known.
    let guard = fenced.drained();
    assert!(holds(&guard, 60 * GRACE).await);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_asked_about_holds_the_drain_of_whom_it_may_concern() {
    let names_it = value!({"metadata": {"ownerReferences": [owner("Thing", "b")]}}).to_string();
    // The question that is not answered: about the child itself, or about its owner.
    for (method, path, body, at) in [
        ("PUT", format!("{PARTS}/p"), names_it.clone(), PARTS),
        ("PUT", format!("{PARTS}/p"), names_it.clone(), THINGS),
        ("POST", PARTS.to_owned(), names_it, THINGS),
        ("PATCH", format!("{PARTS}/p"), "{}".to_owned(), THINGS),
        ("DELETE", format!("{PARTS}/p"), String::new(), THINGS),
        ("DELETE", format!("{PARTS}?fieldSelector=x%3Dy"), String::new(), THINGS),
    ] {
        let (objects, asked) = (Objects::default(), Arc::new(tokio::sync::Notify::new()));
        let (served, arrived) = (objects.clone(), asked.clone());
        let lab = Lab::stuck(move |seen| {
            let is_question = seen.uri.query().is_some_and(|query| query.contains("fieldSelector"));
            let is_stuck = is_question && seen.uri.path() == at;
            if is_stuck {
                arrived.notify_one();
            }
            (!is_stuck).then(|| answer(&served, seen))
        });
        let fenced = Fenced::over(lab, objects);
        fenced.thing(OURS);
        fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Thing", "b")));
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut writing = Box::pin(fenced.write(method, &path, content_type, body));
        tokio::select! {
            status = &mut writing => unreachable!("the API server does not answer {method} {path}: {status}"),
            () = asked.notified() => {}
        }
        let guard = fenced.drained();
        assert!(holds(&guard, 4 * GRACE).await, "{method} {path}, at {at}");
        drop(writing);
        assert!(!holds(&guard, 2 * GRACE).await, "{method} {path}: it was not sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_holds_the_drain_until_the_end_of_its_answer() {
    let (body, respond) = streaming();
    let lab = Lab::new(respond);
    let fenced = Fenced::over(lab, Objects::default());
    let guard = fenced.drained();
    let response = fenced.lab.send(ask("DELETE", THINGS)).await;
    assert!(holds(&guard, 60 * GRACE).await);
    drop((response, body));
    assert!(!holds(&guard, GRACE + GRACE / 2).await, "the API server has answered: nothing goes on");
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_did_not_settle_may_go_on_and_what_it_never_got_does_not() {
    let answers: [(Answer, bool); 6] = [
        (|| Err(UpstreamError::Failed("reset".into())), true),
        (|| Err(UpstreamError::Unreachable("refused".into())), false),
        (|| Err(UpstreamError::NotProcessed("goaway".into())), false),
        (|| Ok(with(StatusCode::GATEWAY_TIMEOUT)), true),
        (|| Ok(with(StatusCode::BAD_GATEWAY)), true),
        (|| Ok(with(StatusCode::CONFLICT)), false),
    ];
    for (number, (answer, goes_on)) in answers.into_iter().enumerate() {
        let fenced = Fenced::over(Lab::failing(Arc::new(move |_| answer())), Objects::default());
        let guard = fenced.drained();
        drop(fenced.lab.send(ask("PUT", &format!("{THINGS}/b"))).await);
        assert_eq!(holds(&guard, GRACE + GRACE / 2).await, goes_on, "{number}");
    }
}

type Answer = fn() -> Result<Response<Body>, UpstreamError>;

#[tokio::test(start_paused = true)]
async fn each_write_begins_the_grace_anew_and_a_refused_one_leaves_nothing() {
    let fenced = Fenced::new();
    fenced.thing(OURS);
    let guard = fenced.drained();
    let mut quiet = Box::pin(guard.wait_idle());
    for _ in 0..5 {
        assert!((&mut quiet).now_or_never().is_none());
        advance(GRACE / 2).await;
        fenced.status("PUT", &format!("{THINGS}/b")).await;
    }
    assert!((&mut quiet).now_or_never().is_none());
    advance(GRACE).await;
    assert!(quiet.now_or_never().is_some());
    assert_eq!(fenced.lab.shared.fence.numbers().writes, 0);
}

#[tokio::test(start_paused = true)]
async fn half_a_body_is_answered_and_holds_no_drain_any_more() {
    // One that is sent on as it comes, and one that is read here.
    for (method, uri) in [("PUT", format!("{THINGS}/b")), ("PUT", format!("{PARTS}/p"))] {
        let fenced = Fenced::new();
        fenced.thing(OURS);
        fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Thing", "b")));
        let guard = fenced.drained();
        let half = futures::stream::once(std::future::ready(Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{")))));
        let half = boxed(StreamBody::new(half.chain(futures::stream::pending())));
        let mut request = ask(method, &uri).map(|_| half);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = timeout(2 * BODY_SILENCE, fenced.lab.send(request)).await.expect("no answer");
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT, "{uri}");
        assert!(text(answer).await.contains("no byte of the request's body came for 30s"));
        assert!(fenced.lab.shared.fence.is_idle(), "{uri}");
        assert!(!holds(&guard, 2 * GRACE).await, "{uri}");
    }
}

/// Each refusal comes sooner than the grace would end.
#[tokio::test(start_paused = true)]
async fn writes_refused_each_second_do_not_hold_a_drain() {
    let under = value!({"metadata": {"name": "p", "ownerReferences": [owner("Thing", "b")]}}).to_string();
    for (method, uri, refused) in [("POST", PARTS.to_owned(), 412), ("PUT", format!("{PARTS}/p"), 409)] {
        let objects = Objects::default();
        let served = objects.clone();
        let lab = Lab::new(move |seen| match seen.uri.query() {
            // A watch that breaks off at once.
            Some(query) if query.contains("watch=1") => {
                json(boxed(StreamBody::new(futures::stream::empty::<Result<Frame<Bytes>, BoxError>>())))
            }
            _ => answer(&served, seen),
        });
        let fenced = Fenced::over(lab, objects);
        fenced.thing(OURS);
        fenced.put(&format!("{PARTS}/p"), OTHERS, None);
        let mut watch = fenced.lab.get("/apis/x.io/v1/parts?watch=1&resourceVersion=5").await.into_body();
        assert!(watch.frame().await.is_none());
        drop(watch);
        let guard = fenced.drained();
        let again = async {
            for _ in 0..8 {
                assert_eq!(fenced.write(method, &uri, "application/json", under.clone()).await, refused, "{method}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! {
            () = guard.wait_idle() => assert!(guard.close()),
            () = again => panic!("held by what is refused: {method}"),
        }
    }
}
