//! Supervised tasks: each is there until the shutdown, and one that ends earlier ends the process.

use std::{collections::HashMap, error::Error, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};

use crate::{heartbeat::Heartbeats, shutdown::Shutdown};

type BoxError = Box<dyn Error + Send + Sync>;

/// Why the process ends other than by its shutdown.
#[derive(Debug, thiserror::Error)]
pub enum TaskFailed {
    /// A task returned an error.
    #[error("{name} failed: {source}")]
    Failed {
        /// The task.
        name: &'static str,
        /// What it returned.
        #[source]
        source: BoxError,
    },
    /// A task returned although no shutdown was asked for.
    #[error("{name} ended unexpectedly")]
    Ended {
        /// The task.
        name: &'static str,
    },
    /// A task panicked.
    #[error("{name} panicked: {source}")]
    Panicked {
        /// The task.
        name: &'static str,
        /// The panic.
        #[source]
        source: JoinError,
    },
}

/// The tasks of a process.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<Result<(), BoxError>>,
    names: HashMap<Id, &'static str>,
    heartbeats: Heartbeats,
}

impl Tasks {
    /// No tasks yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the tasks that are started from now on show that they are polled.
    pub fn show_by(&mut self, heartbeats: &Heartbeats) {
        self.heartbeats = heartbeats.clone();
    }

    /// Starts a task that must go on until the shutdown.
    pub fn spawn<E>(&mut self, name: &'static str, task: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: Into<BoxError>,
    {
        let heartbeats = self.heartbeats.clone();
        // In a debug build a large one is on the stack once for each layer around it.
        let task = Box::pin(task);
        let handle = self.set.spawn(async move { heartbeats.follow(name, task).await.map_err(Into::into) });
        self.names.insert(handle.id(), name);
    }

    /// Runs until the shutdown, or until a task fails, which triggers it.
    ///
    /// After the shutdown the tasks have `deadline` to end by themselves; those that don't are named and aborted.
    ///
    /// # Errors
    /// The first task that failed, panicked, or ended without having been asked to.
    pub async fn run(mut self, shutdown: &Shutdown, deadline: Duration) -> Result<(), TaskFailed> {
        let mut result = Ok(());
        tokio::select! {
            () = shutdown.wait() => {}
            Some(ended) = self.set.join_next_with_id() => {
                // Both can be true at once: a task may end because of the shutdown before we look.
                let orderly = shutdown.is_triggered();
                result = self.verdict(ended, orderly);
                shutdown.trigger();
            }
        }
        let ended = tokio::time::timeout(deadline, async {
            while let Some(ended) = self.set.join_next_with_id().await {
                let verdict = self.verdict(ended, true);
                if result.is_ok() {
                    result = verdict;
                }
            }
        });
        if ended.await.is_err() {
            let left: Vec<_> = self.names.values().copied().collect();
            tracing::warn!(tasks = ?left, ?deadline, "shutdown deadline exceeded; aborting remaining tasks");
        }
        result
    }

    fn verdict(
        &mut self,
        ended: Result<(Id, Result<(), BoxError>), JoinError>,
        orderly: bool,
    ) -> Result<(), TaskFailed> {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or("a task");
        match ended {
            Ok((_, Ok(()))) if orderly => Ok(()),
            Ok((_, Ok(()))) => Err(TaskFailed::Ended { name }),
            Ok((_, Err(source))) => Err(TaskFailed::Failed { name, source }),
            Err(source) => Err(TaskFailed::Panicked { name, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, io};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    async fn outcome(task: impl Future<Output = Result<(), io::Error>> + Send + 'static) -> Result<(), TaskFailed> {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new();
        let until = shutdown.clone();
        tasks.spawn("patient", async move {
            until.wait().await;
            Ok::<_, Infallible>(())
        });
        tasks.spawn("suspect", task);
        tasks.run(&shutdown, DEADLINE).await
    }

    #[tokio::test]
    async fn a_task_that_fails_ends_panics_or_returns_is_named() {
        let failed = outcome(async { Err(io::Error::other("no luck")) }).await;
        assert_eq!(failed.expect_err("failed").to_string(), "suspect failed: no luck");
        let ended = outcome(async { Ok(()) }).await;
        assert_eq!(ended.expect_err("ended").to_string(), "suspect ended unexpectedly");
        let panicked = outcome(async { panic!("ouch") }).await;
        assert!(matches!(panicked, Err(TaskFailed::Panicked { name: "suspect", .. })), "{panicked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_is_no_failure_and_waits_no_longer_than_the_deadline() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new();
        let until = shutdown.clone();
        tasks.spawn("orderly", async move {
            until.wait().await;
            Ok::<_, Infallible>(())
        });
        tasks.spawn("stuck", std::future::pending::<Result<(), Infallible>>());
        shutdown.trigger();
        let start = tokio::time::Instant::now();
        assert!(tasks.run(&shutdown, DEADLINE).await.is_ok());
        assert_eq!(start.elapsed().as_secs(), DEADLINE.as_secs());
    }
}
