//! Lists objects and watches them from there on, for as long as it runs.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::{WatchEvent, WatchParams},
    discovery::ApiResource,
};
use ringside_runtime::explain::code;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout},
};

mod list;

use super::{Mode, Source};
use crate::{
    pages::PageSize,
    resources::{Object, Resource},
};

/// The API server ends a watch after this time, and one that is silent for longer is not connected any more.
const WATCH_SECONDS: u32 = 290;
const MAX_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// A watch that ends sooner, and showed nothing, is not opened again without a pause.
const AT_ONCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

type Events = BoxStream<'static, Result<WatchEvent<Object>, kube::Error>>;

/// What a feed does.
enum State {
    /// It lists all objects.
    Listing,
    /// It has shown everything up to this version. `events`: a stream that goes on from there.
    Watching { version: String, events: Option<Events> },
    /// It waits after a failure, and then goes on from this version, or lists.
    Broken { pause: Duration, resume: Option<String> },
}

impl State {
    /// Up to where everything was shown.
    fn version(&self) -> Option<String> {
        match self {
            Self::Watching { version, .. } => Some(version.clone()),
            Self::Broken { resume, .. } => resume.clone(),
            Self::Listing => None,
        }
    }
}

/// How objects are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListBy {
    Stream,
    /// For an API server without streaming lists, or one that ended one early.
    Pages,
}

/// One resource in one scope, listed and watched.
pub(super) struct Feed {
    kind: Arc<Resource>,
    client: Client,
    /// As it was asked for last.
    asked: ApiResource,
    source: Source,
    lists: Arc<Semaphore>,
    went_back: watch::Receiver<()>,
    /// The label by which a watch shows the ring's objects, for a resource of which it may have few.
    label: Option<String>,
    all: watch::Receiver<bool>,
    mode: watch::Sender<Mode>,
    list_by: ListBy,
    page_size: PageSize,
    failures: u32,
    /// What the last list showed: how many objects, and how many of the ring.
    listed: (usize, usize),
    /// Up to where everything was shown, while it watches.
    at: Option<String>,
    /// Whether nothing was shown since the last list.
    is_fresh: bool,
    lists_in_vain: u32,
}

impl Feed {
    /// Shows all objects to a source. Lists take a permit.
    pub(super) fn new(
        (kind, client): (Arc<Resource>, Client),
        source: Source,
        lists: Arc<Semaphore>,
        went_back: watch::Receiver<()>,
    ) -> Self {
        let mode = watch::Sender::new(Mode::All);
        let all = watch::Sender::new(true).subscribe();
        Self {
            asked: kind.api(),
            kind,
            client,
            source,
            lists,
            went_back,
            label: None,
            all,
            mode,
            list_by: ListBy::Stream,
            page_size: PageSize::default(),
            failures: 0,
            listed: (0, 0),
            at: None,
            is_fresh: false,
            lists_in_vain: 0,
        }
    }

    /// Watches only what has this label, if few of the objects are the ring's, and `all` does not say otherwise.
    pub(super) fn or_labelled(self, label: String, all: watch::Receiver<bool>) -> Self {
        Self { label: Some(label), all, ..self }
    }

    /// The objects, in the version in which they are to be asked for.
    fn objects(&mut self) -> Api<Object> {
        self.asked = self.kind.api();
        self.kind.objects_as(&self.asked, &self.client, self.source.scope.namespace())
    }

    /// How it watches.
    pub(super) fn mode(&self) -> watch::Receiver<Mode> {
        self.mode.subscribe()
    }

    /// Lists and watches.
    ///
    /// It waits for nothing but the API server: that ends a stream which is read slowly.
    pub(super) async fn run(mut self) -> Infallible {
        let (mut state, mut went_back, mut all) = (State::Listing, self.went_back.clone(), self.all.clone());
        went_back.mark_unchanged();
        loop {
            self.at = state.version();
            // A list shows all objects, and its end says which of them are watched from then on.
            let is_listing = matches!(state, State::Listing);
            state = tokio::select! {
                next = self.step(state) => next,
                () = changed(&mut all), if !is_listing => self.watch_others(),
                // A watch from a later time shows nothing until then.
                () = changed(&mut went_back) => {
                    self.source.went_back();
                    self.at = None;
                    State::Listing
                }
            };
        }
    }

    /// What has no label is watched from now on, or no longer. Only what was not watched has to be listed.
    fn watch_others(&mut self) -> State {
        let (before, mode) = (*self.mode.borrow(), self.wanted_mode());
        match self.at.take() {
            Some(version) if mode == before || mode == Mode::Labelled => {
                self.mode.send_replace(mode);
                State::Watching { version, events: None }
            }
            _ => State::Listing,
        }
    }

    fn wanted_mode(&self) -> Mode {
        let is_all = self.label.is_none() || *self.all.borrow();
        if is_all { Mode::All } else { Mode::of(self.listed.0, self.listed.1) }
    }

    async fn step(&mut self, state: State) -> State {
        match state {
            State::Listing => match self.list().await {
                Ok(watching) => watching,
                Err(error) => self.broken(&error, None),
            },
            State::Watching { version, events } => self.watch(version, events).await,
            State::Broken { pause, resume } => {
                sleep(pause).await;
                resume.map_or(State::Listing, |version| State::Watching { version, events: None })
            }
        }
    }

    /// Says why, and waits longer each time. 410: what came since is not known any more.
    fn broken(&mut self, error: &kube::Error, resume: Option<String>) -> State {
        if code(error) == Some(410) && resume.is_some() {
            if !self.is_fresh {
                return State::Listing;
            }
            // A list that takes longer than the API server remembers changes would be made again without an end.
            self.lists_in_vain += 1;
            return State::Broken { pause: pause(self.lists_in_vain), resume: None };
        }
        self.source.watched(Some(error));
        self.kind.failed(&self.asked, error);
        self.failures += 1;
        State::Broken { pause: pause(self.failures - 1), resume }
    }

    fn works(&mut self) {
        self.failures = 0;
        self.source.watched(None);
    }

    async fn watch(&mut self, mut version: String, events: Option<Events>) -> State {
        let mut events = match events {
            Some(events) => events,
            None => match self.objects().watch(&self.watch_params(), &version).await {
                Ok(events) => {
                    self.source.watched(None);
                    events.boxed()
                }
                Err(error) => return self.broken(&error, Some(version)),
            },
        };
        let (began, mut is_silent) = (Instant::now(), true);
        loop {
            let event = match timeout(MAX_SILENCE, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return self.broken(&error, Some(version)),
                Ok(None) if is_silent && began.elapsed() < AT_ONCE => {
                    let early = io::Error::new(io::ErrorKind::UnexpectedEof, "the API server ended a watch at once");
                    return self.broken(&kube::Error::ReadEvents(early), Some(version));
                }
                Ok(None) | Err(_) => return State::Watching { version, events: None },
            };
            let shown = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.source.show(&object);
                    object.metadata.resource_version
                }
                WatchEvent::Deleted(object) => {
                    self.source.remove(&object);
                    object.metadata.resource_version
                }
                WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
                WatchEvent::Error(status) => return self.broken(&kube::Error::Api(status), Some(version)),
            };
            if std::mem::take(&mut is_silent) {
                (self.is_fresh, self.lists_in_vain) = (false, 0);
                self.works();
            }
            if let Some(shown) = shown {
                self.source.delivered(&shown);
                self.at = Some(shown.clone());
                version = shown;
            }
        }
    }

    fn watch_params(&self) -> WatchParams {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        match &self.label {
            Some(label) if *self.mode.borrow() == Mode::Labelled => params.labels(label),
            _ => params,
        }
    }
}

/// How long it is waited after so many failures before.
fn pause(before: u32) -> Duration {
    let pause = (FIRST_PAUSE * 2_u32.saturating_pow(before.min(16))).min(MAX_PAUSE);
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// Returns when something is told. Without a sender nothing is any more.
async fn changed<T>(told: &mut watch::Receiver<T>) {
    if told.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
