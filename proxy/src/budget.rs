//! How many bytes the proxy holds in buffers, for all requests and watches together.
//!
//! Bodies that are read here as a whole draw from it as they arrive, and so do events of watches that are kept until their end.
//! Bytes give back what they have drawn when their last copy is gone. The controller may draw all of it; each other account has a
//! share, and all of those together half.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use parking_lot::Mutex;
use ringside_runtime::client::WATCH_WINDOW;
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
/// What a body draws at a time once it is not small.
const STEP: usize = 256 << 10;
/// Bytes for each account that is not the controller's: the longest body that an API server takes, as one that is longer is not
/// read. And bytes for all of these accounts.
pub const SHARE: usize = 3 << 20;
const SHARES: usize = SIZE / 2;
/// Watches whose windows may be left unread at once, for each account that is not the controller's, and for all of these.
const WATCHES: usize = 2048;
const WATCHES_OF_ACCOUNT: usize = WATCHES / 4;
const WATCHES_OF_ACCOUNTS: usize = WATCHES / 2;
/// How long a buffer waits until others give back what it needs.
pub const WAIT: Duration = Duration::from_secs(1);
/// How many pages of lists are asked for at once: what has come of one is held until it is read.
const PAGES: usize = 2;
/// How long one waits for its turn. Who has the turn may be a client's that stands still.
const TURN: Duration = Duration::from_secs(10);

/// The budget of one proxy, for one account. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<OfAccount>);

#[derive(Debug)]
struct OfAccount {
    shared: Arc<Shared>,
    /// None for the controller's, and for the proxy's own.
    account: Option<Arc<str>>,
}

#[derive(Debug)]
struct Shared {
    used: Mutex<Used>,
    /// Told each time that bytes are given back.
    freed: Notify,
    turns: Semaphore,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    by_accounts: usize,
    /// Of the accounts that draw any.
    by_account: HashMap<Arc<str>, usize>,
    /// What each body that is not small has yet to draw to come whole, as far as that is known.
    needs: BTreeSet<(usize, u64)>,
    /// Open watches by account.
    watches: HashMap<Option<Arc<str>>, usize>,
    last_id: u64,
}

/// Bytes that are drawn until this is dropped.
#[derive(Debug)]
pub struct BudgetPermit {
    budget: Budget,
    bytes: usize,
    /// Of a body whose length is known, until it has come.
    expected: Option<Box<Expected>>,
}

#[derive(Debug)]
struct Expected {
    length: usize,
    /// Its place among [`Used::needs`].
    need: Option<(usize, u64)>,
}

/// The window of a watch, counted until this is dropped.
#[derive(Debug)]
pub struct WindowPermit(Budget);

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
        let shared = Shared { used: Mutex::default(), freed: Notify::new(), turns: Semaphore::new(PAGES) };
        Self(Arc::new(OfAccount { shared: Arc::new(shared), account: None }))
    }
}

impl Budget {
    /// The same bytes, of which this account draws its share.
    #[must_use]
    pub fn of_account(&self, account: Arc<str>) -> Self {
        Self(Arc::new(OfAccount { shared: self.0.shared.clone(), account: Some(account) }))
    }

    /// How many bytes are held.
    pub fn used(&self) -> usize {
        self.0.shared.used.lock().all
    }

    /// Holds bytes that were made here, if there is room for them. They may be many: none are of the reserve.
    pub fn hold(&self, bytes: Vec<u8>) -> Option<Bytes> {
        let mut permit = self.permit();
        permit.resize_within(bytes.len(), SIZE - RESERVE).then(|| Bytes::from_owner(Held { bytes, _permit: permit }))
    }

    /// Returns how many bytes of watches may arrive while no client reads them.
    pub fn windows(&self) -> usize {
        let watches: usize = self.0.shared.used.lock().watches.values().sum();
        watches * WATCH_WINDOW as usize
    }

    /// Counts the window of one more watch.
    ///
    /// # Errors
    /// When there are too many.
    pub fn window(&self) -> Result<WindowPermit, NoRoom> {
        let watches = &mut self.0.shared.used.lock().watches;
        let count = |account: &Option<Arc<str>>| watches.get(account).copied().unwrap_or_default();
        let (all, own, of_controller) = (watches.values().sum::<usize>(), count(&self.0.account), count(&None));
        let has_share = own < WATCHES_OF_ACCOUNT && all - of_controller < WATCHES_OF_ACCOUNTS;
        if all >= WATCHES || (self.0.account.is_some() && !has_share) {
            return Err(NoRoom);
        }
        watches.insert(self.0.account.clone(), own + 1);
        Ok(WindowPermit(self.clone()))
    }

    /// Draws nothing yet.
    pub fn permit(&self) -> BudgetPermit {
        BudgetPermit { budget: self.clone(), bytes: 0, expected: None }
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
        timeout(TURN, self.0.shared.turns.acquire()).await.ok()?.ok()
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

    /// The longest body that is read for this account.
    fn longest(&self) -> usize {
        if self.0.account.is_some() { SHARE } else { SIZE - RESERVE }
    }

    /// What was read of a body, and whether that is all.
    async fn read(&self, body: &mut Body, most: usize) -> (Bytes, Result<(), Unread>) {
        let (mut bytes, mut permit, mut most) = (Vec::new(), self.permit(), most.min(self.longest()));
        let length = body.size_hint().exact().map(|known| usize::try_from(known).unwrap_or(usize::MAX));
        let mut read = match length {
            Some(known) if known > most => Err(Unread::TooLong(most)),
            _ => Ok(()),
        };
        most = length.unwrap_or(most).min(most);
        permit.expected = length.map(|length| Box::new(Expected { length, need: None }));
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
        permit.has_come();
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
        let shared = self.budget.0.shared.clone();
        let used = &mut *shared.used.lock();
        if bytes > self.bytes && !self.has_room(used, bytes, most) {
            return false;
        }
        let left = self.left(bytes);
        if let Some(expected) = &mut self.expected {
            used.expect(expected, left);
        }
        used.all = used.all - self.bytes + bytes;
        if let Some(account) = &self.budget.0.account {
            used.by_accounts = used.by_accounts - self.bytes + bytes;
            let of_account = used.by_account.entry(account.clone()).or_default();
            *of_account = *of_account - self.bytes + bytes;
            if *of_account == 0 {
                used.by_account.remove(account);
            }
        }
        if bytes < self.bytes {
            shared.freed.notify_waiters();
        }
        self.bytes = bytes;
        true
    }

    /// Whether it may draw that many more: all, those of its account, and so that a body can come whole whose length is known.
    fn has_room(&self, used: &Used, bytes: usize, most: usize) -> bool {
        let more = bytes - self.bytes;
        let share = self.budget.0.account.as_ref().is_none_or(|account| {
            let of_account = used.by_account.get(account).copied().unwrap_or_default();
            of_account + more <= SHARE && used.by_accounts + more <= SHARES
        });
        let least = self.left(bytes).map_or(0, |own| used.needs.first().map_or(own, |(least, _)| own.min(*least)));
        share && used.all + more + least <= most
    }

    /// What a body that is not small has yet to draw then, as far as that is known.
    fn left(&self, bytes: usize) -> Option<usize> {
        self.expected.as_ref().filter(|_| bytes > SMALL).map(|expected| expected.length.saturating_sub(bytes))
    }

    /// Notes that the body has ended, so that no draw for it is expected any more.
    fn has_come(&mut self) {
        if let Some(mut expected) = self.expected.take() {
            self.budget.0.shared.used.lock().expect(&mut expected, None);
        }
    }

    /// Draws as many, and waits for them. Meanwhile it holds no more than before, so that others may draw.
    async fn grow(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let budget = self.budget.clone();
        let drawn = async {
            loop {
                // Heeds what is given back from here on.
                let freed = budget.0.shared.freed.notified();
                if self.resize(bytes) {
                    return;
                }
                freed.await;
            }
        };
        timeout(WAIT, drawn).await.map_err(|_| NoRoom)
    }
}

impl Drop for WindowPermit {
    fn drop(&mut self) {
        let OfAccount { shared, account } = &*self.0.0;
        let watches = &mut shared.used.lock().watches;
        let left = watches.remove(account).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            watches.insert(account.clone(), left);
        }
    }
}

impl Used {
    /// So much is left to draw for a body.
    fn expect(&mut self, expected: &mut Expected, left: Option<usize>) {
        let before = expected.need.take();
        if let Some(need) = &before {
            self.needs.remove(need);
        }
        expected.need = left.map(|left| {
            self.last_id += u64::from(before.is_none());
            (left, before.map_or(self.last_id, |(_, id)| id))
        });
        self.needs.extend(expected.need);
    }
}

impl Drop for BudgetPermit {
    fn drop(&mut self) {
        self.has_come();
        self.resize(0);
    }
}

#[cfg(test)]
mod tests;
