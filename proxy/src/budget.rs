//! How many bytes the proxy holds in buffers, for all requests and watches together.
//!
//! Bodies that are read here as a whole draw from it, and so do events of watches that are kept until their end. Bytes give back
//! what they have drawn when their last copy is gone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Extensions;
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::body::{Body, BodyError};

/// Bytes that may be held: as many as the longest object that is read.
pub const SIZE: usize = 8 << 20;
/// How long a buffer waits until others give back what it needs.
pub const WAIT: Duration = Duration::from_secs(1);
/// How many pages of lists are asked for at once: what has come of one is held until it is read.
const PAGES: usize = 2;
/// How long one waits for its turn. Who has the turn may be a client's that stands still.
const TURN: Duration = Duration::from_secs(10);

/// The budget of one proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<(Semaphore, Semaphore)>);

/// Bytes that are drawn until this is dropped.
#[derive(Debug)]
pub struct BudgetPermit {
    budget: Budget,
    bytes: usize,
}

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It is longer than what is read.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// Others hold all that may be held.
    #[error("the proxy holds as many bytes as it may")]
    NoRoom,
    /// It broke off.
    #[error(transparent)]
    Broken(#[from] BodyError),
}

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new((Semaphore::new(SIZE), Semaphore::new(PAGES))))
    }
}

impl Budget {
    /// The one that a request carries.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        SIZE.saturating_sub(self.0.0.available_permits())
    }

    /// Holds bytes that were made here, if there is room for them.
    pub fn hold(&self, bytes: Vec<u8>) -> Option<Bytes> {
        let mut permit = self.permit();
        permit.resize(bytes.len()).then(|| Bytes::from_owner(Held { bytes, _permit: permit }))
    }

    /// Draws nothing yet.
    pub fn permit(&self) -> BudgetPermit {
        BudgetPermit { budget: self.clone(), bytes: 0 }
    }

    /// Collects a body of at most `most` bytes.
    ///
    /// # Errors
    /// When it is not read.
    pub async fn collect(&self, mut body: Body, most: usize) -> Result<Bytes, Unread> {
        let (bytes, read) = self.read(&mut body, most).await;
        read.map(|()| bytes)
    }

    /// Waits for the turn to ask for a page of a list, which ends when this is dropped.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        timeout(TURN, self.0.1.acquire()).await.ok()?.ok()
    }

    /// All bytes of a body if they come whole, are no more than `most`, and there is room for them; and the same body as it came.
    pub async fn peek(&self, mut body: Body, most: usize) -> (Option<Bytes>, Body) {
        let (bytes, read) = self.read(&mut body, most).await;
        // Of no known length: what came without a Content-Length goes on without one.
        let begun = stream::iter((!bytes.is_empty()).then(|| Ok(Frame::data(bytes.clone()))));
        match read {
            Ok(()) => (Some(bytes), StreamBody::new(begun).boxed_unsync()),
            Err(Unread::Broken(error)) => {
                (None, StreamBody::new(begun.chain(stream::iter([Err(error)]))).boxed_unsync())
            }
            Err(_) => (None, StreamBody::new(begun.chain(BodyStream::new(body))).boxed_unsync()),
        }
    }

    /// What was read of a body, and whether that is all.
    async fn read(&self, body: &mut Body, most: usize) -> (Bytes, Result<(), Unread>) {
        let (mut bytes, mut permit) = (Vec::new(), self.permit());
        let read = loop {
            let Some(frame) = body.frame().await else { break Ok(()) };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                // What comes behind a body no API server sends.
                Ok(Err(_)) => {}
                Err(error) => break Err(error.into()),
            }
            if bytes.len() > most {
                break Err(Unread::TooLong(most));
            }
            if let Err(error) = permit.grow(bytes.capacity()).await {
                break Err(error);
            }
        };
        bytes.shrink_to_fit();
        permit.resize(bytes.len().min(permit.bytes));
        (Bytes::from_owner(Held { bytes, _permit: permit }), read)
    }
}

/// Bytes, and what they have drawn.
struct Held {
    bytes: Vec<u8>,
    _permit: BudgetPermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BudgetPermit {
    /// Draws as many, and gives back what is too much, at once. Returns whether there was room.
    pub fn resize(&mut self, bytes: usize) -> bool {
        let semaphore = &self.budget.0.0;
        let more = bytes.saturating_sub(self.bytes);
        let Ok(drawn) = semaphore.try_acquire_many(u32::try_from(more).unwrap_or(u32::MAX)) else { return false };
        drawn.forget();
        semaphore.add_permits(self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        true
    }

    /// Draws as many, and waits for them.
    async fn grow(&mut self, bytes: usize) -> Result<(), Unread> {
        let more = bytes.saturating_sub(self.bytes);
        let drawn = self.budget.0.0.acquire_many(u32::try_from(more).unwrap_or(u32::MAX));
        let drawn = timeout(WAIT, drawn).await.ok().and_then(Result::ok).ok_or(Unread::NoRoom)?;
        drawn.forget();
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.budget.0.0.add_permits(self.bytes);
    }
}

#[cfg(test)]
mod tests;
