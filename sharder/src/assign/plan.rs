//! What a batch of unowned objects needs, as pure functions: who gets which object, and which children come first.

use std::collections::{BTreeMap, BTreeSet};

use ringside_ring::{RingLabels, ShardName, decide::Action};

use crate::target::Target;

/// An object that is about to get an owner, or has one to whom its children must come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Move {
    pub(super) target: Target,
    pub(super) to: ShardName,
    /// Who had it before, as far as that is known.
    pub(super) from: Option<String>,
}

/// The objects of a batch that need an owner, each once: what was seen last counts. `stays` names the shard of those that
/// have one, and whose children may be apart from them: these come to where the owner is, from wherever they are.
pub(super) fn moves(
    batch: Vec<Target>,
    next: impl Fn(&Target) -> Action<ShardName>,
    previous: impl Fn(&str) -> Option<String>,
    stays: impl Fn(&Target) -> Option<ShardName>,
) -> Vec<Move> {
    let latest: BTreeMap<String, Target> = batch.into_iter().map(|target| (target.uid.clone(), target)).collect();
    let of = |target: Target| match next(&target) {
        Action::Assign { to, .. } => {
            let from = target.shard.clone().or_else(|| previous(&target.uid));
            Some(Move { from, to, target })
        }
        Action::NoShard | Action::Release => None,
        _ => stays(&target).map(|to| Move { from: None, to, target }),
    };
    latest.into_values().filter_map(of).collect()
}

/// The moves by the shard that is gone and has left the object; none where no shard has it, or one that is there.
pub(super) fn by_left_shard(
    moves: Vec<Move>,
    is_there: impl Fn(&Target) -> bool,
) -> BTreeMap<Option<String>, Vec<Move>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for one in moves {
        let left = one.target.shard.clone().filter(|_| !is_there(&one.target));
        groups.entry(left).or_default().push(one);
    }
    groups
}

/// An owner whose family is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) uid: String,
    pub(crate) namespace: Option<String>,
    /// Who has the family, as far as that is known.
    pub(crate) from: Option<String>,
}

impl Sought {
    pub(super) fn of(one: &Move) -> Self {
        let (uid, namespace) = (one.target.uid.clone(), one.target.namespace.clone());
        Self { uid, namespace, from: one.from.clone() }
    }
}

/// Where children of a batch are looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Search {
    /// The one namespace that they can be in; none when they can be in any.
    pub(super) namespace: Option<String>,
    /// The label selector; none when it is not known who had the children.
    pub(super) selector: Option<String>,
}

/// Where the children of these objects are: with the shards that had the objects. Where that is not known, they may be
/// with anybody in the object's namespace: few such objects must not make everything be listed.
pub(super) fn searches(owners: &[Sought], labels: &RingLabels) -> Vec<Search> {
    let (known, unknown): (Vec<_>, Vec<_>) = owners.iter().partition(|one| one.from.is_some());
    let unselective = namespaces(&unknown).into_iter().map(|namespace| Search { namespace, selector: None });
    let from: BTreeSet<&str> = known.iter().filter_map(|one| one.from.as_deref()).collect();
    let selective = (!from.is_empty()).then(|| {
        let namespace = match &namespaces(&known).into_iter().collect::<Vec<_>>()[..] {
            [only] => only.clone(),
            _ => None,
        };
        let names: Vec<_> = from.into_iter().collect();
        Search { namespace, selector: Some(format!("{} in ({})", labels.shard, names.join(","))) }
    });
    selective.into_iter().chain(unselective).collect()
}

/// Objects without a namespace have children in any.
fn namespaces(owners: &[&Sought]) -> BTreeSet<Option<String>> {
    owners.iter().map(|one| one.namespace.clone()).collect()
}

#[cfg(test)]
mod tests;
