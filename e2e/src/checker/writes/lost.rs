//! Whether shards let go of the objects that they lost: from what a shard worked on nothing may take its label but its own
//! acknowledgement of a drain; and the sharder, where it waited for that in vain.

use super::{
    Change, Verdict, Writes,
    history::{History, Version},
    verdict::Lost,
};

impl Writes {
    /// Adds what shards lost of one object. Children go with their owners, which is judged elsewhere.
    pub(super) fn losses(&self, history: &History, verdict: &mut Verdict) {
        if history.controller().is_some() {
            return;
        }
        // What only a watch showed may have been anybody's.
        let is_known = |version: &Version| !version.write.id.is_empty();
        for (before, version) in history.steps().filter(|(_, version)| version.write.change != Change::Deleted) {
            let with = before.zip(before.and_then(|before| before.labels.shard.as_deref()));
            let lost = with.filter(|(_, shard)| version.labels.shard.as_deref() != Some(*shard) && is_known(version));
            let Some((before, shard)) = lost else { continue };
            let drained = history.drained_since(before);
            if !self.works(shard, version, drained.map(|(number, _)| number)) {
                continue;
            }
            match drained {
                // Whoever asked for it.
                Some(_) if version.write.shard.as_deref() == Some(shard) => {}
                Some((_, drain)) if version.write.by_sharder => {
                    verdict.forced.push(Lost::of(version, shard, drain.lasted_until(version)));
                }
                _ => verdict.lost.push(Lost::of(version, shard, Default::default())),
            }
        }
    }
}
