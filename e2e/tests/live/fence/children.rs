//! What is written under an owner, and what was.

use http::{Method, StatusCode};
use ringside_e2e::compatibility::client::Ask;
use serde_json::{Value, json};

use super::fixture::{Fixture, MAPS, OTHER, WEBSITES, child, reference, touch};

/// Ways to make a map under the owner, each with a name of its own, and one that adopts a map that is there.
fn creates(mark: &str, owner: &Value, orphan: &str) -> [Ask; 3] {
    let object = |form: &str| child(&format!("{mark}-{form}"), owner).to_string();
    let adopt = json!({"metadata": {"ownerReferences": [reference(owner)]}});
    [
        Ask::new(Method::POST, MAPS).body("application/json", object("create")),
        Ask::new(Method::PATCH, format!("{MAPS}/{mark}-apply?fieldManager=fence"))
            .body("application/apply-patch+yaml", object("apply")),
        Ask::new(Method::PATCH, orphan).body("application/strategic-merge-patch+json", adopt.to_string()),
    ]
}

async fn orphan(fixture: &Fixture, name: &str, shard: &str) -> String {
    fixture.create(MAPS, json!({"metadata": {"name": name}}), shard).await;
    format!("{MAPS}/{name}")
}

pub(crate) async fn under(fixture: &Fixture) {
    let shard = fixture.shard("parents").await;
    let path = format!("{WEBSITES}/parent");
    let owner = fixture.website("parent", shard.name).await;
    let adopted = orphan(fixture, "adopted", shard.name).await;
    // No owner's child so far, as the proxy learns here.
    shard.expect(&touch(&adopted), StatusCode::OK).await;
    let made = format!("{MAPS}/first-create");
    for create in creates("first", &owner, &adopted) {
        let answer = shard.send(&create).await;
        assert!(answer.status.is_success(), "{:?}: {}", create.headers, answer.text());
    }
    fixture.give_to(&made, shard.name).await;
    shard.expect(&touch(&made), StatusCode::OK).await;
    fixture.drain(&path).await;
    fixture.until_let_go(&path).await;
    // The sharder moves children after the acknowledgement; their labels still name the former owner here.
    for child in [&adopted, &made] {
        shard.refuses(&touch(child), StatusCode::CONFLICT).await;
        shard.refuses(&Ask::new(Method::DELETE, child), StatusCode::CONFLICT).await;
    }
    let left = orphan(fixture, "left", shard.name).await;
    for owner_is in [None, Some(OTHER)] {
        if let Some(shard) = owner_is {
            fixture.give_to(&path, shard).await;
            fixture.give_to(&made, shard).await;
        }
        for create in creates("late", &owner, &left) {
            shard.refuses(&create, StatusCode::CONFLICT).await;
        }
    }
    let maps = fixture.admin(&Ask::get(MAPS)).await;
    let late: Vec<_> = maps["items"].as_array().unwrap().iter().map(|map| &map["metadata"]["name"]).collect();
    assert!(!late.iter().any(|name| name.as_str().unwrap().starts_with("late-")), "{late:?}");

    fixture.give_to(&path, shard.name).await;
    fixture.give_to(&made, shard.name).await;
    for create in creates("again", &owner, &left) {
        let answer = shard.send(&create).await;
        assert!(answer.status.is_success(), "{:?}: {}", create.headers, answer.text());
    }
    shard.expect(&touch(&made), StatusCode::OK).await;
}
