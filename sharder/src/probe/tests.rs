//! What comes of probes, against a fake API server and a clock that stands still.

#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use http::{Method, StatusCode};
use kube::{core::DynamicObject, discovery::ApiResource};

use super::*;
use crate::{fixtures::FakeApi, news::tell, verdict::Verdicts};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ringside-system/leases";

/// Refused is treated here.
fn read(made: Result<Lease, kube::Error>) -> Answer {
    match made {
        Ok(_) => Answer::Passed,
        Err(kube::Error::Api(status)) if status.code == 403 => Answer::Treated,
        Err(error) => Answer::Unclear(explain(&error)),
    }
}

fn probe<'a>(client: &'a kube::Client, home: &'a Home) -> Probe<'a> {
    Probe { client, home, what: "this", read: &read, pause: PAUSE, does: "it works", passed: "off" }
}

/// An API server that answers probes so, by HTTP status.
fn answering() -> (FakeApi, Arc<AtomicU16>) {
    let (api, answer) = (FakeApi::default(), Arc::new(AtomicU16::new(200)));
    let answered = answer.clone();
    api.intercept(move |asked, objects| {
        if asked.method != Method::POST || asked.path != LEASES {
            return None;
        }
        assert!(asked.query.contains("dryRun=All"), "{}", asked.query);
        // As of a dry run nothing is there afterwards.
        objects.retain(|path, _| !path.starts_with(LEASES));
        let status = StatusCode::from_u16(answered.load(Ordering::Relaxed)).unwrap();
        (!status.is_success()).then_some(status)
    });
    (api, answer)
}

#[tokio::test(start_paused = true)]
async fn what_passes_tells_after_a_margin_that_nothing_treats_it_and_what_is_unclear_is_no_answer_for_long() {
    let (api, answer) = answering();
    let (client, home) =
        (api.client(), Home(ObjectMeta { name: Some("ringside-system".into()), ..ObjectMeta::default() }));
    let kind = ApiResource::erase::<Namespace>(&());
    let (kept, keeper) = Kept::new((&client, &client), &kind, "kept".to_owned(), Duration::from_secs(3_000));
    let verdicts = Verdicts::default();
    let probe = probe(&client, &home);
    let now = || verdicts.borrow().clone();
    let off = Some(Err("off".to_owned()));
    {
        let objects = [&kept];
        let looking =
            async { tokio::join!(keeper.run(), probe.repeat(&objects, |verdict| _ = tell(&verdicts, verdict))) };
        let mut looking = std::pin::pin!(looking);
        let mut wait = async |time| {
            tokio::select! {
                (never, _) = &mut looking => match never {},
                () = sleep(time) => {}
            }
        };
        wait(PAUSE).await;
        assert_eq!((now(), api.asked().len()), (None, 0), "nothing is there that could treat it");
        let metadata = json!({"name": "kept", "labels": belonging_labels()});
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        kept.want(Some(serde_json::from_value::<DynamicObject>(object.clone()).unwrap()));
        wait(ACTED_ON / 2).await;
        assert_eq!(now(), None, "an API server may not act on it yet");
        wait(ACTED_ON + PAUSE).await;
        assert_eq!(now(), off);
        answer.store(403, Ordering::Relaxed);
        wait(PAUSE).await;
        assert_eq!(now(), Some(Ok(())));
        answer.store(503, Ordering::Relaxed);
        wait(PAUSE * 2).await;
        assert_eq!(now(), Some(Ok(())), "it can't say");
        wait(PAUSE * 2).await;
        let unknown = |verdict: Verdict| matches!(verdict, Some(Err(why)) if why.starts_with("whether it works can't be found out: "));
        assert!(unknown(now()), "what was found out counts no more: {:?}", now());
        answer.store(403, Ordering::Relaxed);
        wait(PAUSE).await;
        assert_eq!(now(), Some(Ok(())));
        answer.store(200, Ordering::Relaxed);
        wait(PAUSE).await;
        assert_eq!(now(), off, "it treats them no more");
        kept.want(None);
        wait(PAUSE).await;
        assert_eq!(now(), None, "nobody relies on it, so nobody asks");
        wait(ANSWER_TIMEOUT * 2).await;
        assert_eq!(now(), None, "however long");
        answer.store(503, Ordering::Relaxed);
        kept.want(Some(serde_json::from_value(object).unwrap()));
        wait(ANSWER_TIMEOUT - PAUSE).await;
        assert_eq!(now(), None);
        wait(PAUSE * 2).await;
        assert!(unknown(now()), "nobody waits for ever: {:?}", now());
    }
    assert_eq!(now(), None, "who leads no more knows nothing");
}
