//! The table of all figures, and what is aimed at.

use serde_json::{Value, json};

use super::{
    loads::{Encoding, LOADS, Load, MANY, Protocol},
    measure::{Figures, Measured},
    ways::{INSTALL, OURS, RELAYS, WAYS, Way},
};
use crate::{Aims, MEGABYTE, Table};

/// Processor time of a unit to the better relay's, at most; and where one connection is all there is.
const TO_RELAY: f64 = 1.15;
const TO_RELAY_BY_ONE: f64 = 1.4;
/// To nginx's, outside a ring; what is added inside.
const GET_TO_NGINX: f64 = 1.0;
const EVENTS_TO_NGINX: f64 = 0.85;
const LIST_TO_NGINX: f64 = 1.1;
const INSIDE_TO_NGINX: f64 = 0.1;
/// Megabytes that are resident.
const IDLE: f64 = 12.0;
const WATCHING: f64 = 60.0;
/// Latency that is added where one connection is all there is, to the better relay's.
const ADDED: f64 = 1.5;

/// The tables, and the lines with the aims.
#[must_use]
pub fn report(measured: &Measured) -> ([Table; 2], Aims) {
    let (tables, mut aims) = ([table(measured), memory(measured)], Aims::new("proxy-aims"));
    for load in LOADS {
        for way in OURS {
            processor(&mut aims, measured, load, way);
        }
    }
    for load in [Load::Get(Protocol::Http1, 1), Load::Get(Protocol::Http2, 1)] {
        for way in OURS {
            latency(&mut aims, measured, load, way);
        }
    }
    for (way, resident) in measured.resident.iter().filter(|(way, _)| OURS.contains(way)) {
        let (idle, watching) = (resident.idle as f64 / MEGABYTE, resident.watching as f64 / MEGABYTE);
        aims.at_most(&format!("{}: resident, idle", way.name()), idle, IDLE, "MB");
        aims.at_most(&format!("{}: resident, {} watches", way.name(), measured.watches), watching, WATCHING, "MB");
    }
    for (way, why) in &measured.missing {
        aims.not_measured(way.name(), why);
    }
    for (what, fault) in &measured.failed {
        aims.failed(what, fault);
    }
    (tables, aims)
}

fn table(measured: &Measured) -> Table {
    let columns = [
        "load",
        "way",
        "CPU us",
        "for each",
        "to nginx",
        "to best relay",
        "p50 us",
        "p99 us",
        "p50 more",
        "p99 more",
        "a second",
    ];
    let mut table = Table::new("proxy", &columns);
    for load in LOADS {
        for way in WAYS {
            let Some(figures) = measured.figures(load, way) else {
                if let Some((_, why)) = measured.missing.iter().find(|missing| missing.0 == way) {
                    let rest = std::iter::repeat_n(json!(""), columns.len() - 3);
                    table.row([json!(load.name()), json!(way.name()), json!(why)].into_iter().chain(rest));
                }
                continue;
            };
            table.row(row(measured, load, way, figures));
        }
    }
    table
}

/// The memory of each process.
fn memory(measured: &Measured) -> Table {
    let mut table = Table::new("proxy-memory", &["way", "watches", "resident MB"]);
    for (way, resident) in &measured.resident {
        for (watches, bytes) in [(0, resident.idle), (measured.watches, resident.watching)] {
            table.row([json!(way.name()), json!(watches), json!(bytes as f64 / MEGABYTE)]);
        }
    }
    table
}

fn row(measured: &Measured, load: Load, way: Way, figures: &Figures) -> [Value; 11] {
    let or_empty = |value: Option<f64>, digits: i32| {
        let unit = 10_f64.powi(digits);
        value.map_or_else(|| json!(""), |value| json!((value * unit).round() / unit))
    };
    let has_cpu = way != Way::Direct;
    let more = |percent| (has_cpu).then(|| added(measured, load, way, percent)).flatten();
    [
        json!(load.name()),
        json!(way.name()),
        or_empty(figures.cpu_of_unit().filter(|_| has_cpu), 1),
        json!(load.unit()),
        or_empty(to_nginx(measured, load, way).filter(|_| has_cpu), 3),
        or_empty(to_relay(measured, load, way).filter(|_| has_cpu), 3),
        or_empty(figures.latency(50), 0),
        or_empty(figures.latency(99), 0),
        or_empty(more(50), 0),
        or_empty(more(99), 0),
        or_empty(Some(figures.units / figures.took.as_secs_f64().max(1e-9)), 0),
    ]
}

fn cpu(measured: &Measured, load: Load, way: Way) -> Option<f64> {
    measured.figures(load, way)?.cpu_of_unit()
}

fn to_nginx(measured: &Measured, load: Load, way: Way) -> Option<f64> {
    Some(cpu(measured, load, way)? / cpu(measured, load, Way::Nginx).filter(|cpu| *cpu > 0.0)?)
}

fn to_relay(measured: &Measured, load: Load, way: Way) -> Option<f64> {
    let best = RELAYS.iter().filter_map(|relay| cpu(measured, load, *relay)).min_by(f64::total_cmp)?;
    (best > 0.0).then(|| Some(cpu(measured, load, way)? / best)).flatten()
}

/// What a way adds to a latency, in microseconds.
fn added(measured: &Measured, load: Load, way: Way, percent: usize) -> Option<f64> {
    let of = |way| measured.figures(load, way)?.latency(percent);
    Some(of(way)? - of(Way::Direct)?)
}

fn processor(aims: &mut Aims, measured: &Measured, load: Load, way: Way) {
    if measured.figures(load, way).is_none() {
        return;
    }
    let what = format!("{}, {}: CPU for each {}", way.name(), load.name(), load.unit());
    let most = if matches!(load, Load::Get(_, 1)) { TO_RELAY_BY_ONE } else { TO_RELAY };
    if let Some(ratio) = to_relay(measured, load, way) {
        aims.at_most(&format!("{what}, to the best relay's"), ratio, most, "times");
    }
    let most = match load {
        Load::Get(_, MANY) => GET_TO_NGINX,
        Load::Events(Encoding::Json | Encoding::Protobuf) => EVENTS_TO_NGINX,
        Load::List => LIST_TO_NGINX,
        Load::Get(..) | Load::Patch => return,
    };
    let what = format!("{what}, to nginx's");
    match to_nginx(measured, load, way) {
        Some(ratio) => {
            let more = if way == Way::Inside { INSIDE_TO_NGINX } else { 0.0 };
            aims.at_most(&what, ratio, most + more, "times");
        }
        None => aims.not_measured(&what, INSTALL),
    }
}

fn latency(aims: &mut Aims, measured: &Measured, load: Load, way: Way) {
    let best = RELAYS.iter().filter_map(|relay| added(measured, load, *relay, 50)).min_by(f64::total_cmp);
    if let (Some(ours), Some(best)) = (added(measured, load, way, 50), best.filter(|best| *best > 0.0)) {
        let what = format!("{}, {}: latency that is added at the median, to the best relay's", way.name(), load.name());
        aims.at_most(&what, ours / best, ADDED, "times");
    }
}
