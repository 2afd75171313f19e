//! Events at the pace of a clock, so that each comes by itself, as it does where something is alive.

use std::time::{Duration, Instant};

use futures::{Stream, stream};
use hyper::body::Bytes;
use tokio::sync::watch;

/// How often all live watches get an event.
pub(super) struct Pace {
    /// How many events each watch has had since the beginning.
    due: watch::Receiver<u64>,
}

impl Pace {
    pub(super) fn of(rate: u32) -> Self {
        let (sender, due) = watch::channel(0);
        tokio::spawn(async move {
            let (each, began) = (Duration::from_secs(1) / rate.max(1), Instant::now());
            let mut tick = tokio::time::interval(each.max(Duration::from_millis(1)));
            loop {
                tick.tick().await;
                let due = began.elapsed().as_nanos() / each.as_nanos().max(1);
                sender.send_replace(u64::try_from(due).unwrap_or(u64::MAX));
            }
        });
        Self { due }
    }

    /// The same event again and again, from now on. Those that are late are left out: together they would cost less.
    pub(super) fn events(&self, event: Bytes) -> impl Stream<Item = Bytes> + use<> {
        let due = self.due.clone();
        let had = *due.borrow();
        stream::unfold((due, had, event), |(mut due, had, event)| async move {
            let had = *due.wait_for(|due| *due > had).await.ok()?;
            Some((event.clone(), (due, had, event)))
        })
    }
}
