//! How long the moves took that were acknowledged, and with what.

use std::collections::HashMap;

use k8s_openapi::jiff::Timestamp;

use super::{Handover, Labels, Writes, history::History, history::Version, verdict::Stages};
use crate::checker::Uid;

/// Asked, acknowledged, assigned.
type Steps<'a> = [&'a Version; 3];

impl Writes {
    /// All of them.
    pub(super) fn handovers(&self) -> Vec<Handover> {
        let mut families: HashMap<&Uid, Vec<&History>> = HashMap::new();
        for history in self.objects.values() {
            let root = self.root(history).unwrap_or(history);
            if let Some(uid) = root.uid() {
                families.entry(uid).or_default().push(history);
            }
        }
        let tops = self.objects.values().filter(|history| history.controller().is_none());
        tops.flat_map(|top| {
            let family = top.uid().and_then(|uid| families.get(uid)).map(Vec::as_slice).unwrap_or_default();
            top.moves().into_iter().map(|steps| handover(steps, family))
        })
        .collect()
    }
}

impl History {
    /// The moves of an object that is no child: from the write that asked its shard to release it, over the
    /// acknowledgement, to the one that named the next.
    fn moves(&self) -> Vec<Steps<'_>> {
        let (mut asked, mut acknowledged, mut moves) = (None, None, Vec::new());
        for (before, version) in self.steps() {
            let was = before.map(|before| &before.labels);
            match (was, &version.labels) {
                (Some(Labels { drain: None, .. }), Labels { shard: Some(_), drain: Some(_) }) => {
                    (asked, acknowledged) = (Some(version), None);
                }
                (Some(Labels { drain: Some(_), .. }), Labels { shard: None, drain: None }) => {
                    acknowledged = Some(version);
                }
                (Some(Labels { shard: None, .. }), Labels { shard: Some(_), drain: None }) => {
                    if let (Some(asked), Some(acknowledged)) = (asked.take(), acknowledged.take()) {
                        moves.push([asked, acknowledged, version]);
                    }
                }
                // Taken without an answer, or deleted.
                (Some(was), now) if was.shard != now.shard => asked = None,
                _ => {}
            }
        }
        moves
    }
}

fn handover([asked, acknowledged, assigned]: Steps<'_>, family: &[&History]) -> Handover {
    let shard = asked.labels.shard.as_deref();
    let between = |after: &Version, before: &Version, version: &Version| {
        let number = version.write.object.version.as_ref();
        number > after.write.object.version.as_ref() && number < before.write.object.version.as_ref()
    };
    let all = || family.iter().flat_map(|history| history.steps()).map(|(_, version)| version);
    let of_owner =
        all().filter(|version| version.write.shard.as_deref() == shard && between(asked, acknowledged, version));
    // The fence counts from the answer.
    let rested = of_owner.map(|version| version.write.answered).chain([asked.write.answered]).max();
    let rested = rested.unwrap_or(asked.write.answered);
    let moved: Vec<_> =
        all().filter(|version| version.write.shard.is_none() && between(acknowledged, assigned, version)).collect();
    let first = moved.iter().map(|version| version.write.received).min().unwrap_or(assigned.write.received);
    let last = moved.iter().map(|version| version.write.answered).max().unwrap_or(first);
    let (arrived, answered) = (acknowledged.write.received, acknowledged.write.answered);
    Handover {
        between: [asked, assigned].map(|version| version.labels.shard.clone().unwrap_or_default()),
        let_go: since(asked.write.answered, answered),
        assigned: since(answered, assigned.write.answered),
        busy: since(asked.write.answered, rested),
        stages: Stages {
            rest: since(rested, arrived),
            acknowledgement: since(arrived, answered),
            search: since(answered, first),
            children: since(first, last),
            assignment: since(last, assigned.write.answered),
        },
        at: assigned.write.answered,
    }
}

fn since(from: Timestamp, to: Timestamp) -> std::time::Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}
