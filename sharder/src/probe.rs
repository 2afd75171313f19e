//! What becomes of a write on its way through the API server: whether the webhook is asked about it, and policies judge
//! it. Only the API server can tell. It lets a write pass that it could not ask about (`failurePolicy: Ignore`). It
//! also does where the admission plugin of policies is turned off. What is stored tells neither.
//!
//! So the leader makes writes that only this is about: a Lease, dry-run, with a label by which an object of our own concerns
//! it and no other. What that object does is in the answer: a write that passes as it was sent went past it. With several
//! API servers each probe is answered by one of them.

use std::{convert::Infallible, time::Duration};

use futures::future::select_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ObjectMeta, PostParams},
};
use ringside_runtime::explain::explain;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    belonging::belonging_labels,
    keep::{ACTED_ON, Kept, Standing},
    pauses::Pauses,
    verdict::Verdict,
};

mod mode;
pub(crate) mod policies;
pub(crate) mod webhook;

pub(crate) use mode::{WebhookMode, WebhookModes};

/// The name of each of our objects, and of the Lease that is never made.
const NAME: &str = "ringside-sharder-probe";
/// The label of that Lease; its value says what it is for.
const LABEL: &str = "ringside.dev/probe";
/// How often it is looked, as a rule.
const PAUSE: Duration = Duration::from_secs(10);
/// For how long what was found out counts, and nothing is concluded, while probes tell nothing: three of them. Beyond it what
/// is not seen to work is taken not to. Nothing may wait for ever for an answer that never comes, and nothing may rely on one
/// that is old.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The sharder's namespace: where the probes are made, and with which their objects go.
#[derive(Clone)]
pub(crate) struct Home(ObjectMeta);

impl Home {
    /// Asks for it until there is an answer.
    pub(crate) async fn find(client: &Client, namespace: &str) -> Self {
        let mut pauses = Pauses::new();
        loop {
            match Api::<Namespace>::all(client.clone()).get_metadata(namespace).await {
                Ok(namespace) => return Self(namespace.metadata),
                Err(error) => {
                    tracing::warn!(error = explain(&error), "can't read the sharder's own namespace; trying again");
                }
            }
            pauses.next().await;
        }
    }

    fn name(&self) -> &str {
        self.0.name.as_deref().unwrap_or_default()
    }

    /// The metadata of an object that is there for probes, and goes with the namespace.
    pub(crate) fn belonging(&self) -> ObjectMeta {
        let owner = Namespace { metadata: self.0.clone(), ..Namespace::default() }.owner_ref(&());
        ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some(belonging_labels()),
            owner_references: Some(owner.into_iter().collect()),
            ..ObjectMeta::default()
        }
    }

    /// To which writes those objects apply, in the words of webhooks and policies: probes for `what`.
    fn concerned(&self, what: &str) -> Concerned {
        Concerned {
            rules: json!([{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                "resources": ["leases"], "scope": "Namespaced"}]),
            objects: json!({"matchLabels": {LABEL: what}}),
            namespaces: json!({"matchLabels": {"kubernetes.io/metadata.name": self.name()}}),
        }
    }
}

struct Concerned {
    rules: Value,
    objects: Value,
    namespaces: Value,
}

/// What one probe came to.
#[derive(Debug, PartialEq)]
enum Answer {
    /// It was treated as it should be.
    Treated,
    /// It passed as it was sent.
    Passed,
    /// What should have treated it failed, and how.
    Failed(String),
    /// Something else came of it.
    Unclear(String),
}

impl Answer {
    /// What it came to for who treats it by setting this annotation.
    fn by_mark(made: Result<Lease, kube::Error>, mark: &str) -> Self {
        match made {
            Ok(lease) if lease.annotations().contains_key(mark) => Self::Treated,
            Ok(_) => Self::Passed,
            Err(error) => Self::Unclear(explain(&error)),
        }
    }
}

/// A probe for `what`, and how its outcome is read.
struct Probe<'a> {
    client: &'a Client,
    home: &'a Home,
    what: &'static str,
    read: &'a (dyn Fn(Result<Lease, kube::Error>) -> Answer + Sync),
    /// How often it is made.
    pause: Duration,
    /// What the API server does where it is treated.
    does: &'static str,
    /// What it means that it passed.
    passed: &'static str,
}

impl Probe<'_> {
    /// Makes it again and again, and whenever it changes how the objects stand by which it is treated.
    async fn repeat(&self, objects: &[&Kept], tell: impl Fn(Verdict)) -> Infallible {
        let tell = Telling(tell);
        let mut stands: Vec<_> = objects.iter().map(|object| object.changes()).collect();
        // The last time that something was found out, or that there was nothing to find out.
        let (mut clear, mut is_told) = (Instant::now(), false);
        loop {
            stands.iter_mut().for_each(|stands| drop(stands.borrow_and_update()));
            let found = match in_place(objects) {
                Ok(since) => self.make(since).await.map(Some),
                // Nothing that is not there can be relied on.
                Err(Standing::Absent) => Ok(None),
                Err(standing) => Err(why_not(standing)),
            };
            match found {
                Ok(verdict) => {
                    (clear, is_told) = (Instant::now(), false);
                    (tell.0)(verdict);
                }
                Err(why) if clear.elapsed() >= ANSWER_TIMEOUT => {
                    // Once: what is said each time may differ, and nothing else does.
                    if !std::mem::replace(&mut is_told, true) {
                        let (what, does) = (self.what, self.does);
                        tracing::warn!(what, why, "probes of the API server are inconclusive; treating them as failed");
                        (tell.0)(Some(Err(format!("whether {does} can't be found out: {why}"))));
                    }
                }
                Err(_) => {}
            }
            let changes = stands.iter_mut().map(|stands| Box::pin(stands.changed()));
            tokio::select! {
                // The senders live in `objects`.
                _ = select_all(changes) => {}
                () = sleep(self.pause) => {}
            }
        }
    }

    /// What it tells, or why nothing.
    async fn make(&self, since: Instant) -> Result<Result<(), String>, String> {
        let begun = Instant::now();
        let lease = json!({"metadata": {"name": NAME, "labels": {LABEL: self.what}}});
        let lease: Lease = serde_json::from_value(lease).map_err(|error| error.to_string())?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let leases = Api::namespaced(self.client.clone(), self.home.name());
        let Ok(made) = timeout(PAUSE, leases.create(&dry_run, &lease)).await else {
            return Err(format!("no answer within {PAUSE:?}"));
        };
        match (self.read)(made) {
            Answer::Treated => Ok(Ok(())),
            Answer::Passed if begun.duration_since(since) < ACTED_ON => Err("it was asked a moment ago".to_owned()),
            Answer::Passed => Ok(Err(self.passed.to_owned())),
            Answer::Failed(why) => Ok(Err(why)),
            Answer::Unclear(why) => Err(why),
        }
    }
}

/// What one leader found out is nothing that it may rely on when it leads no more, or again.
struct Telling<T: Fn(Verdict)>(T);

impl<T: Fn(Verdict)> Drop for Telling<T> {
    fn drop(&mut self) {
        (self.0)(None);
    }
}

/// Why nothing is found out by an object that stands so.
fn why_not(standing: Standing) -> String {
    match standing {
        Standing::Refused { why, .. } | Standing::Edited { why } | Standing::NotOurs { why } => why,
        Standing::Disturbed { .. } => format!("another client changes or deletes {NAME}"),
        Standing::Pending | Standing::InPlace { .. } | Standing::Absent => format!("{NAME} is not written yet"),
    }
}

/// Since when all of them are in place, or how the first stands that is not.
fn in_place(objects: &[&Kept]) -> Result<Instant, Standing> {
    let mut latest = None;
    for object in objects {
        match object.standing() {
            Standing::InPlace { since, .. } => latest = latest.max(Some(since)),
            other => return Err(other),
        }
    }
    latest.ok_or(Standing::Absent)
}

#[cfg(test)]
mod tests;
