//! What the webhook does with a write to an object's labels: CONTRACT, "Handover", and DESIGN, "The webhook must not undo the
//! handover".

use crate::{
    grace::Grace,
    labels::{ACKNOWLEDGER, Ownership},
};

/// What a write, seen by the admission webhook, is about to do to an object's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write<'a> {
    /// The object is created with these labels.
    Create {
        /// What the new object says.
        new: Ownership<'a>,
    },
    /// The object is changed from one to the other.
    Update {
        /// What the stored object says.
        old: Ownership<'a>,
        /// What the object would say after the write.
        new: Ownership<'a>,
        /// The name of the writer's Pod, where its token is bound to one: if it is a shard, it is that one.
        writer: Option<&'a str>,
        /// The field manager that the write names.
        manager: Option<&'a str>,
    },
}

/// What the webhook does with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// Nothing: the object has an owner, or waits for one in the right order.
    Leave,
    /// The object has no owner: the write may name the shard that it belongs to.
    Assign,
    /// The write would drop the labels behind the owner's back: put these back.
    Restore(Ownership<'a>),
}

/// Decides what the webhook does with a write to an object, main or controlled.
///
/// `waits`: what loses its owner stays unlabelled for the sharder's controller. The object has controlled objects of the
/// ring's, which must be moved after its owner released it and before it is assigned; or the API server's fence lets no
/// shard set a label, and could not tell the webhook's choice from the shard's own.
///
/// The API server calls the webhook when the old OR the new object lacks the shard label (tried on v1.37), so it sees PUTs from a
/// template that drop every label it does not know; and acknowledgements, but for those that its configuration leaves out, as
/// they would be left alone.
pub fn review(write: Write<'_>, waits: bool) -> Verdict<'_> {
    match write {
        Write::Create { new: Ownership { shard: None, .. } } => Verdict::Assign,
        Write::Create { .. } => Verdict::Leave,
        Write::Update { old: Ownership { shard: None, .. }, new, .. } => {
            if new.shard.is_none() && !waits {
                Verdict::Assign
            } else {
                Verdict::Leave
            }
        }
        Write::Update { new: Ownership { shard: Some(_), .. }, .. } => Verdict::Leave,
        Write::Update { old, new, writer, manager } => {
            // Another client that drops both has released nothing, such as a controller that PUTs from a template.
            let by_owner = writer.is_none() || writer == old.shard;
            let by_its_proxy = manager == Some(ACKNOWLEDGER) || old.drain.and_then(Grace::asked).is_none();
            let acknowledged = old.drain.is_some() && new.drain.is_none() && by_owner && by_its_proxy;
            match (acknowledged, waits) {
                (false, _) => Verdict::Restore(old),
                (true, true) => Verdict::Leave,
                (true, false) => Verdict::Assign,
            }
        }
    }
}

#[cfg(test)]
mod tests;
