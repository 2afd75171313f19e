//! A write that was decided on a view of an object, and is decided anew when the view turns out to be old.

use kube::{
    Client,
    api::{Patch, PatchParams},
    core::Status,
};
use ringside_ring::{RingLabels, patch};

use super::writes::Writes;
use crate::{resources::Resource, target::Target};
use ringside_runtime::explain::code;

/// How often a write is decided anew before it is left for later. An object that changes this often while it is
/// written to is being worked on by somebody; waiting a moment is kinder than trying harder.
const ATTEMPTS: usize = 5;

/// How a write ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It was carried out.
    Written {
        /// The view of the object that it was decided on.
        on: Box<Target>,
        /// The version of the object by it.
        version: String,
    },
    /// There is nothing to write any more: this is how the object is.
    Needless(Box<Target>),
    /// The object is gone.
    Gone,
}

/// Writes what `decide` says about the object of `resource`, which was last seen as `target`.
///
/// Every patch changes whose the object is. An answer that shows no change, or no shard where one was to be, is that of an
/// admission policy or a webhook which takes it back in the same write: that is an error ([`is_undone`]), as the object is not
/// where the write was to bring it.
///
/// A patch tests what it was decided on. When such a test fails (422), or the object is written by others
/// all the time (409), it is read again; one of another uid is another object.
pub(crate) async fn write(
    writes: &Writes,
    (client, resource): (&Client, &Resource),
    labels: &RingLabels,
    mut target: Target,
    decide: impl Fn(&Target) -> Option<json_patch::Patch>,
) -> Result<Outcome, kube::Error> {
    let api = resource.objects(client, target.namespace.as_deref());
    let mut attempt = 1;
    loop {
        let Some(patch) = decide(&target) else { return Ok(Outcome::Needless(Box::new(target))) };
        let (to, name) = (api.clone(), target.name.clone());
        let leaves_shard = patch::leaves_shard(labels, &patch, &target.ownership());
        let patched = async move { to.patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch)).await };
        match writes.carry_out(&resource.id, patched).await {
            Ok(written) => {
                let now = labels.ownership(written.metadata.labels.as_ref());
                if now == target.ownership() || (now.shard.is_none() && leaves_shard) {
                    return Err(undone());
                }
                let version = written.metadata.resource_version.unwrap_or_default();
                return Ok(Outcome::Written { on: Box::new(target), version });
            }
            Err(error) => match code(&error) {
                Some(404) => return Ok(Outcome::Gone),
                Some(409 | 422) if attempt < ATTEMPTS => attempt += 1,
                _ => return Err(error),
            },
        }
        match api.get_opt(&target.name).await? {
            Some(object) if object.metadata.uid.as_deref() == Some(&target.uid) => {
                target = Target::of(&object.metadata, labels);
            }
            _ => return Ok(Outcome::Gone),
        }
    }
}

/// The reason of an error that is not the API server's own.
const UNDONE: &str = "LabelsUndone";

/// Somebody takes back what was written: to the sharder a refusal, which may pass.
fn undone() -> kube::Error {
    let why = "the answer to a write of the ring's labels does not show it: is an admission policy or a webhook taking it back?";
    // What it answered, and what came of it.
    kube::Error::Api(Status::failure(why, UNDONE).with_code(200).boxed())
}

/// Whether the API server accepted a write, and somebody took it back in the same moment.
pub(crate) fn is_undone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == UNDONE)
}

/// Whether a write that ended so was refused, and will never be carried out.
///
/// Without an answer it may be. After 429 too: that comes after such a one as well, as it is then asked for again.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| code < 500 && code != 429)
}

/// Gives the object to `to`.
pub(crate) fn assign(labels: &RingLabels, target: &Target, to: &ringside_ring::ShardName) -> json_patch::Patch {
    patch::assign(labels, &target.seen(), to)
}
