//! What is stored of an object that is kept, and what of it is ours.

use std::{collections::BTreeSet, sync::Arc};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api,
    core::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use ringside_runtime::explain::explain_watch;
use tokio::time::Instant;

use super::Standing;
use crate::{FIELD_MANAGER, belonging::MANAGED};

/// What is stored, and since when.
pub(super) struct Stored {
    pub(super) object: Arc<DynamicObject>,
    since: Instant,
}

impl Stored {
    pub(super) fn after(object: DynamicObject, before: Option<Self>) -> Self {
        let of = |object: &DynamicObject| (object.metadata.uid.clone(), object.metadata.generation);
        let since = before.filter(|before| of(&before.object) == of(&object)).map_or_else(Instant::now, |it| it.since);
        Self { object: Arc::new(object), since }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing::InPlace { since: self.since, object: self.object.clone() }
    }
}

/// Whether an object has the label of what the sharder keeps.
pub(crate) fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED.0)).is_some_and(|value| value == MANAGED.1)
}

/// Sets what is ours in an object's metadata; what others have set stays, as it changes nothing about what the object does.
pub(super) fn adorn(stored: &mut ObjectMeta, wanted: &ObjectMeta) {
    // What this said once and no longer does.
    let ours = annotated_by_us(stored);
    stored.annotations.iter_mut().for_each(|all| all.retain(|key, _| !ours.contains(key)));
    for (stored, wanted) in [(&mut stored.labels, &wanted.labels), (&mut stored.annotations, &wanted.annotations)] {
        wanted.iter().for_each(|wanted| stored.get_or_insert_default().extend(wanted.clone()));
    }
    stored.owner_references.clone_from(&wanted.owner_references);
}

/// The annotations that the sharder set, as the API server notes it.
fn annotated_by_us(stored: &ObjectMeta) -> BTreeSet<String> {
    let entries = stored.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER));
    let fields = ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:metadata/f:annotations")?.as_object());
    fields.flat_map(|fields| fields.keys()).filter_map(|key| key.strip_prefix("f:")).map(str::to_owned).collect()
}

/// Whether what a watch shows is what was written. A write of its status changes nothing of it: the API server
/// counts the generations of all else.
pub(super) fn is_stored(seen: Option<&ObjectMeta>, stored: Option<&Stored>) -> bool {
    let (Some(seen), Some(stored)) = (seen, stored.map(|stored| &stored.object.metadata)) else {
        return seen.is_none() && stored.is_none();
    };
    let says = |of: &ObjectMeta| {
        let adorned = (of.labels.clone(), of.annotations.clone(), of.owner_references.clone());
        (of.uid.clone(), of.generation, of.deletion_timestamp.clone(), adorned)
    };
    let same = seen.resource_version == stored.resource_version;
    same || (seen.generation.is_some() && says(seen) == says(stored))
}

/// The object's metadata whenever it changes; none when it is not there.
pub(super) fn versions(objects: Api<PartialObjectMeta>, name: String) -> impl Stream<Item = Option<ObjectMeta>> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    // What a list did not show is not there.
    let listed = None::<Option<ObjectMeta>>;
    watcher(objects, config)
        .default_backoff()
        .scan(listed, move |listed, event| {
            let seen = match event {
                Ok(Event::Init) => {
                    *listed = Some(None);
                    None
                }
                Ok(Event::InitApply(object)) => {
                    *listed = Some(Some(object.metadata));
                    None
                }
                Ok(Event::InitDone) => listed.take(),
                Ok(Event::Apply(object)) => Some(Some(object.metadata)),
                Ok(Event::Delete(_)) => Some(None),
                Err(error) => {
                    let error = explain_watch(&error);
                    tracing::debug!(
                        name,
                        error,
                        "can't watch an object that the sharder keeps; it is written once a period"
                    );
                    None
                }
            };
            std::future::ready(Some(seen))
        })
        .filter_map(std::future::ready)
}
