//! What the API server makes of a write that may begin an election, by a dry run.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::{
    LockRefusal, LockRequest, Locks, codec,
    hold::{Claim, Hold},
    object::{LockName, Object},
    patch,
};

/// A write that begins an election, as the API server would have stored it.
#[derive(Debug)]
pub struct Judged {
    pub(super) name: LockName,
    pub(super) object: Object,
    pub(super) status: StatusCode,
}

/// What a dry run came to.
#[derive(Debug)]
pub enum Judgement {
    /// An election's record that has a holder.
    Begins(Box<Judged>),
    /// The record of another holder, or of the ring, renewed by a patch that does not name the holder. The client that
    /// sends it believes to lead by a lock that it has lost.
    Renews(LockName),
    /// An object without holder: it may have been a lock.
    Frees,
    /// Something else.
    Other,
}

impl Locks {
    /// What the dry run of a write with this body came to, by its answer.
    ///
    /// # Errors
    /// [`LockRefusal::Answer`] when it can't be read.
    pub fn judge(
        &self,
        asked: &LockRequest,
        body: &[u8],
        tried: &Response<Bytes>,
        shard: &str,
    ) -> Result<Judgement, LockRefusal> {
        let object = codec::decode(asked.kind(), tried.headers(), tried.body()).ok_or(LockRefusal::Answer)?;
        Ok(match asked.named(&object) {
            _ if object.holder().is_none() => Judgement::Frees,
            Some(name) if self.is_election(asked, &object, shard) => {
                if !names_holder(asked, body) {
                    return Ok(Judgement::Renews(name));
                }
                Judgement::Begins(Box::new(Judged { name, object, status: tried.status() }))
            }
            _ => Judgement::Other,
        })
    }
}

/// Whether a write says who is to hold the lock: all but a patch of other parts of a Lease do.
fn names_holder(asked: &LockRequest, body: &[u8]) -> bool {
    !matches!(asked, LockRequest::Patch(_)) || patch::names_holder(asked.kind(), body)
}

impl Judged {
    /// What it is about.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Takes the real lock for the ring, in the version that was judged.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when another holder has it; [`LockRefusal::NotHeld`] when the API server can't be
    /// asked or does not let the shard write.
    pub async fn taken_for(self, hold: &Hold) -> Result<Self, LockRefusal> {
        hold.take(&self.name, &Claim { object: Some(self.object.clone()), judged: true }).await?;
        Ok(self)
    }
}
