//! What a controller knows from before a gap in its Lease.

use http::{Method, StatusCode};
use ringside_e2e::{
    compatibility::client::{Ask, Http},
    eventually::eventually,
};
use serde_json::json;

use super::fixture::{DEADLINE, Fixture, MAPS, MERGE, OTHER, WEBSITES, child, touch};

/// Of two objects that the shard has written before the gap, the first is moved in it without a word to the shard.
pub(crate) async fn lease(fixture: &Fixture) {
    let shard = fixture.shard("interrupted").await;
    let [moved, kept] = ["before-gap", "through-gap"].map(|name| (name, format!("{WEBSITES}/{name}")));
    for (name, path) in [&moved, &kept] {
        fixture.website(name, shard.name).await;
        shard.expect(&touch(path), StatusCode::OK).await;
    }
    // Another holder takes the Lease, as the sharder does with that of a shard it counts for dead, and releases it.
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{}", shard.name);
    let hold = |holder: &str| {
        let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 120}});
        Ask::new(Method::PATCH, &lease).body(MERGE, spec.to_string())
    };
    fixture.admin(&hold("shardlease-controller")).await;
    eventually("the shard has lost its Lease", DEADLINE, || async {
        // What is under way when the Lease is lost breaks off.
        let answer = shard.endpoint.exchange(Http::Two, &touch(&kept.1), "shard").await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE { Ok(()) } else { Err(answer.text()) }
    })
    .await
    .unwrap();
    fixture.give_to(&moved.1, OTHER).await;
    fixture.admin(&hold("")).await;
    shard.proxy.until_ready().await.unwrap();

    shard.refuses(&touch(&moved.1), StatusCode::CONFLICT).await;
    shard.refuses(&Ask::new(Method::DELETE, &moved.1), StatusCode::CONFLICT).await;
    shard.expect(&touch(&kept.1), StatusCode::OK).await;
    let create_under = async |(name, path): &(&str, String)| {
        let owner = fixture.admin(&Ask::get(path)).await;
        Ask::new(Method::POST, MAPS).body("application/json", child(name, &owner).to_string())
    };
    shard.refuses(&create_under(&moved).await, StatusCode::CONFLICT).await;
    shard.expect(&create_under(&kept).await, StatusCode::CREATED).await;
}
