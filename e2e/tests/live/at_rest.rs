//! What the sharder asks of the API server while nothing changes, and while something changes elsewhere: it grows with the
//! resources that are watched, and with nothing else.

mod objects;
mod rings;

use std::{collections::BTreeMap, time::Duration};

use ringside_e2e::{
    audit::{Request, Requests},
    system::{SHARDER_USER, System},
};
use ringside_e2e::{case, live::Group};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "at_rest",
        vec![
            case!(objects::requests_at_rest_do_not_depend_on_the_number_of_objects)
                .alone()
                .costs("a minute of silence, and the machine alone"),
            case!(rings::a_shard_that_joins_one_ring_causes_no_request_for_the_others)
                .alone()
                .costs("a minute of silence, and the machine alone"),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(120);

fn requests(system: &System) -> Requests {
    Requests::of(system.control_plane().audit_log(), SHARDER_USER)
}

/// How often each kind of request was made.
fn table(requests: &[Request]) -> BTreeMap<String, usize> {
    let mut table = BTreeMap::new();
    for request in requests {
        *table.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    table
}
