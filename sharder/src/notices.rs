//! Events on rings: what `kubectl describe clusterring` shows besides the status.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use ringside_ring::ClusterRing;
use ringside_runtime::explain::explain;

use crate::{FIELD_MANAGER, snapshot::Snapshot};

/// What is told of rings; clones share it. One that is told again is counted and not made anew.
#[derive(Clone)]
pub(crate) struct Notices(Recorder);

impl Notices {
    /// Nothing told yet.
    pub(crate) fn new(client: Client) -> Self {
        Self(Recorder::new(client, Reporter { controller: FIELD_MANAGER.to_owned(), instance: None }))
    }

    /// Warns of something. The log has it as well, so one that can't be written is no more than a pity.
    pub(crate) async fn warn(&self, snapshot: &Snapshot, reason: &str, action: &str, note: String) {
        let ring = ObjectReference {
            api_version: Some(ClusterRing::api_version(&()).into_owned()),
            kind: Some(ClusterRing::kind(&()).into_owned()),
            name: Some(snapshot.ring.to_string()),
            uid: Some(snapshot.uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &ring).await {
            tracing::warn!(ring = %snapshot.ring, reason, error = %explain(&error), "can't write an Event on a ring");
        }
    }
}
