//! What relies on the fence, and when.

#![allow(clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;

use super::{mark::Writing, *};
use crate::snapshot::{
    Snapshot,
    tests::{example_spec, ring, snapshot},
};

const ACCOUNT: &str = "system:serviceaccount:default:shards";

/// A policy of the ring, in place for these resources and the account of these shards.
pub(crate) fn in_place(snapshot: &Snapshot, resources: &[&str], shards: &[&str]) -> Fences {
    let (fences, mut policies, mut bindings) = Fences::new();
    let covers = Covered {
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        accounts: [ACCOUNT.to_owned()].into(),
    };
    let metadata = |uid: &str| ObjectMeta {
        name: Some(fence_policy_name(&snapshot.ring)),
        uid: Some(uid.to_owned()),
        generation: Some(1),
        ..ObjectMeta::default()
    };
    let binding = ValidatingAdmissionPolicyBinding { metadata: metadata("b"), ..Default::default() };
    let mut policy = ValidatingAdmissionPolicy { metadata: metadata("p"), ..Default::default() };
    let writing = Writing::of(&policy.metadata, &binding.metadata);
    mark::write(&mut policy.metadata, writing, covers);
    policies.apply_watcher_event(&Event::Apply(policy));
    bindings.apply_watcher_event(&Event::Apply(binding));
    let shards = shards.iter().map(|shard| ((*shard).to_owned(), Ok(ACCOUNT.to_owned()))).collect();
    fences.found(&snapshot.ring, &Findings { refused: None, shards });
    fences
}

fn asking() -> ClusterRing {
    let mut spec = example_spec();
    spec["fence"] = "APIServer".into();
    ring(&spec)
}

fn withheld(fences: &Fences, ring: &ClusterRing) -> Vec<String> {
    fences.withheld(&snapshot().ring, ring).iter().map(ToString::to_string).collect()
}

#[test]
fn objects_are_withheld_until_the_fence_is_around_them_and_their_children() {
    let snapshot = snapshot();
    let (none, _policies, _bindings) = Fences::new();
    assert_eq!(withheld(&none, &asking()), ["configmaps"]);
    assert_eq!(withheld(&none, &ring(&example_spec())), Vec::<String>::new(), "who does not ask does not wait");
    assert_eq!(withheld(&in_place(&snapshot, &["configmaps"], &[]), &asking()), ["configmaps"]);
    let whole = in_place(&snapshot, &["configmaps", "secrets"], &[]);
    assert_eq!(withheld(&whole, &asking()), Vec::<String>::new());
    none.found(&snapshot.ring, &Findings { refused: Some("no permission".into()), ..Findings::default() });
    assert_eq!(withheld(&none, &asking()), Vec::<String>::new(), "nobody waits for what can't come");
}

#[test]
fn a_shard_is_held_when_the_policy_is_in_place_for_its_account_and_all_that_is_moved() {
    let snapshot = snapshot();
    let named = |names: &[&str]| -> Vec<GroupResource> {
        names.iter().map(|name| GroupResource { group: String::new(), resource: (*name).to_owned() }).collect()
    };
    let fences = in_place(&snapshot, &["configmaps"], &["a"]);
    let holds = |shard: &str, names: &[&str]| fences.holds(&snapshot.ring, named(names).iter(), shard);
    assert!(holds("a", &["configmaps"]));
    assert!(!holds("a", &["configmaps", "secrets"]));
    assert!(!holds("b", &["configmaps"]), "nobody knows its account");
    let shards = BTreeMap::from([("a".to_owned(), Ok("another account".to_owned()))]);
    fences.found(&snapshot.ring, &Findings { refused: None, shards });
    assert!(!holds("a", &["configmaps"]), "the policy may not know its account yet");
    let fences = in_place(&snapshot, &["configmaps"], &["a"]);
    fences.known.lock().blind.insert("policies", "no permission".into());
    assert!(!fences.holds(&snapshot.ring, named(&["configmaps"]).iter(), "a"), "it may be gone");
}

#[test]
fn the_report_names_what_is_missing() {
    let snapshot = snapshot();
    let report = |fences: &Fences| fences.report(&snapshot.ring, true, &snapshot.named);
    assert_eq!(report(&Fences::new().0), Report::Pending);
    let fences = in_place(&snapshot, &["configmaps", "secrets"], &["a"]);
    assert_eq!(fences.report(&snapshot.ring, false, &snapshot.named), Report::Unasked);
    assert_eq!(report(&fences), Report::InPlace);
    assert_eq!(report(&in_place(&snapshot, &["configmaps"], &["a"])), Report::Pending);
    let shards = BTreeMap::from([("b".to_owned(), Err("no pod".to_owned()))]);
    fences.found(&snapshot.ring, &Findings { refused: None, shards });
    assert_eq!(report(&fences), Report::Leaky(vec!["shard 'b': no pod".into()]));
    fences.found(&snapshot.ring, &Findings { refused: Some("no".into()), ..Findings::default() });
    assert_eq!(report(&fences), Report::Impossible("no".into()));
}
