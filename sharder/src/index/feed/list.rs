//! Lists of a feed: a stream that goes on as a watch, or pages.

use std::{io, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use ringside_runtime::explain::code;
use tokio::time::{Instant, timeout_at};

use super::{Events, Feed, ListBy, State, WATCH_SECONDS};
use crate::{
    index::{Mark, Mode, Part},
    pages::next_page,
};

/// On the bookmark behind the last object of a streaming list (Kubernetes, "Streaming lists").
pub(super) const END: &str = "k8s.io/initial-events-end";
/// How long a streaming list may show no object before its end. Some servers take the request for a watch, and never end it.
const SILENCE: Duration = Duration::from_secs(30);

/// A list that has ended.
struct Listed {
    version: String,
    /// What changed since.
    events: Option<Events>,
    objects: usize,
    kept: usize,
}

impl Feed {
    pub(super) async fn list(&mut self) -> Result<State, kube::Error> {
        let (listing, lists) = (Arc::clone(&self.source.listing), Arc::clone(&self.lists));
        let _listing = listing.lock().await;
        // The semaphore is never closed.
        let _permit = lists.acquire().await;
        let began = Mark::now();
        let Listed { version, events, objects, kept } = match self.list_by {
            ListBy::Stream => match self.list_stream().await {
                // API servers without `WatchList` refuse `sendInitialEvents`.
                Err(error) if code(&error) == Some(422) => {
                    self.list_by = ListBy::Pages;
                    self.list_pages().await?
                }
                listed => listed?,
            },
            ListBy::Pages => self.list_pages().await?,
        };
        self.source.end(Part::All);
        self.source.listed(began, &version);
        self.works();
        self.is_fresh = true;
        self.listed = (objects, kept);
        let mode = self.wanted_mode();
        self.mode.send_replace(mode);
        Ok(State::Watching { version, events: events.filter(|_| mode == Mode::All) })
    }

    /// Without resourceVersion, so that it is not older than the request. An object is gone before the next is read.
    async fn list_stream(&mut self) -> Result<Listed, kube::Error> {
        let params = WatchParams::default().initial_events().timeout(WATCH_SECONDS);
        let (mut shown, api) = (Instant::now(), self.objects());
        let Ok(events) = timeout_at(shown + SILENCE, api.watch(&params, "")).await else {
            return Err(self.by_pages_next("the API server did not begin a streaming list"));
        };
        let mut events = events?.boxed();
        let (mut objects, mut kept) = (0, 0);
        self.source.begin(Part::All);
        loop {
            let Ok(event) = timeout_at(shown + SILENCE, events.next()).await else {
                return Err(self.by_pages_next("a streaming list of the API server stood still before its last object"));
            };
            let Some(event) = event else {
                return Err(self.by_pages_next("the API server ended a streaming list before its last object"));
            };
            match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    shown = Instant::now();
                    objects += 1;
                    kept += usize::from(self.source.show(&object));
                }
                WatchEvent::Deleted(object) => self.source.remove(&object),
                WatchEvent::Bookmark(bookmark) if bookmark.metadata.annotations.contains_key(END) => {
                    let version = bookmark.metadata.resource_version;
                    return Ok(Listed { version, events: Some(events), objects, kept });
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
    }

    /// The next list is in pages, as the streaming one failed so.
    fn by_pages_next(&mut self, why: &str) -> kube::Error {
        self.list_by = ListBy::Pages;
        kube::Error::ReadEvents(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }

    async fn list_pages(&mut self) -> Result<Listed, kube::Error> {
        let mut params = ListParams::default();
        let (mut objects, mut kept) = (0, 0);
        let (api, mut is_first) = (self.objects(), true);
        loop {
            let page = next_page(&api, &mut params, &mut self.page_size).await?;
            if std::mem::take(&mut is_first) {
                self.source.begin(Part::All);
            }
            objects += page.items.len();
            kept += page.items.iter().filter(|object| self.source.show(object)).count();
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                return Ok(Listed { version, events: None, objects, kept });
            }
        }
    }
}
