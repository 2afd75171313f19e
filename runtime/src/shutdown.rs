//! The one signal that everything ends on.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A wish to end, shared by all tasks of a process. Once triggered it stays so.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// One that is not triggered.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM and SIGINT trigger: the kubelet's way and a terminal's.
    ///
    /// # Errors
    /// When the signal handlers can't be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let trigger = shutdown.clone();
        tokio::spawn(async move {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "shutting down");
            trigger.trigger();
        });
        Ok(shutdown)
    }

    /// Asks everything to end.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// Whether the end was asked for.
    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns once the end was asked for.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }
}
