//! Groups of shards that have some of a ring's objects for themselves.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use ringside_ring::{Members, Weight, cluster_ring::ShardGroup};

use crate::namespaces::selector;

/// A group by its place in the ring's spec, from 1; 0 is that of shards of no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupId(pub(crate) u8);

/// The groups of a ring, ready to be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups(Vec<(String, Selector)>);

impl Groups {
    /// Those of a spec.
    ///
    /// # Errors
    /// A selector can't be used, for people.
    pub(crate) fn parse(groups: &[ShardGroup]) -> Result<Self, String> {
        let parse = |group: &ShardGroup| match selector::parse(&group.selector) {
            Ok(selector) => Ok((group.name.clone(), selector)),
            Err(error) => Err(format!("the selector of group '{}' can't be used: {error}", group.name)),
        };
        groups.iter().take(usize::from(u8::MAX)).map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The group of an object with these labels.
    pub(crate) fn of(&self, labels: Option<&BTreeMap<String, String>>) -> GroupId {
        let none = BTreeMap::new();
        let labels = labels.unwrap_or(&none);
        let at = self.0.iter().position(|(_, selector)| selector.matches(labels));
        GroupId(at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or_default())
    }

    /// The shards of each group, those of none first; all of them where there are no groups.
    pub(crate) fn members(&self, members: &Members) -> Vec<Members> {
        if self.is_empty() {
            return vec![members.clone()];
        }
        let names = self.0.iter().map(|(name, _)| Some(name.as_str()));
        std::iter::once(None).chain(names).map(|group| members.among(group)).collect()
    }
}

/// What is wrong with the groups and the shards that they have, for people.
pub(crate) fn faults(groups: &[ShardGroup], members: &Members) -> Vec<String> {
    if groups.is_empty() {
        return Vec::new();
    }
    let taking =
        |group: Option<&str>| members.among(group).weighted().filter(|(_, weight)| *weight > Weight::ZERO).count();
    let few = groups.iter().filter_map(|group| {
        let available = taking(Some(&group.name));
        let least = group.shards.unwrap_or(1);
        let (name, waits) = (&group.name, if available == 0 { ": its objects wait for one" } else { "" });
        (available < usize::from(least)).then(|| {
            format!("group '{name}' has {available} of {least} shards{waits}; a shard's proxy says --group {name}, or its Lease {}", ringside_ring::labels::LEASE_GROUP)
        })
    });
    let is_named = |name: &String| groups.iter().any(|group| group.name == *name);
    let others =
        members.groups().iter().filter(|(shard, group)| members.is_available(shard.as_str()) && !is_named(group));
    let others = others.map(|(shard, group)| {
        format!("shard '{shard}' is of group '{group}', which spec.groups does not name, so it gets no objects")
    });
    let takes_all = |group: &ShardGroup| group.selector == LabelSelector::default();
    let is_none_left = taking(None) == 0 && !members.is_empty() && !groups.iter().any(takes_all);
    let none_left = is_none_left.then(|| {
        "no shard of no group is available: objects that no group selects wait for one; a last group with the selector {} takes them all".to_owned()
    });
    few.chain(others).chain(none_left).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::lease::ShardState;
    use serde_json::json;

    use super::*;
    use crate::snapshot::tests::members;

    #[test]
    fn an_object_is_of_the_first_group_that_selects_it() {
        let groups = json!([
            {"name": "big", "selector": {"matchLabels": {"tenant": "big"}}},
            {"name": "all", "selector": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}, "shards": 2}]);
        let groups: Vec<ShardGroup> = serde_json::from_value(groups).unwrap();
        let parsed = Groups::parse(&groups).unwrap();
        let of = |tenant: &str| parsed.of(Some(&[("tenant".to_owned(), tenant.to_owned())].into())).0;
        assert_eq!([of("big"), of("small"), parsed.of(None).0], [1, 2, 0]);
        let shards = members(&["a", "b", "c", "d"].map(|shard| (shard, ShardState::Ready)));
        let of = [("b", "big"), ("c", "all"), ("d", "gone")];
        let shards = shards.with_groups(of.map(|(shard, group)| (shard.parse().unwrap(), group.to_owned())).into());
        let names = |members: &Members| members.available().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(parsed.members(&shards).iter().map(names).collect::<Vec<_>>(), [["a"], ["b"], ["c"]]);
        let told = faults(&groups, &shards);
        assert!(told.len() == 2 && told[0].contains("'all' has 1 of 2") && told[1].contains("'d'"), "{told:?}");
        let shards = shards.clone().without(&"a".parse().unwrap()).unwrap();
        assert!(faults(&groups, &shards).last().unwrap().contains("of no group"));
        let wrong = json!([{"name": "x", "selector": {"matchLabels": {"no key!": "y"}}}]);
        let wrong = Groups::parse(&serde_json::from_value::<Vec<ShardGroup>>(wrong).unwrap()).unwrap_err();
        assert!(wrong.contains("group 'x'"), "{wrong}");
    }
}
