//! Whether children went with their owners: not before these were released, and not after they came to their next
//! shard.

use std::ops::Bound;

use ringside_ring::ResourceVersion;

use super::{Change, Landed, Verdict, Writes, history::History, history::Version};

impl Writes {
    /// Adds what befell one child.
    pub(super) fn children(&self, child: &History, verdict: &mut Verdict) {
        let Some(root) = self.root(child) else { return };
        verdict.deleted.extend(child.deletion().filter(|_| root.deletion().is_none()).map(|deletion| {
            let owner = root.at(deletion).and_then(|owner| owner.labels.shard.as_deref());
            Landed::of(&deletion.write, deletion.labels.shard.as_deref(), owner)
        }));
        for (before, version) in child.steps().filter(|(_, version)| version.write.change != Change::Deleted) {
            let root = self.root_by(child, version).unwrap_or(root);
            let left = before.and_then(|before| before.labels.shard.as_deref());
            let Some(left) = left.filter(|left| version.labels.shard.as_deref() != Some(left)) else { continue };
            let owner = root.at(version);
            let with = owner.and_then(|owner| owner.labels.shard.as_deref());
            let drained = owner.and_then(|owner| root.drained_since(owner));
            let (since, drain) = drained.unzip();
            // What it releases later it had not released.
            let has =
                |next: &Version| [&next.labels.shard, &next.write.shard].iter().any(|it| it.as_deref() == Some(left));
            let released = drain.is_some_and(|drain| self.may_have_let_go(left, drain, version.write.answered))
                && !root.after(version).is_some_and(has);
            if with == Some(left) && !released && self.works(left, version, since) {
                let drained = drain.map(|drain| drain.lasted_until(version));
                let its = version.labels.shard.as_deref();
                verdict.overtaken.push(Landed { drained, ..Landed::of(&version.write, its, with) });
            }
        }
        for root in self.roots(child) {
            let is_its = |owner: &&Version| self.root_by(child, owner).is_some_and(|its| std::ptr::eq(its, root));
            for (before, owner) in root.steps().filter(|(_, owner)| is_its(owner)) {
                let shard = owner.labels.shard.as_deref();
                let came = shard.is_some() && before.is_some_and(|before| before.labels.shard.as_deref() != shard);
                let there = child.at(owner).filter(|_| came && !child.is_gone_at(owner));
                let behind = there.filter(|child| child.labels.shard.as_deref() != shard);
                verdict.left_behind.extend(behind.map(|behind| Landed {
                    object: Landed::of(&behind.write, None, None).object,
                    ..Landed::of(&owner.write, behind.labels.shard.as_deref(), shard)
                }));
            }
        }
    }

    /// All that a child ever belonged to in the end.
    fn roots(&self, child: &History) -> Vec<&History> {
        let mut roots: Vec<&History> = Vec::new();
        for root in child.steps().filter_map(|(_, version)| self.root_by(child, version)) {
            if !roots.iter().any(|known| std::ptr::eq(*known, root)) {
                roots.push(root);
            }
        }
        roots
    }

    /// Whether a shard worked on an object that was drained since `drained` when another object got this version: it held
    /// its Lease, and that before the drain. Who gets it later is not shown what is drained. Shards are where their objects are.
    pub(super) fn works(&self, shard: &str, at: &Version, drained: Option<&ResourceVersion>) -> bool {
        let namespace = at.write.object.name.split_once('/').map_or("", |(namespace, _)| namespace);
        let leases = self.holders.get(&format!("{namespace}/{shard}"));
        let (Some(leases), Some(number)) = (leases, &at.write.object.version) else { return false };
        let before = leases.range::<ResourceVersion, _>((Bound::Unbounded, Bound::Included(number))).rev();
        // Since when it is held without a break.
        let held = before.take_while(|(_, (_, holder))| holder.as_deref() == Some(shard));
        held.last().is_some_and(|(since, _)| drained.is_none_or(|drained| since < drained))
    }
}
