//! How long a watch lasts, and when what it was admitted by is over: the shard Lease, and the lead.
//!
//! Then its client is told nothing to act on, and the watch ends in order when its client can open another. To break it off at
//! once would do no more: some clients give up a watch that breaks off, or one that is refused (@kubernetes/client-node). Half an
//! event is waited for, as nothing can stand behind it, and only for a moment: by what it says a controller may begin with an
//! object that another shard has by then.

use std::{pin::Pin, task::Context, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, Sleep, sleep};

use super::super::{admit::Admitted, context::RequestContext};
use crate::frames::EventSet;

/// How long an API server lets a watch last at least whose client does not say (`--min-request-timeout`, as it is by default).
const DEFAULT_WATCH_TIMEOUT: Duration = Duration::from_secs(1_800);
/// How long the rest of an event may take. Other shards begin more than a fifth of the Lease later.
const REST: Duration = Duration::from_secs(1);

/// How long a watch lasts, and when its admission ends.
pub(super) struct WatchDeadline {
    /// As long as this, which then ends all.
    pub(super) admitted: Admitted,
    /// And until then: as the client says, or as long as API servers let it.
    pub(super) until: Instant,
    /// What its client is told without that.
    pub(super) events: EventSet,
    /// Gone once that is over.
    over: Option<BoxFuture<'static, ()>>,
    /// From then on, until its client can open another watch.
    regained: Option<BoxFuture<'static, ()>>,
    /// Until then the rest of the event under way may come.
    rest: Option<Pin<Box<Sleep>>>,
}

impl WatchDeadline {
    /// Of a watch that is admitted for as long as a test lasts.
    #[cfg(test)]
    pub(super) fn none(events: EventSet) -> Self {
        let (admitted, until) = (super::super::admit::tests::admitted(), Instant::now() + DEFAULT_WATCH_TIMEOUT);
        Self { admitted, until, events, over: Some(std::future::pending().boxed()), regained: None, rest: None }
    }

    /// How long the watch lasts that is asked for.
    pub(super) fn of(RequestContext { info, admitted, .. }: &RequestContext) -> Self {
        let seconds = info.query.first("timeoutSeconds");
        let seconds = seconds.and_then(|seconds| seconds.parse::<u32>().ok()).filter(|seconds| *seconds > 0);
        // A second less: the API server's clock began a moment before the client's watch, or after.
        let deadline = seconds.map_or(DEFAULT_WATCH_TIMEOUT, |seconds| Duration::from_secs(u64::from(seconds - 1)));
        // That an object's children leave would have the controller begin with the object.
        let is_main = admitted.policy.is_main(&info.resource.kind);
        let events = if is_main { EventSet::DeletedOnly } else { EventSet::Nothing };
        let over = Some(admitted.over().map(drop).boxed());
        Self { admitted: admitted.clone(), until: Instant::now() + deadline, events, over, regained: None, rest: None }
    }

    /// Whether that was just over. The clock is asked as well: who wakes hears at once of all that happened, and not in this
    /// order.
    pub(super) fn poll_over(&mut self, context: &mut Context<'_>) -> bool {
        let term = &self.admitted.term;
        let is_over = |over: &mut BoxFuture<'static, ()>| over.as_mut().poll(context).is_ready() || !term.is_on();
        let is_over = self.over.take_if(is_over).is_some();
        if is_over {
            self.regained = Some(self.admitted.regained().boxed());
        }
        is_over
    }

    /// Whether its client can open another watch since a moment ago.
    pub(super) fn poll_regained(&mut self, context: &mut Context<'_>) -> bool {
        self.regained.take_if(|regained| regained.as_mut().poll(context).is_ready()).is_some()
    }

    /// Waits for the rest of an event that the client has half of.
    pub(super) fn wait_for_rest(&mut self) {
        self.rest = Some(Box::pin(sleep(REST)));
    }

    /// Whether it has had its time.
    pub(super) fn poll_rest(&mut self, context: &mut Context<'_>) -> bool {
        self.rest.take_if(|rest| rest.as_mut().poll(context).is_ready()).is_some()
    }
}
