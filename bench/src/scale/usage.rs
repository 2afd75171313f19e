//! What the processes of a system take.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use ringside_e2e::{
    process::{Process, memory},
    system::{Shard, Sharder, System},
};

use crate::processes::{cpu_time, machine, traffic};

/// What was taken in a time, the processors' in cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// The part of all processors that was busy, with everything on this machine.
    pub machine: f64,
    /// The API server's cores.
    pub api_server: f64,
    /// The same of etcd.
    pub etcd: f64,
    /// Bytes a second that the API server received and sent, by connections that lasted.
    pub bytes: f64,
    /// A replica's, on the average.
    pub replica: f64,
    /// A proxy's; 0 without proxies.
    pub proxy: f64,
    /// The sharder's; 0 without one.
    pub sharder: f64,
    /// Resident memory of a replica, on the average, at the end.
    pub replica_memory: f64,
    /// The same of a proxy.
    pub proxy_memory: f64,
}

/// What the processes had taken at a moment.
pub(super) struct Moment {
    at: Instant,
    machine: (Duration, Duration),
    api_server: Duration,
    etcd: Duration,
    traffic: HashMap<String, u64>,
    operators: Vec<Taken>,
    proxies: Vec<Taken>,
    sharders: Vec<Taken>,
}

struct Taken {
    process: u32,
    used: Duration,
    resident: u64,
}

impl Taken {
    fn by(process: &Process) -> anyhow::Result<Self> {
        let process = process.id();
        Ok(Self { process, used: cpu_time(process)?, resident: memory(process, "VmRSS")? })
    }
}

impl Moment {
    /// Now.
    pub(super) fn of(system: &System) -> anyhow::Result<Self> {
        let api_server = system.control_plane().api_server().context("no API server runs")?.id();
        let all = |processes: Vec<&Process>| processes.into_iter().map(Taken::by).collect::<anyhow::Result<Vec<_>>>();
        Ok(Self {
            at: Instant::now(),
            machine: machine()?,
            api_server: cpu_time(api_server)?,
            etcd: cpu_time(system.control_plane().etcd().id())?,
            traffic: traffic(api_server).unwrap_or_default().into_iter().collect(),
            operators: all(system.operators().collect())?,
            proxies: all(system.shards().map(Shard::proxy).collect())?,
            sharders: all(system.sharders().map(Sharder::process).collect())?,
        })
    }

    /// The mean resident memory of a replica.
    pub(super) fn replica_memory(&self) -> f64 {
        mean(self.operators.iter().map(|taken| taken.resident as f64))
    }

    /// What was taken since an earlier moment.
    pub(super) fn since(&self, earlier: &Self) -> Usage {
        let took = self.at.duration_since(earlier.at).as_secs_f64();
        let cores = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / took;
        let each = |now: &[Taken], before: &[Taken]| {
            let used = |taken: &Taken| {
                let before = before.iter().find(|one| one.process == taken.process);
                cores(taken.used, before.map_or(Duration::ZERO, |one| one.used))
            };
            mean(now.iter().map(used))
        };
        let (busy, all) = (self.machine.0 - earlier.machine.0, self.machine.1 - earlier.machine.1);
        let sent = |(connection, bytes): (&String, &u64)| {
            earlier.traffic.get(connection).map_or(0, |before| bytes.saturating_sub(*before))
        };
        Usage {
            machine: busy.as_secs_f64() / all.as_secs_f64().max(f64::EPSILON),
            api_server: cores(self.api_server, earlier.api_server),
            etcd: cores(self.etcd, earlier.etcd),
            bytes: self.traffic.iter().map(sent).sum::<u64>() as f64 / took,
            replica: each(&self.operators, &earlier.operators),
            proxy: each(&self.proxies, &earlier.proxies),
            sharder: each(&self.sharders, &earlier.sharders),
            replica_memory: self.replica_memory(),
            proxy_memory: mean(self.proxies.iter().map(|taken| taken.resident as f64)),
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}
