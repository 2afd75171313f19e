//! Tasks that serve one connection or one request: a panic in one is logged, and ends that task alone.

use std::{future::Future, panic::AssertUnwindSafe};

use futures::FutureExt;

/// Runs `task`; a panic in it is a fault of ours, and no reason to end the others.
pub async fn contained(task: impl Future<Output = ()>) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        tracing::error!("a connection's task panicked; what it served has ended");
    }
}

/// Runs what hyper makes of a connection's requests under this containment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contained;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Contained {
    fn execute(&self, task: F) {
        tokio::spawn(contained(task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_task_alone() {
        let (one, other) = (contained(async { panic!("a fault of ours") }), contained(async {}));
        tokio::join!(one, other);
    }
}
