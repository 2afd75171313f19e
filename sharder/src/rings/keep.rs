//! An object of the cluster's that belongs to a ring, and is kept as it should be: written by server-side apply, and again
//! as soon as somebody changes or deletes it.
//!
//! The webhook configuration and the admission policies of a ring are such objects. They have the ring as their owner, so
//! the garbage collector removes them together with it.

use std::{convert::Infallible, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{FIELD_MANAGER, resources::Object};
use ringside_runtime::explain::{code, explain, explain_watch};

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long it is left to somebody who changes it again right after it was written, at first and at last: whoever does so
/// all the time must not keep the API server busy.
const TRUCE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];

/// How an object stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Standing {
    /// Nothing was written yet.
    #[default]
    Pending,
    /// It is as it should be.
    InPlace {
        /// When it was last written with a change.
        since: Instant,
    },
    /// It is not wanted, and not there.
    Absent,
    /// The API server refuses it; it is tried again.
    Refused(String),
}

/// An object that is kept, for who says how it should be.
pub(super) struct Kept {
    wanted: watch::Sender<Option<DynamicObject>>,
    standing: watch::Sender<Standing>,
}

impl Kept {
    /// An object of this kind and name, and the one who keeps it. `period`: how often it is written, whatever was seen.
    pub(super) fn new(
        (client, watches): (&Client, &Client),
        kind: &ApiResource,
        name: String,
        period: Duration,
    ) -> (Self, Keeper) {
        let kept = Self { wanted: watch::Sender::default(), standing: watch::Sender::default() };
        let keeper = Keeper {
            wanted: kept.wanted.subscribe(),
            standing: kept.standing.clone(),
            objects: Api::all_with(client.clone(), kind),
            watched: Api::all_with(watches.clone(), kind),
            kind: kind.kind.clone(),
            name,
            period,
        };
        (kept, keeper)
    }

    /// It should be like this from now on; none: it should not be there.
    pub(super) fn want(&self, object: Option<DynamicObject>) {
        let changed = self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != object;
            *wanted = object;
            changed
        });
        if changed {
            self.standing.send_replace(Standing::Pending);
        }
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Tells when that changes.
    pub(super) fn changes(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }
}

/// Keeps one object.
pub(super) struct Keeper {
    wanted: watch::Receiver<Option<DynamicObject>>,
    standing: watch::Sender<Standing>,
    objects: Api<DynamicObject>,
    watched: Api<Object>,
    kind: String,
    name: String,
    period: Duration,
}

impl Keeper {
    /// Keeps it until it is dropped. Begins once it is known how it should be.
    pub(super) async fn run(mut self) -> Infallible {
        // Fails only when nobody wants anything any more: then this is about to be dropped.
        if self.wanted.changed().await.is_err() {
            return std::future::pending().await;
        }
        let mut seen = std::pin::pin!(versions(self.watched.clone(), self.name.clone()));
        let mut written: Option<String> = None;
        let mut truce = TRUCE[0];
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let pause = match self.write(wanted.as_ref()).await {
                Ok(version) => {
                    self.tell_written(&version, &written);
                    written = version;
                    self.period
                }
                Err(error) => {
                    let error = explain(&error);
                    tracing::warn!(
                        kind = self.kind,
                        name = self.name,
                        error,
                        "can't write an object of a ring; trying again"
                    );
                    self.tell(Standing::Refused(error));
                    RETRY
                }
            };
            let wrote_at = Instant::now();
            let due = sleep(pause);
            tokio::pin!(due);
            loop {
                tokio::select! {
                    changed = self.wanted.changed() => {
                        if changed.is_err() {
                            return std::future::pending().await;
                        }
                        break;
                    }
                    Some(version) = seen.next() => if version != written {
                        tracing::info!(kind = self.kind, name = self.name, "somebody changed an object of a ring; writing it again");
                        truce = if wrote_at.elapsed() < truce * 2 { (truce * 2).min(TRUCE[1]) } else { TRUCE[0] };
                        sleep_until(wrote_at + truce).await;
                        break;
                    },
                    () = &mut due => break,
                }
            }
        }
    }

    /// Returns the version that is there now; none when it is not there.
    async fn write(&self, wanted: Option<&DynamicObject>) -> Result<Option<String>, kube::Error> {
        let Some(object) = wanted else {
            return match self.objects.delete(&self.name, &DeleteParams::background()).await {
                Ok(_) => Ok(None),
                Err(error) if code(&error) == Some(404) => Ok(None),
                Err(error) => Err(error),
            };
        };
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let mut written = self.objects.patch(&self.name, &parameters, &Patch::Apply(object)).await?;
        if is_extended(&written) {
            // Server-side apply leaves alone what others have added, such as a condition under which it does nothing.
            written.data = object.data.clone();
            written.metadata.managed_fields = None;
            let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            written = self.objects.replace(&self.name, &parameters, &written).await?;
        }
        Ok(written.metadata.resource_version)
    }

    fn tell_written(&self, version: &Option<String>, before: &Option<String>) {
        let standing = match (version, &*self.standing.borrow()) {
            (None, _) => Standing::Absent,
            // Nothing was changed.
            (Some(_), Standing::InPlace { since }) if version == before => Standing::InPlace { since: *since },
            (Some(_), _) => Standing::InPlace { since: Instant::now() },
        };
        self.tell(standing);
    }

    /// Not about what is no longer wanted.
    fn tell(&self, standing: Standing) {
        if self.wanted.has_changed().unwrap_or(false) {
            return;
        }
        self.standing.send_if_modified(|told| {
            let changed = *told != standing;
            *told = standing;
            changed
        });
    }
}

/// Whether somebody else has set a part of what the object says, besides its metadata.
fn is_extended(object: &DynamicObject) -> bool {
    let others = object.managed_fields().iter().filter(|entry| entry.manager.as_deref() != Some(FIELD_MANAGER));
    let mut fields = others.filter_map(|entry| entry.fields_v1.as_ref()?.0.as_object());
    fields.any(|fields| fields.keys().any(|field| field != "f:metadata"))
}

/// The object's resourceVersion whenever it changes; none when it is not there.
fn versions(objects: Api<Object>, name: String) -> impl Stream<Item = Option<String>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let kind_and_name = name;
    // What a list did not show is not there.
    let listed = None::<Option<String>>;
    watcher(objects, config)
        .default_backoff()
        .scan(listed, move |listed, event| {
            let version = |object: Object| object.metadata.resource_version;
            let seen = match event {
                Ok(Event::Init) => {
                    *listed = Some(None);
                    None
                }
                Ok(Event::InitApply(object)) => {
                    *listed = Some(version(object));
                    None
                }
                Ok(Event::InitDone) => listed.take(),
                Ok(Event::Apply(object)) => Some(version(object)),
                Ok(Event::Delete(_)) => Some(None),
                Err(error) => {
                    let error = explain_watch(&error);
                    tracing::debug!(
                        name = kind_and_name,
                        error,
                        "can't watch an object of a ring; it is written once a period"
                    );
                    None
                }
            };
            std::future::ready(Some(seen))
        })
        .filter_map(std::future::ready)
}

#[cfg(test)]
mod tests;
