//! What the API server's fence refused: that of former owners, as it should, and that of owners, which is a fault.

use k8s_openapi::jiff::Timestamp;

use super::{Change, Landed, Verdict, Write, Writes, history::History};

impl Writes {
    /// Adds what shards were kept from writing.
    pub(super) fn barred(&self, verdict: &mut Verdict) {
        for write in &self.barred {
            let Some(shard) = &write.shard else { continue };
            if self.was_own(write, shard) {
                verdict.barred.push(Landed::of(write, Some(shard), Some(shard)));
            } else {
                verdict.kept_out += 1;
            }
        }
    }

    /// Whether the object, or the one that it belongs to in the end, was the shard's own for as long as the API server had the
    /// request. While the one above is drained, what follows it may be on its way already; then its own label counts.
    fn was_own(&self, write: &Write, shard: &str) -> bool {
        let time = (write.received, write.answered);
        let mut there = self.named(write).filter(|history| history.is_there_at(write.received));
        let is = there.any(|history| {
            let follows = self.root(history).is_some_and(|root| root.was_with(shard, Some(false), time));
            follows || history.was_with(shard, None, time)
        });
        // A create names who is to be above.
        let above = write.object.controller.as_ref().and_then(|uid| self.objects.get(uid));
        is || above.is_some_and(|above| self.root(above).unwrap_or(above).was_with(shard, Some(false), time))
    }
}

impl History {
    /// Whether it was there and had this shard's label all the time between these two, and, where that is asked, was drained or
    /// not. Any write may have taken effect at any time between its arrival and its answer.
    fn was_with(&self, shard: &str, drained: Option<bool>, (from, until): (Timestamp, Timestamp)) -> bool {
        let gone = self.deletion().is_some_and(|deletion| deletion.write.received <= until);
        let mut versions =
            self.steps().map(|(_, version)| version).filter(|one| one.write.change != Change::Deleted).peekable();
        let mut seen = false;
        while let Some(version) = versions.next() {
            let over = versions.peek().is_some_and(|next| next.write.answered <= from);
            if over || version.write.received > until {
                continue;
            }
            seen = true;
            let labels = &version.labels;
            if labels.shard.as_deref() != Some(shard)
                || drained.is_some_and(|drained| labels.drain.is_some() != drained)
            {
                return false;
            }
        }
        seen && !gone
    }
}
