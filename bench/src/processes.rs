//! What the kernel counts of a process.

use std::{fs, process::Command, time::Duration};

use anyhow::Context as _;

/// Bytes that were acknowledged and received on each connection of a process, as the kernel counts them.
pub(crate) fn traffic(process: u32) -> Option<Vec<(String, u64)>> {
    let output = Command::new("ss").args(["-tinpHO", "state", "established"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let owner = format!("pid={process},");
    let field = |line: &str, name: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let of_line = |line: &str| {
        // Receive queue, send queue, own address, the other's.
        let mut addresses = line.split_whitespace().skip(2);
        let address = format!("{} {}", addresses.next()?, addresses.next()?);
        Some((address, field(line, "bytes_acked:") + field(line, "bytes_received:")))
    };
    Some(text.lines().filter(|line| line.contains(&owner)).filter_map(of_line).collect())
}

/// What a process used of the processors since it began, in user and in kernel mode.
pub(crate) fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before it is in parentheses, and may have anything in it. (proc_pid_stat(5): utime is the 14th field.)
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.map(str::parse::<u64>).sum::<Result<_, _>>()?;
    Ok(of_ticks(ticks))
}

/// What all processors of this machine did since it began: how long they were busy, and all of that time.
pub(crate) fn machine() -> anyhow::Result<(Duration, Duration)> {
    let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
    let line = stat.lines().next().context("an empty /proc/stat")?;
    // user nice system idle iowait irq softirq steal; guests are in user. (proc_stat(5))
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    Ok((of_ticks(all - idle), of_ticks(all)))
}

/// How many programs want to run on this machine, on the average of 1, 5 and 15 minutes, as the kernel writes it.
pub fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
