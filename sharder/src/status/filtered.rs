//! Which resources proxies filter: those whose objects are labelled. Of one that joins the ring every shard is shown all until then.

use std::{collections::BTreeSet, time::SystemTime};

use ringside_ring::cluster_ring::{ClusterRingStatus, FilteredResources, GroupResource};

use crate::{reconcile::Known, snapshot::Snapshot};

/// What one leader says of one ring.
#[derive(Debug, Default)]
pub(super) struct Filtered {
    /// None before the status was read.
    said: Option<BTreeSet<GroupResource>>,
    /// Since when the ring names others.
    joining: Option<SystemTime>,
}

impl Filtered {
    /// Returns what the status is to say. Where no sharder has said anything so far, proxies filter all that the ring names.
    pub(super) fn of(
        &mut self,
        snapshot: &Snapshot,
        before: Option<&ClusterRingStatus>,
        known: &Known,
    ) -> FilteredResources {
        let named = || snapshot.named.iter().cloned();
        let said = self.said.get_or_insert_with(|| match before.and_then(ClusterRingStatus::filtered) {
            Some(said) => said.iter().cloned().collect(),
            None => named().collect(),
        });
        said.retain(|resource| snapshot.named.contains(resource));
        let is_ready = |it: &GroupResource| snapshot.unserved.contains(it) || known.is_labelled(snapshot, it);
        let labelled: Vec<_> = named().filter(|it| !said.contains(it) && is_ready(it)).collect();
        if !labelled.is_empty() {
            let resources: Vec<_> = labelled.iter().map(ToString::to_string).collect();
            tracing::info!(ring = %snapshot.ring, ?resources, "labelled the objects of resources that joined the ring");
        }
        said.extend(labelled);
        let is_joining = said.len() < snapshot.named.len();
        self.joining = is_joining.then(|| self.joining.unwrap_or_else(SystemTime::now));
        FilteredResources { observed_generation: snapshot.generation, resources: said.iter().cloned().collect() }
    }

    /// Since when a resource of the ring has been shown whole to every shard.
    pub(super) fn joining(&self) -> Option<SystemTime> {
        self.joining
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::snapshot::tests::{example_spec, ring, snapshot_of};

    fn of(name: &str) -> GroupResource {
        GroupResource { group: String::new(), resource: name.into() }
    }

    fn named(resources: &[&str], generation: i64) -> Snapshot {
        let mut snapshot = snapshot_of(&ring(&example_spec()), &[]);
        snapshot.named = resources.iter().map(|name| of(name)).collect();
        snapshot.generation = generation;
        snapshot
    }

    fn status(generation: i64, observed: i64, resources: &[&str]) -> ClusterRingStatus {
        let resources: Vec<_> = resources.iter().map(|name| of(name)).collect();
        let filtered = json!({"observedGeneration": observed, "resources": resources});
        serde_json::from_value(json!({"observedGeneration": generation, "filtered": filtered})).unwrap()
    }

    #[test]
    fn joined_resource_is_filtered_once_its_objects_are_labelled() {
        let (known, mut filtered) = (Known::default(), Filtered::default());
        let first = filtered.of(&named(&["websites"], 1), None, &known);
        assert_eq!((first.observed_generation, &*first.resources), (1, &[of("websites")][..]), "as proxies do");
        let joined = named(&["secrets", "websites"], 2);
        assert_eq!(filtered.of(&joined, None, &known).resources, [of("websites")]);
        assert!(filtered.joining().is_some());
        known.label(&of("secrets"));
        let now = filtered.of(&joined, None, &known);
        assert_eq!((now.observed_generation, &*now.resources), (2, &[of("secrets"), of("websites")][..]));
        assert!(filtered.joining().is_none());
        // What leaves and comes back has to be labelled again, whatever a status of before says.
        filtered.of(&named(&["websites"], 3), None, &known);
        let known = Known::default();
        let stale = status(3, 3, &["secrets", "websites"]);
        assert_eq!(filtered.of(&joined, Some(&stale), &known).resources, [of("websites")]);
    }

    #[test]
    fn next_leader_goes_on_where_the_status_says() {
        let (known, joined) = (Known::default(), named(&["secrets", "websites"], 2));
        let of_status = |status| Filtered::default().of(&joined, Some(&status), &known).resources;
        assert_eq!(of_status(status(1, 1, &["websites"])), [of("websites")]);
        assert_eq!(of_status(status(2, 2, &["websites"])), [of("websites")]);
        // An older sharder has written since: proxies filter everything.
        assert_eq!(of_status(status(2, 1, &["websites"])), [of("secrets"), of("websites")]);
        assert_eq!(of_status(ClusterRingStatus::default()), [of("secrets"), of("websites")]);
    }

    #[test]
    fn resource_that_is_not_served_has_nothing_to_label() {
        let mut joined = named(&["secrets", "websites"], 2);
        joined.unserved = vec![of("secrets")];
        let said = Filtered::default().of(&joined, Some(&status(1, 1, &["websites"])), &Known::default());
        assert_eq!(said.resources, [of("secrets"), of("websites")]);
    }
}
