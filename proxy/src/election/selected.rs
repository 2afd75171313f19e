//! Lists and watches of one object, by its name, that may be a lock.

use http::{HeaderMap, Response, StatusCode};
use tokio::sync::watch;

use super::{
    LockName, Locks,
    answer::{Said, respond},
    lock::Lock,
};
use crate::{
    body::Body,
    request::{RequestInfo, Verb},
    views::Fields,
};

impl Locks {
    /// The one object that a list or a watch is of.
    pub(crate) fn selected(&self, info: &RequestInfo) -> Option<LockName> {
        let (kind, namespace, resource) = self.is_of_locks(info)?;
        let by_labels = info.query.first("labelSelector").is_some_and(|selector| !selector.is_empty());
        if by_labels || !matches!(info.verb, Verb::List | Verb::Watch) {
            return None;
        }
        let fields = info.query.first("fieldSelector").unwrap_or_default();
        let fields = Fields::parse(fields).named(resource.name.as_deref());
        let name = fields.only(namespace)?.to_owned();
        Some(LockName { kind, namespace: namespace.to_owned(), name })
    }

    /// Answers a list of what is known as a lock; `None` if it is not.
    pub(crate) fn list(&self, name: &LockName, headers: &HeaderMap) -> Option<Response<Body>> {
        let lock = self.known(name)?;
        let said = Said::List(name.kind, lock.object().cloned(), lock.version());
        Some(respond(StatusCode::OK, &said, headers))
    }

    /// A lock as it is known now.
    pub(super) fn known(&self, name: &LockName) -> Option<Lock> {
        self.learned.lock().get(name).cloned()
    }

    /// Tells when something has become of a lock, from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}
