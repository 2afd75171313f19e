//! Of two instances that worked on an object at once: how long the first had been silent when the object left its shard.
//!
//! What a shard promises is exact for a controller that speaks to the API server about an object within the grace
//! (docs/dev/limits.md). So an overlap is excused where the record proves that the first had begun, and sent nothing,
//! for longer than that; a proxy that holds a write up asks for the object meanwhile, which is written down as well.
//! What was sent while it could not be written down proves nothing: it may be on a line on which nothing passes, or
//! have been with an API server that was killed. But of a shard that is dead (`dead`) nothing was sent any more by
//! then, and for a while before: what arrives as a partition ends was sent while the proxy still passed things on.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{dead::Dead, history::Request, schedule::Kind};
use crate::checker::Object;

/// The objects themselves, of which labels are judged.
const RESOURCE: &str = "websites";

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault<'a> {
    pub(super) kind: Kind,
    pub(super) shard: Option<&'a str>,
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// An instance at work on an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtWork<'a> {
    /// The object.
    pub(super) uid: &'a str,
    /// Where it works.
    pub(super) shard: &'a str,
    /// Since when.
    pub(super) began: Timestamp,
}

/// For how long who had begun had not asked for anything about an object when the object left its shard, before another began
/// with it at `other`. None where no write is known that took the object from it.
pub(super) fn silence(
    first: AtWork<'_>,
    other: Timestamp,
    requests: &[Request],
    faults: &[Fault<'_>],
    dead: &[Dead<'_>],
) -> Option<Duration> {
    let (left, by) = left(requests, first, other)?;
    // What it lost before is not lost by its death.
    let is_dead = |dead: &&Dead<'_>| {
        let is_back = dead.until.is_some_and(|until| until <= left);
        dead.shard == first.shard && by != first.shard && dead.from <= left && !is_back
    };
    let silent = dead.iter().find(is_dead).map(|dead| dead.silent);
    let asked = requests.iter().filter(|request| request.who == first.shard && request.received < left);
    let unheard = faults.iter().filter(|fault| fault.from < left && hides(fault, first.shard, faults));
    // Of a dead shard what arrived after that was held up; what was under way by then was until its answer.
    let sent = |at: Timestamp| silent.map_or(at, |silent| at.min(silent));
    let spoke = asked.map(|request| match sent(request.received) {
        held_up if held_up < request.received => held_up,
        _ => request.answered,
    });
    let spoke = spoke.chain(unheard.map(|fault| sent(fault.until)));
    let last = spoke.max().map_or(first.began, |last| last.max(first.began));
    // Nothing where it was about to be answered, or began when the object had left.
    Some(Duration::try_from(left.duration_since(last)).unwrap_or_default())
}

/// Whether what the shard sent meanwhile may not be written down. A shard that stood still sent nothing.
fn hides(fault: &Fault<'_>, shard: &str, faults: &[Fault<'_>]) -> bool {
    let still = |pause: &Fault<'_>| {
        pause.kind == Kind::Pause
            && pause.shard == Some(shard)
            && pause.from <= fault.from
            && fault.until <= pause.until
    };
    match fault.kind {
        Kind::Partition | Kind::KillProxy | Kind::Restart => fault.shard == Some(shard),
        Kind::RestartApiServer => !faults.iter().any(still),
        _ => false,
    }
}

/// When the last write arrived before a time that took the object from the shard, and whose that was.
fn left<'a>(requests: &'a [Request], first: AtWork<'_>, before: Timestamp) -> Option<(Timestamp, &'a str)> {
    let mut versions: Vec<(&Request, &Object)> = requests
        .iter()
        .filter(|request| request.what.1.split('/').next() == Some(RESOURCE) && request.received <= before)
        .filter_map(|request| Some((request, request.object.as_ref()?)))
        .filter(|(_, object)| object.uid == first.uid)
        .collect();
    versions.sort_by_key(|(request, _)| (request.answered, request.received));
    let with = |object: &Object| object.labels.as_ref().and_then(|all| all.shard.as_deref()) == Some(first.shard);
    let moves = versions.windows(2).filter(|pair| with(pair[0].1) && !with(pair[1].1));
    moves.map(|pair| (pair[1].0.received, pair[1].0.who.as_str())).next_back()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::checker::Labels;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn request(received: i64, answered: i64, who: &str, shard: Option<&str>) -> Request {
        let labels = Some(Labels { shard: shard.map(str::to_owned), drain: None });
        Request {
            received: at(received),
            answered: at(answered),
            who: who.to_owned(),
            what: ("patch".to_owned(), "websites".to_owned()),
            code: 200,
            object: Some(Object { uid: "u".to_owned(), labels, ..Object::default() }),
        }
    }

    /// Of `a`, who last spoke at 12, and lost the object at 20 to `b`.
    fn requests() -> Vec<Request> {
        vec![
            request(5, 6, "sharder", Some("a")),
            request(11, 12, "a", Some("a")),
            request(20, 21, "sharder", Some("b")),
            request(25, 26, "b", Some("b")),
        ]
    }

    /// Of `a`, beside these faults: the kind, the shard, from when until when.
    fn beside(faults: &[(Kind, Option<&'static str>, i64, i64)]) -> Duration {
        let fault = |&(kind, shard, from, until): &_| Fault { kind, shard, from: at(from), until: at(until) };
        let faults: Vec<_> = faults.iter().map(fault).collect();
        silence(AtWork { uid: "u", shard: "a", began: at(10) }, at(24), &requests(), &faults, &[]).unwrap()
    }

    #[test]
    fn a_shard_that_is_dead_sends_nothing_through_a_partition_that_goes_on() {
        let partition = [Fault { kind: Kind::Partition, shard: Some("a"), from: at(11), until: at(30) }];
        let first = AtWork { uid: "u", shard: "a", began: at(10) };
        let silent = |shard, from, until: Option<i64>| {
            let dead = [Dead { shard, silent: at(from - 4), from: at(from), until: until.map(at) }];
            silence(first, at(24), &requests(), &partition, &dead).unwrap()
        };
        assert_eq!(silent("a", 18, None), Duration::from_secs(6), "it left at 20");
        assert_eq!(silent("a", 18, Some(21)), Duration::from_secs(6));
        assert_eq!(silent("a", 18, Some(20)), Duration::ZERO, "it was back by then");
        assert_eq!(silent("a", 21, None), Duration::ZERO, "not yet");
        assert_eq!(silent("b", 18, None), Duration::ZERO);
    }

    #[test]
    fn what_a_dead_shard_begins_is_silent_from_its_beginning_and_no_longer() {
        let silent = |requests: &[Request], began, from| {
            let first = AtWork { uid: "u", shard: "a", began: at(began) };
            let dead = [Dead { shard: "a", silent: at(from - 4), from: at(from), until: None }];
            silence(first, at(24), requests, &[], &dead).unwrap()
        };
        assert_eq!(silent(&requests(), 19, 18), Duration::from_secs(1));
        assert_eq!(silent(&requests(), 22, 18), Duration::ZERO, "it had left by then");
        let late = [requests(), vec![request(18, 19, "a", Some("a"))]].concat();
        assert_eq!(silent(&late, 10, 19), Duration::from_secs(5), "that was sent by 15");
        let slow = [requests(), vec![request(14, 23, "a", Some("a"))]].concat();
        assert_eq!(silent(&slow, 10, 19), Duration::ZERO, "that was under way");
    }

    #[test]
    fn silence_is_from_the_last_answer_or_the_beginning_until_the_object_leaves() {
        let before = requests();
        let asking = |received, answered, shard| [requests(), vec![request(received, answered, "a", shard)]].concat();
        let mut of_another = requests();
        of_another[2].object.as_mut().unwrap().uid = "another".to_owned();
        of_another.truncate(3);
        for (requests, shard, began, other, seconds) in [
            (before.clone(), "a", 10, 24, Some(8)),
            // Not from before it began, and not while it waits for an answer. The acknowledgement is no word about the object.
            (before.clone(), "a", 18, 24, Some(2)),
            (asking(13, 22, Some("a")), "a", 10, 24, Some(0)),
            (asking(19, 20, None), "a", 10, 24, Some(7)),
            // What was not taken from a shard excuses nothing, nor what was taken under the same name.
            (before.clone(), "b", 22, 30, None),
            (before, "a", 10, 19, None),
            (of_another, "a", 10, 24, None),
        ] {
            let first = AtWork { uid: "u", shard, began: at(began) };
            let silent = silence(first, at(other), &requests, &[], &[]);
            assert_eq!(silent, seconds.map(Duration::from_secs), "{shard} from {began} to {other}");
        }
    }

    #[test]
    fn what_could_not_be_written_down_is_not_taken_for_silence() {
        for kind in [Kind::Partition, Kind::KillProxy, Kind::Restart] {
            assert_eq!(beside(&[(kind, Some("a"), 14, 17)]), Duration::from_secs(3), "{kind:?}");
            assert_eq!(beside(&[(kind, Some("a"), 14, 30)]), Duration::ZERO, "{kind:?}");
            assert_eq!(beside(&[(kind, Some("b"), 14, 17)]), Duration::from_secs(8), "{kind:?}");
        }
        assert_eq!(beside(&[(Kind::RestartApiServer, None, 14, 17)]), Duration::from_secs(3));
        assert_eq!(beside(&[(Kind::RestartApiServer, None, 21, 30)]), Duration::from_secs(8));
    }

    #[test]
    fn who_stands_still_sends_nothing_to_an_api_server_that_is_killed() {
        let restarted = (Kind::RestartApiServer, None, 14, 17);
        assert_eq!(beside(&[restarted, (Kind::Pause, Some("a"), 13, 18)]), Duration::from_secs(8));
        assert_eq!(beside(&[restarted, (Kind::Pause, Some("a"), 15, 18)]), Duration::from_secs(3));
        assert_eq!(beside(&[restarted, (Kind::Pause, Some("b"), 13, 18)]), Duration::from_secs(3));
    }
}
