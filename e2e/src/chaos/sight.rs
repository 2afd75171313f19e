//! Of creates of what was there already: whether the shard could have known.
//!
//! A controller watches owners and children apart from each other, and tries each again at its own time. So what it made a
//! moment ago it may not see when its watches were cut, sharded or not, and make once more: the API server refuses that. It
//! is excused only of what was the shard's own, and only while the record says that its watch of such children was not
//! there, or was just beginning, or that what it shows comes late: by a fault, or as the API server took longer for that very
//! create than Kubernetes promises. Or where the child had come a moment before: nothing orders the watches of two resources.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{schedule::Kind, silence::Fault};
use crate::{
    audit::Watch,
    checker::{Change, Landed},
};

/// After so long a controller tries a watch again at the latest (`client-go`'s reflector).
const WATCHED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Within this time a watch has shown all there was when it began, on a machine that does much else; and what waited on a line
/// has arrived.
const CAUGHT_UP: SignedDuration = SignedDuration::from_secs(5);

/// What Kubernetes promises for 99 of 100 writes to one object (the SLO "API call latency"). An API server that is behind with
/// its answers is behind with its watches.
const PROMISED: SignedDuration = SignedDuration::from_secs(1);

/// By so much the watch of one resource may be behind that of another on a machine that does much else (`docs/limits.md`,
/// "Children that come while"): five times what was seen.
const BEHIND: SignedDuration = SignedDuration::from_millis(500);

/// Whether a create was refused because of a child that was the shard's own, and that it may not have seen yet.
pub(super) fn was_unseen(create: &Landed, faults: &[Fault<'_>], watches: &[Watch]) -> bool {
    let since = |fault: &Fault<'_>| create.received.duration_since(fault.until);
    let goes_on = |fault: &&Fault<'_>| fault.from <= create.received;
    let of_this = |fault: &Fault<'_>| fault.shard.is_none_or(|shard| shard == create.shard);
    let delayed = |fault: &Fault<'_>| delays(fault.kind) && of_this(fault) && since(fault) < CAUGHT_UP;
    let cut = |fault: &Fault<'_>| cuts(fault.kind) && of_this(fault) && since(fault) < WATCHED_AGAIN;
    let begun = || faults.iter().filter(goes_on);
    // Where the webhook is silent it is that which takes the time.
    let silent =
        faults.iter().any(|fault| fault.kind == Kind::SilentWebhook && goes_on(&fault) && since(fault) < CAUGHT_UP);
    let slow = !silent && create.answered.duration_since(create.received) > PROMISED;
    create.change == Change::Refused
        && create.owner.as_ref() == Some(&create.shard)
        && (slow
            || came_within(create, BEHIND)
            || begun().any(delayed)
            || begun().any(cut) && !was_watched(create, faults, watches))
}

/// Whether what was in the way had come to the shard so lately that no watch may have shown it there.
pub(super) fn was_moved(create: &Landed) -> bool {
    came_within(create, WATCHED_AGAIN)
}

fn came_within(create: &Landed, time: SignedDuration) -> bool {
    create.moved.is_some_and(|moved| create.received.duration_since(moved) < time)
}

/// Whether a watch showed the shard such children.
fn was_watched(create: &Landed, faults: &[Fault<'_>], watches: &[Watch]) -> bool {
    let resource = create.object.split(' ').next().unwrap_or_default();
    watches.iter().filter(|watch| watch.shard == create.shard && watch.resource == resource).any(|watch| {
        let until = watch.until.or_else(|| died(watch.from, faults));
        create.received.duration_since(watch.from) >= CAUGHT_UP && until.is_none_or(|until| until > create.received)
    })
}

/// When the API server was killed beneath a watch: of that nothing is written down.
fn died(from: Timestamp, faults: &[Fault<'_>]) -> Option<Timestamp> {
    let killed = faults.iter().filter(|fault| fault.kind == Kind::RestartApiServer && fault.from > from);
    killed.map(|fault| fault.from).min()
}

/// Whether what a watch shows comes late while such a fault lasts, and at once when it is over.
fn delays(kind: Kind) -> bool {
    use Kind::{LateApiServer, OtherApiServer, Partition, Pause, PauseController, SlowApiServer};
    matches!(kind, LateApiServer | SlowApiServer | OtherApiServer | Partition | Pause | PauseController)
}

/// Whether watches end with such a fault, or may.
fn cuts(kind: Kind) -> bool {
    matches!(kind, Kind::RestartApiServer | Kind::DefineAgain | Kind::KillProxy) || delays(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    /// By the shard `a`, of what was this one's.
    fn create(owner: &str, second: i64) -> Landed {
        Landed {
            id: "id".to_owned(),
            shard: "a".to_owned(),
            change: Change::Refused,
            object: "secrets default/o".to_owned(),
            version: "7".to_owned(),
            received: at(second),
            answered: at(second),
            owner: Some(owner.to_owned()),
            moved: None,
        }
    }

    fn fault(kind: Kind, shard: Option<&str>) -> [Fault<'_>; 1] {
        [Fault { kind, shard, from: at(100), until: at(101) }]
    }

    fn watch(resource: &str, from: i64, until: Option<i64>) -> Watch {
        Watch { shard: "a".to_owned(), resource: resource.to_owned(), from: at(from), until: until.map(at) }
    }

    #[test]
    fn what_was_its_own_is_excused_while_its_watches_come_back() {
        let killed = fault(Kind::KillProxy, Some("a"));
        assert!(was_unseen(&create("a", 105), &killed, &[]));
        assert!(!was_unseen(&create("a", 105), &[], &[]), "nothing happened");
        assert!(!was_unseen(&create("b", 105), &killed, &[]), "it was never shown");
        assert!(!was_unseen(&create("a", 99), &killed, &[]) && !was_unseen(&create("a", 131), &killed, &[]));
        assert!(!was_unseen(&create("a", 105), &fault(Kind::KillProxy, Some("b")), &[]));
        assert!(!was_unseen(&create("a", 105), &fault(Kind::KillLeader, None), &[]));
        assert!(was_unseen(&create("a", 105), &fault(Kind::RestartApiServer, None), &[]));
        let created = Landed { change: Change::Created, ..create("a", 105) };
        assert!(!was_unseen(&created, &killed, &[]), "there are two of it");
    }

    #[test]
    fn what_has_just_come_to_a_shard_is_a_moves_doing() {
        let moved = |second| Landed { moved: Some(at(second)), ..create("a", 105) };
        assert!(was_moved(&moved(104)) && was_moved(&moved(76)));
        assert!(!was_moved(&moved(74)) && !was_moved(&create("a", 105)));
    }

    #[test]
    fn what_came_a_moment_before_is_excused_where_the_api_server_refused_it() {
        let came = |before: i64, owner| {
            let moved = at(105).checked_sub(SignedDuration::from_millis(before)).ok();
            Landed { moved, ..create(owner, 105) }
        };
        assert!(was_unseen(&came(499, "a"), &[], &[]) && was_moved(&came(499, "a")));
        assert!(!was_unseen(&came(500, "a"), &[], &[]) && !was_unseen(&came(499, "b"), &[], &[]));
        let landed = Landed { change: Change::Created, ..came(499, "a") };
        assert!(!was_unseen(&landed, &[], &[]), "there are two of it");
    }

    #[test]
    fn what_was_its_own_is_excused_where_the_api_server_took_long_for_it() {
        let took = |seconds: i64, owner| Landed { answered: at(105 + seconds), ..create(owner, 105) };
        assert!(was_unseen(&took(2, "a"), &[], &[]));
        assert!(!was_unseen(&took(2, "a"), &fault(Kind::SilentWebhook, None), &[]));
        assert!(!was_unseen(&took(1, "a"), &[], &[]) && !was_unseen(&took(2, "b"), &[], &[]));
    }

    #[test]
    fn a_watch_that_was_there_excuses_nothing() {
        let killed = fault(Kind::KillProxy, Some("a"));
        let unseen = |watches: &[Watch]| was_unseen(&create("a", 115), &killed, watches);
        assert!(!unseen(&[watch("secrets", 102, None)]));
        assert!(unseen(&[watch("secrets", 112, None)]), "it has just begun");
        assert!(unseen(&[watch("secrets", 50, Some(100))]), "it has ended");
        assert!(unseen(&[watch("configmaps", 102, None)]), "it is of others");
        assert!(unseen(&[Watch { shard: "b".to_owned(), ..watch("secrets", 102, None) }]));
    }

    #[test]
    fn a_watch_ends_with_its_api_server() {
        let killed = fault(Kind::RestartApiServer, None);
        assert!(was_unseen(&create("a", 105), &killed, &[watch("secrets", 50, None)]));
        assert!(!was_unseen(&create("a", 110), &killed, &[watch("secrets", 102, None)]));
    }

    #[test]
    fn what_a_watch_shows_late_is_unseen_until_it_has_arrived() {
        let parted = fault(Kind::Partition, Some("a"));
        let open = [watch("secrets", 50, None)];
        assert!(was_unseen(&create("a", 105), &parted, &open));
        assert!(!was_unseen(&create("a", 107), &parted, &open));
    }
}
