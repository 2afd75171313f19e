//! Tells on a watch channel what is known, and only what is news.

use tokio::sync::watch;

/// Tells it unless it is what was told last; returns whether it was news.
pub(crate) fn tell<T: PartialEq>(told: &watch::Sender<T>, now: T) -> bool {
    told.send_if_modified(|told| {
        let changed = *told != now;
        *told = now;
        changed
    })
}
