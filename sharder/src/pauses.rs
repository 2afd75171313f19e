//! Pauses between attempts at something that must work in the end.

use std::time::Duration;

/// The first pause, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// Pauses that grow, so that a start without API server is neither missed nor drowned in its own log.
pub(crate) struct Pauses(Duration);

impl Pauses {
    /// The next pause is the shortest.
    pub(crate) fn new() -> Self {
        Self(PAUSES[0])
    }

    /// Waits, the next time twice as long.
    pub(crate) async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSES[1]);
    }
}
