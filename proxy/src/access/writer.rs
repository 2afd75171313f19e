//! Writes files on a thread of its own, in order: a disk that stalls holds up only who waits for them.

use std::{
    sync::mpsc::{SendError, Sender, channel},
    thread,
};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The thread, for as long as there is one of these. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Writer(Sender<Job>);

impl Writer {
    pub(super) fn start() -> Self {
        let (sender, jobs) = channel::<Job>();
        let write = move || jobs.into_iter().for_each(|job| job());
        // Without a thread the jobs are run where they come.
        drop(thread::Builder::new().name("files".to_owned()).spawn(write));
        Self(sender)
    }

    /// Runs `job` behind all that came before.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(SendError(job)) = self.0.send(Box::new(job)) {
            job();
        }
    }

    /// Returns when all that came before has run.
    pub(super) async fn idle(&self) {
        let (done, idle) = oneshot::channel();
        self.run(move || done.send(()).unwrap_or_default());
        idle.await.unwrap_or_default();
    }
}
