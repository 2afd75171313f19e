//! What is written under an owner, and what was.

use http::{Method, StatusCode};
use ringside_e2e::compatibility::client::Ask;
use serde_json::{Value, json};

use super::fixture::{Fixture, MAPS, MERGE, OTHER, WEBSITES, touch};

/// As a controller refers to the object that it makes another one for.
fn reference(owner: &Value) -> Value {
    json!({"apiVersion": "web.example.com/v1", "kind": "Website", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

fn map(name: &str, owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [reference(owner)]}})
}

/// A field of protobuf with a length (wire type 2).
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    let (low, high) = (u8::try_from(length & 0x7f).unwrap(), u8::try_from(length >> 7).unwrap());
    let length = if high == 0 { vec![low] } else { vec![low | 0x80, high] };
    [vec![number << 3 | 2], length, content.to_vec()].concat()
}

fn map_in_protobuf(name: &str, owner: &Value) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap().as_bytes().to_vec();
    let reference = reference(owner);
    let reference = [
        field(1, b"Website"),
        field(3, &text(&reference["name"])),
        field(4, &text(&reference["uid"])),
        field(5, b"web.example.com/v1"),
        // `controller`, a varint.
        vec![6 << 3, 1],
    ];
    let metadata = [field(1, name.as_bytes()), field(3, b"default"), field(13, &reference.concat())].concat();
    let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let unknown = [field(1, &kind), field(2, &field(1, &metadata))].concat();
    [b"k8s\0".to_vec(), unknown].concat()
}

/// Every way to make a map under the owner, each with a name of its own, and one that adopts a map that is there.
fn creates(mark: &str, owner: &Value, orphan: &str) -> Vec<Ask> {
    let name = |form: &str| format!("{mark}-{form}");
    let post = |form: &str, body: Vec<u8>| Ask::new(Method::POST, MAPS).body(form, body);
    let json = |form: &str| map(&name(form), owner).to_string();
    let escaped =
        json("escaped").replace("ownerReferences", "\\u006fwnerReferences").replace("\"uid\"", "\"\\u0075id\"");
    let yaml = |form: &str| {
        let reference = reference(owner);
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n  ownerReferences:\n  - apiVersion: {}\n    kind: \
             Website\n    name: {}\n    uid: {}\n    controller: true\n",
            name(form),
            reference["apiVersion"],
            reference["name"],
            reference["uid"]
        )
    };
    let apply = |form: &str| format!("{MAPS}/{}?fieldManager=fence", name(form));
    let adopt = json!({"metadata": {"ownerReferences": [reference(owner)]}});
    vec![
        post("application/json", json("json").into()),
        post("application/json", escaped.into()),
        post("application/yaml", yaml("yaml").into()),
        post("application/vnd.kubernetes.protobuf", map_in_protobuf(&name("protobuf"), owner)),
        Ask::new(Method::PATCH, apply("apply")).body("application/apply-patch+yaml", yaml("apply")),
        Ask::new(Method::PATCH, apply("apply-json")).body("application/apply-patch+yaml", json("apply-json")),
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
    // Nobody's child so far, as the proxy learns here.
    shard.expect(&touch(&adopted), StatusCode::OK).await;
    for create in creates("first", &owner, &adopted) {
        let answer = shard.send(&create).await;
        assert!(answer.status.is_success(), "{:?}: {}", create.headers, answer.text());
    }
    fixture.drain(&path).await;
    fixture.until_let_go(&path).await;
    shard.refuses(&touch(&adopted), StatusCode::CONFLICT).await;
    let left = orphan(fixture, "left", shard.name).await;
    for owner_is in [None, Some(OTHER)] {
        if let Some(shard) = owner_is {
            fixture.give_to(&path, shard).await;
        }
        for create in creates("late", &owner, &left) {
            shard.refuses(&create, StatusCode::CONFLICT).await;
        }
    }
    let maps = fixture.admin(&Ask::get(MAPS)).await;
    let late: Vec<_> = maps["items"].as_array().unwrap().iter().map(|map| &map["metadata"]["name"]).collect();
    assert!(!late.iter().any(|name| name.as_str().unwrap().starts_with("late-")), "{late:?}");

    fixture.give_to(&path, shard.name).await;
    for create in creates("again", &owner, &left) {
        let answer = shard.send(&create).await;
        assert!(answer.status.is_success(), "{:?}: {}", create.headers, answer.text());
    }
    // An owner that is not the ring's is nobody's business here.
    let mut other = map("of-a-job", &owner);
    other["metadata"]["ownerReferences"][0]["apiVersion"] = json!("batch/v1");
    shard.expect(&Ask::new(Method::POST, MAPS).body("application/json", other.to_string()), StatusCode::CREATED).await;
}

pub(crate) async fn by_name(fixture: &Fixture) {
    let shard = fixture.shard("siblings").await;
    let path = format!("{WEBSITES}/root");
    let owner = fixture.website("root", shard.name).await;
    fixture.create(MAPS, map("child", &owner), shard.name).await;
    let child = format!("{MAPS}/child");
    let data = json!({"data": {"late": "yes"}});
    let write = Ask::new(Method::PATCH, &child).body(MERGE, data.to_string());
    shard.expect(&touch(&child), StatusCode::OK).await;
    fixture.drain(&path).await;
    fixture.until_let_go(&path).await;
    // The sharder moves children after the acknowledgement; their labels still name the former owner here.
    for shard_of_child in [shard.name, OTHER] {
        fixture.give_to(&child, shard_of_child).await;
        for late in [write.clone(), Ask::new(Method::DELETE, &child)] {
            shard.refuses(&late, StatusCode::CONFLICT).await;
        }
        let all = Ask::new(Method::DELETE, format!("{MAPS}?fieldSelector=metadata.name%3Dchild"));
        match shard_of_child {
            OTHER => shard.expect(&all, StatusCode::OK).await,
            _ => shard.refuses(&all, StatusCode::CONFLICT).await,
        }
        fixture.admin(&Ask::get(&child)).await;
    }
    for path in [&path, &child] {
        fixture.give_to(path, shard.name).await;
    }
    shard.expect(&write, StatusCode::OK).await;
    shard.expect(&Ask::new(Method::DELETE, &child), StatusCode::OK).await;
}
