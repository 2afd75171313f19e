//! Reviews as the API server sends them, through parsing and decision.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use ringside_ring::{PartitionKey, cluster_ring::GroupResource, lease::ShardState};
use serde_json::{Value, json};

use super::*;
use crate::{
    owners::Owner,
    snapshot::tests::{example_spec, ring, snapshot, snapshot_of},
    webhook::request::parse,
};

/// A review of a ConfigMap or Secret named `o` in namespace `default`.
pub(crate) fn review_of(kind: &str, old: Option<&Value>, new: &Value) -> Value {
    let resource = format!("{}s", kind.to_lowercase());
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "review-1",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": resource},
        "requestKind": {"group": "", "version": "v1", "kind": kind},
        "name": new["metadata"]["name"].as_str().unwrap_or_default(), "namespace": "default", "operation": operation,
        "userInfo": {"username": "somebody"}, "object": new, "oldObject": old, "dryRun": false,
        "options": {"kind": "CreateOptions"},
    }})
}

/// An object with these labels of the ring.
pub(crate) fn labelled(shard: Option<&str>, drain: Option<&str>) -> Value {
    let labels = &snapshot().labels;
    let mut object = json!({"apiVersion": "v1", "metadata": {"name": "o", "namespace": "default"}, "data": {"k": "v"}});
    for (key, value) in [(&labels.shard, shard), (&labels.drain, drain)] {
        if let Some(value) = value {
            object["metadata"]["labels"][key] = json!(value);
        }
    }
    object
}

fn owned(mut object: Value) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u", "controller": true}]);
    object
}

/// The owner that a child is to follow.
fn owner<'a>(child: &Request, snapshot: &'a Snapshot) -> (&'a Main, Option<Place>) {
    let Decision::Follow(controller) = decide(child, snapshot) else { panic!("a child") };
    let owner = Owner { main: &snapshot.mains[0], reference: controller.clone() };
    (owner.main, owner.place(snapshot, Some("default")))
}

fn request(review: &Value) -> Request {
    parse(&serde_json::to_vec(review).unwrap()).unwrap()
}

/// The object after the webhook's patch, when there is one.
fn patched(decision: &Decision<'_>, mut object: Value) -> Option<Value> {
    let (Decision::Assign(patch) | Decision::Restore(patch)) = decision else { return None };
    json_patch::patch(&mut object, patch).unwrap();
    Some(object)
}

fn placed(kind: &str) -> String {
    let key = PartitionKey::of("", kind, "default", if kind == "ConfigMap" { "o" } else { "owner" });
    snapshot().hash_ring().owner(&key).unwrap().to_string()
}

#[test]
fn a_new_object_gets_the_shard_that_it_belongs_to() {
    let ring = snapshot();
    let mut with_labels = labelled(None, None);
    with_labels["metadata"]["labels"] = json!({"app": "x"});
    for new in [labelled(None, None), with_labels] {
        let request = request(&review_of("ConfigMap", None, &new));
        let after = patched(&decide(&request, &ring), new).unwrap();
        assert_eq!(after["metadata"]["labels"][&ring.labels.shard], placed("ConfigMap").as_str());
    }
}

#[test]
fn objects_with_one_value_get_one_shard() {
    let mut spec = example_spec();
    spec["resources"][0]["key"] = json!({"label": "team"});
    let ring = snapshot_of(&ring(&spec), &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
    let shard_of = |name: &str, team: &str| {
        let mut new = labelled(None, None);
        (new["metadata"]["name"], new["metadata"]["labels"]) = (json!(name), json!({"team": team}));
        let after = patched(&decide(&request(&review_of("ConfigMap", None, &new)), &ring), new).unwrap();
        after["metadata"]["labels"][&ring.labels.shard].as_str().unwrap().to_owned()
    };
    let shards = |team: &str| (0..8).map(|number| shard_of(&format!("o-{number}"), team)).collect::<BTreeSet<_>>();
    let of_teams: BTreeSet<_> = (0..16).map(|team| shards(&format!("t-{team}"))).collect();
    assert_eq!(of_teams, BTreeSet::from([BTreeSet::from(["a".to_owned()]), BTreeSet::from(["b".to_owned()])]));
    // The value of an owner is not known from its child.
    let child = request(&review_of("Secret", None, &owned(labelled(None, None))));
    assert_eq!(followed(&child, &ring, owner(&child, &ring), None), Decision::Leave);
}

#[test]
fn an_object_whose_name_is_still_to_be_generated_is_left_to_the_controller() {
    let mut new = labelled(None, None);
    new["metadata"].as_object_mut().unwrap().remove("name");
    new["metadata"]["generateName"] = json!("o-");
    assert_eq!(decide(&request(&review_of("ConfigMap", None, &new)), &snapshot()), Decision::Leave);
}

#[test]
fn without_available_shards_nothing_is_assigned() {
    let nobody = snapshot_of(&ring(&example_spec()), &[("gone", ShardState::Dead)]);
    let main = request(&review_of("ConfigMap", None, &labelled(None, None)));
    assert_eq!(decide(&main, &nobody), Decision::Leave);
    let child = request(&review_of("Secret", None, &owned(labelled(None, None))));
    assert_eq!(followed(&child, &nobody, owner(&child, &nobody), None), Decision::Leave);
}

#[test]
fn a_put_from_a_template_gets_its_labels_back() {
    let ring = snapshot();
    for kind in ["ConfigMap", "Secret"] {
        for drain in [None, Some("move-1")] {
            // With a drain, dropping only the shard label is no acknowledgement.
            let (mut old, new) = (labelled(Some("a"), drain), labelled(None, drain));
            if kind == "Secret" {
                // The template knows no owner either.
                old = owned(old);
            }
            let request = request(&review_of(kind, Some(&old), &new));
            let after = patched(&decide(&request, &ring), new).unwrap();
            assert_eq!(after["metadata"]["labels"], old["metadata"]["labels"]);
        }
    }
}

#[test]
fn a_child_of_what_is_not_served_at_the_moment_keeps_its_labels() {
    let away = GroupResource { group: "x.example.com".into(), resource: "things".into() };
    let ring = Snapshot { unresolved: vec![away], ..snapshot() };
    for (group, keeps) in [("x.example.com", true), ("y.example.com", false)] {
        let child = |shard| {
            let mut child = owned(labelled(shard, None));
            child["metadata"]["ownerReferences"][0]["apiVersion"] = json!(format!("{group}/v1"));
            child
        };
        let request = request(&review_of("Secret", Some(&child(Some("a"))), &child(None)));
        let after = patched(&decide(&request, &ring), child(None));
        assert_eq!(after, keeps.then(|| child(Some("a"))), "{group}");
        let new = self::request(&review_of("Secret", None, &child(None)));
        assert_eq!(decide(&new, &ring), Decision::Leave);
    }
}

#[test]
fn an_acknowledgement_is_not_undone() {
    let (old, new) = (labelled(Some("a"), Some("move-1")), labelled(None, None));
    let main = request(&review_of("ConfigMap", Some(&old), &new));
    // Its children are moved first.
    assert_eq!(decide(&main, &snapshot()), Decision::Leave);
    let childless = snapshot_of(
        &ring(&json!({"resources": [{"group": "", "resource": "configmaps"}]})),
        &[("a", ShardState::Ready), ("b", ShardState::Ready)],
    );
    let after = patched(&decide(&main, &childless), new.clone()).unwrap();
    let key = PartitionKey::of("", "ConfigMap", "default", "o");
    assert_eq!(
        after["metadata"]["labels"][&childless.labels.shard],
        childless.hash_ring().owner(&key).unwrap().as_str()
    );

    // The API server's fence could not tell this choice from one of the shard's own. Nor could it for what has no shard
    // already.
    let fenced = json!({"fence": "APIServer", "resources": [{"group": "", "resource": "configmaps"}]});
    let fenced = snapshot_of(&ring(&fenced), &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
    assert_eq!(decide(&main, &fenced), Decision::Leave);
    assert_eq!(decide(&request(&review_of("ConfigMap", Some(&new), &new)), &fenced), Decision::Leave);

    // The same by the Pod of another shard: it is none.
    let mut review = review_of("ConfigMap", Some(&old), &new);
    let mut by = |pod: &str| {
        review["request"]["userInfo"]["extra"] = json!({"authentication.kubernetes.io/pod-name": [pod]});
        patched(&decide(&request(&review), &snapshot()), new.clone())
    };
    assert_eq!(by("b").unwrap()["metadata"]["labels"], old["metadata"]["labels"]);
    assert_eq!(by("a"), None);

    // And by the shard's own controller, where the shard's proxy says who it is.
    let old = labelled(Some("a"), Some("move-1.1000ms"));
    let mut review = review_of("ConfigMap", Some(&old), &new);
    let mut named = |options: Value| {
        review["request"]["options"] = options;
        patched(&decide(&request(&review), &snapshot()), new.clone())
    };
    for options in [Value::Null, json!({"kind": "UpdateOptions"}), json!({"fieldManager": "the-controller"})] {
        assert_eq!(named(options).unwrap()["metadata"]["labels"], old["metadata"]["labels"]);
    }
    assert_eq!(named(json!({"kind": "PatchOptions", "fieldManager": "ringside-acknowledgement"})), None);
}

#[test]
fn a_new_child_follows_its_owner_and_falls_back_to_where_that_will_be() {
    let ring = snapshot();
    let new = owned(labelled(None, None));
    let request = request(&review_of("Secret", None, &new));
    let shard_after = |live: Option<&str>| {
        let live = live.map(|shard| shard.parse().unwrap());
        let decision = followed(&request, &ring, owner(&request, &ring), live);
        patched(&decision, new.clone()).unwrap()["metadata"]["labels"][&ring.labels.shard].clone()
    };
    let elsewhere = if placed("Secret") == "a" { "b" } else { "a" };
    // The key of a child is its owner's: group, kind and name of the ConfigMap.
    let owners = ring.hash_ring().owner(&PartitionKey::of("", "ConfigMap", "default", "owner")).unwrap();
    assert_eq!(shard_after(None), owners.as_str());
    assert_eq!(shard_after(Some(elsewhere)), elsewhere);
}

#[test]
fn an_unlabelled_child_that_is_written_to_is_assigned_only_where_its_owner_is() {
    let ring = snapshot();
    let object = owned(labelled(None, None));
    let request = request(&review_of("Secret", Some(&object), &object));
    assert_eq!(followed(&request, &ring, owner(&request, &ring), None), Decision::Leave);
}

#[test]
fn a_controlled_resource_without_an_owner_of_the_ring_is_left_alone() {
    let several = owned_by(&[("ConfigMap", false), ("ConfigMap", false)]);
    let foreign = owned_by(&[("ConfigMap", false), ("Pod", true)]);
    let mut other_kind = owned(labelled(None, None));
    other_kind["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    let mut other_group = owned(labelled(None, None));
    other_group["metadata"]["ownerReferences"][0]["apiVersion"] = json!("x.y/v1");
    for new in [labelled(None, None), several, foreign, other_kind, other_group] {
        assert_eq!(decide(&request(&review_of("Secret", None, &new)), &snapshot()), Decision::Leave);
    }
}

/// An unlabelled object with owners of these kinds, of which some control it.
fn owned_by(owners: &[(&str, bool)]) -> Value {
    let mut object = labelled(None, None);
    let reference = |(at, (kind, controls)): (usize, &(&str, bool))| json!({"apiVersion": "v1", "kind": kind, "name": "owner", "uid": format!("u-{at}"), "controller": controls});
    object["metadata"]["ownerReferences"] = owners.iter().enumerate().map(reference).collect();
    object
}

#[test]
fn a_child_follows_its_only_owner_of_the_ring_where_none_controls_it() {
    for owners in [&[("ConfigMap", false)][..], &[("Pod", false), ("ConfigMap", false)]] {
        let ring = snapshot();
        let request = request(&review_of("Secret", None, &owned_by(owners)));
        assert!(matches!(decide(&request, &ring), Decision::Follow(owner) if owner.kind == "ConfigMap"), "{owners:?}");
    }
}

/// A PUT of such an object that drops the label, which its writer does not see.
#[test]
fn what_has_several_owners_keeps_its_shard() {
    let mut old = owned_by(&[("ConfigMap", false)]);
    old["metadata"]["labels"] = labelled(Some("a"), None)["metadata"]["labels"].clone();
    let new = owned_by(&[("ConfigMap", false), ("ConfigMap", false)]);
    let put = request(&review_of("Secret", Some(&old), &new));
    assert!(matches!(decide(&put, &snapshot()), Decision::Restore(_)));
}

#[test]
fn a_resource_that_is_main_and_controlled_follows_its_controller_if_it_has_one() {
    let spec = json!({"resources": [
        {"group": "", "resource": "configmaps", "controlledResources": [{"group": "", "resource": "secrets"}]},
        {"group": "", "resource": "secrets"}]});
    let ring = snapshot_of(&ring(&spec), &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
    let controlled = request(&review_of("Secret", None, &owned(labelled(None, None))));
    assert!(matches!(decide(&controlled, &ring), Decision::Follow(_)));
    let free = request(&review_of("Secret", None, &labelled(None, None)));
    assert!(matches!(decide(&free, &ring), Decision::Assign(_)));
    // An acknowledgement of one that was adopted: the API server's fence refuses one that names the next shard.
    let released = review_of("Secret", Some(&owned(labelled(Some("b"), Some("m")))), &owned(labelled(None, None)));
    assert!(matches!(decide(&request(&released), &ring), Decision::Follow(_)));
    let mut fenced = ring.clone();
    fenced.spec.fence = ringside_ring::cluster_ring::Fence::ApiServer;
    assert_eq!(decide(&request(&released), &fenced), Decision::Leave);
    // Nor is it placed by itself while its owner's resource may only be away.
    let mut away = ring.clone();
    away.mains.retain(|main| main.resource.id.resource == "secrets");
    away.unresolved = vec![ring.mains[0].resource.id.clone()];
    assert_eq!(decide(&controlled, &away), Decision::Leave);
}

#[test]
fn what_has_its_label_is_left_alone_and_foreign_resources_are_noticed() {
    let ring = snapshot();
    let labelled_one = request(&review_of("ConfigMap", None, &labelled(Some("a"), None)));
    assert_eq!(decide(&labelled_one, &ring), Decision::Leave);
    let draining = review_of("ConfigMap", Some(&labelled(Some("a"), None)), &labelled(Some("a"), Some("m")));
    assert_eq!(decide(&request(&draining), &ring), Decision::Leave);
    assert_eq!(decide(&request(&review_of("Pod", None, &labelled(None, None))), &ring), Decision::Foreign);
}

#[test]
fn what_is_no_write_of_an_object_is_told_and_left_alone() {
    let odd = |change: &dyn Fn(&mut Value)| {
        let mut review = review_of("ConfigMap", None, &labelled(None, None));
        change(&mut review["request"]);
        match decide(&request(&review), &snapshot()) {
            Decision::Odd(odd) => odd,
            other => panic!("{other:?}"),
        }
    };
    for operation in ["DELETE", "CONNECT", "", "create"] {
        assert_eq!(odd(&|request| request["operation"] = json!(operation)), Odd::Operation(operation.to_owned()));
    }
    assert_eq!(odd(&|request| request["object"] = Value::Null), Odd::NoObject);
    assert_eq!(odd(&|request| drop(request.as_object_mut().unwrap().remove("object"))), Odd::NoObject);
    assert_eq!(odd(&|request| request["operation"] = json!("UPDATE")), Odd::NoObject);
    assert_eq!(odd(&|request| request["subResource"] = json!("scale")), Odd::Subresource("scale".to_owned()));
    let mut none = review_of("ConfigMap", None, &labelled(None, None));
    none["request"]["subResource"] = json!("");
    assert!(matches!(decide(&request(&none), &snapshot()), Decision::Assign(_)));
}

#[test]
fn labels_are_found_however_they_are_written() {
    let ring = snapshot();
    let text = serde_json::to_string(&review_of("ConfigMap", None, &labelled(None, None))).unwrap();
    let assigned = |metadata: &str| {
        let body = text.replace(r#""metadata":{"name":"o""#, &format!(r#""metadata":{{"name":"o",{metadata}"#));
        assert_ne!(body, text);
        match decide(&parse(body.as_bytes()).unwrap(), &ring) {
            Decision::Leave => false,
            Decision::Assign(_) => true,
            other => panic!("{other:?}"),
        }
    };
    let escaped: String = ring.labels.shard.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    assert!(!assigned(&format!(r#""labels":{{"{}":"a"}},"x":1"#, ring.labels.shard)));
    assert!(!assigned(&format!(r#""labels":{{"{escaped}":"\u0061"}},"x":1"#)));
    assert!(!assigned(&format!(r#""\u006cabels":{{"{escaped}":"a","other":null}},"x":1"#)));
    // What is no text names no shard.
    for value in ["null", "1", "-1", "0.5", "true", "[]", "{}", r#"["a"]"#, r#"{"a":{}}"#] {
        assert!(assigned(&format!(r#""labels":{{"{}":{value}}},"x":1"#, ring.labels.shard)), "{value}");
    }
    assert!(assigned(r#""labels":null,"x":1"#));
}

#[test]
fn the_group_of_the_rule_is_the_key_whatever_version_was_requested() {
    let spec = json!({"resources": [{"group": "apps", "resource": "deployments"}]});
    let ring = snapshot_of(&ring(&spec), &[("a", ShardState::Ready), ("b", ShardState::Ready)]);
    let new = labelled(None, None);
    let mut review = review_of("Deployment", None, &new);
    review["request"]["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"});
    review["request"]["resource"] = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    review["request"]["requestKind"] = json!({"group": "extensions", "version": "v1beta1", "kind": "Deployment"});
    let after = patched(&decide(&request(&review), &ring), new).unwrap();
    let key = PartitionKey::of("apps", "Deployment", "default", "o");
    assert_eq!(after["metadata"]["labels"][&ring.labels.shard], ring.hash_ring().owner(&key).unwrap().as_str());
}
