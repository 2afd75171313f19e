//! What several cases share.

use std::{fmt, sync::Arc};

use tokio::sync::Mutex;

/// Something that the first case that needs it starts, and that ends with the last.
pub struct Shared<F>(Mutex<State<F>>);

enum State<F> {
    Absent,
    /// The case that started it failed with it.
    Failed,
    Ready(Arc<F>),
}

impl<F> Shared<F> {
    /// One that no case has asked for yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it is a static, and Default is not const")]
    pub const fn new() -> Self {
        Self(Mutex::const_new(State::Absent))
    }

    /// Starts it, if no other case has. Those that ask meanwhile wait.
    ///
    /// # Panics
    /// When another case failed to start it.
    pub async fn get(&self, start: impl AsyncFnOnce() -> F) -> Arc<F> {
        let mut state = self.0.lock().await;
        match &*state {
            State::Absent => {}
            State::Failed => panic!("the fixture did not start; another case says why"),
            State::Ready(fixture) => return Arc::clone(fixture),
        }
        *state = State::Failed;
        let fixture = Arc::new(start().await);
        *state = State::Ready(Arc::clone(&fixture));
        fixture
    }

    /// What was started, where it is there.
    pub fn now(&self) -> Option<Arc<F>> {
        match &*self.0.try_lock().ok()? {
            State::Ready(fixture) => Some(Arc::clone(fixture)),
            State::Absent | State::Failed => None,
        }
    }

    /// Drops it. No case may run that could still ask for it.
    pub fn end(&self) {
        if let Ok(mut state) = self.0.try_lock() {
            *state = State::Absent;
        }
    }
}

impl<F> fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
