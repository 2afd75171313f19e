//! The shards of a ring as they would be after its workload was scaled.

use ringside_ring::{Controller, Members, ShardName, Weight, lease::ShardState, members::Member};

/// Returns so many available shards: the first of those that there are, and others of weight 1 beside them.
///
/// Pods of a `StatefulSet` come and go by their ordinals. The names of a Deployment's are not known beforehand: placement depends
/// on names, so which objects move is not known either, but about how many is.
pub(super) fn scaled(members: Members, replicas: usize) -> Members {
    let mut names: Vec<ShardName> = members.available().cloned().collect();
    names.sort_by_key(|name| (ordinal(name).map(|(_, ordinal)| ordinal), name.clone()));
    let gone = names.split_off(replicas.min(names.len()));
    let members = gone.iter().fold(members, |members, name| members.clone().without(name).unwrap_or(members));
    let one = Member { state: ShardState::Ready, weight: Weight::ONE, controller: Controller::Working };
    let new = names_beside(&names).take(replicas.saturating_sub(names.len()));
    new.fold(members, |members, name| members.with(name, one))
}

/// Names that Pods beside these might have.
fn names_beside(names: &[ShardName]) -> impl Iterator<Item = ShardName> {
    let (prefix, first) =
        names.last().and_then(ordinal).map_or(("new", 1), |(prefix, ordinal)| (prefix, ordinal.saturating_add(1)));
    (first..).filter_map(move |ordinal| format!("{prefix}-{ordinal}").parse().ok())
}

/// Takes the name of a `StatefulSet`'s Pod apart. A hash of digits alone is no ordinal.
fn ordinal(name: &ShardName) -> Option<(&str, u32)> {
    let (prefix, ordinal) = name.as_str().rsplit_once('-')?;
    Some((prefix, ordinal.parse().ok().filter(|ordinal| *ordinal < 10_000)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::members;

    fn names(shards: &[&str], replicas: usize) -> Vec<String> {
        let now: Vec<_> = shards.iter().map(|name| (*name, ShardState::Ready)).collect();
        let then = scaled(members(&now), replicas);
        then.available().map(ToString::to_string).collect()
    }

    #[test]
    fn pods_of_a_stateful_set_come_and_go_by_ordinals() {
        assert_eq!(names(&["web-0", "web-1"], 4), ["web-0", "web-1", "web-2", "web-3"]);
        assert_eq!(names(&["web-10", "web-2", "web-9"], 2), ["web-2", "web-9"]);
    }

    #[test]
    fn pods_of_a_deployment_get_names_that_are_made_up() {
        assert_eq!(names(&["web-5d-abcde"], 3), ["new-1", "new-2", "web-5d-abcde"]);
        assert_eq!(names(&["web-5d-abcde", "web-5d-xyzzy"], 1), ["web-5d-abcde"]);
        assert_eq!(names(&["web-5d-abcde"], 0), [""; 0]);
    }

    #[test]
    fn a_shard_that_is_gone_counts_for_nothing() {
        let now = members(&[("a", ShardState::Ready), ("b", ShardState::Dead)]);
        assert_eq!(scaled(now, 2).available().count(), 2);
    }
}
