//! Looks for children without label while the API server does not reach the webhook.
//!
//! The webhook labels a child in the write that creates it. Where it is not asked nobody does: children are not watched, and
//! the owner's shard, which sees only what has its label, would create the child once more and be refused. The next pass
//! over all children can be minutes away.
//!
//! So what has no label is watched as long as the webhook is away, and for no longer: every change of anything without label
//! comes with it, be it of the ring or not.

use std::{convert::Infallible, time::Duration};

use futures::{StreamExt, future::join_all};
use kube::runtime::watcher::{self, Event, watcher};
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::explain::{explain, explain_watch};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    RETRY,
    children::{bring, bring_selected},
};
use crate::{
    assign::{BATCH, Scope},
    pauses::at,
    probe::Verdict,
    resources::Resource,
};

/// How soon it is looked again at what was there: an owner may have got its shard since, or a write that was refused pass. So
/// often is it looked, too, where an object came without label although the webhook is asked: such as one whose name the API
/// server made up.
const SELDOM: Duration = Duration::from_secs(10);
/// And how soon where the watch broke that was to tell what comes.
const SOON: Duration = Duration::from_millis(500);
/// A look costs what there is without label. So much of the time at most is spent on it.
const SHARE: u32 = 10;

/// How long to wait after a look that took so long.
pub(super) fn pause(took: Duration) -> Duration {
    SELDOM.max(took * SHARE)
}

/// Labels the children without label whose owners are the ring's.
pub(super) async fn label(scope: &Scope) -> Result<(), kube::Error> {
    for (resource, objects) in bring_selected(scope, &selector(scope)).await? {
        tell(scope, resource, objects);
    }
    Ok(())
}

fn selector(scope: &Scope) -> String {
    format!("!{}", scope.snapshot.labels.shard)
}

fn tell(scope: &Scope, resource: &GroupResource, objects: usize) {
    let ring = &scope.snapshot.ring;
    tracing::info!(%ring, %resource, objects, "labelled children that the webhook was not asked about");
}

fn refused(scope: &Scope, error: &str) {
    let ring = &scope.snapshot.ring;
    tracing::warn!(%ring, error, "can't look for children that the webhook was not asked about; trying again");
}

fn is_away(reach: &Verdict) -> bool {
    matches!(reach, Some(Err(_)))
}

/// Looks for as long as the webhook is not reached, at once when it is, and twice more.
pub(crate) async fn look_for_unlabelled(scope: &Scope) -> Infallible {
    let mut reach = scope.reach.subscribe();
    loop {
        // The sender lives in the scope.
        let _ = reach.wait_for(is_away).await;
        join_all(scope.main.controlled.iter().map(|kind| follow(scope, kind, reach.clone()))).await;
        // At once, but where nothing is controlled: that has nothing to follow.
        let _ = reach.wait_for(|reach| !is_away(reach)).await;
        if let Err(error) = label(scope).await {
            refused(scope, &explain(&error));
        }
        // A create that was not asked about may take its time.
        scope.looks.was_unlabelled(&scope.main.resource.id);
    }
}

/// Watches what has no label of one kind until the webhook is reached.
async fn follow(scope: &Scope, kind: &Resource, mut reach: watch::Receiver<Verdict>) {
    while is_away(&reach.borrow_and_update()) {
        let mut brought = 0;
        tokio::select! {
            () = watch_once(scope, kind, &mut brought) => {}
            // Why it is not reached may change at any time.
            _ = reach.wait_for(|reach| !is_away(reach)) => {}
        }
        if brought > 0 {
            tell(scope, &kind.id, brought);
        }
    }
}

/// Looks at what there is without label, and then at what comes, until it is time to look anew.
async fn watch_once(scope: &Scope, kind: &Resource, brought: &mut usize) {
    let config = watcher::Config::default().labels(&selector(scope));
    let mut events = std::pin::pin!(watcher(kind.objects(&scope.watches, None), config).ready_chunks(BATCH));
    let (begun, mut took) = (Instant::now(), None);
    loop {
        let until = took.map(|took| begun + took + pause(took));
        let events = tokio::select! {
            Some(events) = events.next() => events,
            () = at(until) => return,
        };
        let (mut page, mut broke) = (Vec::new(), None);
        for event in events {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => page.push(scope.target(&object)),
                Ok(Event::InitDone) => took = Some(begun.elapsed()),
                Ok(Event::Delete(_) | Event::Init) => {}
                Err(error) => broke = Some(explain_watch(&error)),
            }
        }
        match bring(scope, kind, page).await {
            Ok(looked) => *brought += looked.objects,
            Err(error) => broke = Some(explain(&error)),
        }
        if let Some(error) = broke {
            refused(scope, &error);
            // Where all that there was could be shown, so can what comes.
            return sleep(took.map_or(RETRY, |took| SOON.max(took * SHARE))).await;
        }
    }
}
