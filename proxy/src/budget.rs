//! How many bytes the proxy holds in buffers, for all requests and watches together.
//!
//! Bodies that are read here as a whole draw from it, and so do events of watches that are kept until their end. Bytes give back
//! what they have drawn when their last copy is gone.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Extensions;
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::body::{Body, BodyError};

/// Bytes that may be held: the longest object that is read, and some beside it.
pub const SIZE: usize = 10 << 20;
/// Bytes of these that only small bodies and events draw: locks and labels are read while long objects wait.
pub const RESERVE: usize = 1 << 20;
/// The longest that is small.
pub const SMALL: usize = 64 << 10;
/// What a body of unknown length draws at a time once it is not small.
const STEP: usize = 256 << 10;
/// How long a buffer waits until others give back what it needs.
pub const WAIT: Duration = Duration::from_secs(1);
/// How many pages of lists are asked for at once: what has come of one is held until it is read.
const PAGES: usize = 2;
/// How long one waits for its turn. Who has the turn may be a client's that stands still.
const TURN: Duration = Duration::from_secs(10);

/// The budget of one proxy. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    used: Mutex<usize>,
    /// Told each time that bytes are given back.
    freed: Notify,
    turns: Semaphore,
}

/// Bytes that are drawn until this is dropped.
#[derive(Debug)]
pub struct BudgetPermit {
    budget: Budget,
    bytes: usize,
}

/// Others hold all that may be held.
#[derive(Debug, thiserror::Error)]
#[error("the proxy holds as many bytes as it may")]
pub struct NoRoom;

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It is longer than what is read.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// It broke off.
    #[error(transparent)]
    Broken(#[from] BodyError),
}

impl Default for Budget {
    fn default() -> Self {
        Self(Arc::new(Shared { used: Mutex::default(), freed: Notify::new(), turns: Semaphore::new(PAGES) }))
    }
}

impl Budget {
    /// The one that a request carries.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        *self.0.used.lock()
    }

    /// Holds bytes that were made here, if there is room for them. They may be many: none are of the reserve.
    pub fn hold(&self, bytes: Vec<u8>) -> Option<Bytes> {
        let mut permit = self.permit();
        permit.resize_within(bytes.len(), SIZE - RESERVE).then(|| Bytes::from_owner(Held { bytes, _permit: permit }))
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
        timeout(TURN, self.0.turns.acquire()).await.ok()?.ok()
    }

    /// All bytes of a body if they come whole, are no more than `most`, and there is room for them; and the same body as it came.
    pub async fn peek(&self, mut body: Body, most: usize) -> (Result<Option<Bytes>, NoRoom>, Body) {
        let (bytes, read) = self.read(&mut body, most).await;
        // Of no known length: what came without a Content-Length goes on without one.
        let begun = stream::iter((!bytes.is_empty()).then(|| Ok(Frame::data(bytes.clone()))));
        match read {
            Ok(()) => (Ok(Some(bytes)), StreamBody::new(begun).boxed_unsync()),
            Err(Unread::Broken(error)) => {
                (Ok(None), StreamBody::new(begun.chain(stream::iter([Err(error)]))).boxed_unsync())
            }
            Err(unread) => {
                let read = if let Unread::NoRoom(none) = unread { Err(none) } else { Ok(None) };
                (read, StreamBody::new(begun.chain(BodyStream::new(body))).boxed_unsync())
            }
        }
    }

    /// What was read of a body, and whether that is all. A length that is known is drawn before the first byte is read.
    async fn read(&self, body: &mut Body, most: usize) -> (Bytes, Result<(), Unread>) {
        let (mut bytes, mut permit, most) = (Vec::new(), self.permit(), most.min(SIZE - RESERVE));
        let mut read = match body.size_hint().exact().map(|known| usize::try_from(known).unwrap_or(usize::MAX)) {
            Some(known) if known > most => Err(Unread::TooLong(most)),
            Some(known) => permit.grow(known).await.map_err(Unread::from),
            None => Ok(()),
        };
        while read.is_ok()
            && let Some(frame) = body.frame().await
        {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => {
                    read = match bytes.len() + data.len() {
                        len if len > most => Err(Unread::TooLong(most)),
                        len if len > permit.bytes => permit.grow(step(len).min(most)).await.map_err(Unread::from),
                        _ => Ok(()),
                    };
                    bytes.reserve_exact(permit.bytes.saturating_sub(bytes.len()).max(data.len()));
                    bytes.extend_from_slice(&data);
                }
                // What comes behind a body no API server sends.
                Ok(Err(_)) => {}
                Err(error) => read = Err(error.into()),
            }
        }
        bytes.shrink_to_fit();
        permit.resize(bytes.len().min(permit.bytes));
        (Bytes::from_owner(Held { bytes, _permit: permit }), read)
    }
}

/// What is drawn for so many bytes of a body that may become longer.
fn step(len: usize) -> usize {
    if len <= SMALL { SMALL } else { len.next_multiple_of(STEP) }
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
        self.resize_within(bytes, if bytes <= SMALL { SIZE } else { SIZE - RESERVE })
    }

    /// The same, with no more than `most` held by all.
    fn resize_within(&mut self, bytes: usize, most: usize) -> bool {
        let Shared { used, freed, .. } = &*self.budget.0;
        let mut used = used.lock();
        let all = *used - self.bytes + bytes;
        if bytes > self.bytes && all > most {
            return false;
        }
        *used = all;
        if bytes < self.bytes {
            freed.notify_waiters();
        }
        self.bytes = bytes;
        true
    }

    /// Draws as many, and waits for them. Meanwhile it holds no more than before, so that others may draw.
    async fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let budget = self.budget.clone();
        let drawn = async {
            loop {
                // Heeds what is given back from here on.
                let freed = budget.0.freed.notified();
                if self.resize(bytes) {
                    return;
                }
                freed.await;
            }
        };
        timeout(WAIT, drawn).await.map_err(|_| NoRoom)
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests;
