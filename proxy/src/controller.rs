//! Whether the controller works: it watches every main resource of the ring that the API server serves, or lists each of them
//! now and then, and does not wait for a lock that another replica keeps ([`crate::election::waits`]).
//!
//! The shard says so on its Lease, in its readiness and in a metric. While its controller is absent the sharder gives it nothing,
//! and asks for what it has. A controller, a watch or a proxy that is restarted in time changes nothing.

use std::{collections::BTreeSet, convert::Infallible, future::pending, sync::Arc, time::Duration};

use clap::ValueEnum;
use ringside_ring::{cluster_ring::GroupResource, controller};
use ringside_runtime::admin::Check;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{
    election::waits::{Waiting, Waits},
    policy::RingState,
    views::Views,
};

#[cfg(test)]
mod tests;

/// When the controller counts as working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// While it watches or lists every main resource.
    Watching,
    /// Always: one that asks for objects more seldom than the Lease lasts.
    Always,
}

/// The state of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// Not known, as the proxy was restarted: what the one before it said stands.
    Unknown,
    /// It works.
    Working,
    /// It works, and ends when the shard has given its objects away.
    Leaving,
    /// It does not work.
    Absent {
        /// Since when.
        since: Instant,
        /// Whether it worked before: then it has to stay before it counts as working again.
        worked: bool,
    },
}

/// Judges the controller by its views. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Controller {
    mode: Mode,
    lease_duration: Duration,
    views: Views,
    waits: Waits,
    check: Check,
    state: Arc<watch::Sender<ControllerState>>,
}

impl Controller {
    /// Not judged yet; `restarted`: a proxy before this one may have said that it works.
    pub fn new(
        mode: Mode,
        lease_duration: Duration,
        (views, waits): (Views, Waits),
        restarted: bool,
        check: Check,
    ) -> Self {
        check.pass();
        let state = match mode {
            Mode::Always => ControllerState::Working,
            Mode::Watching if restarted => ControllerState::Unknown,
            Mode::Watching => ControllerState::Absent { since: Instant::now(), worked: false },
        };
        Self { mode, lease_duration, views, waits, check, state: Arc::new(watch::Sender::new(state)) }
    }

    /// What the Lease says; none where what stands there stays.
    pub fn said(&self) -> Option<&'static str> {
        match *self.state.borrow() {
            ControllerState::Unknown => None,
            ControllerState::Working => Some(controller::Controller::Working.as_str()),
            ControllerState::Leaving => Some(controller::Controller::Leaving.as_str()),
            ControllerState::Absent { .. } => Some(controller::Controller::Absent.as_str()),
        }
    }

    /// The shard leaves: from now on the Lease says so, whatever is seen of the controller.
    pub(crate) fn leave(&self) {
        self.check.pass();
        self.state.send_replace(ControllerState::Leaving);
    }

    /// Tells when the state changes.
    pub fn changes(&self) -> watch::Receiver<ControllerState> {
        self.state.subscribe()
    }

    /// For how long it has been absent; zero while it works.
    pub fn absent_for(&self) -> Duration {
        let ControllerState::Absent { since, .. } = *self.state.borrow() else { return Duration::ZERO };
        since.elapsed()
    }

    /// Judges it for as long as the Lease is held, since `began`: before that it could not be seen.
    pub async fn judge(&self, began: Instant, mut knowledge: watch::Receiver<RingState>) -> Infallible {
        if self.mode == Mode::Always {
            return pending().await;
        }
        let (begins, waits) = (self.views.begins(), self.waits.changed());
        let mut mains = self.mains_of(&knowledge.borrow_and_update());
        let (mut seen_since, mut stays_since) = (began, None);
        loop {
            let known = self.mains_of(&knowledge.borrow_and_update());
            if known != mains {
                (mains, seen_since) = (known, Instant::now());
            }
            let (before, now) = (*self.state.borrow(), Instant::now());
            if before == ControllerState::Leaving {
                return pending().await;
            }
            let is_here = |it: &&GroupResource| self.views.here_until(it, self.lease_duration) > Some(now);
            let missing: Vec<_> = mains.iter().flatten().filter(|it| !is_here(it)).collect();
            let waiting = self.waits.waiting(2 * self.lease_duration);
            stays_since = stays_since.or(Some(now)).filter(|_| missing.is_empty() && waiting.is_none());
            // Nothing can be said of a ring that is not known.
            let (state, wake) = match &mains {
                Some(mains) => self.next(before, now, (mains, seen_since, waiting.as_ref()), stays_since),
                None => (before, None),
            };
            let wake = wake.into_iter().chain(waiting.as_ref().map(|it| it.until)).min();
            self.tell(before, state, &missing, waiting.as_ref());
            tokio::select! {
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() || state != before => {}
                () = begins.notified(), if state != ControllerState::Working => {}
                () = waits.notified() => {}
                changed = knowledge.changed() => if changed.is_err() {
                    // The proxy is ending.
                    return pending().await;
                }
            }
        }
    }

    /// The state after `before`, and when that is to be judged again; `stays_since`: it has been here since then. One that
    /// worked may be away for two durations of the Lease, and has to stay for as long when it comes back later.
    fn next(
        &self,
        before: ControllerState,
        now: Instant,
        (mains, seen_since, waiting): (&BTreeSet<GroupResource>, Instant, Option<&Waiting>),
        stays_since: Option<Instant>,
    ) -> (ControllerState, Option<Instant>) {
        let tolerance = 2 * self.lease_duration;
        let expected = mains.iter().map(|it| self.views.expected_until(it, tolerance));
        let away = expected.map(|until| until.max(Some(seen_since + tolerance))).min().flatten();
        let away = away.into_iter().chain(waiting.map(|it| it.since + tolerance)).min();
        match (before, stays_since) {
            (ControllerState::Working, _) if away.is_some_and(|away| away <= now) => {
                (ControllerState::Absent { since: now, worked: true }, None)
            }
            (ControllerState::Unknown, None) if away.is_some_and(|away| away <= now) => {
                (ControllerState::Absent { since: now, worked: false }, None)
            }
            (ControllerState::Unknown, None) => (before, away),
            (ControllerState::Absent { worked: true, .. }, Some(since)) if now < since + tolerance => {
                let here = mains.iter().map(|it| self.views.here_until(it, self.lease_duration));
                (before, here.chain([Some(since + tolerance)]).min().flatten())
            }
            (ControllerState::Absent { .. }, None) => (before, None),
            (_, _) => (ControllerState::Working, away),
        }
    }

    /// The main resources of the ring that there can be a view of: they are served, and narrowed. None while the ring is not known.
    fn mains_of(&self, knowledge: &RingState) -> Option<BTreeSet<GroupResource>> {
        let RingState::Known(policy) = knowledge else { return None };
        let unserved = self.views.unserved();
        let mains = policy.families.keys().filter(|main| policy.narrows(main) && !unserved.contains(*main));
        Some(mains.cloned().collect())
    }

    fn tell(
        &self,
        before: ControllerState,
        state: ControllerState,
        missing: &[&GroupResource],
        waiting: Option<&Waiting>,
    ) {
        let resources = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match state {
            ControllerState::Absent { .. } => self.check.fail(match waiting {
                Some(lock) => {
                    format!("no objects for the shard; its controller waits for {lock}: let it elect by a Lease")
                }
                None => format!("no objects for the shard; no view of: {resources}"),
            }),
            ControllerState::Unknown | ControllerState::Working | ControllerState::Leaving => self.check.pass(),
        }
        // It may have been told meanwhile that the shard leaves.
        let is_told = |now: &mut ControllerState| *now == before && std::mem::replace(now, state) != state;
        if self.state.send_if_modified(is_told) {
            let waits_for = waiting.map(tracing::field::display);
            tracing::info!(?state, resources, waits_for, "state of the controller changed: resources have no view");
        }
    }
}
