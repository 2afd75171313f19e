//! What a phase costs the sharder, and the control plane beside it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use ringside_e2e::{control_plane::ControlPlane, process::memory};
use tokio_util::task::AbortOnDropHandle;

use crate::processes::{cpu_time, traffic};

/// How often processor time and memory are looked at.
const SAMPLE: Duration = Duration::from_millis(250);
/// Connections are looked at once in so many times: it takes a process.
const CONNECTIONS: usize = 4;

/// What was spent between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Between the samples around the two moments.
    pub took: Duration,
    /// Processor time of the sharder.
    pub sharder: Duration,
    /// The API server's.
    pub api_server: Duration,
    /// etcd's.
    pub etcd: Duration,
    /// Bytes that the sharder sent and received.
    pub bytes: u64,
    /// The most memory that it had resident, with the pages of the executable.
    pub resident: u64,
    /// The most that was its own: an unoptimized build has many pages of the executable.
    pub own: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    /// Of the sharder, the API server, etcd.
    used: [Duration; 3],
    bytes: u64,
    resident: u64,
    own: u64,
}

/// Looks at one sharder and its control plane, until it is dropped.
pub(super) struct Meter {
    samples: Arc<Mutex<Vec<Sample>>>,
    _sampling: AbortOnDropHandle<()>,
}

impl Meter {
    pub(super) fn of(sharder: u32, control_plane: &ControlPlane) -> anyhow::Result<Self> {
        let api_server = control_plane.api_server().context("no API server runs")?.id();
        let samples = Arc::<Mutex<Vec<Sample>>>::default();
        let sampling = tokio::spawn(sample([sharder, api_server, control_plane.etcd().id()], Arc::clone(&samples)));
        Ok(Self { samples, _sampling: AbortOnDropHandle::new(sampling) })
    }

    /// A phase begins: what was sampled before is forgotten.
    pub(super) fn begin(&self) {
        let mut samples = self.samples.lock();
        let keep = samples.len().saturating_sub(1);
        samples.drain(..keep);
    }

    /// What was spent from the beginning of the phase to this time.
    pub(super) fn spent(&self, until: Timestamp) -> anyhow::Result<Spent> {
        let samples = self.samples.lock();
        spent(&samples, until).context("the sharder or the API server has ended")
    }
}

fn spent(samples: &[Sample], until: Timestamp) -> Option<Spent> {
    let first = samples.first()?;
    let last = samples.iter().find(|sample| sample.at >= until).or(samples.last())?;
    let [sharder, api_server, etcd] = std::array::from_fn(|at| last.used[at].saturating_sub(first.used[at]));
    let most = |of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or_default();
    Some(Spent {
        took: Duration::try_from(last.at.duration_since(first.at)).unwrap_or_default(),
        sharder,
        api_server,
        etcd,
        bytes: samples.last()?.bytes.saturating_sub(first.bytes),
        resident: most(|sample| sample.resident),
        own: most(|sample| sample.own),
    })
}

async fn sample(processes: [u32; 3], samples: Arc<Mutex<Vec<Sample>>>) {
    let mut tick = tokio::time::interval(SAMPLE);
    let mut connections = HashMap::<String, u64>::new();
    for number in 0_usize.. {
        tick.tick().await;
        let with_connections = number.is_multiple_of(CONNECTIONS);
        let looked = tokio::task::spawn_blocking(move || {
            let traffic = if with_connections { traffic(processes[0]) } else { None };
            (look(processes), traffic.unwrap_or_default())
        });
        let Ok((Ok(mut sample), traffic)) = looked.await else { continue };
        for (address, bytes) in traffic {
            // An address comes back, with a connection that begins again.
            let most = connections.entry(address).or_default();
            *most = bytes.max(*most);
        }
        sample.bytes = connections.values().sum();
        samples.lock().push(sample);
    }
}

fn look(processes: [u32; 3]) -> anyhow::Result<Sample> {
    let mut used = [Duration::ZERO; 3];
    for (used, process) in used.iter_mut().zip(processes) {
        *used = cpu_time(process)?;
    }
    let (resident, own) = (memory(processes[0], "VmRSS")?, memory(processes[0], "RssAnon")?);
    Ok(Sample { at: Timestamp::now(), used, bytes: 0, resident, own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_the_last_write_is_not_counted() {
        let at = |second: i64| Timestamp::from_second(second).unwrap_or_default();
        let sample = |second: u64, resident| Sample {
            at: at(second.try_into().unwrap_or_default()),
            used: [second, 2 * second, 0].map(Duration::from_secs),
            bytes: 10 * second,
            resident,
            own: 0,
        };
        let samples = [sample(10, 5), sample(11, 9), sample(12, 7), sample(20, 1)];
        let spent = spent(&samples, at(12)).unwrap_or_default();
        assert_eq!((spent.sharder.as_secs(), spent.api_server.as_secs(), spent.took.as_secs()), (2, 4, 2));
        assert_eq!((spent.bytes, spent.resident), (100, 9));
    }
}
