//! Children that were created once more: what a shard does that does not see what another has made.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{Change, LONGEST_CHAIN, Landed, Verdict, Write, Writes, history::History, history::Version};

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
                let (owner, moved) = self.in_the_way(refused).unzip();
                let refused = Landed { moved: moved.flatten(), ..Landed::of(refused, shard.clone(), owner) };
                verdict.second_creates.push(refused);
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
                let by = later.write.shard.clone().unwrap_or_default();
                again.push(Landed::of(&later.write, by, None));
            }
        }
        again
    }

    /// Whether what was in the way belonged to an owner that was gone by then. The garbage collector takes it a moment later,
    /// and whoever makes another owner of that name waits for it, sharded or not.
    fn is_left_over(&self, refused: &Write) -> bool {
        let named = |history: &&History| history.is_named(&refused.resource, &refused.object.name);
        self.objects.values().filter(named).any(|history| self.owner_was_gone(history, refused))
    }

    /// Whether it was to be made for an owner that was gone by then, as its controller did not know yet, and what was in the way
    /// belongs to another one that was made again under the name: without shards it would be in the way as well.
    fn is_for_who_is_gone(&self, refused: &Write) -> bool {
        let owner = refused.object.controller.as_ref().and_then(|uid| self.objects.get(uid));
        let top = owner.map(|owner| self.root(owner).unwrap_or(owner));
        let gone = top.and_then(History::deletion);
        gone.is_some_and(|deletion| deletion.write.received <= refused.answered)
    }

    /// Whether the shard itself had just made what was in the way, and nobody else had it since: so no move has to do with it.
    fn was_just_made(&self, refused: &Write) -> bool {
        let named = |history: &&History| history.is_named(&refused.resource, &refused.object.name);
        let since = refused.received - SEES_ITS_OWN;
        self.objects.values().filter(named).any(|history| history.was_made_since(since, refused))
    }

    /// The shard of what was in the way, and when it came there from another.
    fn in_the_way(&self, refused: &Write) -> Option<(String, Option<Timestamp>)> {
        let named = |history: &&History| history.is_named(&refused.resource, &refused.object.name);
        let mut there = self.objects.values().filter(named);
        there.find_map(|history| {
            let shard = history.shard_at(refused.received)?;
            Some((shard, history.moved_by(refused.received)))
        })
    }

    fn owner_was_gone(&self, child: &History, refused: &Write) -> bool {
        let mut top = None;
        for _ in 0..LONGEST_CHAIN {
            let above = top.unwrap_or(child).controller_at(refused.received);
            let Some(above) = above.and_then(|uid| self.objects.get(uid)) else { break };
            top = Some(above);
        }
        let gone = top.and_then(History::deletion);
        gone.is_some_and(|deletion| deletion.write.received <= refused.answered)
    }
}
