//! Whether a watch has shown its client all that was there at some moment.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::BoxFuture;
use ringside_ring::cluster_ring::GroupResource;
use tokio::time::sleep;

use super::{View, registry::ViewState};

/// What an API server knows it hands to its watches, each by a queue of its own. So long after that it is on its way here.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

/// Returns once the API server that serves a watch knows all that was written before, or says that it can't tell.
#[derive(Clone)]
pub struct CacheProbe(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl CacheProbe {
    /// By this request.
    pub fn new(probe: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(probe))
    }
}

impl fmt::Debug for CacheProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheProbe")
    }
}

/// A watch that is open.
#[derive(Debug)]
pub struct Watching(Arc<ViewState>);

impl View {
    /// How it is found out what the API server knows that serves this watch.
    pub fn probed_by(&self, probe: CacheProbe) {
        // Once.
        let _ = self.state.probe.set(probe);
    }

    /// The watches of these resources that the same client has open, where they can show what belongs to what this one shows.
    pub fn watches_beside(&self, resources: &[GroupResource]) -> Vec<Watching> {
        let (mine, registry) = (self.state.agent(), self.views.0.lock());
        let here = self.scope.namespace.as_ref();
        let open = resources.iter().filter_map(|resource| registry.resources.get(resource)).flat_map(|of| &of.open);
        let watches = open.filter(|(id, open)| {
            let there = open.scope.namespace.as_ref();
            let is_open = open.is_watch && open.ends.is_none() && open.state.begun.load(Ordering::Acquire);
            // An object that belongs to another of its own resource comes by this very watch.
            **id != self.id
                && is_open
                && open.state.agent() == mine
                && (here.is_none() || there.is_none() || here == there)
        });
        watches.map(|(_, open)| Watching(open.state.clone())).collect()
    }
}

impl Watching {
    /// Returns once its client's connection has taken all that was written before, or the watch has ended.
    pub async fn caught_up(&self) {
        let Self(state) = self;
        if let Some(CacheProbe(probe)) = state.probe.get() {
            probe().await;
        }
        sleep(ON_ITS_WAY).await;
        loop {
            let taken = state.taken.notified();
            if state.idle.load(Ordering::Acquire) || state.over.load(Ordering::Acquire) {
                return;
            }
            taken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use http::HeaderValue;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::views::{
        Kind, Views,
        fixtures::{scope, watch},
    };

    fn of(resource: &str) -> GroupResource {
        GroupResource { group: "x.io".into(), resource: resource.into() }
    }

    fn shown_to(view: &View, agent: &'static str) {
        view.shown_to(Some(&HeaderValue::from_static(agent)), CancellationToken::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_has_caught_up_when_its_client_took_what_came_after_the_answer() {
        let views = Views::new();
        let (roots, children) = (watch(&views, of("things"), Some(5)), watch(&views, of("parts"), Some(5)));
        children.probed_by(CacheProbe::new(|| sleep(Duration::from_secs(1)).boxed()));
        let beside = roots.watches_beside(&[of("parts")]);
        let [child] = &beside[..] else { panic!("{beside:?}") };
        let mut caught_up = Box::pin(child.caught_up());
        children.idle();
        assert_eq!((&mut caught_up).now_or_never(), None, "what came before the answer says nothing");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((&mut caught_up).now_or_never(), None);
        children.passes(7);
        tokio::time::advance(ON_ITS_WAY).await;
        assert_eq!((&mut caught_up).now_or_never(), None, "its client has yet to take this");
        children.idle();
        assert_eq!((&mut caught_up).now_or_never(), Some(()));
        children.passes(7);
        let ended = child.caught_up();
        drop(children);
        // Nothing more comes by it.
        ended.await;
    }

    #[test]
    fn beside_a_watch_are_those_that_the_same_client_has_on_the_same_namespace() {
        let views = Views::new();
        let of_scope = |resource, namespace| {
            let view = views.open(scope(of(resource), namespace), Kind::Watch(None)).ok();
            view.inspect(|view| drop(view.begun()))
        };
        let watched = [
            ("parts", None, "a"),
            ("parts", Some("here"), "a"),
            ("parts", Some("there"), "a"),
            ("parts", None, "b"),
            ("others", None, "a"),
        ];
        let watched = watched
            .map(|(resource, namespace, agent)| of_scope(resource, namespace).inspect(|view| shown_to(view, agent)));
        let count = |namespace| {
            let roots = of_scope("things", namespace).inspect(|view| shown_to(view, "a"));
            roots.map(|roots| roots.watches_beside(&[of("parts")]).len())
        };
        assert_eq!((count(None), count(Some("here"))), (Some(3), Some(2)));
        let itself = of_scope("things", None).map(|roots| roots.watches_beside(&[of("things")]).len());
        assert_eq!(itself, Some(0), "it would wait for itself");
        drop(watched);
        assert_eq!(count(None), Some(0), "they have ended");
    }
}
