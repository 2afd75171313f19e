//! An object of the cluster that the sharder keeps as it should be. The sharder writes it again soon after another
//! client changed or deleted it.
//!
//! The webhook configuration and the admission policies of a ring are such objects. They have the ring as their owner, so
//! the garbage collector removes them together with it. An object is replaced as a whole and not applied: what others add
//! to it, such as a condition that is never met, would stay. Only what its kind leaves to others is taken over. The same edit
//! that comes back after each write is left as it is, and told ([`edits`]). An object without our label is not ours: another
//! installation may have one of that name, and it is neither changed nor deleted.

use std::{convert::Infallible, time::Duration};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{DynamicObject, PartialObjectMeta, TypeMeta},
    discovery::ApiResource,
};
use serde_json::{Map, Value};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

pub(crate) mod additions;
mod edits;
mod standing;
mod stored;

use self::{
    edits::{Edit, Edits},
    standing::Wish,
    stored::{Stored, adorn, is_stored, versions},
};
pub(crate) use self::{standing::Standing, stored::is_ours};
use crate::{FIELD_MANAGER, belonging::MANAGED, news::tell};
use ringside_runtime::explain::{code, explain};

/// How long something must have been stored before it is known to be acted on. An API server follows its configuration by
/// watches, and looks for changed policies once a second: some milliseconds more as a rule. One that is later than this by far
/// serves old objects as well.
pub(crate) const ACTED_ON: Duration = Duration::from_secs(10);
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How often a write is tried at once that another client's has overtaken.
const ATTEMPTS: usize = 3;
/// How long a change right after a write is left, at first and at last. A client that changes the object all the time
/// must not keep the API server busy.
const TRUCE: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
/// How long an edit is left that comes back after each write.
const LEFT: Duration = Duration::from_secs(600);

/// Takes over into what is wanted what is stored and is others' to set.
type KeepForeign = fn(stored: &DynamicObject, wanted: &mut DynamicObject);

/// An object that is kept, for who says how it should be.
pub(crate) struct Kept {
    wish: watch::Sender<Wish>,
    standing: watch::Sender<Standing>,
}

impl Kept {
    /// An object of this kind and name, and the one who keeps it. `period`: how often it is written, whatever was seen.
    pub(crate) fn new(
        (client, watches): (&Client, &Client),
        kind: &ApiResource,
        name: String,
        period: Duration,
    ) -> (Self, Keeper) {
        let kept = Self { wish: watch::Sender::default(), standing: watch::Sender::default() };
        let keeper = Keeper {
            wish: kept.wish.subscribe(),
            standing: kept.standing.clone(),
            objects: Api::all_with(client.clone(), kind),
            watched: Api::all_with(watches.clone(), kind),
            kind: kind.kind.clone(),
            name,
            period,
            keep_foreign: |_, _| {},
        };
        (kept, keeper)
    }

    /// It should be like this from now on; none: it should not be there.
    pub(crate) fn want(&self, object: Option<DynamicObject>) {
        let wish = object.map_or(Wish::Absent, |object| Wish::Like(Box::new(object)));
        if tell(&self.wish, wish) {
            self.standing.send_replace(Standing::Pending);
        }
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Tells when that changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }
}

/// Keeps one object.
pub(crate) struct Keeper {
    wish: watch::Receiver<Wish>,
    standing: watch::Sender<Standing>,
    objects: Api<DynamicObject>,
    watched: Api<PartialObjectMeta>,
    kind: String,
    name: String,
    period: Duration,
    keep_foreign: KeepForeign,
}

/// What came of a look at the object, and of the write if one was due.
enum Found {
    AsWanted(Option<DynamicObject>),
    Edited(DynamicObject, String),
    NotOurs(ObjectMeta),
}

/// What is known of the last look.
#[derive(Default)]
struct Last {
    /// As it is stored, and how it should be there.
    stored: Option<Stored>,
    wish: Wish,
    edits: Edits,
}

impl Keeper {
    /// The same, but this takes over what others have set.
    pub(crate) fn keeping_foreign(self, keep_foreign: KeepForeign) -> Self {
        Self { keep_foreign, ..self }
    }

    /// Keeps it until it is dropped. Begins once it is known how it should be.
    pub(crate) async fn run(mut self) -> Infallible {
        // Fails only when the `Kept` was dropped: then this is about to be dropped, too.
        if self.wish.changed().await.is_err() {
            return std::future::pending().await;
        }
        let mut seen = std::pin::pin!(versions(self.watched.clone(), self.name.clone()));
        let (mut last, mut truce) = (Last::default(), TRUCE[0]);
        loop {
            let wish = self.wish.borrow_and_update().clone();
            let found = self.write(&wish, &mut last).await;
            let is_left = matches!(found, Ok(Found::Edited(..) | Found::NotOurs(_)));
            let pause = match found {
                Ok(found) => self.take_in(found, wish, &mut last),
                Err(error) => {
                    let (code, why) = (code(&error), explain(&error));
                    tracing::warn!(
                        kind = self.kind,
                        name = self.name,
                        error = why,
                        "can't write an object that the sharder keeps; trying again"
                    );
                    self.tell(Standing::Refused { code, why });
                    RETRY
                }
            };
            let wrote_at = Instant::now();
            let due = sleep(pause);
            tokio::pin!(due);
            let mut disturbed = false;
            loop {
                tokio::select! {
                    changed = self.wish.changed() => {
                        if changed.is_err() {
                            return std::future::pending().await;
                        }
                        break;
                    }
                    Some(seen) = seen.next() => if !disturbed && !is_stored(seen.as_ref(), last.stored.as_ref()) {
                        disturbed = true;
                        truce = if wrote_at.elapsed() < truce * 2 { (truce * 2).min(TRUCE[1]) } else { TRUCE[0] };
                        if !is_left {
                            tracing::info!(kind = self.kind, name = self.name, "another client changed an object that the sharder keeps; writing it again");
                            self.tell(Standing::Disturbed { again: truce > TRUCE[0] });
                        }
                        due.as_mut().reset(wrote_at + truce);
                    },
                    () = &mut due => {
                        if !disturbed {
                            last.edits.rested();
                            last.stored.take_if(|_| is_left);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// Tells how it stands; returns when to look again.
    fn take_in(&self, found: Found, wish: Wish, last: &mut Last) -> Duration {
        let (stored, told, pause) = match found {
            Found::AsWanted(object) => {
                let stored = object.map(|object| Stored::after(object, last.stored.take()));
                let standing = stored.as_ref().map_or(Standing::Absent, Stored::standing);
                (stored, standing, self.period)
            }
            Found::Edited(object, by) => {
                let why =
                    format!("{} {} was edited again and again by {by}, and is left as it is", self.kind, self.name);
                (Some(Stored::after(object, None)), Standing::Edited { why }, LEFT)
            }
            Found::NotOurs(metadata) => {
                let (Self { kind, name, .. }, (key, value)) = (self, MANAGED);
                let why = format!(
                    "{kind} {name} has no label {key}={value}, so it is not this sharder's and stays as it is: delete it, or give it that label"
                );
                let object = DynamicObject { types: None, metadata, data: Value::Null };
                (Some(Stored::after(object, None)), Standing::NotOurs { why }, self.period)
            }
        };
        if let Standing::Edited { why } | Standing::NotOurs { why } = &told {
            tracing::warn!(
                kind = self.kind,
                name = self.name,
                why,
                "an object that the sharder keeps differs from its desired state"
            );
        }
        (last.stored, last.wish) = (stored, wish);
        self.tell(told);
        pause
    }

    /// Writes it, unless it is as it should be.
    async fn write(&self, wish: &Wish, last: &mut Last) -> Result<Found, kube::Error> {
        let Wish::Like(object) = wish else {
            // What is not there needs no permission to delete it.
            let Some(stored) = self.objects.get_metadata_opt(&self.name).await? else {
                return Ok(Found::AsWanted(None));
            };
            if !is_ours(&stored.metadata) {
                return Ok(Found::NotOurs(stored.metadata));
            }
            let that = Preconditions { uid: stored.metadata.uid, resource_version: None };
            return match self.objects.delete(&self.name, &DeleteParams::background().preconditions(that)).await {
                Ok(_) => Ok(Found::AsWanted(None)),
                Err(error) if code(&error) == Some(404) => Ok(Found::AsWanted(None)),
                Err(error) => Err(error),
            };
        };
        let mut attempt = 1;
        loop {
            match self.put(object, wish, last).await {
                // Another client was faster, with a change or by creating the object.
                Err(error) if code(&error) == Some(409) && attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn put(&self, object: &DynamicObject, wish: &Wish, last: &mut Last) -> Result<Found, kube::Error> {
        let Some(stored) = self.objects.get_opt(&self.name).await? else {
            // Not by POST: permission to create can be limited to names only where the request has one.
            let (parameters, apply) = (PatchParams::apply(FIELD_MANAGER), Patch::Apply(object));
            return self.objects.patch(&self.name, &parameters, &apply).await.map(Some).map(Found::AsWanted);
        };
        let before = last.stored.as_ref().map(|stored| &stored.object.metadata);
        if !is_ours(&stored.metadata)
            && !before.is_some_and(|before| before.uid == stored.metadata.uid && is_ours(before))
        {
            return Ok(Found::NotOurs(stored.metadata));
        }
        let (is_news, is_edited) = (last.wish != *wish, !is_stored(Some(&stored.metadata), last.stored.as_ref()));
        let mut wanted = object.clone();
        (self.keep_foreign)(&stored, &mut wanted);
        let mut metadata = stored.metadata.clone();
        adorn(&mut metadata, &wanted.metadata);
        if (wanted.data == stored.data && metadata == stored.metadata) || !(is_news || is_edited) {
            return Ok(Found::AsWanted(Some(stored)));
        }
        let edit = (!is_news).then(|| Edit::of(&stored, object));
        if edit.as_ref().is_some_and(|edit| last.edits.has_come_back(edit)) {
            let by = edits::editor(&stored.metadata);
            return Ok(Found::Edited(stored, by));
        }
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let replacement = DynamicObject { types: object.types.clone(), metadata, data: wanted.data };
        let replaced = self.objects.replace(&self.name, &parameters, &replacement).await?;
        edit.into_iter().for_each(|edit| last.edits.undid(edit));
        Ok(Found::AsWanted(Some(replaced)))
    }

    /// Not about what is no longer wanted.
    fn tell(&self, standing: Standing) {
        if self.wish.has_changed().unwrap_or(false) {
            return;
        }
        tell(&self.standing, standing);
    }
}

/// An object of this kind that is all in its spec.
pub(crate) fn with_spec(kind: &ApiResource, metadata: ObjectMeta, spec: Value) -> DynamicObject {
    let types = TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() };
    let mut data = Map::new();
    data.insert("spec".to_owned(), spec);
    DynamicObject { types: Some(types), metadata, data: Value::Object(data) }
}

#[cfg(test)]
mod tests;
