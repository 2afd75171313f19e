//! What the first case that asks makes for all.

use tokio::sync::OnceCell;

/// Made once, also when it fails: then each case fails at once and with the first error, where another try would stumble
/// over what the first one has left.
pub(crate) struct Once<T>(OnceCell<Result<T, String>>);

impl<T> Once<T> {
    /// Not yet.
    pub(crate) fn new() -> Self {
        Self(OnceCell::new())
    }

    /// What was made, or is made now.
    pub(crate) async fn get(&self, make: impl Future<Output = anyhow::Result<T>>) -> &T {
        let made = self.0.get_or_init(|| async { make.await.map_err(|error| error.to_string()) }).await;
        made.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }
}
