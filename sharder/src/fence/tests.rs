//! What relies on the fence, and when.

#![allow(clippy::unwrap_used)]

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::runtime::watcher::Event;
use serde_json::json;

use std::time::Duration;

use super::{mark::Writing, *};
use crate::{
    fixtures::FakeApi,
    leases::tests::held_by,
    snapshot::{
        Snapshot,
        tests::{example_spec, ring, snapshot, snapshot_of},
    },
};

const ACCOUNT: &str = "system:serviceaccount:default:shards";

/// A policy of the ring, in place for these resources and the account of these shards.
pub(crate) fn in_place(snapshot: &Snapshot, resources: &[&str], shards: &[&str]) -> Fences {
    let (fences, mut policies, mut bindings) = Fences::new();
    let covers = Covered {
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        accounts: [ACCOUNT.to_owned()].into(),
        namespaces: snapshot.namespace_selector.clone(),
    };
    let metadata = |uid: &str| ObjectMeta {
        name: Some(snapshot.ring.made_for()),
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
    fences.judged(Some(Ok(())));
    fences
}

fn asking() -> ringside_ring::Ring {
    let mut spec = example_spec();
    spec["fence"] = "APIServer".into();
    ring(&spec)
}

/// What is known of that ring.
fn asked() -> Snapshot {
    snapshot_of(&asking(), &[])
}

fn withheld(fences: &Fences, ring: &ringside_ring::Ring) -> Vec<String> {
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
    let holds = |shard: &str, names: &[&str]| fences.holds(&snapshot, named(names).iter(), shard);
    assert!(holds("a", &["configmaps"]));
    assert!(!holds("a", &["configmaps", "secrets"]));
    assert!(!holds("b", &["configmaps"]), "nobody knows its account");
    let shards = BTreeMap::from([("a".to_owned(), Ok("another account".to_owned()))]);
    fences.found(&snapshot.ring, &Findings { refused: None, shards });
    assert!(!holds("a", &["configmaps"]), "the policy may not know its account yet");
    let fences = in_place(&snapshot, &["configmaps"], &["a"]);
    fences.known.lock().blind.insert("policies", "no permission".into());
    assert!(!fences.holds(&snapshot, named(&["configmaps"]).iter(), "a"), "it may be gone");
}

#[test]
fn nobody_is_held_by_a_policy_that_the_api_server_was_not_seen_to_go_by() {
    let snapshot = asked();
    let fences = in_place(&snapshot, &["configmaps", "secrets"], &["a"]);
    let holds = || fences.holds(&snapshot, snapshot.named.iter(), "a");
    assert!(holds());
    fences.judged(None);
    assert!(!holds(), "a leader that begins");
    assert_eq!(fences.report(&snapshot), Report::InPlace, "one before it has seen it");
    let mut changes = fences.changes();
    changes.borrow_and_update();
    fences.judged(Some(Err("turned off".to_owned())));
    assert!(changes.has_changed().unwrap());
    assert!(!holds());
    assert!(matches!(fences.report(&snapshot), Report::Impossible(why) if why.contains("turned off")));
    let (none, _policies, _bindings) = Fences::new();
    none.judged(Some(Err("turned off".to_owned())));
    assert_eq!(withheld(&none, &asking()), Vec::<String>::new(), "nobody waits for what does not come");
}

#[test]
fn that_the_api_server_does_not_go_by_a_policy_is_known_to_all_replicas_and_to_who_leads_next() {
    let (snapshot, (fences, mut policies, _bindings)) = (asked(), Fences::new());
    assert_eq!(withheld(&fences, &asking()), ["configmaps"], "it may come");
    let mut metadata = ObjectMeta { name: Some(snapshot.ring.made_for()), ..ObjectMeta::default() };
    mark::note_idle(&mut metadata, &Some(Err("turned off".to_owned())), None);
    policies.apply_watcher_event(&Event::Apply(ValidatingAdmissionPolicy { metadata, ..Default::default() }));
    let is_idle = || matches!(fences.report(&snapshot), Report::Impossible(why) if why.contains("turned off"));
    assert!(withheld(&fences, &asking()).is_empty() && is_idle());
    fences.judged(Some(Ok(())));
    assert!(!withheld(&fences, &asking()).is_empty() && !is_idle(), "what this one sees counts");
}

fn keeper(api: &FakeApi, fences: &Fences) -> Keeper {
    let (client, watches, period) = (api.client(), api.client(), Duration::from_secs(3_000));
    Keeper { client, watches, leases: held_by(&[]), fences: fences.clone(), period }
}

/// Where the fence of a ring is stored: its `policies` or `policybindings`.
fn path(kind: &str, of: &Snapshot) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/validatingadmission{kind}/{}", of.ring.made_for())
}

#[tokio::test(start_paused = true)]
async fn a_policy_says_of_itself_what_the_leader_saw_of_the_api_server() {
    let (api, (fences, ..), snapshot) = (FakeApi::default(), Fences::new(), Arc::new(asked()));
    api.intercept(|_, objects| {
        // As an API server notes who set what.
        for object in objects.values_mut().filter(|object| object["metadata"]["annotations"].is_object()) {
            let annotations = object["metadata"]["annotations"].as_object().unwrap();
            let fields: serde_json::Map<_, _> = annotations.keys().map(|key| (format!("f:{key}"), json!({}))).collect();
            object["metadata"]["managedFields"] = json!([{"manager": crate::FIELD_MANAGER, "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:annotations": fields}}}]);
        }
        None
    });
    let (_ring, snapshots) = watch::channel(snapshot.clone());
    let keeping = tokio::spawn(keep(keeper(&api, &fences), snapshots));
    let path = |kind: &str| path(kind, &snapshot);
    let (off, on) = (|| Some(Err("turned off".to_owned())), Some(Ok(())));
    for (verdict, in_place, idle) in
        [(None, false, false), (off(), false, true), (None, false, true), (on, true, false), (off(), true, true)]
    {
        fences.judged(verdict.clone());
        tokio::time::sleep(crate::keep::ACTED_ON * 2).await;
        let [policy, binding] = ["policies", "policybindings"].map(|kind| {
            let stored = api.get(&path(kind)).unwrap();
            serde_json::from_value::<ObjectMeta>(stored["metadata"].clone()).unwrap()
        });
        let noted = (mark::read(&policy, &binding).is_some(), mark::idle(&policy).is_some());
        assert_eq!(noted, (in_place, idle), "{verdict:?}");
    }
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_policy_that_somebody_deletes_whenever_it_is_written() {
    let (api, (fences, mut policies, mut bindings), snapshot) = (FakeApi::default(), Fences::new(), Arc::new(asked()));
    let (_ring, snapshots) = watch::channel(snapshot.clone());
    fences.judged(Some(Ok(())));
    let keeping = tokio::spawn(keep(keeper(&api, &fences), snapshots));
    let path = |kind: &str| path(kind, &snapshot);
    for second in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if second % 5 == 0 {
            api.remove(&path("policies"));
        }
        let waits = !withheld(&fences, &asking()).is_empty();
        assert!(if second < 35 { waits } else { second < 45 || !waits }, "after {second} s: {waits}");
    }
    assert!(matches!(fences.report(&snapshot), Report::Impossible(why) if why.contains("again and again")));
    // Left in peace it is in place, and the ring is fenced.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let [policy, binding] = ["policies", "policybindings"].map(|kind| api.get(&path(kind)).unwrap());
    policies.apply_watcher_event(&Event::Apply(serde_json::from_value(policy).unwrap()));
    bindings.apply_watcher_event(&Event::Apply(serde_json::from_value(binding).unwrap()));
    fences.changed.send_replace(());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fences.report(&snapshot), Report::InPlace);
    keeping.abort();
}

/// What was refused is tried again after a while.
async fn eventually_pending(fences: &Fences, snapshot: &Snapshot) {
    while let Report::Impossible(why) = fences.report(snapshot) {
        assert!(!why.contains("again and again"), "{why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_blamed_for_what_the_api_server_refused() {
    // With a shard its Pod is asked about first.
    for (shards, status) in [
        (&[][..], StatusCode::SERVICE_UNAVAILABLE),
        (&["a"], StatusCode::SERVICE_UNAVAILABLE),
        (&[], StatusCode::FORBIDDEN),
    ] {
        let (api, (fences, ..), snapshot) = (FakeApi::default(), Fences::new(), Arc::new(asked()));
        let (_ring, snapshots) = watch::channel(snapshot.clone());
        fences.judged(Some(Ok(())));
        let keeper = Keeper { leases: held_by(shards), ..keeper(&api, &fences) };
        let keeping = tokio::spawn(keep(keeper, snapshots));
        tokio::time::sleep(Duration::from_secs(5)).await;
        api.intercept(move |_, _| Some(status));
        api.remove(&path("policybindings", &snapshot));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(matches!(fences.report(&snapshot), Report::Impossible(_)), status == StatusCode::FORBIDDEN);
        api.intercept(|_, _| None);
        eventually_pending(&fences, &snapshot).await;
        for second in 0..25 {
            assert_eq!(fences.report(&snapshot), Report::Pending, "after {second} s, with {shards:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let [policy, binding] = ["policies", "policybindings"].map(|kind| {
            let stored = api.get(&path(kind, &snapshot)).unwrap();
            serde_json::from_value::<ObjectMeta>(stored["metadata"].clone()).unwrap()
        });
        assert!(mark::read(&policy, &binding).is_some(), "it is in place");
        keeping.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_fence_of_which_something_is_refused_again_and_again() {
    let (api, (fences, mut policies, mut bindings), snapshot) = (FakeApi::default(), Fences::new(), Arc::new(asked()));
    let (_ring, snapshots) = watch::channel(snapshot.clone());
    fences.judged(Some(Ok(())));
    let unreadable = |api: &FakeApi, part: &'static str| {
        api.intercept(move |asked, _| asked.path.contains(part).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    };
    // Policies that the API server can't read.
    unreadable(&api, "policies/");
    let pod = serde_json::json!({"metadata": {"name": "a"}, "spec": {"containers": []}});
    api.put("/api/v1/namespaces/default/pods/a", pod);
    let keeping = tokio::spawn(keep(Keeper { leases: held_by(&["a"]), ..keeper(&api, &fences) }, snapshots));
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert!(!withheld(&fences, &asking()).is_empty());
    tokio::time::sleep(Duration::from_secs(110)).await;
    assert!(withheld(&fences, &asking()).is_empty());
    let report = fences.report(&snapshot);
    assert!(matches!(&report, Report::Impossible(why) if why.contains("refused again and again")), "{report:?}");
    // What is in place stays so.
    api.intercept(|_, _| None);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let [policy, binding] = ["policies", "policybindings"].map(|kind| api.get(&path(kind, &snapshot)).unwrap());
    policies.apply_watcher_event(&Event::Apply(serde_json::from_value(policy).unwrap()));
    bindings.apply_watcher_event(&Event::Apply(serde_json::from_value(binding).unwrap()));
    fences.changed.send_replace(());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let report = fences.report(&snapshot);
    assert!(!matches!(report, Report::Impossible(_) | Report::Pending), "{report:?}");
    unreadable(&api, "/pods/");
    fences.changed.send_replace(());
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(fences.report(&snapshot), report);
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_can_not_be_read_leaves_the_fence_to_all_other_shards() {
    let (api, (fences, ..), snapshot) = (FakeApi::default(), Fences::new(), Arc::new(asked()));
    let (_ring, snapshots) = watch::channel(snapshot.clone());
    fences.judged(Some(Ok(())));
    api.intercept(|asked, _| asked.path.contains("/pods/").then_some(StatusCode::FORBIDDEN));
    let keeping = tokio::spawn(keep(Keeper { leases: held_by(&["a"]), ..keeper(&api, &fences) }, snapshots));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(api.get(&path("policies", &snapshot)).is_some(), "the policy is written");
    assert_eq!(fences.known.lock().rings[&snapshot.ring].refused, None);
    let told = fences.known.lock().rings[&snapshot.ring].shards["a"].clone();
    assert!(told.unwrap_err().contains("can't be read"));
    keeping.abort();
}

#[test]
fn namespaces_that_join_are_withheld_until_the_fence_is_around_them() {
    let snapshot = snapshot();
    let whole = in_place(&snapshot, &["configmaps", "secrets"], &[]);
    let mut wider = asking();
    wider.spec.namespace_selector = Some(LabelSelector::default());
    assert_eq!(withheld(&whole, &wider), ["configmaps"]);
}

#[test]
fn the_report_names_what_is_missing() {
    let (snapshot, asked) = (snapshot(), asked());
    let report = |fences: &Fences| fences.report(&asked);
    assert_eq!(report(&Fences::new().0), Report::Pending);
    let fences = in_place(&snapshot, &["configmaps", "secrets"], &["a"]);
    assert_eq!(fences.report(&snapshot), Report::Unasked);
    assert_eq!(report(&fences), Report::InPlace);
    assert_eq!(report(&in_place(&snapshot, &["configmaps"], &["a"])), Report::Pending);
    let shards = BTreeMap::from([("b".to_owned(), Err("no pod".to_owned()))]);
    fences.found(&snapshot.ring, &Findings { refused: None, shards });
    assert_eq!(report(&fences), Report::Leaky(vec!["shard 'b': no pod".into()]));
    fences.found(&snapshot.ring, &Findings { refused: Some("no".into()), ..Findings::default() });
    assert_eq!(report(&fences), Report::Impossible("no".into()));
}
