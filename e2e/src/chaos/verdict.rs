//! What a run comes to.

mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ringside_ring::cluster_ring::DRAIN_DEADLINE;

use super::{
    dead::{Dead, Deaths, deaths},
    faults::DRAIN_DEADLINES,
    history::{self, Request},
    run::{Injected, Run},
    schedule::Kind,
    settle::Unrest,
    silence::{self, AtWork, silence},
};
use crate::{
    audit,
    checker::{self, Change, Gap, Landed, Overlap, Report},
    system::{Ended, OPERATOR, Settings},
};

/// The last words of a controller that no longer leads (controller-runtime).
const LEAD_LOST: &str = "leader election lost";

/// Within this time a sharder knows of an edit of its ring, also in an outage.
const HEARD: Duration = Duration::from_secs(15);

/// For so long a controller goes on with what it has in its queue after it stood still: until it gives up its lead.
const WAKES_FOR: Duration = Duration::from_secs(10);

/// Within this time a controller that stood still has taken what its proxy had sent meanwhile.
const HEARS_WITHIN: Duration = Duration::from_secs(1);

/// So many histories are told; more would scroll the verdict away.
const TOLD: usize = 5;

/// Two instances that worked on an object at once.
#[derive(Clone, Debug)]
pub struct Judged {
    /// When, and who.
    pub overlap: Overlap,
    /// The object.
    pub name: String,
    /// For how long the first had been silent when the object left its shard; none where it was not taken from there.
    pub silent: Option<Duration>,
}

/// The verdict, with what it rests on.
#[derive(Debug)]
pub struct Verdict {
    /// What the observer and the operators say.
    pub report: Report,
    /// What the API server wrote down.
    pub writes: checker::Verdict,
    /// Overlaps of which the record does not prove that the first had been silent for longer than the grace.
    pub overlaps: Vec<Judged>,
    /// Those of which it does.
    pub excused: Vec<Judged>,
    /// Leases that were taken from shards before their time, and when.
    pub early: Vec<(String, SignedDuration)>,
    /// Children of owners that were taken from shards which had not released them in time.
    pub forced: Vec<Landed>,
    /// Objects that were taken from shards which had not released them in time.
    pub overdue: Vec<Landed>,
    /// Children that a policy of ours refused to have written when their owner came to its next shard.
    pub refused: Vec<Landed>,
    /// What was in the way of rest.
    pub unsettled: Option<Unrest>,
    /// What happened.
    pub injected: Vec<Injected>,
    /// What ended by itself and was started again.
    pub revived: Vec<Ended>,
    /// How many changes were made meanwhile.
    pub changes: usize,
    /// What happened to objects of which a promise was broken.
    pub histories: Vec<String>,
}

/// Judges a run that has come to rest, or has not within its time. Forgotten is what waited for longer than `bound`.
pub(super) async fn judge(
    run: &Run,
    unsettled: Option<Unrest>,
    changes: usize,
    settings: &Settings,
    bound: Duration,
) -> Result<Verdict> {
    let (grace, lease) = (settings.drain_grace, settings.lease_duration.try_into()?);
    let report = run.system.report(bound).await?;
    let mut writes = run.system.judge_writes().await?;
    let journal = run.system.monitor().journal();
    let now = run.system.monitor().now();
    let begun = Timestamp::now().checked_sub(now).context("the records begin before time")?;
    let faults: Vec<_> = run.injected.iter().filter_map(|one| since(begun, one)).collect();
    let log = run.system.control_plane().audit_log();
    let heard = audit::heard(&log)?;
    let Deaths { all: dead, early } = deaths(&heard, lease, &faults);
    let early = early.into_iter().map(|(shard, at)| (shard.to_owned(), at.duration_since(begun))).collect();
    let is_overdue = |one: &mut Landed| one.drained.is_some_and(|drained| drained >= patience(one.answered, &faults));
    let forced = writes.overtaken.extract_if(.., is_overdue).collect();
    let overdue = writes.forced.extract_if(.., is_overdue).collect();
    let refused = writes.left_behind.extract_if(.., |child| is_refused(run, begun, child)).collect();
    // Its owner's next shard does not see it, and finds out by the refusal of its own.
    writes.second_creates.retain(|create| create.change != Change::Refused || !is_refused(run, begun, create));
    let names = history::names(&journal);
    let overlapped = report.overlaps.iter().filter_map(|overlap| names.get(&overlap.uid).cloned());
    let sought = overlapped.chain(objects_of(&report, &writes, unsettled.as_ref())).collect();
    let requests = history::requests(&log, &run.labels, &sought)?;
    let judged = report.overlaps.iter().map(|overlap| {
        let name = names.get(&overlap.uid).cloned().unwrap_or_default();
        let silent = silent(overlap, of(&requests, &name), begun, &faults, &dead);
        Judged { silent, overlap: overlap.clone(), name }
    });
    let is_excused = |one: &Judged| {
        one.silent.is_some_and(|silent| silent > grace)
            || has_just_woken(&one.overlap.second, (begun, grace), &faults, &dead)
    };
    let (excused, overlaps) = judged.partition::<Vec<_>, _>(is_excused);
    let (injected, revived, histories) = (run.injected.clone(), run.revived.clone(), Vec::new());
    let mut verdict = Verdict {
        report,
        writes,
        overlaps,
        excused,
        early,
        forced,
        overdue,
        refused,
        unsettled,
        injected,
        revived,
        changes,
        histories,
    };
    let told: BTreeSet<String> = verdict.concerned().into_iter().take(TOLD).collect();
    let tell = |name: &String| history::tell(name, of(&requests, name), &journal, begun);
    verdict.histories = told.iter().map(tell).collect();
    Ok(verdict)
}

/// Whether a child could not be written when its owner came to its next shard. Children have the names of their owners.
fn is_refused(run: &Run, begun: Timestamp, child: &Landed) -> bool {
    run.injected.iter().filter(|one| one.fault.kind == Kind::RefuseChildren).any(|one| {
        let lasted =
            since(begun, one).is_some_and(|fault| (fault.from..=fault.until + HEARD).contains(&child.received));
        let names = one.fault.objects.iter().map(|number| format!("/{}", run.workload.name(*number)));
        lasted && names.into_iter().any(|name| child.object.ends_with(&name))
    })
}

/// Whether the sharder had a shard's Lease then, as the API server wrote it down.
fn is_dead(dead: &[Dead<'_>], shard: &str, begun: Timestamp, at: Duration) -> bool {
    let Ok(at) = begun.checked_add(at) else { return false };
    dead.iter().any(|dead| dead.shard == shard && dead.from <= at && dead.until.is_none_or(|until| at < until))
}

/// Whether an instance that stood still for longer than the grace began with what it had before. Nothing that it writes lands: its
/// shard is dead, or its proxy has released the object meanwhile.
fn has_just_woken(
    (instance, began): &(String, Duration),
    (begun, grace): (Timestamp, Duration),
    faults: &[silence::Fault<'_>],
    dead: &[Dead<'_>],
) -> bool {
    let shard = pod_of(instance);
    let Ok(at) = begun.checked_add(*began) else { return false };
    let is_dead = is_dead(dead, shard, begun, *began);
    let wakes = |fault: &&silence::Fault<'_>| {
        let goes_on = match fault.kind {
            Kind::Pause if is_dead => WAKES_FOR,
            Kind::PauseController => HEARS_WITHIN,
            _ => return false,
        };
        fault.shard == Some(shard) && (fault.from..=fault.until + goes_on).contains(&at)
    };
    let stood = |fault: &silence::Fault<'_>| Duration::try_from(fault.until.duration_since(fault.from));
    faults.iter().find(wakes).is_some_and(|fault| stood(fault).is_ok_and(|stood| stood > grace))
}

/// The Pod of an instance of its operator.
fn pod_of(instance: &str) -> &str {
    instance.rsplit_once('.').map_or(instance, |(pod, _)| pod)
}

/// The ring's patience with drains when something was done, as the edits before it left that.
fn patience(at: Timestamp, faults: &[silence::Fault<'_>]) -> Duration {
    let edits = faults.iter().filter(|fault| fault.kind == Kind::EditRing && fault.from <= at).count();
    // Who acted just after an edit may not have known of it.
    let heard_of = faults.iter().filter(|fault| fault.kind == Kind::EditRing && fault.until + HEARD <= at).count();
    let [shorter, longer] = DRAIN_DEADLINES.map(|seconds| Duration::from_secs(seconds.into()));
    let after = |edits: usize| match edits {
        0 => DRAIN_DEADLINE,
        edits if edits.is_multiple_of(2) => longer,
        _ => shorter,
    };
    (heard_of..=edits).map(after).min().unwrap_or(shorter)
}

fn of<'a>(requests: &'a BTreeMap<String, Vec<Request>>, name: &str) -> &'a [Request] {
    requests.get(name).map(Vec::as_slice).unwrap_or_default()
}

/// A fault, with the times of the wall clock.
fn since(begun: Timestamp, injected: &Injected) -> Option<silence::Fault<'_>> {
    let (from, until) = (begun.checked_add(injected.at).ok()?, begun.checked_add(injected.until).ok()?);
    Some(silence::Fault { kind: injected.fault.kind, shard: injected.fault.shard.as_deref(), from, until })
}

fn silent(
    overlap: &Overlap,
    requests: &[Request],
    begun: Timestamp,
    faults: &[silence::Fault<'_>],
    dead: &[Dead<'_>],
) -> Option<Duration> {
    let ((instance, began), (_, other)) = (&overlap.first, &overlap.second);
    let shard = pod_of(instance);
    let (began, other) = (begun.checked_add(*began).ok()?, begun.checked_add(*other).ok()?);
    silence(AtWork { uid: &overlap.uid, shard, began }, other, requests, faults, dead)
}

/// The objects of which something else than an overlap is wrong, by namespace and name. Children have their owners' names.
fn objects_of(report: &Report, writes: &checker::Verdict, unsettled: Option<&Unrest>) -> Vec<String> {
    let written =
        writes.faults().into_iter().flat_map(|(_, found)| found).filter_map(|one| one.object.rsplit(' ').next());
    let forgotten = report.forgotten.iter().map(|one| &*one.name);
    let apart = report.apart.iter().map(|one| &*one.owner);
    let in_the_way = unsettled.into_iter().flat_map(|why| why.objects.iter().cloned());
    written.chain(forgotten).chain(apart).map(str::to_owned).chain(in_the_way).collect()
}

impl Verdict {
    /// Whether all promises were kept, and everything happened that was to.
    pub fn is_clean(&self) -> bool {
        self.overlaps.is_empty()
            && self.early.is_empty()
            && self.report.forgotten.is_empty()
            && self.report.apart.is_empty()
            && self.writes.is_clean()
            && self.unsettled.is_none()
            && !self.injected.is_empty()
            && self.changes > 0
            && self.missed().next().is_none()
            && self.failed().next().is_none()
    }

    /// The objects of which a promise was broken, by namespace and name, some more than once: their histories are told.
    fn concerned(&self) -> Vec<String> {
        let overlapped = self.overlaps.iter().map(|one| one.name.clone());
        overlapped.chain(objects_of(&self.report, &self.writes, self.unsettled.as_ref())).collect()
    }

    /// What ended by itself and should not: parts of Ringside do for no reason, and a controller only if it no longer leads.
    pub fn failed(&self) -> impl Iterator<Item = &Ended> {
        self.revived.iter().filter(|ended| !(ended.name.ends_with(OPERATOR) && ended.said == LEAD_LOST))
    }

    /// What was to happen, and did not, or hit nothing.
    pub fn missed(&self) -> impl Iterator<Item = &Injected> {
        self.injected.iter().filter(|one| !matches!(one.hit, Ok(hit) if hit > 0))
    }

    /// The longest time without an owner.
    pub fn longest(&self) -> Option<&Gap> {
        let took = |gap: &&Gap| gap.until.map_or(Duration::MAX, |until| until.saturating_sub(gap.from));
        self.report.gaps.iter().max_by_key(took)
    }
}

#[cfg(test)]
mod tests;
