//! What a phase costs the sharder, and the control plane beside it.

use std::{
    collections::HashMap,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use ringside_e2e::{
    audit::Requests,
    process::memory,
    system::{SHARDER_USER, System},
};
use tokio_util::task::AbortOnDropHandle;

use super::make::Make;

/// How often memory and connections are looked at.
const SAMPLE: Duration = Duration::from_millis(250);
/// What the API server writes down, it writes a moment after it has answered.
const WRITTEN: Duration = Duration::from_secs(1);

/// What an operator sees, the pages of the executable too; and without those, of which an unoptimized build has many.
const RESIDENT: [&str; 2] = ["VmRSS", "RssAnon"];

/// What a phase cost.
#[derive(Debug)]
pub struct Cost {
    /// How long it took.
    pub took: Duration,
    /// Processor time of the sharder.
    pub sharder: Duration,
    /// The API server's.
    pub api_server: Duration,
    /// etcd's.
    pub etcd: Duration,
    /// How much of the machine all of it used, of 1.
    pub busy: f64,
    /// Requests of the sharder.
    pub requests: usize,
    /// Bytes that the sharder sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
    /// The most memory that it had resident, with the pages of the executable.
    pub resident: u64,
    /// The most that was its own.
    pub own: u64,
}

/// A phase that has begun.
pub(super) struct Phase {
    begun: Instant,
    times: [Duration; 3],
    idle: Duration,
    bytes: (u64, u64),
}

/// Measures phases of one sharder.
pub(super) struct Meter {
    requests: Requests,
    /// The sharder, the API server, etcd.
    processes: [u32; 3],
    sampled: Arc<Mutex<Sampled>>,
    _sampling: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Sampled {
    /// By [`RESIDENT`].
    resident: [u64; 2],
    /// What went each way, for each connection by its own address.
    connections: HashMap<String, (u64, u64)>,
}

impl Meter {
    /// Of the sharder of this make that runs in a system.
    pub(super) fn of(make: Make, system: &System) -> anyhow::Result<Self> {
        let missing = || anyhow::anyhow!("a part does not run");
        let sharder = make.process(system).ok_or_else(missing)?.id();
        let api_server = system.control_plane().api_server().ok_or_else(missing)?.id();
        let etcd = system.control_plane().etcd().id();
        let sampled = Arc::<Mutex<Sampled>>::default();
        let sampling = tokio::spawn(sample(sharder, Arc::clone(&sampled)));
        Ok(Self {
            requests: Requests::of(system.control_plane().audit_log(), SHARDER_USER),
            processes: [sharder, api_server, etcd],
            sampled,
            _sampling: AbortOnDropHandle::new(sampling),
        })
    }

    /// A phase begins.
    pub(super) fn begin(&mut self) -> anyhow::Result<Phase> {
        self.requests.since()?;
        self.look().resident = [0; 2];
        Ok(Phase { begun: Instant::now(), times: self.times()?, idle: idle()?, bytes: self.bytes() })
    }

    /// It ends.
    pub(super) async fn end(&mut self, phase: Phase) -> anyhow::Result<Cost> {
        let took = phase.begun.elapsed();
        let (now, idle) = (self.times()?, idle()? - phase.idle);
        let [sharder, api_server, etcd] = std::array::from_fn(|at| now[at] - phase.times[at]);
        let whole = took.as_secs_f64() * std::thread::available_parallelism()?.get() as f64;
        tokio::time::sleep(WRITTEN).await;
        let ((sent, received), [resident, own]) = (self.bytes(), self.look().resident);
        Ok(Cost {
            took,
            sharder,
            api_server,
            etcd,
            busy: 1.0 - idle.as_secs_f64() / whole,
            requests: self.requests.since()?.len(),
            sent: sent - phase.bytes.0,
            received: received - phase.bytes.1,
            resident,
            own,
        })
    }

    fn times(&self) -> anyhow::Result<[Duration; 3]> {
        let [sharder, api_server, etcd] = self.processes;
        Ok([cpu_time(sharder)?, cpu_time(api_server)?, cpu_time(etcd)?])
    }

    fn bytes(&self) -> (u64, u64) {
        let all = &self.look().connections;
        (all.values().map(|(sent, _)| sent).sum(), all.values().map(|(_, received)| received).sum())
    }

    fn look(&self) -> MutexGuard<'_, Sampled> {
        self.sampled.lock()
    }
}

async fn sample(sharder: u32, sampled: Arc<Mutex<Sampled>>) {
    let mut tick = tokio::time::interval(SAMPLE);
    loop {
        tick.tick().await;
        let look = move || (RESIDENT.map(|line| memory(sharder, line).unwrap_or_default()), connections(sharder));
        let looked = tokio::task::spawn_blocking(look).await;
        let Ok((resident, connections)) = looked else { continue };
        let mut sampled = sampled.lock();
        sampled.resident = std::array::from_fn(|at| sampled.resident[at].max(resident[at]));
        for (address, (sent, received)) in connections.unwrap_or_default() {
            // An address comes back, with a connection that begins anew.
            let most = sampled.connections.entry(address).or_default();
            *most = (most.0.max(sent), most.1.max(received));
        }
    }
}

/// Bytes that were acknowledged and received on each connection of a process, as the kernel counts them.
fn connections(process: u32) -> Option<Vec<(String, (u64, u64))>> {
    let output = Command::new("ss").args(["-tinpHO", "state", "established"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let owner = format!("pid={process},");
    let field = |line: &str, name: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap_or(0)
    };
    let of_line = |line: &str| {
        // Receive queue, send queue, own address.
        let address = line.split_whitespace().nth(2)?.to_owned();
        Some((address, (field(line, "bytes_acked:"), field(line, "bytes_received:"))))
    };
    Some(text.lines().filter(|line| line.contains(&owner)).filter_map(of_line).collect())
}

/// What a process used of the processors since it began, in user and in kernel mode.
fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before it is in parentheses, and may have anything in it. (proc_pid_stat(5): utime is the 14th field.)
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// What all processors together were idle since the machine began.
fn idle() -> anyhow::Result<Duration> {
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let idle = uptime.split_whitespace().nth(1).ok_or_else(|| anyhow::anyhow!("an odd /proc/uptime: {uptime}"))?;
    Ok(Duration::from_secs_f64(idle.parse()?))
}
