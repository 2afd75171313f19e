//! Children that were created once more: what a shard does that does not see what another has made.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringside_ring::MAX_OWNER_DEPTH;

use super::{Change, Landed, Verdict, Write, Writes, history::History, history::Version};

/// How long a controller may not know of what it has made itself: a watch tells its cache.
const SEES_ITS_OWN: SignedDuration = SignedDuration::from_secs(1);

impl Writes {
    /// All of them, whether the API server refused them or not; those that it refused and no move has to do with are counted
    /// apart.
    pub(super) fn second_creates(&self, verdict: &mut Verdict) {
        for refused in &self.refused {
            let Some(shard) = &refused.shard else { continue };
            if self.is_left_over(refused) || self.is_for_who_is_gone(refused) {
                verdict.of_the_gone += 1;
            } else if self.was_just_made(refused) {
                verdict.just_made += 1;
            } else {
                // The shard of what was in the way, and when it came there from another.
                let shard_of =
                    |history: &History| Some((history.shard_at(refused.received)?, history.moved_by(refused.received)));
                let (owner, moved) = self.named(refused).find_map(shard_of).unzip();
                let refused = Landed::of(refused, Some(shard), owner.as_deref());
                verdict.second_creates.push(Landed { moved: moved.flatten(), ..refused });
            }
        }
        verdict.second_creates.extend(self.made_again());
    }

    /// Children of one owner that have the resource and name of one that was there before. Those of an owner that is gone the
    /// garbage collector takes at once: who does not know that it is gone makes them again and again, sharded or not.
    fn made_again(&self) -> Vec<Landed> {
        let mut first: HashMap<_, &Version> = HashMap::new();
        let mut again = Vec::new();
        for history in self.objects.values() {
            let Some(controller) = history.controller() else { continue };
            let gone = self.root(history).and_then(History::deletion).map(|deletion| deletion.write.received);
            let made = |version: &Version| {
                version.write.change == Change::Created && gone.is_none_or(|gone| version.write.answered < gone)
            };
            for (_, version) in history.steps().filter(|(_, version)| made(version)) {
                let which = (controller, &version.write.resource, &version.write.object.name);
                let Some(other) = first.insert(which, version) else { continue };
                let later = if other.write.answered < version.write.answered { version } else { other };
                again.push(Landed::of(&later.write, later.write.shard.as_deref(), None));
            }
        }
        again
    }

    /// Whether what was in the way belonged to an owner that was gone by then. The garbage collector takes it a moment later,
    /// and a client that makes another owner of that name waits for it, sharded or not.
    fn is_left_over(&self, refused: &Write) -> bool {
        // It may have come, or gone, while the other was under way.
        let times = [refused.received, refused.answered];
        self.named(refused).any(|history| times.iter().any(|at| self.owner_was_gone(history, *at, refused)))
    }

    /// Whether it was to be made for an owner that was gone by then, as its controller did not know yet, and what was in the way
    /// belongs to another one that was made again under the name: without shards it would be in the way as well.
    fn is_for_who_is_gone(&self, refused: &Write) -> bool {
        let owner = refused.object.controller.as_ref().and_then(|uid| self.objects.get(uid));
        owner.is_some_and(|owner| was_gone(self.root(owner).unwrap_or(owner), refused))
    }

    /// Whether the shard itself had just made what was in the way, and no other shard had it since: so no move has to
    /// do with it.
    fn was_just_made(&self, refused: &Write) -> bool {
        self.named(refused).any(|history| history.was_made_since(refused.received - SEES_ITS_OWN, refused))
    }

    fn owner_was_gone(&self, child: &History, at: Timestamp, refused: &Write) -> bool {
        let mut top = None;
        for _ in 0..MAX_OWNER_DEPTH {
            let above = top.unwrap_or(child).controller_at(at);
            let Some(above) = above.and_then(|uid| self.objects.get(uid)) else { break };
            top = Some(above);
        }
        top.is_some_and(|top| was_gone(top, refused))
    }
}

fn was_gone(owner: &History, refused: &Write) -> bool {
    owner.deletion().is_some_and(|deletion| deletion.write.received <= refused.answered)
}
