//! The loop that keeps a Lease, and its requests.

mod release;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, api::PostParams};
use ringside_ring::{
    Moment,
    lease::{SHARDER_HOLDER, holder},
};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use self::release::HALF_OF_THE_END;
use super::{
    ENDS_WITHIN, LeaseParams,
    claim::{Claim, Observation, claim, seconds},
    failure::Failure,
    handle::LeaseStatus,
    holder_watch::HolderWatch,
    wait,
};
use crate::{clock::SharedClock, shutdown::Shutdown};

/// The time as the API server gives it back: a `MicroTime` loses what is below a microsecond on its way, and an own
/// write is told from a foreign one by this very value.
fn now() -> MicroTime {
    let now = Timestamp::now();
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

/// How often it is looked whether the sharder has released a Lease: it leaves one alone for some seconds only.
const LOOK_AT_HOLD: Duration = Duration::from_millis(500);

/// Renewals without an answer that are remembered: what was sent before those can't be under way any more.
const MAX_UNANSWERED: usize = 256;

pub(super) struct Keeper {
    api: Api<Lease>,
    terms: LeaseParams,
    clock: SharedClock,
    news: watch::Sender<LeaseStatus>,
    /// Asks for a look at the Lease before the next renewal.
    looks: Arc<Notify>,
    /// The Lease as the API server last accepted it from us, while no other client wrote its spec.
    mine: Option<Lease>,
    /// The `renewTime`s that we sent since then without an answer: one of them may have landed.
    unanswered: Vec<MicroTime>,
    /// Another holder's Lease of this name.
    observed: Option<Observation>,
    /// How long a request waits for its answer.
    patience: Duration,
}

/// How an attempt ended.
enum Attempt {
    /// The renewal that was sent at this moment was accepted.
    Held {
        since: Moment,
    },
    Taken {
        by: String,
        until: Moment,
    },
}

impl Attempt {
    /// Another client wrote to it since it was `asked` for: it is looked at again at once.
    fn disturbed(asked: Moment) -> Self {
        Self::Taken { by: "another instance".to_owned(), until: asked }
    }
}

impl Keeper {
    pub(super) fn new(
        api: Api<Lease>,
        terms: LeaseParams,
        clock: SharedClock,
        (news, looks): (watch::Sender<LeaseStatus>, Arc<Notify>),
    ) -> Self {
        let patience = terms.answer_within();
        Self { api, terms, clock, news, looks, mine: None, unanswered: Vec::new(), observed: None, patience }
    }

    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let after = async |time| {
            shutdown.wait().await;
            sleep(time).await;
        };
        tokio::select! {
            () = self.keep(&shutdown, after(HALF_OF_THE_END)) => {}
            () = after(ENDS_WITHIN) => {
                let LeaseParams { namespace, name, .. } = &self.terms;
                tracing::warn!(namespace, lease = name, "the Lease could not be released in time: it runs out by itself");
            }
        }
        self.let_go();
    }

    /// Until the shutdown, and the release. What is under way then is waited for, as long as `patience` lasts: an answer
    /// tells the version that the release replaces.
    async fn keep(&mut self, shutdown: &Shutdown, patience: impl Future<Output = ()>) {
        let mut patience = std::pin::pin!(patience);
        let mut others = HolderWatch::new(self.api.clone(), self.terms.name.clone());
        loop {
            let start = self.clock.now();
            let next = tokio::select! {
                next = self.try_once(start) => next,
                () = &mut patience => break,
            };
            if self.rest(next, &mut others, shutdown).await {
                break;
            }
        }
        self.release().await;
    }

    /// Waits until the next attempt is due, or the Lease is seen to be free, or for the shutdown: `true` when it was that.
    async fn rest(&mut self, next: Moment, others: &mut HolderWatch, shutdown: &Shutdown) -> bool {
        if self.mine.is_some() || !self.terms.prompt {
            others.rest();
            return self.wait_or_say(next, shutdown).await;
        }
        loop {
            let seen = tokio::select! {
                ended = wait(&self.clock, next, shutdown) => return ended,
                seen = others.next() => seen,
            };
            let Some(lease) = seen.filter(|lease| holder(lease.spec.as_ref()).is_some()) else { return false };
            observe(&mut self.observed, &lease, self.clock.now());
        }
    }

    /// The same where the Lease is held, or until the facts change. Looks at it meanwhile when it is asked to.
    async fn wait_or_say(&mut self, next: Moment, shutdown: &Shutdown) -> bool {
        let is_held = self.mine.is_some();
        let (clock, looks) = (self.clock.clone(), self.looks.clone());
        let mut ended = std::pin::pin!(wait(&clock, next, shutdown));
        loop {
            tokio::select! {
                biased;
                ended = &mut ended => return ended,
                // Fails where they never change.
                Ok(()) = self.terms.facts.changed(), if is_held => return false,
                () = looks.notified() => {}
            }
            tokio::select! {
                biased;
                ended = &mut ended => return ended,
                () = self.look() => {}
            }
        }
    }

    /// One attempt; says when the next one is due.
    async fn try_once(&mut self, start: Moment) -> Moment {
        let due = start + self.terms.renew_every();
        let outcome = self.attempt().await;
        let LeaseParams { namespace, name, holder, .. } = &self.terms;
        match outcome {
            Ok(Attempt::Held { since }) => {
                self.unanswered.clear();
                let valid_until = Some(since + self.terms.validity());
                let mut before = None;
                self.news.send_modify(|standing| {
                    before = std::mem::replace(&mut standing.valid_until, valid_until);
                    standing.reason = None;
                });
                if before.is_none_or(|until| until <= since) {
                    tracing::info!(namespace, lease = name, holder, "holding the Lease");
                }
                due
            }
            Ok(Attempt::Taken { by, until }) => {
                let (reason, due) = if by == SHARDER_HOLDER {
                    let what = "it moves the objects of the replica that had this name; waiting for that";
                    (format!("Lease {namespace}/{name} is held by the sharder: {what}"), due.min(start + LOOK_AT_HOLD))
                } else {
                    // Its holder may release it any time before it expires, so look again at the usual rate.
                    (format!("Lease {namespace}/{name} is held by '{by}'"), due)
                };
                if by == SHARDER_HOLDER && self.news.borrow().reason.as_ref() != Some(&reason) {
                    tracing::info!(namespace, lease = name, reason, "waiting for the Lease");
                }
                self.lost(&reason);
                due.min(until.max(start + Duration::from_millis(1)))
            }
            Err(error) => {
                tracing::warn!(namespace, lease = name, %error, "could not renew the Lease; trying again");
                self.note(format!("Lease {namespace}/{name} can't be renewed: {error}"));
                due
            }
        }
    }

    /// Reads the Lease that is held: others may have written annotations. What it is otherwise shows the next renewal.
    async fn look(&mut self) {
        if self.mine.is_none() {
            return;
        }
        if let Ok(Some(lease)) = self.answered(self.api.get_opt(&self.terms.name)).await
            && self.is_own_write(&lease)
        {
            self.show(&lease);
            self.mine = Some(lease);
        }
    }

    /// Shows the annotations of the Lease as it was read.
    fn show(&self, lease: &Lease) {
        let annotations = lease.metadata.annotations.clone().unwrap_or_default();
        self.news.send_if_modified(|standing| {
            let is_news = *standing.annotations != annotations;
            if is_news {
                standing.annotations = Arc::new(annotations);
            }
            is_news
        });
    }

    async fn attempt(&mut self) -> Result<Attempt, Failure> {
        let Some(mine) = self.mine.clone() else { return self.acquire().await };
        match self.replace(mine, false).await {
            Err(error) if error.is_conflict() || error.is_not_found() => self.explain().await,
            outcome => outcome,
        }
    }

    /// After a conflict: either only metadata changed or an own write landed unnoticed, and we go on, or we lost.
    async fn explain(&mut self) -> Result<Attempt, Failure> {
        let current = self.answered(self.api.get_opt(&self.terms.name)).await?;
        if let Some(lease) = current.filter(|lease| self.is_own_write(lease)) {
            return self.replace(lease, false).await;
        }
        let LeaseParams { namespace, name, .. } = &self.terms;
        let reason = format!("Lease {namespace}/{name} was changed or deleted by another client");
        self.lost(&reason);
        self.acquire().await
    }

    /// The answer to one request, if it comes in time.
    async fn answered<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let within = self.patience;
        Ok(timeout(within, request).await.map_err(|_| Failure::NoAnswer(within))??)
    }

    /// Whether the Lease's spec is one that this keeper wrote: by the holder and the microsecond of its renewal.
    fn is_own_write(&self, lease: &Lease) -> bool {
        let Some(spec) = &lease.spec else { return false };
        let Some(renewed) = &spec.renew_time else { return false };
        let last = self.mine.as_ref().and_then(|mine| mine.spec.as_ref()?.renew_time.as_ref());
        spec.holder_identity.as_deref() == Some(&self.terms.holder)
            && (last == Some(renewed) || self.unanswered.contains(renewed))
    }

    async fn acquire(&mut self) -> Result<Attempt, Failure> {
        let asked = self.clock.now();
        let Some(lease) = self.answered(self.api.get_opt(&self.terms.name)).await? else {
            let spec = self.spec(None);
            self.send(&spec);
            let lease = self.with_metadata(Lease { spec: Some(spec), ..Lease::default() });
            let since = self.clock.now();
            return match self.answered(self.api.create(&PostParams::default(), &lease)).await {
                Ok(created) => {
                    self.show(&created);
                    self.mine = Some(created);
                    Ok(Attempt::Held { since })
                }
                // Another client was first by a moment; the next look shows what it is.
                Err(error) if error.is_already_exists() => Ok(Attempt::disturbed(asked)),
                Err(error) => {
                    self.refused(&error);
                    Err(error)
                }
            };
        };
        // The API server looked some time between question and answer: it is seen no sooner than at the answer, and stood
        // still no longer than until the question.
        let observed = observe(&mut self.observed, &lease, self.clock.now());
        match claim(&lease, observed, &self.terms, asked) {
            Claim::Wait { until, holder } => Ok(Attempt::Taken { by: holder, until }),
            Claim::Take => match self.replace(lease, true).await {
                Ok(held) => {
                    self.observed = None;
                    Ok(held)
                }
                // Another client was first by a moment, or wrote what is no claim, as a label; the next look shows
                // which.
                Err(error) if error.is_conflict() || error.is_not_found() => Ok(Attempt::disturbed(asked)),
                Err(error) => Err(error),
            },
        }
    }

    /// Writes our renewal over `base`, whose resourceVersion must still be current. What others annotated on it is shown
    /// before: they take a renewal for the sign that it was read.
    async fn replace(&mut self, base: Lease, taking: bool) -> Result<Attempt, Failure> {
        self.show(&base);
        let spec = self.spec(base.spec.as_ref().map(|spec| (spec, taking)));
        self.send(&spec);
        let lease = self.with_metadata(Lease { spec: Some(spec), ..base });
        let since = self.clock.now();
        let written = self.answered(self.api.replace(&self.terms.name, &PostParams::default(), &lease)).await;
        let written = written.inspect_err(|error| self.refused(error))?;
        self.show(&written);
        self.mine = Some(written);
        Ok(Attempt::Held { since })
    }

    /// From here on it may land.
    fn send(&mut self, spec: &LeaseSpec) {
        if self.unanswered.len() == MAX_UNANSWERED {
            self.unanswered.remove(0);
        }
        self.unanswered.extend(spec.renew_time.clone());
    }

    /// What was sent last has not landed, if the API server said so.
    fn refused(&mut self, error: &Failure) {
        if error.is_final() {
            self.unanswered.pop();
        }
    }

    /// The spec of a renewal, or, where the Lease is new or taken over, of an acquisition.
    fn spec(&self, before: Option<(&LeaseSpec, bool)>) -> LeaseSpec {
        let now = Some(now());
        let (acquire_time, lease_transitions) = match before {
            None => (now.clone(), Some(0)),
            Some((spec, false)) => (spec.acquire_time.clone(), spec.lease_transitions),
            Some((spec, true)) => {
                let handed_over = holder(Some(spec)) != Some(&self.terms.holder);
                (now.clone(), Some(spec.lease_transitions.unwrap_or_default().saturating_add(i32::from(handed_over))))
            }
        };
        LeaseSpec {
            holder_identity: Some(self.terms.holder.clone()),
            lease_duration_seconds: Some(seconds(self.terms.duration)),
            renew_time: now,
            acquire_time,
            lease_transitions,
            ..LeaseSpec::default()
        }
    }

    /// The Lease with our name, labels, annotations and facts; those of others stay.
    fn with_metadata(&self, mut lease: Lease) -> Lease {
        lease.metadata.name = Some(self.terms.name.clone());
        lease.metadata.managed_fields = None;
        set(lease.metadata.labels.get_or_insert_default(), &self.terms.labels);
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.extend(self.terms.annotations.clone());
        set(annotations, &self.terms.facts.borrow());
        lease
    }

    /// The Lease is not ours (any more): known at once to everybody who asks.
    fn lost(&mut self, reason: &str) {
        self.mine = None;
        let before = self.news.send_replace(LeaseStatus { reason: Some(reason.to_owned()), ..LeaseStatus::default() });
        if before.valid_until.is_some() {
            tracing::error!(namespace = self.terms.namespace, lease = self.terms.name, reason, "lost the Lease");
        }
    }

    /// Something is wrong, but the validity of the last renewal stands until it runs out.
    fn note(&self, reason: String) {
        self.news.send_modify(|standing| standing.reason = Some(reason));
    }
}

/// Writes these, and takes off those that have no value.
fn set(stored: &mut BTreeMap<String, String>, wanted: &BTreeMap<String, Option<String>>) {
    for (key, value) in wanted {
        match value {
            Some(value) => drop(stored.insert(key.clone(), value.clone())),
            None => drop(stored.remove(key)),
        }
    }
}

/// Takes in what another holder's Lease looks like now.
fn observe<'a>(observed: &'a mut Option<Observation>, lease: &Lease, now: Moment) -> &'a Observation {
    let observed = observed.get_or_insert_with(|| Observation::of(lease, now));
    observed.update(lease, now);
    observed
}
