//! The rules about its objects in the cluster: copied labels, owner references and names.

use super::Seen;
use crate::fit::subject::{Labels, Population, Relation, Subject};

/// What is in the keys of all labels of rings.
const RING_LABELS: &str = ".alpha.sharding.timebertt.dev/";

/// R05.
pub(super) fn copies_into_pods(subject: &Subject) -> Seen {
    let into_pods: Vec<_> = subject.relations.iter().filter(|relation| relation.pods.is_some()).collect();
    match copied(&into_pods, |relation| relation.pods.as_ref()) {
        Some(copy) if copy.is_sure => Seen::Met(copy.told()),
        Some(copy) => Seen::Suspected(format!("{}, whose pods have label {} as well", copy.child, copy.key)),
        None if into_pods.is_empty() => Seen::Unknown,
        None => Seen::Not(format!("copies no label into the pods of {} looked at", into_pods.len())),
    }
}

/// R06.
pub(super) fn copies_to_children(subject: &Subject) -> Seen {
    // Ringside itself puts the labels of a ring on children.
    let mut relations = subject.relations.clone();
    for relation in &mut relations {
        relation.root_labels.retain(|key, _| !key.contains("sharding.timebertt.dev/"));
    }
    let all: Vec<_> = relations.iter().collect();
    match copied(&all, |relation| Some(&relation.labels)) {
        Some(copy) if copy.is_sure => Seen::Met(copy.told()),
        _ => Seen::Not(String::new()),
    }
}

/// A label that is on an object and on what it controls.
struct Copied {
    key: String,
    root: String,
    child: String,
    /// Whether the label is not what the controller gives to all children.
    is_sure: bool,
}

impl Copied {
    fn told(&self) -> String {
        format!("label {} of {} is on {}", self.key, self.root, self.child)
    }
}

/// The first label that was copied. One that another object's child of that kind has as well, though that object has it
/// not, is the controller's own; so is one whose value is the object's name.
fn copied<'a>(relations: &[&'a Relation], of: impl Fn(&'a Relation) -> Option<&'a Labels>) -> Option<Copied> {
    let mut unsure = None;
    for relation in relations {
        for (key, value) in &relation.root_labels {
            let has = |labels: Option<&Labels>| labels.is_some_and(|labels| labels.get(key) == Some(value));
            if !has(of(relation)) || relation.root.ends_with(&format!("/{value}")) {
                continue;
            }
            let others = relations.iter().filter(|other| other.child_kind == relation.child_kind);
            let mut without = others.filter(|other| other.root_labels.get(key) != Some(value)).peekable();
            let is_compared = without.peek().is_some();
            if without.any(|other| has(of(other))) {
                continue;
            }
            let is_ring = key.contains(RING_LABELS);
            let copy = Copied {
                key: key.clone(),
                root: relation.root.clone(),
                child: relation.child.clone(),
                is_sure: is_compared || is_ring,
            };
            if copy.is_sure {
                return Some(copy);
            }
            unsure.get_or_insert(copy);
        }
    }
    unsure
}

/// R18.
pub(super) fn child_and_root(subject: &Subject) -> Seen {
    let is_both = |it: &&Population| !it.controlled_by.is_empty() && it.uncontrolled > 0 && it.own;
    let mut own = subject.populations.iter().filter(is_both);
    if let Some(it) = own.next() {
        let controlled: usize = it.controlled_by.values().sum();
        return Seen::Met(format!(
            "{controlled} {} have a controller of the ring, {} have none",
            it.resource, it.uncontrolled
        ));
    }
    let mut others = subject.populations.iter().filter(|it| !it.controlled_by.is_empty() && it.uncontrolled > 0);
    match others.next() {
        Some(it) => {
            Seen::Suspected(format!("children among {}, of which {} have no controller", it.resource, it.uncontrolled))
        }
        None if subject.populations.is_empty() => Seen::Unknown,
        None => Seen::Not("each resource has children only, or none".to_owned()),
    }
}

/// R19.
pub(super) fn references_without_controller(subject: &Subject) -> Seen {
    match subject.populations.iter().find(|it| !it.owned_by.is_empty()) {
        Some(it) => Seen::Met(format!("{} {}", it.owned_by.values().sum::<usize>(), it.resource)),
        None => Seen::Unknown,
    }
}

/// R27.
pub(super) fn generates_names(subject: &Subject) -> Seen {
    match subject.populations.iter().find(|it| it.own && it.generated > 0) {
        Some(it) => Seen::Met(format!("{} {}", it.generated, it.resource)),
        None => Seen::Unknown,
    }
}
