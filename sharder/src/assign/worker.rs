//! The worker of a resource: takes unowned objects from the queue, in batches.

use std::{convert::Infallible, time::Duration};

use tokio::{sync::mpsc, time::Instant};

use super::{BATCH, Scope, batch::process};
use crate::target::Target;

/// How soon objects that could not be written to are tried again, at first and at last.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Works until it is dropped.
///
/// A batch is what has arrived while the last one was worked on: an object that comes alone does not wait for
/// company, and many share the list of their children. Nothing is lost when it is dropped:
/// the watch of its successor begins with all objects that are still unowned.
pub(crate) async fn work(scope: &Scope, mut queue: mpsc::Receiver<Target>) -> Infallible {
    let mut again: Vec<Target> = Vec::new();
    let mut pause = RETRY[0];
    let mut due = Instant::now();
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            // Failures are bounded as well: with a batch of them waiting, nothing new is taken.
            taken = queue.recv_many(&mut batch, BATCH), if again.len() < BATCH => if taken == 0 {
                // The feeders end only together with this.
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep_until(due), if !again.is_empty() => {}
        }
        let retrying = batch.is_empty();
        // Older views first: of two views of one object the later in a batch counts.
        if retrying {
            batch = std::mem::take(&mut again);
        }
        let failed = process(scope, batch).await;
        if failed.is_empty() {
            if retrying {
                pause = RETRY[0];
            }
            continue;
        }
        again.extend(failed);
        due = Instant::now() + pause;
        pause = (pause * 2).min(RETRY[1]);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{Method, StatusCode};

    use super::*;
    use crate::{
        assign::{
            queue,
            tests::{CONFIG_MAPS, object, path, scope},
        },
        fixtures::FakeApi,
    };

    fn is_owned(api: &FakeApi, scope: &Scope, name: &str) -> bool {
        api.get(&path(CONFIG_MAPS, name)).unwrap()["metadata"]["labels"][&scope.snapshot.labels.shard].is_string()
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_tried_again_without_holding_up_what_comes_after() {
        let api = FakeApi::default();
        let scope = scope(&api);
        let stuck = path(CONFIG_MAPS, "stuck");
        let away = stuck.clone();
        api.intercept(move |asked, _| {
            (asked.method == Method::PATCH && asked.path == away).then_some(StatusCode::SERVICE_UNAVAILABLE)
        });
        let (sender, receiver) = queue();
        let worker_scope = scope.clone();
        let worker = tokio::spawn(async move { work(&worker_scope, receiver).await });
        for name in ["stuck", "later"] {
            let object = object(&scope, name, None);
            api.put(&path(CONFIG_MAPS, name), object.clone());
            let object: crate::resources::Object = serde_json::from_value(object).unwrap();
            sender.send(Target::of(&object.metadata, &scope.snapshot.labels)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(is_owned(&api, &scope, "later") && !is_owned(&api, &scope, "stuck"));
        api.intercept(|_, _| None);
        tokio::time::sleep(RETRY[1]).await;
        assert!(is_owned(&api, &scope, "stuck"));
        let asked = api.asked().len();
        tokio::time::sleep(RETRY[1] * 2).await;
        assert_eq!(api.asked().len(), asked, "nothing is left to do");
        worker.abort();
    }
}
