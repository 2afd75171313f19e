//! Children that come without label: the webhook is asked about them once more.
//!
//! The webhook labels a child in the write that creates it (DESIGN, "Children"). Where the API server could not ask it in that
//! moment the write passes all the same, and the child is nobody's: its owner's controller does not see it, would create it
//! again and be refused, and the sharder, which watches no children, finds it with its next look at all of them. Who created it
//! can tell by the answer. So the proxy writes to the child what changes nothing, and the API server asks the webhook about
//! that.
//!
//! It is a write like the controller's own: counted, and not sent once the child's owner was let go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Response, StatusCode};
use ringside_runtime::contained::contained;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    alone::Alone,
    ask::Failed,
    judge::{Judge, Whose},
};
use crate::{
    body::{Body, peek},
    fence::{About, Target, Uid},
    metadata::{self, MAX_OBJECT, Metadata},
    stages::admit::Admitted,
};

/// How many are cared for at once. Of more the webhook was not asked about all: the sharder notices that, and looks for them.
const MOST: usize = 64;
/// How long to wait before each time that it is tried. After all of them an API server that can't ask has been noticed by the
/// sharder, which tries it every ten seconds.
const PAUSES: [Duration; 8] = {
    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    [ms(0), ms(100), ms(300), ms(600), ms(1000), ms(2000), ms(4000), ms(8000)]
};

/// Those who are cared for. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Unlabelled(Arc<Cared>);

#[derive(Debug)]
struct Cared {
    places: Arc<Semaphore>,
    /// Whether the log has it that some are left. In an outage that is all of them.
    told: AtomicBool,
}

impl Default for Unlabelled {
    fn default() -> Self {
        Self(Arc::new(Cared { places: Arc::new(Semaphore::new(MOST)), told: AtomicBool::new(false) }))
    }
}

/// A child that was just created.
struct Child {
    target: Target,
    uid: String,
    /// The objects of the ring that it follows.
    owners: Vec<Uid>,
}

impl Unlabelled {
    /// The answer to a write under owners of the ring, as it came; if it says that this created a child without label, that is
    /// cared for from now on.
    pub(super) async fn look(
        &self,
        answer: Response<Body>,
        (mut target, owners): (Target, Vec<Uid>),
        judge: Judge,
        (admitted, alone): (Admitted, Alone),
    ) -> Response<Body> {
        if answer.status() != StatusCode::CREATED || owners.is_empty() {
            return answer;
        }
        let (head, body) = answer.into_parts();
        let (whole, body) = peek(body, MAX_OBJECT).await;
        let created = whole.and_then(|whole| metadata::of_answer(&head.headers, &whole).ok());
        if let Some(Metadata { name: Some(name), uid: Some(uid), .. }) =
            created.filter(|created| judge.whose(created) == Whose::Nobodys)
        {
            target.name = Some(name);
            self.care(Child { target, uid, owners }, judge, (&admitted, &alone));
        }
        Response::from_parts(head, body)
    }

    fn care(&self, child: Child, judge: Judge, (admitted, alone): (&Admitted, &Alone)) {
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            self.0.left(&child.target, &judge, "too many others have none");
            return;
        };
        let (cared, over, abort) = (self.0.clone(), admitted.over(), alone.abort.clone());
        tokio::spawn(contained(async move {
            tokio::select! {
                () = cared.until_labelled(child, judge) => {}
                _ = over => {}
                () = abort.cancelled() => {}
            }
            drop(place);
        }));
    }
}

impl Cared {
    /// Tries until it has a label.
    async fn until_labelled(&self, Child { target, uid, owners }: Child, judge: Judge) {
        let mut last = None;
        for pause in PAUSES {
            sleep(pause).await;
            let ticket = judge.fence.enter(About { target: Some(target.clone()), uids: Vec::new() });
            if ticket.also_about(&owners).is_err() {
                // It is not this shard's to write to any more. The sharder's next look at all finds it.
                return;
            }
            match judge.asker.touch((&target, &uid), &judge.version, &ticket).await {
                Ok(Some(now)) if judge.whose(&now) == Whose::Nobodys => last = None,
                Ok(Some(_)) => {
                    judge.asker.metrics.unlabelled("labelled");
                    self.told.store(false, Ordering::Relaxed);
                    let Target { resource, namespace, name } = &target;
                    tracing::debug!(%resource, namespace, name, "a child that came without label has one");
                    return;
                }
                Ok(None) => return,
                Err(failed) => {
                    let lasts = failed.is_forbidden();
                    last = Some(failed);
                    if lasts {
                        break;
                    }
                }
            }
        }
        self.left(&target, &judge, last.as_ref().map_or("the webhook does not label it", Failed::why));
    }

    /// The sharder will find it. The first one is told, and the first after one that was labelled.
    fn left(&self, Target { resource, namespace, name }: &Target, judge: &Judge, why: &str) {
        judge.asker.metrics.unlabelled("left");
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(%resource, namespace, name, why, "a child without label waits for the sharder, and others may too");
        }
    }
}
