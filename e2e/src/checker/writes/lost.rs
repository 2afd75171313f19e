//! Whether shards released the objects that they lost: from what a shard worked on nothing may take its label but its
//! own acknowledgement of a drain, whichever client asked for that; and the sharder, where it waited in vain.

use k8s_openapi::jiff::Timestamp;

use super::{
    Change, Landed, Verdict, Writes,
    history::{History, Version},
};

impl Writes {
    /// Adds what shards lost of one object. Children go with their owners, which is judged elsewhere.
    pub(super) fn losses(&self, history: &History, verdict: &mut Verdict) {
        if history.controller().is_some() {
            return;
        }
        for (before, version) in history.steps().filter(|(_, version)| version.write.change != Change::Deleted) {
            let with = before.zip(before.and_then(|before| before.labels.shard.as_deref()));
            let Some((before, shard)) = with.filter(|(_, shard)| version.labels.shard.as_deref() != Some(*shard))
            else {
                continue;
            };
            let (number, drain) = history.drained_since(before).unzip();
            let is_drained = drain.is_some() || self.may_have_been_drained(before, version);
            let released = is_drained && version.write.shard.as_deref() == Some(shard);
            if released || self.is_anybodys(shard, drain, version) || !self.works(shard, version, number) {
                continue;
            }
            let drained = drain.map(|drain| drain.lasted_until(version));
            let forced = drain.is_some() && version.write.by_sharder;
            let which = if forced { &mut verdict.forced } else { &mut verdict.lost };
            let to = version.labels.shard.as_deref();
            which.push(Landed { drained, ..Landed::of(&version.write, Some(shard), to) });
        }
    }

    /// Whether the shard itself may have made this version, or one before it that was not seen: only a watch showed it,
    /// or the shard may have released it before.
    fn is_anybodys(&self, shard: &str, drain: Option<&Version>, version: &Version) -> bool {
        version.write.id.is_empty()
            || drain.is_some_and(|drain| self.may_have_let_go(shard, drain, version.write.answered))
    }

    /// Whether the sharder had asked for a write of the object in between, whose outcome is unknown. The shard's own
    /// patch tells whether there was a drain: it tests the label.
    fn may_have_been_drained(&self, before: &Version, version: &Version) -> bool {
        self.tried(&version.write, before.write.received..=version.write.received).any(|write| write.by_sharder)
    }

    /// Whether the shard had asked for a write of the object since it was drained, whose outcome is unknown: the API
    /// server was killed before it answered, or ended as it did.
    pub(super) fn may_have_let_go(&self, shard: &str, drain: &Version, until: Timestamp) -> bool {
        self.tried(&drain.write, drain.write.received..=until).any(|write| write.shard.as_deref() == Some(shard))
    }
}
