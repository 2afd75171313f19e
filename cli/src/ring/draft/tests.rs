use std::collections::BTreeMap;

use ringside_ring::ClusterRing;

use super::*;

fn resource(name: &str) -> GroupResource {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    GroupResource { group: group.to_owned(), resource: resource.to_owned() }
}

fn population(name: &str, total: usize, controlled_by: &[(&str, usize)]) -> Population {
    let controlled_by: BTreeMap<_, _> = controlled_by.iter().map(|(owner, count)| (resource(owner), *count)).collect();
    let uncontrolled = total - controlled_by.values().sum::<usize>();
    let (resource, own) =
        (resource(name), name.contains('.') && !name.ends_with(".k8s.io") && name != "deployments.apps");
    Population { resource, own, created: true, read: true, total, controlled_by, uncontrolled, ..Population::default() }
}

fn subject(populations: Vec<Population>) -> Subject {
    let mut subject = Subject { grants: Some(Vec::new()), live: true, populations, ..Subject::default() };
    subject.deployment.metadata.name = Some("operator".to_owned());
    subject
}

fn parsed(text: &str) -> ClusterRing {
    serde_saphyr::from_str(text).unwrap()
}

fn controlled(ring: &ClusterRing) -> Vec<String> {
    ring.spec.resources.iter().flat_map(|root| &root.controlled_resources).map(ToString::to_string).collect()
}

#[test]
fn roots_and_their_children_are_named_with_counts() {
    let subject = subject(vec![
        population("websites.web.io", 12, &[]),
        population("configmaps", 13, &[("websites.web.io", 12)]),
        population("secrets", 12, &[("websites.web.io", 12)]),
        population("services", 4, &[]),
    ]);
    let text = ring(&subject, None, None).unwrap();
    let ring = parsed(&text);
    assert_eq!(ring.metadata.name.as_deref(), Some("websites"));
    assert_eq!(controlled(&ring), ["configmaps", "secrets"]);
    assert!(text.contains("# websites.web.io: 12 objects\n"), "{text}");
    assert!(text.contains("# configmaps: 12 of 13 have such an owner\n"), "{text}");
    assert!(text.contains("QUESTION configmaps: 1 others") && !text.contains("QUESTION secrets"), "{text}");
    assert!(!text.contains("services"), "{text}");
}

#[test]
fn links_of_a_chain_are_named_under_its_root() {
    let mut pods = population("pods", 9, &[("deployments.apps", 9)]);
    pods.created = false;
    let subject = subject(vec![
        population("certificates.cert.io", 2, &[]),
        population("requests.cert.io", 2, &[("certificates.cert.io", 2)]),
        population("orders.cert.io", 3, &[("requests.cert.io", 3)]),
        population("deployments.apps", 3, &[("certificates.cert.io", 3)]),
        pods,
    ]);
    let text = ring(&subject, None, Some("certs")).unwrap();
    let ring = parsed(&text);
    assert_eq!((ring.spec.resources.len(), ring.metadata.name.as_deref()), (1, Some("certs")));
    assert_eq!(controlled(&ring), ["requests.cert.io", "orders.cert.io", "deployments.apps"]);
    assert!(text.contains("# QUESTION pods: all replicas see them"), "{text}");
}

#[test]
fn a_resource_that_is_child_and_root_is_both_unless_it_controls_others() {
    let of = |more: &[Population]| {
        let some =
            [population("a.x.io", 2, &[]), population("b.x.io", 5, &[("a.x.io", 2)]), population("c.x.io", 0, &[])];
        subject(some.into_iter().chain(more.iter().cloned()).collect())
    };
    let text = ring(&of(&[]), None, None).unwrap();
    let both = parsed(&text);
    assert_eq!(both.spec.resources.iter().map(|root| root.resource.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(controlled(&both), ["b.x.io"]);
    assert!(!text.contains("QUESTION b.x.io"), "{text}");
    let subject = of(&[population("secrets", 1, &[("b.x.io", 1)])]);
    let text = ring(&subject, None, None).unwrap();
    let ring = parsed(&text);
    assert_eq!(ring.metadata.name.as_deref(), Some("operator"), "several resources: the Deployment names it");
    assert_eq!(ring.spec.resources.iter().map(|root| root.resource.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert!(controlled(&ring).is_empty());
    assert!(text.contains("# QUESTION b.x.io: 2 have a controller of the ring and 3 have none"), "{text}");
}

#[test]
fn children_are_questions_where_no_cluster_was_asked() {
    let mut subject = subject(vec![population("a.x.io", 0, &[]), population("secrets", 0, &[])]);
    subject.live = false;
    let text = ring(&subject, None, None).unwrap();
    assert!(controlled(&parsed(&text)).is_empty());
    assert!(text.contains("# QUESTION secrets: the controller may create some"), "{text}");
    assert!(!text.contains("0 objects"), "{text}");
}

#[test]
fn without_rights_or_resources_there_is_no_ring() {
    let text = ring(&subject(vec![population("secrets", 0, &[])]), None, None).unwrap_err().to_string();
    assert!(text.contains("default/operator") && text.contains("by hand"), "{text}");
    let text = ring(&Subject::default(), None, None).unwrap_err().to_string();
    assert!(text.contains("add its Roles"), "{text}");
}

#[test]
fn a_known_controller_gets_the_ring_that_was_tried() {
    let known = crate::fit::Rules::load().unwrap().known.into_iter().find(|known| known.controller == "cert-manager");
    let draft = |by_hand: usize| {
        let subject = subject(vec![
            population("certificates.cert-manager.io", 2, &[]),
            population("certificaterequests.cert-manager.io", 2 + by_hand, &[("certificates.cert-manager.io", 2)]),
            population("issuers.cert-manager.io", 1, &[]),
            population("orders.acme.cert-manager.io", 0, &[]),
            population("challenges.acme.cert-manager.io", 0, &[]),
            population("secrets", 3, &[("certificates.cert-manager.io", 1)]),
            population("services", 0, &[]),
        ]);
        ring(&subject, known.as_ref(), None).unwrap()
    };
    let text = draft(0);
    let drafted = parsed(&text);
    assert_eq!((drafted.spec.resources.len(), drafted.metadata.name.as_deref()), (1, Some("certificates")), "{text}");
    let children =
        ["certificaterequests.cert-manager.io", "orders.acme.cert-manager.io", "challenges.acme.cert-manager.io"];
    assert_eq!(controlled(&drafted), children);
    assert!(!text.contains("QUESTION") && text.contains("# issuers.cert-manager.io is not in it"), "{text}");
    // What others make would be hidden from all replicas.
    assert!(draft(1).contains("QUESTION certificaterequests.cert-manager.io: 1 others"));
}
