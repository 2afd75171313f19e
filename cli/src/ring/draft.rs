//! Drafts a ring from what is known of a controller: its own resources, what they control, and questions.

use std::{collections::BTreeSet, fmt::Write as _};

use ringside_ring::cluster_ring::GroupResource;

use crate::fit::{Subject, known::Known, subject::Population};

/// Why there is no ring to draft.
#[derive(Debug, thiserror::Error)]
pub(super) enum DraftError {
    #[error("no Role is bound to the account of {0}: add its Roles and bindings to the file, or look into the cluster")]
    NoRights(String),
    #[error(
        "{0} has no custom resource that it watches and whose status it may write: write the ring by hand \
        (docs: shard-a-controller)"
    )]
    NoResource(String),
}

/// A resource of the ring, and what is under it.
struct Root<'a> {
    population: &'a Population,
    children: Vec<&'a Population>,
}

/// Drafts the ring as YAML with comments. Of a known controller it is the ring that was tried.
pub(super) fn ring(subject: &Subject, known: Option<&Known>, name: Option<&str>) -> Result<String, DraftError> {
    let deployment = format!("{}/{}", subject.namespace(), subject.name());
    if subject.grants.is_none() {
        return Err(DraftError::NoRights(deployment));
    }
    let roots = known.map_or_else(|| roots(subject), |known| roots_of(subject, known));
    let [first, more @ ..] = roots.as_slice() else { return Err(DraftError::NoResource(deployment)) };
    let by_resource = if more.is_empty() { &first.population.resource.resource } else { subject.name() };
    let name = name.unwrap_or(by_resource);
    let mut text = format!(
        "# A ring for {deployment}, by `ringside ring init`. Answer the questions, then `kubectl apply -f` it.\n\
         apiVersion: sharding.timebertt.dev/v1alpha1\nkind: ClusterRing\nmetadata:\n  name: {name}\nspec:\n  resources:\n",
    );
    for root in &roots {
        write_root(&mut text, subject, root, &roots);
    }
    if let Some(known) = known {
        let _ = writeln!(text, "# {} was tried with this ring (docs: controllers).", known.controller);
        for left_out in own_others(subject, &roots) {
            let _ = writeln!(text, "# {left_out} is not in it: each replica works on all of these.");
        }
    } else {
        for question in others(subject, &roots) {
            let _ = writeln!(text, "# QUESTION {question}");
        }
    }
    for unseen in &subject.unseen {
        let _ = writeln!(text, "# NOT LOOKED AT {}", unseen.replace('\n', " "));
    }
    Ok(text)
}

/// The resources of the controller that none of its others controls, each with what it controls.
fn roots(subject: &Subject) -> Vec<Root<'_>> {
    let own: BTreeSet<_> = subject.populations.iter().filter(|it| it.own).map(|it| &it.resource).collect();
    let is_below = |it: &Population| controllers(it).any(|owner| *owner != it.resource && own.contains(owner));
    let is_root = |it: &&Population| it.own && (!is_below(it) || is_both(subject, it));
    let roots = subject.populations.iter().filter(is_root);
    roots.map(|population| Root { population, children: family(subject, population) }).collect()
}

fn controllers(population: &Population) -> impl Iterator<Item = &GroupResource> {
    population.controlled_by.keys()
}

/// What a resource's objects control, directly or, where the controller made it, through others of these.
fn family<'a>(subject: &'a Subject, root: &Population) -> Vec<&'a Population> {
    let mut family: Vec<&Population> = Vec::new();
    loop {
        let is_in = |owner: &GroupResource| family.iter().any(|it| it.resource == *owner);
        let next = subject.populations.iter().find(|it| {
            let is_direct = controllers(it).any(|owner| *owner == root.resource);
            let is_below = it.created && controllers(it).any(is_in);
            let is_below = is_direct || is_below;
            it.resource != root.resource && !is_in(&it.resource) && !is_apart(subject, it) && is_below
        });
        let Some(next) = next else { return family };
        family.push(next);
    }
}

/// Whether it is one of the controller's own, of which only some objects have a controller. A ring can have it as both where its
/// objects control none.
fn is_both(subject: &Subject, population: &Population) -> bool {
    is_mixed(population) && !controls(subject, population)
}

/// The same of one that no ring can have as both.
fn is_apart(subject: &Subject, population: &Population) -> bool {
    is_mixed(population) && controls(subject, population)
}

fn is_mixed(population: &Population) -> bool {
    population.own && !population.controlled_by.is_empty() && population.uncontrolled > 0
}

fn controls(subject: &Subject, population: &Population) -> bool {
    let mut others = subject.populations.iter().filter(|it| it.resource != population.resource);
    others.any(|it| controllers(it).any(|owner| *owner == population.resource))
}

fn write_root(text: &mut String, subject: &Subject, Root { population, children }: &Root<'_>, roots: &[Root<'_>]) {
    let resource = &population.resource;
    if subject.live {
        let _ = writeln!(text, "  # {resource}: {}", objects(population.total));
    }
    let _ = writeln!(text, "  - group: {}\n    resource: {}", quoted(&resource.group), resource.resource);
    if !children.is_empty() {
        text.push_str("    controlledResources:\n");
    }
    for child in children {
        let family: Vec<_> = children.iter().map(|it| &it.resource).chain([resource]).collect();
        let counts = child.controlled_by.iter().filter(|(owner, _)| family.contains(owner));
        let controlled: usize = counts.map(|(_, count)| count).sum();
        let name = &child.resource;
        let _ = writeln!(text, "    # {name}: {controlled} of {} have such an owner", child.total);
        let others = child.total.saturating_sub(controlled);
        let is_root = roots.iter().any(|root| root.population.resource == child.resource);
        if others > 0 && child.read && !is_root {
            let _ = writeln!(
                text,
                "    # QUESTION {name}: {others} others have none, and would be hidden. Does the controller read any of them?\n    \
                 # Then leave {name} out (docs: fit#r18)."
            );
        }
        let _ = writeln!(text, "    - {{group: {}, resource: {}}}", quoted(&name.group), name.resource);
    }
}

/// The resources that the ring of a known controller shares, as far as they are there.
fn roots_of<'a>(subject: &'a Subject, known: &Known) -> Vec<Root<'a>> {
    let there = |name: &String| subject.populations.iter().find(|it| it.resource.to_string() == *name);
    let roots = known.ring.iter().filter_map(|shared| Some((there(&shared.resource)?, &shared.children)));
    roots
        .map(|(population, children)| Root { population, children: children.iter().filter_map(there).collect() })
        .collect()
}

/// The controller's own resources that are not in the ring.
fn own_others<'a>(subject: &'a Subject, roots: &[Root<'_>]) -> impl Iterator<Item = &'a GroupResource> {
    let others = subject.populations.iter().filter(|it| it.own && !is_named(roots, it));
    others.map(|it| &it.resource)
}

fn is_named(roots: &[Root<'_>], it: &Population) -> bool {
    let mut all = roots.iter().flat_map(|root| root.children.iter().chain([&root.population]));
    all.any(|named| named.resource == it.resource)
}

/// Questions about resources that are not in the ring.
fn others(subject: &Subject, roots: &[Root<'_>]) -> Vec<String> {
    // Without any child yet, each resource that the controller may create may be one.
    let may_come = !subject.live || roots.iter().all(|root| root.children.is_empty());
    let mut questions = Vec::new();
    for it in subject.populations.iter().filter(|it| !is_named(roots, it)) {
        let name = &it.resource;
        if is_apart(subject, it) {
            let controlled: usize = it.controlled_by.values().sum();
            questions.push(format!(
                "{name}: {controlled} have a controller of the ring and {} have none, so it is left out (docs: fit#r18).",
                it.uncontrolled
            ));
        } else if !it.owned_by.is_empty() {
            let owned: usize = it.owned_by.values().sum();
            questions.push(format!(
                "{name}: {owned} times an owner is one of several, and no controller, so all replicas see them (docs: fit#r19)."
            ));
        } else if controllers(it).next().is_some() {
            questions
                .push(format!("{name}: all replicas see them, as the controller may not create them. Is that right?"));
        } else if it.created && !it.own && (it.total == 0 || may_come) {
            questions.push(format!(
                "{name}: the controller may create some. Do these have an object of the ring as controller? Then add\n\
                 #   {{group: {}, resource: {}}} to its controlledResources.",
                quoted(&name.group),
                name.resource
            ));
        }
    }
    questions
}

fn objects(count: usize) -> String {
    if count == 1 { "1 object".to_owned() } else { format!("{count} objects") }
}

/// A group as YAML: the core group's name is empty.
fn quoted(group: &str) -> String {
    if group.is_empty() { "\"\"".to_owned() } else { group.to_owned() }
}

#[cfg(test)]
mod tests;
