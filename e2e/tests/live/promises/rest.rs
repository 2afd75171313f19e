//! Rest after proxies stood still, and what is asked of it.

use std::{ops::RangeInclusive, time::Duration};

use ringside_e2e::{
    checker::{Checker, Report},
    eventually::in_time,
    system::System,
    workload::Workload,
};
use tokio::time::{Instant, sleep};

/// Enough for a machine that runs other tests beside. A controller that ended by the pause is absent until it is back, so its
/// objects go elsewhere and come home.
const DEADLINE: Duration = Duration::from_mins(10);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until every shard has its share again and all objects were worked on once more; returns when the former was so, since
/// the records began. A controller that could not renew its election ends meanwhile, and is started again as its kubelet would.
pub(crate) async fn come_to_rest(system: &mut System, workload: &Workload) -> Duration {
    let restful = async |system: &mut System, what: &str| {
        let begin = Instant::now();
        loop {
            system.revive_shards().unwrap();
            let (picture, shards) = (system.monitor().picture(), system.shards().count());
            let waiting = system.monitor().judge(Checker::waiting);
            if picture.unassigned == 0
                && picture.draining.is_empty()
                && picture.owned.len() == shards
                && waiting.is_empty()
            {
                return;
            }
            in_time(&format!("{what}: {picture:?}, {waiting:?} wait"), begin.elapsed(), DEADLINE);
            sleep(LOOK).await;
        }
    };
    restful(system, "at first").await;
    let at_rest = system.monitor().now();
    for website in workload.change_all(&system.control_plane().client()).await.unwrap() {
        system.monitor().wrote(&website);
    }
    restful(system, "after one more change of each").await;
    at_rest
}

/// Who stood still, and the time in which that may be felt: from the beginning until there was rest again.
pub(crate) struct Still<'a> {
    pub(crate) shards: &'a [&'a str],
    pub(crate) felt: RangeInclusive<Duration>,
}

/// Whether nothing was forgotten or left apart, and every overlap has one side that stood still, and was before there
/// was rest again. A reconcile that waits
/// for its proxy sends nothing for far longer than the grace, and when the proxy goes on, its controller takes up what it still
/// has in its queue before it hears that the objects are gone. What became of the writes of both is another question.
pub(crate) fn is_clean(report: &Report, still: &Still<'_>) -> bool {
    let stood_still = |(instance, _): &(String, Duration)| {
        still.shards.contains(&instance.rsplit_once('.').map_or(&**instance, |(shard, _)| shard))
    };
    let excused = report.overlaps.iter().all(|overlap| {
        let (first, second) = (&overlap.first, &overlap.second);
        still.felt.contains(&second.1) && (stood_still(first) || stood_still(second))
    });
    excused && Report { overlaps: Vec::new(), ..report.clone() }.is_clean()
}
