//! What must be true of every state.

use crate::{
    config::Handover,
    state::{Broken, Holder, OBJECTS, Object, Pod, State},
};

/// Of what shards do, apart from their writes.
pub const ONE_WORKS: &str = "one controller at most is at work on an object";
/// Of what their proxies let through.
pub const ONE_WRITES: &str = "one shard at most writes an object";
/// Of what is carried out in the end.
pub const NO_FOREIGN_WRITE: &str = "no foreign write lands that could have been waited for, and behind the fence none";
/// Of what a shard finds that gets an object: who misses its child creates a second one.
pub const CHILD_FIRST: &str = "where an object is, there is its child";
/// Of what the sharder takes from shards that are gone.
pub const HELD: &str = "nothing is taken over but under a hold on the Lease of the shard that had it";
/// Of everything from here on.
pub const SETTLES: &str = "without further faults all settles, each object together with its child";

/// Not counted are controllers of which no proxy can know: one that sleeps for longer than the grace in the middle of a
/// reconcile, and one that goes on with what it had before a gap in its Lease.
pub(crate) fn one_works(_: &Handover, state: &State) -> bool {
    at_most_one(state, |pod, object, _| pod.objects[object].worked_on)
}

/// Their proxies let nothing of theirs through that is another's: so exclusive are the writes.
pub(crate) fn one_writes(_: &Handover, state: &State) -> bool {
    at_most_one(state, |pod, object, labels_say_so| {
        let held = &pod.objects[object];
        (held.worked_on || held.woken) && (!held.fenced || labels_say_so)
    })
}

/// Shards that lost their Lease do nothing that counts: their proxies refuse it. `does` is told whether the object's labels
/// say that it is the shard's.
fn at_most_one(state: &State, does: impl Fn(&Pod, usize, bool) -> bool) -> bool {
    let count = |object: usize| {
        let pods = state.pods.iter().enumerate().filter(|(_, pod)| pod.runs && pod.holds);
        pods.filter(|(shard, pod)| does(pod, object, state.now.objects[object].is_shown_to(*shard))).count()
    };
    (0..OBJECTS).all(|object| count(object) <= 1)
}

/// Not counted without the API server's fence are writes that no proxy could wait for: of a shard that died, or that
/// lost its Lease. Behind it there is no exception.
pub(crate) fn no_foreign_write(_: &Handover, state: &State) -> bool {
    !matches!(state.broken, Some(Broken::ForeignWrite(_)))
}

pub(crate) fn held(_: &Handover, state: &State) -> bool {
    !matches!(state.broken, Some(Broken::Unheld(_)))
}

/// Of shards that are there and see the object. Not counted is what no sharder could know of: that a write without
/// answer was carried out after all, or another leader's beside this one's; and that a hold ran out between child and
/// object. All that is brought together again.
pub(crate) fn child_first(_: &Handover, state: &State) -> bool {
    let is_there = |shard: u8| state.leases[usize::from(shard)].holder == Holder::Shard;
    let is_apart = |it: &Object| it.child.is_some() && it.child != it.shard && it.drain.is_none();
    let mut objects = state.now.objects.iter().zip(state.parted);
    objects.all(|(it, parted)| parted || !is_apart(it) || !it.shard.is_some_and(is_there))
}

/// From here, without further faults, each object comes to its shard, and that shard's controller alone has it.
pub(crate) fn settles(model: &Handover, state: &State) -> bool {
    model.settles(state)
}
