//! Writes to a fake API server that answers 429 for a while.

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::*;
use crate::{
    fixtures::FakeApi,
    writes::{AllWrites, Writes},
};

const PATH: &str = "/api/v1/namespaces/default/secrets/s";
const LASTS: Duration = Duration::from_secs(1);

/// The fake API server answers 429 to so many writes in a row, and tells the limiter as its client would.
fn throttles(api: &FakeApi, limiter: &Limiter, mut count: usize) {
    let limiter = limiter.clone();
    api.intercept(move |asked, _| {
        if asked.method != Method::PATCH || count == 0 {
            return None;
        }
        count -= 1;
        // A write takes that long.
        limiter.throttled(&Pause { lasts: LASTS, group: None, sent: Instant::now() - SHORT });
        Some(StatusCode::TOO_MANY_REQUESTS)
    });
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_of_429_as_many_writes_are_under_way_as_before() {
    let (api, all) = (FakeApi::default(), AllWrites::default());
    api.put(PATH, json!({"metadata": {"namespace": "default", "name": "s", "uid": "u", "resourceVersion": "1"}}));
    api.slow_writes(SHORT);
    let (writes, secrets_api) = (Writes::among(&all), Api::<Secret>::namespaced(api.client(), "default"));
    let (left, most) = (Arc::new(AtomicUsize::new(0)), 2 * MAX_PERMITS);
    let run = async |count: usize| {
        left.store(count, Ordering::Relaxed);
        let before = api.writes().len();
        let writers = (0..most).map(|_| async {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let api = secrets_api.clone();
                let patch =
                    async move { api.patch_metadata("s", &PatchParams::default(), &Patch::Merge(json!({}))).await };
                writes.carry_out(&secrets(), patch).await.ok();
            }
        });
        join_all(writers).await;
        assert_eq!(api.writes().len() - before, count);
        writes.limiter().limit()
    };
    // 8 + 9 + ... + 63 good answers.
    let whole = (8..MAX_PERMITS).sum::<usize>() + most;
    assert_eq!(run(whole).await, MAX_PERMITS);
    // Each pause ends a round: 64, 32, 16, 8, 4, 2 and 2 again.
    let storm = 64 + 32 + 16 + 8 + 4 + 2 + 2;
    throttles(&api, all.limiter(), storm);
    let start = Instant::now();
    assert_eq!(run(storm).await, 2);
    assert!(start.elapsed() >= LASTS * 6, "pauses were kept");
    let again = (2..MAX_PERMITS).sum::<usize>() + most;
    assert_eq!(run(again).await, MAX_PERMITS, "as many good answers bring all permits back");
}
