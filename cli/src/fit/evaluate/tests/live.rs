//! The rules that only a cluster shows.

use std::collections::BTreeMap;

use ringside_ring::cluster_ring::GroupResource;

use super::{LEASES, THINGS, deployment, finding, is_suspected, meets, rights, subject};
use crate::fit::{
    Mark, Subject,
    subject::{Labels, Lock, Population, Relation},
};

/// The rules with a test here.
pub(super) const TESTED: [&str; 2] = ["R18", "R27"];

fn live() -> Subject {
    Subject { live: true, ..subject(&deployment("", "", "")) }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A StatefulSet under a Kafka: the labels of the Kafka, of the StatefulSet, and of its pods.
fn relation(name: &str, root: &[(&str, &str)], own: &[(&str, &str)], pods: Option<&[(&str, &str)]>) -> Relation {
    Relation {
        root: format!("Kafka default/{name}"),
        root_labels: labels(root),
        child_kind: "StatefulSet".to_owned(),
        child: format!("StatefulSet default/{name}"),
        labels: labels(own),
        pods: pods.map(labels),
    }
}

fn with(relations: Vec<Relation>) -> Subject {
    Subject { relations, ..live() }
}

#[test]
fn labels_that_are_copied_into_pods_are_found() {
    let team = &[("team", "blue")][..];
    let plain = relation("b", &[], &[], Some(&[("app", "kafka")]));
    let copied = with(vec![relation("a", team, &[], Some(&[("app", "kafka"), ("team", "blue")])), plain.clone()]);
    assert!(meets("R05", &copied));
    let text = finding("R05", &copied).unwrap().finding;
    assert!(text.contains("label team of Kafka default/a is on StatefulSet default/a"), "{text}");
    // The controller's own label, which the user gave to the object as well.
    let own = with(vec![relation("a", &[("app", "kafka")], &[], Some(&[("app", "kafka")])), plain.clone()]);
    assert!(!meets("R05", &own) && finding("R05", &own).unwrap().mark == Mark::Fit);
    // The name of the object.
    let name = with(vec![relation("a", &[("instance", "a")], &[], Some(&[("instance", "a")])), plain]);
    assert!(!meets("R05", &name));
    // With a single object it can't be told apart.
    let single = with(vec![relation("a", team, &[], Some(team))]);
    assert!(!meets("R05", &single) && is_suspected("R05", &single));
    let ring = &[("shard.alpha.sharding.timebertt.dev/clusterring-1", "x")][..];
    assert!(meets("R05", &with(vec![relation("a", ring, &[], Some(ring))])), "a ring's label needs no comparison");
    assert_eq!(finding("R05", &live()).unwrap().mark, Mark::Ask, "without an object it is asked");
}

#[test]
fn labels_that_are_copied_to_children_only_are_noted() {
    let team = &[("team", "blue")][..];
    let copied = with(vec![relation("a", team, team, Some(&[])), relation("b", &[], &[], Some(&[]))]);
    assert!(meets("R06", &copied) && !meets("R05", &copied));
    let plain = with(vec![relation("a", team, &[], None), relation("b", &[], &[], None)]);
    assert!(!meets("R06", &plain));
    let ring = &[("shard.alpha.sharding.timebertt.dev/clusterring-1", "x")][..];
    assert!(!meets("R06", &with(vec![relation("a", ring, ring, None), relation("b", &[], &[], None)])), "of a ring");
}

fn population(resource: &str, own: bool, controlled: usize, uncontrolled: usize) -> Population {
    let owner = GroupResource { group: "x.io".to_owned(), resource: "roots".to_owned() };
    let resource = GroupResource { group: String::new(), resource: resource.to_owned() };
    let controlled_by = if controlled > 0 { BTreeMap::from([(owner, controlled)]) } else { BTreeMap::new() };
    Population { resource, own, total: controlled + uncontrolled, controlled_by, uncontrolled, ..Population::default() }
}

#[test]
fn a_resource_that_is_child_and_root_is_found() {
    let of = |population| Subject { populations: vec![population], ..live() };
    assert!(meets("R18", &of(population("requests", true, 2, 3))));
    assert!(is_suspected("R18", &of(population("secrets", false, 2, 3))));
    for plain in [population("requests", true, 0, 3), population("secrets", false, 2, 0)] {
        assert!(!meets("R18", &of(plain.clone())) && !is_suspected("R18", &of(plain)));
    }
}

#[test]
fn owners_that_are_no_controllers_and_made_up_names_are_noted() {
    let mut owned = population("machines", false, 0, 3);
    owned.owned_by = population("x", false, 1, 0).controlled_by;
    let mut generated = population("runs", true, 0, 3);
    generated.generated = 2;
    let subject = Subject { populations: vec![owned, generated], ..live() };
    assert!(meets("R19", &subject) && meets("R27", &subject));
    let plain = Subject { populations: vec![population("runs", true, 0, 3)], ..live() };
    assert!(!meets("R19", &plain) && !meets("R27", &plain));
}

#[test]
fn locks_that_pods_hold_say_where_the_election_is() {
    let holds = |lock: Lock| Subject { locks: vec![lock], live: true, ..subject(&rights(THINGS, "ns", LEASES)) };
    let own = holds(Lock::Lease("ns".to_owned(), "lock".to_owned()));
    assert_eq!(finding("R01", &own).unwrap().mark, Mark::Fit);
    assert!(!meets("R02", &own) && !meets("R03", &own));
    assert!(meets("R02", &holds(Lock::Lease("kube-system".to_owned(), "lock".to_owned()))));
    assert!(meets("R03", &holds(Lock::OwnedByPod("ns".to_owned(), "lock".to_owned()))));
    // Where the sidecar is told of one, another elsewhere is one on purpose.
    let mut told = holds(Lock::Lease("kube-system".to_owned(), "lock".to_owned()));
    told.locks.push(Lock::Lease("other".to_owned(), "job".to_owned()));
    let pod = told.deployment.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
    let mut sidecar = pod.containers[0].clone();
    (sidecar.name, sidecar.args) =
        ("ringside-proxy".to_owned(), Some(vec!["--election-namespace=kube-system".to_owned()]));
    pod.containers.push(sidecar);
    assert!(!meets("R02", &told));
    let none = Subject { live: true, ..subject(&rights(THINGS, "ns", LEASES)) };
    assert!(is_suspected("R01", &none), "it may write Leases and holds none");
}

#[test]
fn what_a_cluster_shows_counts_more_than_a_name() {
    let text = deployment("", "", "").replace("controller:1", "quay.io/strimzi/operator:1");
    let copies_nothing = vec![
        relation("a", &[("team", "blue")], &[], Some(&[("app", "kafka")])),
        relation("b", &[], &[], Some(&[("app", "kafka")])),
    ];
    let strimzi = Subject { live: true, relations: copies_nothing, ..subject(&text) };
    assert_eq!(finding("R05", &strimzi).unwrap().mark, Mark::Fit);
}
