//! Lists of a part of the objects: what comes first at a start, what a watch does not show, and what a watch has not shown in time.

use std::{collections::HashMap, sync::Arc};

use kube::{Api, api::ListParams};
use tokio::sync::Mutex;

use super::{Mark, Part, ResourceId, Source};
use crate::{
    pages::{PageSize, next_page},
    resources::Object,
};

/// Keys of lists that are remembered before unused ones are forgotten.
const MAX_IDLE: usize = 1024;

/// Takes in the objects that selectors show.
///
/// # Errors
/// What was taken in before the failure stays.
pub(crate) async fn list(source: &Source, api: &Api<Object>, which: ListParams) -> Result<(), kube::Error> {
    let (mut params, mut size) = (which, PageSize::default());
    loop {
        for object in next_page(api, &mut params, &mut size).await?.items {
            source.show(&object);
        }
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}

/// Lists what a watch on the objects with the shard label does not show, and forgets those of them that are gone.
///
/// # Errors
/// Then nothing is forgotten.
pub(crate) async fn list_unlabelled(source: &Source, api: &Api<Object>, shard_label: &str) -> Result<(), kube::Error> {
    let _listing = source.listing.lock().await;
    source.begin(Part::Unlabelled);
    list(source, api, ListParams::default().labels(&format!("!{shard_label}"))).await?;
    source.end(Part::Unlabelled);
    Ok(())
}

/// The children of one resource in one namespace that a shard had.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChildrenOf {
    pub(crate) resource: ResourceId,
    pub(crate) namespace: String,
    pub(crate) shard: String,
}

type LastBegan = Arc<Mutex<Mark>>;

/// Lists that families share: one that begins after several of them began to wait serves all of these.
#[derive(Default)]
pub(crate) struct SharedLists(crate::lock::Mutex<HashMap<ChildrenOf, LastBegan>>);

impl SharedLists {
    /// Returns once a list that began after `since` was taken in; `list` is called if there is none yet.
    ///
    /// # Errors
    /// Those of `list`. Others that wait try it again.
    pub(crate) async fn since<E>(
        &self,
        which: ChildrenOf,
        since: Mark,
        list: impl AsyncFnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let last = {
            let mut lists = self.0.lock();
            if lists.len() > MAX_IDLE {
                lists.retain(|_, last| Arc::strong_count(last) > 1);
            }
            Arc::clone(lists.entry(which).or_default())
        };
        let mut last = last.lock().await;
        if *last <= since {
            let began = Mark::now();
            list().await?;
            *last = began;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, convert::Infallible};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn families_that_wait_share_one_list() {
        let (lists, calls) = (SharedLists::default(), Cell::new(0));
        let which = ChildrenOf { resource: ResourceId(1), namespace: "n".into(), shard: "a".into() };
        let wait = |since| {
            let which = which.clone();
            lists.since(which, since, async || {
                calls.set(calls.get() + 1);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                Ok::<_, Infallible>(())
            })
        };
        let early = Mark::now();
        let late = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            wait(Mark::now()).await
        };
        let _ = tokio::join!(wait(early), wait(early), late, async {
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
            wait(Mark::now()).await
        });
        assert_eq!(calls.get(), 2, "the second began after all that came during the first");
        let _ = wait(early).await;
        assert_eq!(calls.get(), 2);
    }
}
