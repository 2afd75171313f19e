//! The loop that keeps a Lease, and its requests.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, api::PostParams};
use ringside_ring::{Moment, lease::holder};
use tokio::{sync::watch, time::timeout};

use super::{
    Terms,
    claim::{Claim, Observation, claim, seconds},
    others::Others,
    tenure::Standing,
    wait,
};
use crate::{clock::SharedClock, explain::explain, shutdown::Shutdown};

/// How many attempts a release gets; after them the Lease expires by itself.
const RELEASE_ATTEMPTS: u32 = 3;

/// The time as the API server gives it back: a `MicroTime` loses what is below a microsecond on its way, and an own
/// write is told from a foreign one by this very value.
fn now() -> MicroTime {
    let now = Timestamp::now();
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

pub(super) struct Keeper {
    api: Api<Lease>,
    terms: Terms,
    clock: SharedClock,
    news: watch::Sender<Standing>,
    /// The Lease as the API server last accepted it from us, while nobody else wrote its spec.
    mine: Option<Lease>,
    /// The `renewTime`s that we sent since then without an answer: one of them may have landed.
    unanswered: Vec<MicroTime>,
    /// Somebody else's Lease of this name.
    observed: Option<Observation>,
}

/// How an attempt ended.
enum Attempt {
    Held,
    Taken { by: String, until: Moment },
}

impl Keeper {
    pub(super) fn new(api: Api<Lease>, terms: Terms, clock: SharedClock, news: watch::Sender<Standing>) -> Self {
        Self { api, terms, clock, news, mine: None, unanswered: Vec::new(), observed: None }
    }

    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let mut others = Others::new(self.api.clone(), self.terms.name.clone());
        loop {
            let start = self.clock.now();
            let next = self.try_once(start).await;
            if self.rest(next, &mut others, &shutdown).await {
                break;
            }
        }
        self.release().await;
    }

    /// Waits until the next attempt is due, or the Lease is seen to be free, or for the shutdown: `true` when it was that.
    async fn rest(&mut self, next: Moment, others: &mut Others, shutdown: &Shutdown) -> bool {
        if self.mine.is_some() || !self.terms.prompt {
            others.rest();
            return wait(&self.clock, next, shutdown).await;
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

    /// One attempt with its timeout; says when the next one is due.
    async fn try_once(&mut self, start: Moment) -> Moment {
        let every = self.terms.renew_every();
        let due = start + every;
        let outcome = timeout(every, self.attempt(start)).await;
        let Terms { namespace, name, holder, .. } = &self.terms;
        match outcome {
            Ok(Ok(Attempt::Held)) => {
                self.unanswered.clear();
                let valid_until = Some(start + self.terms.validity());
                let before = self.news.send_replace(Standing { valid_until, reason: None });
                if before.valid_until.is_none_or(|until| until <= start) {
                    tracing::info!(namespace, lease = name, holder, "holding the Lease");
                }
                due
            }
            Ok(Ok(Attempt::Taken { by, until })) => {
                let reason = format!("Lease {namespace}/{name} is held by '{by}'");
                self.lost(&reason);
                // Its holder may release it any time before it expires, so look again at the usual rate.
                due.min(until.max(start + Duration::from_millis(1)))
            }
            Ok(Err(error)) => {
                let error = explain(&error);
                tracing::warn!(namespace, lease = name, error, "could not renew the Lease; trying again");
                self.note(format!("Lease {namespace}/{name} can't be renewed: {error}"));
                due
            }
            Err(_) => {
                tracing::warn!(namespace, lease = name, after = ?every, "no answer to the renewal of the Lease; trying again");
                self.note(format!("no answer from the API server to the renewal of Lease {namespace}/{name}"));
                due
            }
        }
    }

    async fn attempt(&mut self, now: Moment) -> kube::Result<Attempt> {
        let Some(mine) = self.mine.clone() else { return self.acquire(now).await };
        match self.replace(mine, false).await {
            Ok(()) => Ok(Attempt::Held),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => self.explain(now).await,
            Err(error) => Err(error),
        }
    }

    /// After a conflict: either only metadata changed or an own write landed unnoticed, and we go on, or we lost.
    async fn explain(&mut self, now: Moment) -> kube::Result<Attempt> {
        let current = self.api.get_opt(&self.terms.name).await?;
        if let Some(lease) = current.filter(|lease| self.is_own_write(lease)) {
            self.replace(lease, false).await?;
            return Ok(Attempt::Held);
        }
        let Terms { namespace, name, .. } = &self.terms;
        let reason = format!("Lease {namespace}/{name} was changed or deleted by somebody else");
        self.lost(&reason);
        self.acquire(now).await
    }

    /// Whether the Lease's spec is one that this keeper wrote: by the holder and the microsecond of its renewal.
    fn is_own_write(&self, lease: &Lease) -> bool {
        let Some(spec) = &lease.spec else { return false };
        let Some(renewed) = &spec.renew_time else { return false };
        let last = self.mine.as_ref().and_then(|mine| mine.spec.as_ref()?.renew_time.as_ref());
        spec.holder_identity.as_deref() == Some(&self.terms.holder)
            && (last == Some(renewed) || self.unanswered.contains(renewed))
    }

    async fn acquire(&mut self, now: Moment) -> kube::Result<Attempt> {
        let Some(lease) = self.api.get_opt(&self.terms.name).await? else {
            let spec = self.spec(None);
            self.unanswered.extend(spec.renew_time.clone());
            let lease = self.dressed(Lease { spec: Some(spec), ..Lease::default() });
            return match self.api.create(&PostParams::default(), &lease).await {
                Ok(created) => {
                    self.mine = Some(created);
                    Ok(Attempt::Held)
                }
                // Somebody was first by a moment; what it is shows the next look.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    Ok(Attempt::Taken { by: "another instance".to_owned(), until: now })
                }
                Err(error) => Err(error),
            };
        };
        match claim(&lease, observe(&mut self.observed, &lease, now), &self.terms, now) {
            Claim::Wait { until, holder } => Ok(Attempt::Taken { by: holder, until }),
            Claim::Take => {
                self.replace(lease, true).await?;
                self.observed = None;
                Ok(Attempt::Held)
            }
        }
    }

    /// Writes our renewal over `base`, whose resourceVersion must still be current.
    async fn replace(&mut self, base: Lease, taking: bool) -> kube::Result<()> {
        let spec = self.spec(base.spec.as_ref().map(|spec| (spec, taking)));
        self.unanswered.extend(spec.renew_time.clone());
        let lease = self.dressed(Lease { spec: Some(spec), ..base });
        self.mine = Some(self.api.replace(&self.terms.name, &PostParams::default(), &lease).await?);
        Ok(())
    }

    /// The spec of a renewal, or, where the Lease is new or taken over, of an acquisition.
    fn spec(&self, before: Option<(&LeaseSpec, bool)>) -> LeaseSpec {
        let now = Some(now());
        let (acquire_time, lease_transitions) = match before {
            None => (now.clone(), Some(0)),
            Some((spec, false)) => (spec.acquire_time.clone(), spec.lease_transitions),
            Some((spec, true)) => {
                let handed_over = holder(Some(spec)) != Some(&self.terms.holder);
                (now.clone(), Some(spec.lease_transitions.unwrap_or_default() + i32::from(handed_over)))
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
    fn dressed(&self, mut lease: Lease) -> Lease {
        lease.metadata.name = Some(self.terms.name.clone());
        lease.metadata.managed_fields = None;
        lease.metadata.labels.get_or_insert_default().extend(self.terms.labels.clone());
        let annotations = lease.metadata.annotations.get_or_insert_default();
        annotations.extend(self.terms.annotations.clone());
        for (key, value) in &self.terms.facts {
            match value {
                Some(value) => drop(annotations.insert(key.clone(), value.clone())),
                None => drop(annotations.remove(key)),
            }
        }
        lease
    }

    /// The Lease is not ours (any more): known at once to everybody who asks.
    fn lost(&mut self, reason: &str) {
        self.mine = None;
        let before = self.news.send_replace(Standing { valid_until: None, reason: Some(reason.to_owned()) });
        if before.valid_until.is_some() {
            tracing::error!(namespace = self.terms.namespace, lease = self.terms.name, reason, "lost the Lease");
        }
    }

    /// Something is wrong, but the validity of the last renewal stands until it runs out.
    fn note(&self, reason: String) {
        self.news.send_modify(|standing| standing.reason = Some(reason));
    }

    /// Gives the Lease back: nobody acts on it from here on, then the write says so.
    async fn release(mut self) {
        let reason = Some("shutting down".to_owned());
        let held = self.news.send_replace(Standing { valid_until: None, reason }).valid_until.is_some();
        if !held {
            return;
        }
        let Terms { namespace, name, .. } = self.terms.clone();
        for _ in 0..RELEASE_ATTEMPTS {
            match timeout(self.terms.renew_every(), self.release_once()).await {
                Ok(Ok(true)) => return tracing::info!(namespace, lease = name, "released the Lease"),
                Ok(Ok(false)) => {
                    return tracing::info!(
                        namespace,
                        lease = name,
                        "the Lease is released already, or somebody else's"
                    );
                }
                Ok(Err(error)) => {
                    let error = explain(&error);
                    tracing::warn!(namespace, lease = name, error, "could not release the Lease");
                }
                Err(_) => tracing::warn!(namespace, lease = name, "no answer to the release of the Lease"),
            }
        }
    }

    /// `false` when the Lease is no longer ours to release: taken, or released by an attempt that got no answer.
    async fn release_once(&mut self) -> kube::Result<bool> {
        let Some(mut lease) = self.api.get_opt(&self.terms.name).await? else { return Ok(false) };
        if !self.is_own_write(&lease) {
            return Ok(false);
        }
        lease.metadata.managed_fields = None;
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.retain(|key, _| !self.terms.facts.contains_key(key));
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(now());
        }
        match self.api.replace(&self.terms.name, &PostParams::default(), &lease).await {
            Ok(_) => Ok(true),
            // Between our read and our write something changed: the next attempt reads again.
            Err(error) => Err(error),
        }
    }
}

/// Takes in what somebody else's Lease looks like now.
fn observe<'a>(observed: &'a mut Option<Observation>, lease: &Lease, now: Moment) -> &'a Observation {
    let observed = observed.get_or_insert_with(|| Observation::of(lease, now));
    observed.update(lease, now);
    observed
}
