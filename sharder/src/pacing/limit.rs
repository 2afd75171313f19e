//! How many seats there are: as many as the API server works on at once, and a few that wait there.
//!
//! Of the writes under way, an API server that answers in `r` times its shortest latency works on one in `r`; the others wait
//! for it. More than a few of those make each of them slower and none of them sooner; fewer leave it idle at times. That is
//! TCP Vegas (Brakmo, Peterson 1995), with the latencies of different resources made comparable by the shortest of each.

use std::{collections::HashMap, time::Duration};

use ringside_ring::cluster_ring::GroupResource;
use tokio::time::Instant;

/// At first, while nothing is known.
const FIRST: usize = 8;
/// At least: one may be slow for reasons of its own.
const LEAST: usize = 2;
/// At most: far below what the API server takes from all its clients (`--max-mutating-requests-inflight`, 200).
pub(super) const MOST: usize = 32;
/// So many of ours may wait in the API server, as its alpha and beta: with fewer there are more seats, with more fewer.
const WAITING: [f64; 2] = [3.0, 6.0];
/// Answers that are judged together, at least.
const WINDOW: usize = 8;
/// How long the shortest latency counts, at least: longer than most moves take, as in all of these writes wait for others.
const EPOCH: Duration = Duration::from_secs(300);

/// The number of seats.
#[derive(Debug)]
pub(super) struct Limit {
    seats: usize,
    /// How many times the shortest latency each answer took, since the limit was last judged.
    ratios: Vec<f64>,
    /// Whether somebody has waited for a seat since then.
    missed: bool,
}

impl Default for Limit {
    fn default() -> Self {
        Self { seats: FIRST, ratios: Vec::new(), missed: false }
    }
}

impl Limit {
    pub(super) fn seats(&self) -> usize {
        self.seats
    }

    /// Somebody waits for a seat.
    pub(super) fn sufficed_not(&mut self) {
        self.missed = true;
    }

    /// The API server asked for a pause.
    pub(super) fn halve(&mut self) {
        self.begin(self.seats / 2);
    }

    /// An answer took so many times the shortest latency.
    pub(super) fn told(&mut self, ratio: f64) {
        self.ratios.push(ratio);
        if self.ratios.len() < self.seats.max(WINDOW) {
            return;
        }
        // The median: some of them may be stuck, which says nothing about the API server.
        let middle = self.ratios.len() / 2;
        let (_, median, _) = self.ratios.select_nth_unstable_by(middle, f64::total_cmp);
        let working = count(self.seats) / median.max(1.0);
        let waiting = count(self.seats) - working;
        let [few, many] = WAITING;
        let seats = match self.seats {
            seats if waiting < few && self.missed => seats + 1,
            seats if waiting > many => whole(working + many).clamp(1, seats),
            seats => seats,
        };
        self.begin(seats);
    }

    fn begin(&mut self, seats: usize) {
        self.seats = seats.clamp(LEAST, MOST);
        self.ratios.clear();
        self.missed = false;
    }
}

/// No more than [`MOST`].
fn count(seats: usize) -> f64 {
    u32::try_from(seats).map_or(f64::MAX, f64::from)
}

fn whole(seats: f64) -> usize {
    (1..=MOST).rfind(|whole| count(*whole) <= seats).unwrap_or_default()
}

/// The shortest latency of late, by resource: admission makes some slower than others, however idle the API server is.
#[derive(Debug, Default)]
pub(super) struct Floors(HashMap<GroupResource, Floor>);

/// The shortest of this epoch and of the one before.
#[derive(Debug)]
struct Floor {
    shortest: [Duration; 2],
    began: Instant,
}

impl Floors {
    /// An answer took so long; returns how many times the shortest latency that is, and how much longer.
    pub(super) fn told(&mut self, resource: &GroupResource, took: Duration, now: Instant) -> (f64, Duration) {
        let floor = self.0.entry(resource.clone()).or_insert(Floor { shortest: [took; 2], began: now });
        if now - floor.began > EPOCH {
            *floor = Floor { shortest: [floor.shortest[1], took], began: now };
        }
        floor.shortest[1] = floor.shortest[1].min(took);
        let shortest = floor.shortest[0].min(floor.shortest[1]);
        let ratio = if shortest.is_zero() { 1.0 } else { took.as_secs_f64() / shortest.as_secs_f64() };
        (ratio, took.saturating_sub(shortest))
    }
}
