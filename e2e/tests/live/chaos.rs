//! A short run of what `cargo run -p ringside-tests --bin chaos` does for ten minutes: fewer objects, and each kind of fault
//! that is over soon, once.

use std::{collections::BTreeSet, time::Duration};

use ringside_e2e::chaos::{
    hold,
    schedule::{Kind, Terms, schedule},
};
use ringside_e2e::{case, live::Group};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("chaos", vec![case!(a_minute_of_chaos_breaks_no_promise).alone().costs("two minutes of faults")])
}

const SEED: u64 = 7;
const LEFT_OUT: [Kind; 2] = [Kind::DeletePolicies, Kind::OtherApiServer];

/// Without the deletion of the policies, after which the fence is in place only 10 s later, and without a second API server,
/// which takes as much of a small machine as the first.
fn terms() -> Terms {
    Terms {
        seed: SEED,
        length: Duration::from_secs(60),
        kinds: Kind::all().iter().copied().filter(|kind| !LEFT_OUT.contains(kind)).collect(),
        rounds: 1,
        longest: Duration::from_secs(2),
        pauses: 100..=500,
        shards: 4,
        objects: 100,
    }
}

async fn a_minute_of_chaos_breaks_no_promise() {
    let terms = terms();
    let planned: BTreeSet<Kind> = schedule(&terms).iter().map(|planned| planned.fault.kind).collect();
    assert_eq!(planned, terms.kinds.iter().copied().collect(), "the seed has not each kind of fault");
    let verdict = hold(&terms).await.unwrap();
    println!("{verdict}");
    assert!(verdict.is_clean(), "see above");
    assert!(verdict.writes.by_shards > terms.objects, "nobody worked");
}
