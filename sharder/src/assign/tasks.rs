//! What a worker has to do: objects wait in lanes, by how long their work takes, so that none waits for slower ones.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    mem::take,
};

use tokio::sync::mpsc;

use super::{BATCH, PARALLEL, Scope, retries::Retries};
use crate::target::Target;

/// Batches at once where children must be looked for. While one waits for answers the next objects to come needn't wait for
/// it; and not one each, as a list of children costs the same for one owner as for many.
const BATCHES: usize = 3;

/// Objects that wait or are worked on, at most; others stay in the queue. Enough for one batch to begin while another one ends,
/// and no more than a ring of few objects has in hand at once: memory must not grow with the objects (DESIGN, "Sharder").
const IN_HAND: usize = 2 * BATCH;

/// Where an object waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// It was let go, and its children are known: there is nothing to share, and writes are bounded elsewhere.
    Known,
    /// It has no owner, and its children must be looked for.
    Unowned,
    /// It must be taken from somebody who is not there. Those come by the hundred when a shard has gone.
    Left,
    /// Something of it failed. What was seen of it may be from before a write that had no answer: it is read first.
    Again,
}

/// The lanes in the order in which they are served.
const LANES: [Lane; 4] = [Lane::Known, Lane::Unowned, Lane::Left, Lane::Again];

impl Lane {
    /// Batches at once.
    fn width(self) -> usize {
        match self {
            Self::Known => PARALLEL,
            Self::Unowned | Self::Left | Self::Again => BATCHES,
        }
    }
}

/// Objects to be worked on together.
pub(super) struct Batch {
    pub(super) lane: Lane,
    pub(super) targets: Vec<Target>,
}

/// What is to be done. When the work is dropped, whoever begins anew looks at it first.
pub(super) struct Tasks<'a> {
    scope: &'a Scope,
    queue: mpsc::Receiver<Target>,
    busy: Busy,
    given: Given,
    retries: Retries,
    waiting: [Vec<Target>; LANES.len()],
    under_way: [usize; LANES.len()],
}

impl<'a> Tasks<'a> {
    pub(super) fn new(scope: &'a Scope, queue: mpsc::Receiver<Target>, retries: &Retries) -> Self {
        let (busy, given, retries) = (Busy::default(), Given::default(), retries.clone());
        Self { scope, queue, busy, given, retries, waiting: Default::default(), under_way: [0; LANES.len()] }
    }

    /// Whether more can be taken in.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    fn room(&self) -> usize {
        // What failed has a bound of its own, and makes nothing else wait.
        let waiting = self.waiting[..Lane::Again as usize].iter().map(Vec::len).sum();
        BATCH.saturating_sub(waiting).min(IN_HAND.saturating_sub(self.busy.begun.len()))
    }

    /// Waits for objects to come. Nothing is lost when it is dropped meanwhile.
    pub(super) async fn take_in(&mut self) {
        let (mut seen, room) = (Vec::new(), self.room());
        if self.queue.recv_many(&mut seen, room).await == 0 {
            // The feeders end only together with this.
            std::future::pending::<()>().await;
        }
        self.wait(seen);
    }

    /// Whether more of what failed can be tried again: not before what is there has begun, so that nothing else waits for it.
    pub(super) fn can_retry(&self) -> bool {
        self.waiting[Lane::Again as usize].is_empty()
    }

    /// These are tried again, but for those that are being worked on: they come back if that fails.
    pub(super) fn retry(&mut self, mut failed: Vec<Target>) {
        failed.retain(|target| !self.busy.begun.contains_key(&target.uid));
        self.waiting[Lane::Again as usize].extend(self.busy.take(failed));
    }

    /// The next objects to be worked on, if there is a place for them.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let lane = LANES.into_iter().find(|lane| {
            let at = *lane as usize;
            !self.waiting[at].is_empty() && self.under_way[at] < lane.width()
        })?;
        self.under_way[lane as usize] += 1;
        Some(Batch { lane, targets: take(&mut self.waiting[lane as usize]) })
    }

    /// The work on a batch has ended; what has changed meanwhile waits again, but for what was seen before it was given an
    /// owner.
    pub(super) fn end(&mut self, lane: Lane, uids: &[String], given: HashMap<String, String>) {
        self.under_way[lane as usize] -= 1;
        self.given.add(given);
        let changed = self.busy.end(uids);
        self.wait(changed);
    }

    fn wait(&mut self, mut seen: Vec<Target>) {
        seen.retain(|target| !self.given.is_before(target) && self.retries.admit(target));
        for target in self.busy.take(seen) {
            let lane = if self.retries.contains(&target.uid) {
                Lane::Again
            } else if self.scope.foresight.knows(self.scope, &target) {
                Lane::Known
            } else if target.shard.is_none() {
                Lane::Unowned
            } else {
                Lane::Left
            };
            self.waiting[lane as usize].push(target);
        }
    }
}

impl Drop for Tasks<'_> {
    fn drop(&mut self) {
        let queued = std::iter::from_fn(|| self.queue.try_recv().ok());
        let begun = self.busy.begun.drain().map(|(_, target)| target);
        self.scope.carried.leave(&self.scope.main.resource.id, begun.chain(queued));
    }
}

/// The objects that are being worked on. The watch shows them again meanwhile, as they are written to.
#[derive(Default)]
struct Busy {
    begun: HashMap<String, Target>,
    /// What was seen last of those that changed.
    changed: HashMap<String, Target>,
}

impl Busy {
    /// Of what was seen, what nobody works on; the rest waits.
    fn take(&mut self, seen: Vec<Target>) -> Vec<Target> {
        let mut free: HashMap<String, Target> = HashMap::new();
        for target in seen {
            let of = if self.begun.contains_key(&target.uid) { &mut self.changed } else { &mut free };
            // A list can be slower than a watch.
            if of.get(&target.uid).is_none_or(|known| version(known) <= version(&target)) {
                of.insert(target.uid.clone(), target);
            }
        }
        self.begun.extend(free.clone());
        free.into_values().collect()
    }

    /// Work on these has ended. Returns what has changed meanwhile.
    fn end(&mut self, uids: &[String]) -> Vec<Target> {
        let mut changed = Vec::new();
        for uid in uids {
            self.begun.remove(uid);
            changed.extend(self.changed.remove(uid));
        }
        changed
    }
}

/// Objects that were given an owner lately, with their versions by that. A list that began before still shows them without:
/// among other shards than then their children would be sent elsewhere.
#[derive(Default)]
struct Given {
    /// Bounded, as memory must not grow with the objects (DESIGN, "Sharder"); and of an object no more than tells it apart.
    last: HashMap<u128, u128>,
    before: HashMap<u128, u128>,
    fingerprints: RandomState,
}

/// The version of an object as a number, by which the later of two is known.
pub(super) fn version(seen: &Target) -> Option<u128> {
    seen.resource_version.parse().ok()
}

/// Objects in each of the two.
const REMEMBERED: usize = 5_000;

impl Given {
    fn add(&mut self, given: HashMap<String, String>) {
        // A server whose versions can't be compared is none that this works with.
        for (uid, version) in given {
            if let Ok(version) = version.parse() {
                self.last.insert(self.fingerprint(&uid), version);
            }
        }
        if self.last.len() >= REMEMBERED {
            self.before = take(&mut self.last);
        }
    }

    /// Whether this is how the object was before.
    fn is_before(&self, target: &Target) -> bool {
        let fingerprint = self.fingerprint(&target.uid);
        let given = self.last.get(&fingerprint).or_else(|| self.before.get(&fingerprint));
        given.zip(version(target)).is_some_and(|(given, seen)| seen < *given)
    }

    /// As long as a uid, so that no two have the same.
    fn fingerprint(&self, uid: &str) -> u128 {
        let [high, low] = [0_u8, 1].map(|half| u128::from(self.fingerprints.hash_one((half, uid))));
        high << 64 | low
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        assign::{queue, retries::RETRY, tests::scope},
        fixtures::FakeApi,
    };

    #[test]
    fn what_changes_while_it_is_worked_on_is_looked_at_after_that() {
        let seen = |uid: &str, version: &str| Target {
            uid: uid.into(),
            resource_version: version.into(),
            ..Target::default()
        };
        let mut busy = Busy::default();
        assert_eq!(busy.take(vec![seen("a", "1"), seen("a", "2")]), [seen("a", "2")], "each once, as it was seen last");
        assert_eq!(busy.take(vec![seen("b", "3")]), [seen("b", "3")]);
        assert_eq!(busy.take(vec![seen("a", "4"), seen("b", "5"), seen("a", "3")]), []);
        let uids = ["a".to_owned(), "b".to_owned()];
        assert_eq!(busy.end(&uids), [seen("a", "4"), seen("b", "5")]);
        assert_eq!(busy.take(vec![seen("b", "6")]), [seen("b", "6")]);
    }

    #[tokio::test]
    async fn what_a_list_shows_of_before_an_object_was_given_an_owner_is_not_taken_up() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (sender, receiver) = queue();
        let mut tasks = Tasks::new(&scope, receiver, &Retries::default());
        let at = |version: &str| Target { resource_version: version.into(), ..seen("o", None) };
        sender.send(at("9")).await.unwrap();
        tasks.take_in().await;
        let batch = tasks.next_batch().unwrap();
        // While it is worked on, and after.
        sender.send(at("10")).await.unwrap();
        tasks.take_in().await;
        tasks.end(batch.lane, &["o".to_owned()], [("o".to_owned(), "11".to_owned())].into());
        sender.send(at("9")).await.unwrap();
        tasks.take_in().await;
        assert!(tasks.next_batch().is_none());
        // Somebody took it away again.
        sender.send(at("12")).await.unwrap();
        tasks.take_in().await;
        assert_eq!(tasks.next_batch().unwrap().targets, [at("12")]);
    }

    #[tokio::test]
    async fn what_failed_is_not_tried_again_while_it_is_worked_on_by_how_it_was() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (sender, receiver) = queue();
        let mut tasks = Tasks::new(&scope, receiver, &Retries::default());
        let at = |version: &str| Target { resource_version: version.into(), ..seen("o", None) };
        sender.send(at("10")).await.unwrap();
        tasks.take_in().await;
        let batch = tasks.next_batch().unwrap();
        tasks.retry(vec![at("9")]);
        tasks.end(batch.lane, &["o".to_owned()], HashMap::new());
        assert!(tasks.next_batch().is_none());
        tasks.retry(vec![at("9")]);
        assert_eq!(tasks.next_batch().map(|batch| batch.lane), Some(Lane::Again));
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_is_not_taken_up_before_its_time_whatever_is_shown() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let ((sender, receiver), retries) = (queue(), scope.carried.retries(&scope.main.resource.id));
        let refused = kube::Error::Api(kube::core::Status::failure("no", "no").with_code(422).boxed());
        let mut tasks = Tasks::new(&scope, receiver, &retries);
        let at = |version: &str| Target { resource_version: version.into(), ..seen("o", None) };
        sender.send(at("1")).await.unwrap();
        tasks.take_in().await;
        let batch = tasks.next_batch().unwrap();
        // Its own write is shown while it is worked on.
        sender.send(at("2")).await.unwrap();
        tasks.take_in().await;
        scope.failed(&at("1"), &refused);
        retries.add(vec![at("1")], |_| std::time::Duration::ZERO);
        tasks.end(batch.lane, &["o".to_owned()], HashMap::new());
        sender.send(at("3")).await.unwrap();
        tasks.take_in().await;
        assert!(tasks.next_batch().is_none());
        tokio::time::sleep(RETRY[0]).await;
        sender.send(at("4")).await.unwrap();
        tasks.take_in().await;
        assert_eq!(tasks.next_batch().map(|batch| batch.lane), Some(Lane::Again), "it is read first");
        retries.worked([&"o".to_owned()].into_iter());
        tasks.end(Lane::Again, &["o".to_owned()], HashMap::new());
        sender.send(at("5")).await.unwrap();
        tasks.take_in().await;
        assert_eq!(tasks.next_batch().map(|batch| batch.lane), Some(Lane::Unowned), "it is like any other");
    }

    #[tokio::test]
    async fn what_failed_takes_no_room_from_others() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (_sender, receiver) = queue();
        let mut tasks = Tasks::new(&scope, receiver, &Retries::default());
        let some = |count: usize| (0..count).map(|number| seen(&number.to_string(), None)).collect::<Vec<_>>();
        tasks.retry(some(BATCH / 4));
        assert!(tasks.has_room() && !tasks.can_retry());
        assert_eq!(tasks.next_batch().unwrap().targets.len(), BATCH / 4);
        assert!(tasks.can_retry());
        tasks.retry(vec![seen("other", None)]);
        assert_eq!(tasks.next_batch().unwrap().lane, Lane::Again, "one batch that hangs holds up no other");
    }

    #[tokio::test]
    async fn no_more_is_taken_in_than_may_be_in_hand_and_more_when_a_batch_has_ended() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (sender, receiver) = queue();
        let mut tasks = Tasks::new(&scope, receiver, &Retries::default());
        let (mut sent, mut batches) = (0, Vec::new());
        loop {
            while tasks.has_room() && tasks.waiting[Lane::Left as usize].len() < BATCH {
                sender.send(seen(&format!("left-{sent}"), Some("gone"))).await.unwrap();
                sent += 1;
                tasks.take_in().await;
            }
            match tasks.next_batch() {
                Some(batch) => batches.push(batch),
                None => break,
            }
        }
        assert_eq!((sent, batches.len()), (IN_HAND, IN_HAND / BATCH));
        let ended: Vec<_> = batches.remove(0).targets.into_iter().map(|target| target.uid).collect();
        tasks.end(Lane::Left, &ended, HashMap::new());
        assert!(tasks.has_room());
    }

    fn seen(uid: &str, shard: Option<&str>) -> Target {
        Target { uid: uid.into(), shard: shard.map(Into::into), ..Target::default() }
    }

    #[tokio::test]
    async fn what_a_shard_left_behind_holds_up_nothing_that_was_let_go_and_is_kept_for_who_begins_anew() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (sender, receiver) = queue();
        let mut tasks = Tasks::new(&scope, receiver, &Retries::default());
        for number in 0..BATCHES + 1 {
            sender.send(seen(&format!("left-{number}"), Some("gone"))).await.unwrap();
            tasks.take_in().await;
            assert_eq!(tasks.next_batch().map(|batch| batch.lane), (number < BATCHES).then_some(Lane::Left));
        }
        sender.send(seen("free", None)).await.unwrap();
        tasks.take_in().await;
        let batch = tasks.next_batch().unwrap();
        assert_eq!((batch.lane, &*batch.targets[0].uid), (Lane::Unowned, "free"));
        sender.send(seen("queued", None)).await.unwrap();
        tasks.end(Lane::Left, &["left-0".to_owned()], HashMap::new());
        assert_eq!(tasks.next_batch().unwrap().targets[0].uid, "left-3");
        drop(tasks);
        let mut kept: Vec<_> =
            scope.carried.take(&scope.main.resource.id).into_iter().map(|target| target.uid).collect();
        kept.sort();
        assert_eq!(kept, ["free", "left-1", "left-2", "left-3", "queued"]);
    }
}
