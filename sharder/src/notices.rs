//! Events on rings and on the Leases of shards: what `kubectl describe` shows besides the status.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use ringside_runtime::explain::explain;
use tokio::{
    sync::{Mutex, mpsc},
    time::Instant,
};

use crate::FIELD_MANAGER;

/// How long the same is counted as one Event: as long as kube's recorder remembers it.
const MEMORY: Duration = Duration::from_secs(6 * 60);
/// How soon something else is told of the same: what changes all the time stands in the status.
const PAUSE: Duration = Duration::from_secs(60);
/// What an Event's note may have at most (`noteLengthLimit` in k8s.io/kubernetes, pkg/apis/core/validation/events.go).
const MAX_NOTE: usize = 1024;

/// Notices that may wait to be written. No caller waits for an API server that is slow to take them. When the API
/// server comes back, all shards of many rings may have something to tell of at once.
const CAPACITY: usize = 4_096;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) warns: bool,
    pub(crate) reason: String,
    pub(crate) action: &'static str,
    pub(crate) note: String,
}

/// A notice, what it is about, and which other object it has to do with.
type Waiting = (ObjectReference, Option<ObjectReference>, Notice);

/// What is to be told; clones share it.
#[derive(Clone)]
pub(crate) struct Notices {
    client: Client,
    sender: mpsc::Sender<Waiting>,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting>>>,
}

impl Notices {
    /// Nothing told yet.
    pub(crate) fn new(client: Client) -> Self {
        let (sender, waiting) = mpsc::channel(CAPACITY);
        Self { client, sender, waiting: Arc::new(Mutex::new(waiting)) }
    }

    /// Tells something of an object, and which other one it has to do with. The caller does not wait for that. The log
    /// or the status has it as well, so it may be lost.
    pub(crate) fn tell(&self, of: ObjectReference, related: Option<ObjectReference>, notice: Notice) {
        if let Err(error) = self.sender.try_send((of, related, notice)) {
            tracing::debug!(%error, "too many Events at once; this one is not written");
        }
    }

    /// Writes what is told, for as long as this replica leads.
    pub(crate) async fn write(&self) -> Infallible {
        let mut waiting = self.waiting.lock().await;
        let mut told = Told::default();
        loop {
            let Some((of, related, notice)) = waiting.recv().await else { return std::future::pending().await };
            told.publish(&self.client, &of, related, notice).await;
        }
    }
}

/// What an Event is about, besides what it says.
type Subject = (String, String, String, String);

/// What was told last of each subject: when, in which words, and by whom.
///
/// What is told again is counted and not created again. What says something else is another Event: the note of an Event
/// can't be changed, so kube's recorder, which does not look at it, would show the first note for ever.
#[derive(Default)]
struct Told(HashMap<Subject, (Instant, String, Recorder)>);

impl Told {
    async fn publish(
        &mut self,
        client: &Client,
        of: &ObjectReference,
        related: Option<ObjectReference>,
        notice: Notice,
    ) {
        let Notice { warns, reason, action, mut note } = notice;
        note.truncate(note.floor_char_boundary(MAX_NOTE));
        let name = |of: &ObjectReference| format!("{:?}/{:?}/{:?}", of.kind, of.namespace, of.name);
        let other = related.as_ref().map(name).unwrap_or_default();
        let subject = (name(of), of.uid.clone().unwrap_or_default(), reason.clone(), other);
        self.0.retain(|_, (at, ..)| at.elapsed() < MEMORY);
        let recorder = match self.0.get(&subject) {
            Some((_, same, recorder)) if *same == note => recorder.clone(),
            Some((at, ..)) if at.elapsed() < PAUSE => return,
            _ => Recorder::new(client.clone(), Reporter { controller: FIELD_MANAGER.to_owned(), instance: None }),
        };
        self.0.insert(subject, (Instant::now(), note.clone(), recorder.clone()));
        let event = Event {
            type_: if warns { EventType::Warning } else { EventType::Normal },
            reason,
            note: Some(note),
            action: action.to_owned(),
            secondary: related,
        };
        if let Err(error) = recorder.publish(&event, of).await {
            let (kind, name, reason) = (of.kind.as_deref(), of.name.as_deref(), &event.reason);
            tracing::warn!(kind, name, reason, error = %explain(&error), "can't write an Event");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::fixtures::FakeApi;

    fn ring() -> ObjectReference {
        let name = |name: &str| Some(name.to_owned());
        ObjectReference { kind: name("ClusterRing"), name: name("example"), uid: name("u"), ..Default::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_is_counted_and_something_else_is_another_event() {
        let api = FakeApi::default();
        let notices = Notices::new(api.client());
        let written = notices.clone();
        let writer = tokio::spawn(async move { written.write().await });
        let say = async |note: &str| {
            let note = note.to_owned();
            let notice = Notice { warns: true, reason: "DrainOverdue".to_owned(), action: "Drain", note };
            notices.tell(ring(), None, notice);
            // Longer than it takes, shorter than any of the pauses.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let created = api.asked().into_iter().filter(|asked| asked.method == http::Method::POST);
            let notes: Vec<_> = created.map(|asked| asked.body["note"].as_str().unwrap().to_owned()).collect();
            (notes, api.writes().len())
        };
        assert_eq!(say("3 objects").await, (vec!["3 objects".into()], 1));
        assert_eq!(say("3 objects").await, (vec!["3 objects".into()], 2), "counted");
        assert_eq!(say("4 objects").await.1, 2, "too soon");
        tokio::time::advance(PAUSE).await;
        assert_eq!(say("5 objects").await, (vec!["3 objects".into(), "5 objects".into()], 3));
        tokio::time::advance(MEMORY).await;
        assert_eq!(say(&"x".repeat(MAX_NOTE + 1)).await.0[2].len(), MAX_NOTE);
        writer.abort();
    }
}
