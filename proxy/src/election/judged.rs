//! What the API server makes of a write that may begin an election, by a dry run.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::{
    Asked, LockRefusal, codec,
    hold::{Claim, Hold},
    object::{LockName, Object},
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
    /// An election's record, held by somebody.
    Begins(Box<Judged>),
    /// Something that nobody holds: it may have been a lock.
    Frees,
    /// Something else.
    Other,
}

impl Judgement {
    /// Of the answer to one.
    ///
    /// # Errors
    /// [`LockRefusal::Answer`] when it can't be read.
    pub fn of(asked: &Asked, tried: &Response<Bytes>, shard: &str) -> Result<Self, LockRefusal> {
        let object = codec::decode(asked.kind(), tried.headers(), tried.body()).ok_or(LockRefusal::Answer)?;
        Ok(match object.name() {
            _ if object.holder().is_none() => Self::Frees,
            Some(name) if object.is_election(shard) => {
                Self::Begins(Box::new(Judged { name, object, status: tried.status() }))
            }
            _ => Self::Other,
        })
    }
}

impl Judged {
    /// What it is about.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Takes the real lock for the ring, in the version that was judged.
    ///
    /// # Errors
    /// [`LockRefusal::Conflict`] when somebody else holds it; [`LockRefusal::NotHeld`] when the API server can't be asked or
    /// does not let the shard write.
    pub async fn taken_for(self, hold: &Hold) -> Result<Self, LockRefusal> {
        hold.take(&self.name, &Claim { object: Some(self.object.clone()), judged: true }).await?;
        Ok(self)
    }
}
