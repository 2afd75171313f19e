//! When shards were dead: their Leases were taken, as the record has it.
//!
//! Of a dead shard nothing is sent any more by the time, and for a while before: its proxy passes nothing on once it can't
//! renew its Lease for four fifths of that, and others wait for twice as long as it lasts. That is looked up: a death at which
//! something was heard of the shard after that proves nothing, and a Lease that was taken before its time is a fault of its
//! own. Of what arrives as a partition or a standstill ends it is believed that it was sent before.

use std::collections::BTreeMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{schedule::Kind, silence::Fault};
use crate::audit::{Heard, Holder};

/// For so long a write of a shard may be under way, on a machine that does much else.
const UNDER_WAY: SignedDuration = SignedDuration::from_secs(1);

/// A time in which the sharder had a shard's Lease, and the shard sent nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dead<'a> {
    pub(super) shard: &'a str,
    /// From when on nothing was sent.
    pub(super) silent: Timestamp,
    pub(super) from: Timestamp,
    /// None: it never came back.
    pub(super) until: Option<Timestamp>,
}

/// What the record tells of Leases that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Deaths<'a> {
    pub(super) all: Vec<Dead<'a>>,
    /// Of shards whose Lease the sharder had taken too early, and when.
    pub(super) early: Vec<(&'a str, Timestamp)>,
}

/// Of shards whose Leases last so long.
pub(super) fn deaths<'a>(
    heard: &'a BTreeMap<String, Heard>,
    lease: SignedDuration,
    faults: &[Fault<'_>],
) -> Deaths<'a> {
    let mut deaths = Deaths::default();
    for (shard, heard) in heard {
        for (at, (from, holder)) in heard.lease.iter().copied().enumerate() {
            if !matches!(holder, Holder::Sharder | Holder::PerhapsSharder) {
                continue;
            }
            let (before, after) = heard.lease.split_at(at);
            // Since when no shard renewed it, which a renewal without an answer may not have done.
            let certain = |holder: Holder| !matches!(holder, Holder::PerhapsShard | Holder::PerhapsSharder);
            let renewed = before.iter().rfind(|(_, holder)| certain(*holder));
            let Some((renewed, Holder::Shard)) = renewed.copied() else { continue };
            if from.duration_since(renewed) < lease * 2 {
                // The sharder may not have got what it asked for.
                deaths.early.extend((holder == Holder::Sharder).then_some((shard.as_str(), from)));
                continue;
            }
            let is_shards = |(_, holder): &&(Timestamp, Holder)| matches!(holder, Holder::Shard | Holder::PerhapsShard);
            let last = before.iter().rfind(is_shards).map_or(renewed, |(last, _)| *last);
            let silent = last + lease * 4 / 5 + UNDER_WAY;
            let until = after.iter().find(is_shards).map(|(until, _)| *until);
            let meanwhile = |wrote: &&Timestamp| **wrote > silent && until.is_none_or(|until| **wrote < until);
            let is_silent = heard.wrote.iter().filter(meanwhile).all(|wrote| was_held_up(shard, *wrote, faults));
            if is_silent {
                deaths.all.push(Dead { shard, silent, from, until });
            }
        }
    }
    deaths
}

/// Whether this may have been sent long before it arrived: it waited on a parted line, or in a process that stood still.
fn was_held_up(shard: &str, arrived: Timestamp, faults: &[Fault<'_>]) -> bool {
    faults.iter().any(|fault| {
        matches!(fault.kind, Kind::Partition | Kind::Pause)
            && fault.shard == Some(shard)
            && (fault.until - UNDER_WAY..fault.until + UNDER_WAY).contains(&arrived)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: SignedDuration = SignedDuration::from_secs(5);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn heard(lease: &[(i64, Holder)], wrote: &[i64]) -> BTreeMap<String, Heard> {
        let lease = lease.iter().map(|(second, holder)| (at(*second), *holder)).collect();
        BTreeMap::from([("a".to_owned(), Heard { lease, wrote: wrote.iter().copied().map(at).collect() })])
    }

    /// Taken at 20, ten seconds after the last renewal.
    const TAKEN: [(i64, Holder); 4] =
        [(8, Holder::Shard), (10, Holder::Shard), (20, Holder::Sharder), (30, Holder::Shard)];

    #[test]
    fn who_can_not_renew_is_silent_for_a_while_before_it_is_dead() {
        use Holder::{Nobody, PerhapsShard, PerhapsSharder, Shard, Sharder};
        // When it was silent, dead, and back.
        let dead = |(silent, from, until): &(i64, i64, Option<i64>)| Dead {
            shard: "a",
            silent: at(*silent) + UNDER_WAY,
            from: at(*from),
            until: until.map(at),
        };
        for (lease, wrote, all, early) in [
            (&TAKEN[..], &[9, 14, 30][..], &[(14, 20, Some(30))][..], &[][..]),
            // A renewal that was not answered may have counted; a second attempt to take it counts from the shard's last word.
            (&[(10, Shard), (12, PerhapsShard), (20, Sharder), (30, Shard)], &[16], &[(16, 20, Some(30))], &[]),
            (
                &[(10, Shard), (12, PerhapsShard), (20, PerhapsSharder), (22, Sharder)],
                &[],
                &[(16, 20, None), (16, 22, None)],
                &[],
            ),
            // It may be dead and back by what was not answered; or the sharder did not get it.
            (&[(10, Shard), (20, PerhapsSharder), (30, PerhapsShard)], &[], &[(14, 20, Some(30))], &[]),
            (&[(10, Shard), (15, PerhapsSharder), (16, Shard)], &[], &[], &[]),
            // One that is taken early is a fault and no death; one that was released may be taken at once, and again.
            (&[(10, Shard), (19, Sharder)], &[], &[], &[19]),
            (&[(10, Shard), (11, Nobody), (12, Sharder), (13, Sharder)], &[], &[], &[]),
        ] {
            let (all, early) =
                (all.iter().map(dead).collect(), early.iter().map(|second| ("a", at(*second))).collect());
            assert_eq!(deaths(&heard(lease, wrote), LEASE, &[]), Deaths { all, early }, "{lease:?}");
        }
    }

    #[test]
    fn of_whom_something_is_heard_while_it_is_dead_nothing_is_proven() {
        for wrote in [16, 20, 29] {
            let heard = heard(&TAKEN, &[9, wrote]);
            assert_eq!(deaths(&heard, LEASE, &[]), Deaths::default(), "{wrote}");
            let fault = |kind, shard| [Fault { kind, shard, from: at(11), until: at(wrote) }];
            for kind in [Kind::Partition, Kind::Pause] {
                assert_eq!(deaths(&heard, LEASE, &fault(kind, Some("a"))).all.len(), 1, "{wrote}: it was sent before");
                let goes_on = [Fault { until: at(wrote + 3), ..fault(kind, Some("a"))[0] }];
                assert_eq!(deaths(&heard, LEASE, &goes_on).all, [], "{wrote}: nothing was to pass");
            }
            assert_eq!(deaths(&heard, LEASE, &fault(Kind::Partition, Some("b"))).all, []);
            assert_eq!(deaths(&heard, LEASE, &fault(Kind::KillProxy, Some("a"))).all, []);
        }
    }
}
