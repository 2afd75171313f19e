//! What a controller knows from before a restart of its proxy, or a gap in its Lease.

use http::{Method, StatusCode};
use ringside_e2e::{
    compatibility::client::{Ask, Http},
    eventually::eventually,
};
use serde_json::{Value, json};

use super::fixture::{DEADLINE, Fixture, MAPS, OTHER, Shard, WEBSITES, touch};

/// Two objects that the shard has written before the gap.
async fn begin(fixture: &Fixture, shard: &Shard, names: [&str; 2]) -> [String; 2] {
    let paths = names.map(|name| format!("{WEBSITES}/{name}"));
    for (name, path) in names.iter().zip(&paths) {
        fixture.website(name, shard.name).await;
        shard.expect(&touch(path), StatusCode::OK).await;
    }
    paths
}

/// The first was moved in the gap, without a word to the shard; the second was not.
async fn end(fixture: &Fixture, shard: &Shard, [moved, kept]: &[String; 2]) {
    shard.refuses(&touch(moved), StatusCode::CONFLICT).await;
    shard.refuses(&Ask::new(Method::DELETE, moved), StatusCode::CONFLICT).await;
    let owner = fixture.admin(&Ask::get(moved)).await;
    shard.refuses(&child(&owner, "late"), StatusCode::CONFLICT).await;
    shard.expect(&touch(kept), StatusCode::OK).await;
    let owner = fixture.admin(&Ask::get(kept)).await;
    let name = owner["metadata"]["name"].as_str().unwrap();
    shard.expect(&child(&owner, name), StatusCode::CREATED).await;
}

fn child(owner: &Value, name: &str) -> Ask {
    let reference = json!({"apiVersion": "web.example.com/v1", "kind": "Website", "controller": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
    let map = json!({"metadata": {"name": name, "ownerReferences": [reference]}});
    Ask::new(Method::POST, MAPS).body("application/json", map.to_string())
}

pub(crate) async fn restart(fixture: &Fixture) {
    let shard = fixture.shard("restarted").await;
    let paths = begin(fixture, &shard, ["before-restart", "through-restart"]).await;
    fixture.give_to(&paths[0], OTHER).await;
    let shard = fixture.restart(shard).await;
    end(fixture, &shard, &paths).await;
}

pub(crate) async fn lease(fixture: &Fixture) {
    let shard = fixture.shard("interrupted").await;
    let paths = begin(fixture, &shard, ["before-gap", "through-gap"]).await;
    // Somebody takes the Lease, as the sharder does with that of a shard it counts for dead.
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{}", shard.name);
    let hold = |holder: &str| {
        // Longer than the proxy lets a request wait for the Lease.
        let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 10}});
        Ask::new(Method::PATCH, &lease).body("application/merge-patch+json", spec.to_string())
    };
    fixture.admin(&hold("shardlease-controller")).await;
    eventually("the shard has lost its Lease", DEADLINE, || async {
        // What is under way when the Lease is lost breaks off.
        let answer = shard.endpoint().exchange(Http::Two, &touch(&paths[1]), "shard").await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE { Ok(()) } else { Err(answer.text()) }
    })
    .await
    .unwrap();
    fixture.give_to(&paths[0], OTHER).await;
    shard.proxy.until_ready().await.unwrap();
    end(fixture, &shard, &paths).await;
}
