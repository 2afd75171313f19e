//! Tells who looks at the ring that drained objects are held: a Kubernetes Event on the ring.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource,
    core::PartialObjectMeta,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use ringside_ring::{Ring, RingName, ShardName};
use ringside_runtime::explain::{code, explain};

use super::drains::{Reason, Report};

/// What an Event's note may have at most (`noteLengthLimit` in k8s.io/kubernetes, pkg/apis/core/validation/events.go).
const MAX_NOTE: usize = 1024;

/// As many wait until the API server takes them again. Each tells of all drains that were new with it.
const WAITING: usize = 16;

/// Writes the Events.
pub(super) struct EventRecorder {
    recorder: Recorder,
    rings: Api<Ring>,
    ring: RingName,
    /// What is not written yet, the oldest first.
    waiting: VecDeque<Report>,
}

impl EventRecorder {
    pub(super) fn new(client: Client, ring: RingName, shard: &ShardName) -> Self {
        let reporter = Reporter { controller: "ringside-proxy".to_owned(), instance: Some(shard.to_string()) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { recorder, rings: Api::all_with(client, &ring.kind()), ring, waiting: VecDeque::new() }
    }

    /// Writes these, after those that could not be written before. Who may not write Events goes on without.
    pub(super) async fn tell(&mut self, reports: Vec<Report>) {
        self.waiting.extend(reports);
        let too_many = self.waiting.len().saturating_sub(WAITING);
        self.waiting.drain(..too_many);
        while let Some(report) = self.waiting.front() {
            if let Err(error) = self.write(report).await {
                let reason = explain(&error);
                match code(&error) {
                    Some(403) => tracing::warn!(
                        reason,
                        "may not write Events on the ring: allow create and patch of events.events.k8s.io in namespace default"
                    ),
                    // The error is temporary.
                    None | Some(401 | 408 | 429 | 500..) => {
                        return tracing::warn!(reason, "can't write an Event on the ring yet");
                    }
                    Some(_) => tracing::warn!(reason, "the API server takes no such Event on the ring"),
                }
            }
            self.waiting.pop_front();
        }
    }

    async fn write(&self, report: &Report) -> kube::Result<()> {
        // kubectl finds Events by the uid of what they are about.
        let ring: PartialObjectMeta<Ring> = self.rings.get_metadata(self.ring.name()).await?;
        let regarding = ObjectReference {
            api_version: Some(Ring::api_version(&self.ring.kind()).into_owned()),
            kind: Some(self.ring.kind().to_string()),
            name: Some(self.ring.name().to_owned()),
            uid: ring.metadata.uid,
            ..ObjectReference::default()
        };
        let note = report.line.chars().take(MAX_NOTE).collect();
        let event = Event {
            type_: EventType::Warning,
            reason: match report.reason {
                Reason::Held => "DrainsHeld".to_owned(),
                Reason::Refused => "DrainsRefused".to_owned(),
            },
            note: Some(note),
            action: "Release".to_owned(),
            // Events that differ in their note alone are counted, and show the first note for ever.
            secondary: Some(ObjectReference {
                namespace: report.oldest.namespace.clone(),
                name: Some(report.oldest.name.clone()),
                uid: Some(report.oldest.uid.to_string()),
                ..ObjectReference::default()
            }),
        };
        self.recorder.publish(&event, &regarding).await
    }
}

#[cfg(test)]
mod tests;
