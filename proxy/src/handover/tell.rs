//! Tells who looks at the ring that drained objects are held: a Kubernetes Event on the ClusterRing.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use ringside_ring::{ClusterRing, RingName, ShardName};
use ringside_runtime::explain::{code, explain};

use super::drains::{Reason, Report};

/// What an Event's note may have at most (`noteLengthLimit` in k8s.io/kubernetes, pkg/apis/core/validation/events.go).
const LONGEST: usize = 1024;

/// Writes the Events.
pub(super) struct Teller {
    recorder: Recorder,
    rings: Api<ClusterRing>,
    ring: RingName,
    /// Whether it was said that they may not be written.
    refused: bool,
}

impl Teller {
    pub(super) fn new(client: Client, ring: RingName, shard: &ShardName) -> Self {
        let reporter = Reporter { controller: "ringside-proxy".to_owned(), instance: Some(shard.to_string()) };
        Self { recorder: Recorder::new(client.clone(), reporter), rings: Api::all(client), ring, refused: false }
    }

    /// Writes one. Who may not write Events goes on without, and says so once.
    pub(super) async fn tell(&mut self, report: &Report) {
        let Err(error) = self.write(report).await else { return };
        let reason = explain(&error);
        if code(&error) != Some(403) {
            tracing::warn!(reason, "can't write an Event on the ClusterRing");
        } else if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!(
                reason,
                "may not write Events on the ClusterRing: allow create and patch of events.events.k8s.io in namespace default"
            );
        }
    }

    async fn write(&self, report: &Report) -> kube::Result<()> {
        // kubectl finds Events by the uid of what they are about.
        let ring: PartialObjectMeta<ClusterRing> = self.rings.get_metadata(self.ring.as_str()).await?;
        let mut regarding = ClusterRing::new(self.ring.as_str(), Default::default()).object_ref(&());
        regarding.uid = ring.metadata.uid;
        let note = report.line.chars().take(LONGEST).collect();
        let oldest = report.oldest.as_ref().clone();
        let event = Event {
            type_: EventType::Warning,
            reason: match report.reason {
                Reason::Held => "DrainsHeld".to_owned(),
                Reason::Refused => "DrainsRefused".to_owned(),
            },
            note: Some(note),
            action: "LetGo".to_owned(),
            // Events that differ in their note alone are counted, and show the first note for ever.
            secondary: Some(ObjectReference {
                namespace: oldest.namespace,
                name: Some(oldest.name),
                uid: Some(oldest.uid),
                ..ObjectReference::default()
            }),
        };
        self.recorder.publish(&event, &regarding).await
    }
}

#[cfg(test)]
mod tests;
