//! The lines that a run prints.

use std::time::Duration;

use serde_json::json;

use super::{Course, Event, Felt, GRACE, Limit, Part, capacity::Bound, latency::Times, plot};
use crate::{Aims, MEGABYTE, Table, say};

/// Of what so many leaders would carry: by the replica that has most, and by all.
const KEPT: f64 = 0.97;
const AT_FIVE: f64 = 4.6;
const AT_EIGHT: f64 = 7.2;
/// What a proxy may have resident, in megabytes.
const PROXY: f64 = 25.0;
/// A replica's memory beyond its part.
const BEYOND: f64 = 0.15;
/// What changes wait for in a rolling update beyond the grace, to what they wait for at other times.
const ROLLED: f64 = 2.0;
/// The part of the objects that are without owner for less than a second beyond the grace.
const IN_TIME: f64 = 0.99;

/// Tells what replicas keep up with, and what is aimed at; the first is the leader without Ringside.
///
/// # Errors
/// When the table or the picture can't be written.
pub fn capacity(aims: &mut Aims, limits: &[Limit]) -> anyhow::Result<()> {
    let columns = [
        "who",
        "changes a second",
        "to one leader",
        "fullest to mean",
        "bound by",
        "p99 wait, ms",
        "machine",
        "API server, cores",
        "API server, kB/s",
        "replica, cores",
        "replica, MB",
        "idle, MB",
        "proxy, cores",
        "proxy, MB",
        "sharder, cores",
    ];
    let mut table = Table::new("scale-capacity", &columns);
    let Some((leader, shared)) = limits.split_first() else { return Ok(()) };
    let one = leader.kept.per_second;
    for limit in limits {
        let usage = &limit.kept.usage;
        table.row([
            json!(limit.name),
            json!(limit.kept.per_second),
            json!(limit.kept.per_second / one),
            json!(limit.fullest),
            json!(if limit.bound == Bound::Machine { "this machine" } else { "replicas" }),
            json!(millis(limit.kept.p99)),
            json!(usage.machine),
            json!(usage.api_server),
            json!(usage.bytes / 1e3),
            json!(usage.replica),
            json!(usage.replica_memory / MEGABYTE),
            json!(limit.idle / MEGABYTE),
            json!(usage.proxy),
            json!(usage.proxy_memory / MEGABYTE),
            json!(usage.sharder),
        ]);
    }
    table.tell()?;
    for limit in shared {
        aim(aims, leader, limit, shared);
    }
    say(format_args!("drawn: {}", plot::capacity(one, limits)?.display()));
    Ok(())
}

/// What is aimed at with so many replicas.
fn aim(aims: &mut Aims, leader: &Limit, limit: &Limit, all: &[Limit]) {
    let times = limit.kept.per_second / leader.kept.per_second;
    let name = &limit.name;
    if limit.proxied {
        let whole = format!("{name}: by the fullest, to as many leaders");
        aims.at_least(&whole, times * limit.fullest / limit.replicas as f64, KEPT, "times");
        let above = |limit: &Limit| (limit.kept.usage.replica_memory - limit.idle).max(0.0);
        let part = above(leader) * (1.0 / limit.replicas as f64 + BEYOND) / MEGABYTE;
        aims.at_most(&format!("{name}: memory of one above its idle"), above(limit) / MEGABYTE, part, "MB");
        aims.at_most(&format!("{name}: memory of a proxy"), limit.kept.usage.proxy_memory / MEGABYTE, PROXY, "MB");
    }
    for (replicas, least) in [(5, AT_FIVE), (8, AT_EIGHT)] {
        if limit.proxied && limit.replicas == replicas {
            aims.at_least(&format!("{name}: to one leader"), times, least, "times");
        }
    }
    let native = all.iter().find(|other| !other.proxied && other.replicas == limit.replicas);
    if let Some(native) = native.filter(|_| limit.proxied) {
        let ratio = limit.kept.per_second * limit.fullest / (native.kept.per_second * native.fullest);
        aims.at_least(&format!("{name}: to native shards, both by the fullest"), ratio, KEPT, "times");
    }
}

/// Tells what was felt while replicas came and went, and what is aimed at.
///
/// # Errors
/// When the table or the picture can't be written.
pub fn changes(aims: &mut Aims, course: &Course) -> anyhow::Result<()> {
    let columns = [
        "event",
        "replicas",
        "took, s",
        "when",
        "changes",
        "wait p50, ms",
        "wait p99, ms",
        "longest wait, ms",
        "moves",
        "move p50, ms",
        "move p99, ms",
        "longest move, ms",
        "taken over",
        "longest takeover, ms",
        "worked on twice",
        "at once",
    ];
    let mut table = Table::new("scale-changes", &columns);
    for felt in &course.felt {
        for (when, times) in ["before", "meanwhile", "after"].iter().zip(felt.waited) {
            let Felt { moved, taken_over, .. } = felt;
            let once = |value: serde_json::Value| if *when == "meanwhile" { value } else { json!("") };
            table.row([
                json!(felt.event.to_string()),
                json!(felt.replicas),
                once(json!(felt.took.as_secs_f64())),
                json!(when),
                json!(times.count),
                json!(millis(times.p50)),
                json!(millis(times.p99)),
                json!(millis(times.longest)),
                once(json!(moved.count)),
                once(json!(millis(moved.p50))),
                once(json!(millis(moved.p99))),
                once(json!(millis(moved.longest))),
                once(json!(taken_over.count)),
                once(json!(millis(taken_over.longest))),
                once(json!(felt.twice)),
                once(json!(felt.overlaps)),
            ]);
        }
        aim_at(aims, felt);
    }
    table.tell()?;
    say(format_args!("drawn: {}", plot::course(course)?.display()));
    Ok(())
}

/// Tells what it took to share objects that were there, part by part.
///
/// # Errors
/// When the table can't be written.
pub fn adoption(objects: usize, parts: &[Part]) -> anyhow::Result<()> {
    let columns = [
        "part",
        "objects",
        "took, s",
        "API server, cores",
        "etcd, cores",
        "sharder, cores",
        "writes",
        "writes a second",
        "etcd's file, MB more",
        "reconciles",
        "neighbour's writes p50, ms",
        "p99, ms",
        "longest, ms",
    ];
    let mut table = Table::new("scale-adoption", &columns);
    for part in parts {
        let took = part.took.as_secs_f64();
        table.row([
            json!(part.what),
            json!(objects),
            json!(took),
            json!(part.usage.api_server),
            json!(part.usage.etcd),
            json!(part.usage.sharder),
            json!(part.writes),
            json!(part.writes as f64 / took),
            json!(part.grown as f64 / MEGABYTE),
            json!(part.reconciles),
            json!(millis(part.neighbour.p50)),
            json!(millis(part.neighbour.p99)),
            json!(millis(part.neighbour.longest)),
        ]);
    }
    Ok(table.tell()?)
}

fn aim_at(aims: &mut Aims, felt: &Felt) {
    let event = format!("{} of {}", felt.event, felt.replicas);
    aims.at_most(&format!("{event}: worked on by two at once"), felt.overlaps as f64, 0.0, "objects");
    if felt.moved.count > 0 {
        let part = felt.in_time as f64 / felt.moved.count as f64;
        aims.at_least(&format!("{event}: moved within a second beyond the grace, of all"), part, IN_TIME, "");
    }
    if felt.event == Event::RollingUpdate {
        let [before, meanwhile, _] = felt.waited.map(|times: Times| times.p99);
        let beyond = meanwhile.saturating_sub(GRACE).as_secs_f64() / before.as_secs_f64().max(f64::EPSILON);
        aims.at_most(&format!("{event}: p99 of the wait beyond the grace, to that before"), beyond, ROLLED, "times");
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
