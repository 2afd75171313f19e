//! What a policy says about itself: for what it has been in place. No replica remembers that for the next leader, so
//! the leader writes it on the policy.
//!
//! An API server looks for changed policies once a second (`policyRefreshInterval` in k8s.io/apiserver), after its
//! watch has shown it the change; another one may be later. The leader that has written the policy waits for a margin.
//! Then it notes that this generation is in place. Every change of the spec, by any client, makes another generation,
//! and so ends the note.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use ringside_ring::cluster_ring::GroupResource;
use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// The annotation with the note.
pub(super) const IN_PLACE: &str = "ringside.dev/in-place";
/// The annotation that says why the API server does not enforce the policy. The leader writes what it found out, for
/// the other replicas and the next leader.
const IDLE: &str = "ringside.dev/without-effect";

/// What a fence is around.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Covered {
    /// Resources, as `kubectl` names them.
    pub(super) resources: BTreeSet<String>,
    /// Service accounts, by their user names.
    pub(super) accounts: BTreeSet<String>,
    /// The namespaces with those resources.
    pub(super) namespaces: LabelSelector,
}

impl Covered {
    /// Whether it is around all these resources, in the namespaces that this selects.
    pub(super) fn has_all<'a>(
        &self,
        mut resources: impl Iterator<Item = &'a GroupResource>,
        namespaces: &LabelSelector,
    ) -> bool {
        self.namespaces == *namespaces && resources.all(|resource| self.resources.contains(&resource.to_string()))
    }

    /// What both are around. What two different selections of namespaces have in common is unknown, so it counts as
    /// nothing.
    pub(super) fn and(&self, other: &Self) -> Self {
        if self.namespaces != other.namespaces {
            return Self::default();
        }
        Self {
            resources: &self.resources & &other.resources,
            accounts: &self.accounts & &other.accounts,
            namespaces: self.namespaces.clone(),
        }
    }
}

/// Which writing of policy and binding is meant: uid and generation of each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Writing {
    policy: (String, i64),
    binding: (String, i64),
}

impl Writing {
    pub(super) fn of(policy: &ObjectMeta, binding: &ObjectMeta) -> Self {
        let of =
            |metadata: &ObjectMeta| (metadata.uid.clone().unwrap_or_default(), metadata.generation.unwrap_or_default());
        Self { policy: of(policy), binding: of(binding) }
    }

    /// The policy as it is after the next change of its spec.
    pub(super) fn next(mut self) -> Self {
        self.policy.1 += 1;
        self
    }
}

#[derive(Serialize, Deserialize)]
struct Mark {
    of: Writing,
    covers: Covered,
}

/// What the policy has been in place for.
pub(super) fn read(policy: &ObjectMeta, binding: &ObjectMeta) -> Option<Covered> {
    let text = policy.annotations.as_ref()?.get(IN_PLACE)?;
    let mark: Mark = serde_json::from_str(text).ok()?;
    let going = policy.deletion_timestamp.is_some() || binding.deletion_timestamp.is_some();
    (mark.of == Writing::of(policy, binding) && !going).then_some(mark.covers)
}

/// Notes on the policy what this writing of it has been in place for.
pub(super) fn write(policy: &mut ObjectMeta, of: Writing, covers: Covered) {
    // Strings, numbers and sets of strings have no failing representation.
    let text = serde_json::to_string(&Mark { of, covers }).unwrap_or_default();
    policy.annotations.get_or_insert_default().insert(IN_PLACE.to_owned(), text);
}

/// Leaves the note as it stands.
pub(super) fn keep(policy: &mut ObjectMeta, stored: &ObjectMeta) {
    carry_over(IN_PLACE, policy, stored);
}

/// Why the API server does not enforce the policy, as the leader before or the leader of others has found out.
pub(super) fn idle(policy: &ObjectMeta) -> Option<String> {
    policy.annotations.as_ref()?.get(IDLE).cloned()
}

/// Notes that on the policy as it is about to be written: as it was found out, or as it is stored where that is not known.
pub(super) fn note_idle(policy: &mut ObjectMeta, judged: &Verdict, stored: Option<&ObjectMeta>) {
    match (judged, stored) {
        (Some(Err(why)), _) => {
            policy.annotations.get_or_insert_default().insert(IDLE.to_owned(), why.clone());
        }
        (None, Some(stored)) => carry_over(IDLE, policy, stored),
        (Some(Ok(())), _) | (None, None) => {}
    }
}

fn carry_over(annotation: &str, policy: &mut ObjectMeta, stored: &ObjectMeta) {
    if let Some(text) = stored.annotations.as_ref().and_then(|all| all.get(annotation)) {
        policy.annotations.get_or_insert_default().insert(annotation.to_owned(), text.clone());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn metadata(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), generation: Some(generation), ..ObjectMeta::default() }
    }

    #[test]
    fn a_change_of_policy_or_binding_ends_what_was_in_place() {
        let (mut policy, mut binding) = (metadata("p", 2), metadata("b", 1));
        assert_eq!(read(&policy, &binding), None);
        let covers = Covered {
            resources: ["secrets".to_owned()].into(),
            accounts: ["a".to_owned()].into(),
            ..Covered::default()
        };
        let now = Writing::of(&policy, &binding);
        write(&mut policy, now.clone(), covers.clone());
        assert_eq!(read(&policy, &binding), Some(covers.clone()));
        policy.generation = Some(3);
        assert_eq!(read(&policy, &binding), None, "somebody changed it, or changed it and back");
        write(&mut policy, now.next(), covers.clone());
        assert_eq!(read(&policy, &binding), Some(covers));
        binding.uid = Some("another".into());
        assert_eq!(read(&policy, &binding), None, "it was away for a while");
    }
    #[test]
    fn around_other_namespaces_it_is_in_place_anew() {
        let selecting = |key: &str| LabelSelector {
            match_labels: Some([(key.to_owned(), "yes".to_owned())].into()),
            ..LabelSelector::default()
        };
        let around = |namespaces| Covered {
            resources: ["configmaps".to_owned()].into(),
            accounts: ["a".to_owned()].into(),
            namespaces,
        };
        let (before, after) = (around(selecting("a")), around(selecting("b")));
        let resource = GroupResource { group: String::new(), resource: "configmaps".to_owned() };
        let has = |covered: &Covered, key: &str| covered.has_all([&resource].into_iter(), &selecting(key));
        assert!(has(&before, "a") && !has(&before, "b"), "the ring says otherwise before its policy does");
        let meanwhile = before.and(&after);
        assert!(!has(&meanwhile, "a") && !has(&meanwhile, "b"));
        assert!(has(&after.and(&after), "b"));
    }
}
