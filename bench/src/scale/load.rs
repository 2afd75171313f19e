//! Changes at a rate, whatever becomes of them.

use std::time::Duration;

use anyhow::Context as _;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use ringside_e2e::{checker::Uid, system::Monitor, website::Website};
use serde_json::json;
use tokio::{sync::oneshot, task::JoinSet};
use tokio_util::task::AbortOnDropHandle;

/// Requests in flight: where there are more, the API server does not keep up, and the rate is not kept.
const IN_FLIGHT: usize = 256;
/// The golden ratio as a part of 2 to the 64th: its multiples are spread more evenly than those of any other number.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) uid: Uid,
    /// The object's generation since.
    pub(super) generation: i64,
    /// When the request was sent, on the monitor's clock.
    pub(super) sent: Duration,
}

/// Changes one object after the other until it is stopped.
///
/// The objects stand in the order of their owners, and the next one is always a golden ratio further on. So each replica's part of
/// the changes is its part of the objects, within any few seconds, and its changes come evenly.
pub(super) struct Load {
    stop: oneshot::Sender<()>,
    changing: AbortOnDropHandle<anyhow::Result<Vec<Change>>>,
}

/// What is to be changed, and how.
pub(super) struct Wanted {
    pub(super) api: Api<Website>,
    /// In the order of their owners.
    pub(super) names: Vec<String>,
    /// What each change takes.
    pub(super) work: Duration,
    /// Changes a second.
    pub(super) per_second: f64,
}

impl Load {
    /// Starts it.
    pub(super) fn start(wanted: Wanted, monitor: Monitor) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { stop, changing: AbortOnDropHandle::new(tokio::spawn(change_all(wanted, monitor, stopped))) }
    }

    /// Ends it, and returns what was changed.
    pub(super) async fn stop(self) -> anyhow::Result<Vec<Change>> {
        // Where it has ended already, it says why.
        let _ended = self.stop.send(());
        self.changing.await?
    }
}

async fn change_all(
    wanted: Wanted,
    monitor: Monitor,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Vec<Change>> {
    let mut tick = tokio::time::interval(Duration::from_secs_f64(wanted.per_second.recip()));
    let (mut in_flight, mut made) = (JoinSet::new(), Vec::new());
    for number in 0_u64.. {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            _ = tick.tick() => {}
        }
        while let Some(done) = in_flight.try_join_next() {
            made.push(done??);
        }
        if in_flight.len() >= IN_FLIGHT
            && let Some(done) = in_flight.join_next().await
        {
            made.push(done??);
        }
        let name = wanted.names.get(place(number, wanted.names.len())).context("there are no objects")?.clone();
        let (api, monitor, work) = (wanted.api.clone(), monitor.clone(), wanted.work);
        let sent = monitor.now();
        in_flight.spawn(async move {
            // What was never there before: the same once more would be no change.
            let spec =
                json!({"spec": {"content": format!("at {} ns", sent.as_nanos()), "workMillis": work.as_millis()}});
            let changed = api.patch(&name, &PatchParams::default(), &Patch::Merge(&spec)).await;
            let changed = changed.with_context(|| format!("change {name}"))?;
            monitor.wrote(&changed);
            let (uid, generation) = changed.uid().zip(changed.metadata.generation).context("an object without uid")?;
            anyhow::Ok(Change { uid, generation, sent })
        });
    }
    while let Some(done) = in_flight.join_next().await {
        made.push(done??);
    }
    Ok(made)
}

/// Which object of so many is changed at that number.
fn place(number: u64, objects: usize) -> usize {
    let part = u128::from(number.wrapping_mul(GOLDEN));
    usize::try_from((part * objects as u128) >> 64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_objects_gets_its_part_of_the_changes_within_any_few() {
        for from in [0, 1_000, 54_321] {
            let places: Vec<_> = (from..from + 100).map(|number| place(number, 4_000)).collect();
            for replica in 0..5 {
                let its = places.iter().filter(|place| (replica * 800..(replica + 1) * 800).contains(*place)).count();
                assert!((18..=22).contains(&its), "{its} of 100 from {from}");
            }
        }
    }
}
