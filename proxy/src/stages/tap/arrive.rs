//! Holds back an object that comes from another shard until its controller was shown the object's children.
//!
//! The sharder moves the children first. But each watch comes by itself: where the children's is late, the controller would find
//! the object without any, and create them a second time. So an `ADDED` of what the sharder wrote to waits until the watches of
//! the children have caught up ([`Watching::caught_up`]), and what comes behind it waits as well. Meanwhile the watch is read on,
//! so that all that came until then waits together the next time. An object that was created with its label has no children yet,
//! and passes at once, as do initial events: controllers begin when all their watches have ended those.
//!
//! The API server that serves the children's watch is asked for a list of nothing, by the connection of that watch where it
//! is by HTTP/2. It answers
//! when it knows all that was written before, from Kubernetes 1.31 on; an older one answers at once, and the wait is shorter
//! than it should be. Nothing waits for longer than [`ARRIVAL_TIMEOUT`].

use std::{sync::Arc, task::Context, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use http::StatusCode;
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::client::{Connection, Watch};
use tokio::time::timeout;

use crate::{
    metrics::Metrics,
    request::Query,
    stages::{
        OwnRequests,
        as_client::AsClient,
        context::{AdmittedRequest, RequestContext},
    },
    views::{CacheProbe, Scope, View, Watching},
};

/// How long an object waits at most.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(3);
/// The name that is asked for: no object has it.
const NOTHING: &str = "metadata.name=-";
/// Where it is asked for, in a watch of all namespaces: in one namespace it is looked up, and not searched for.
const ANY_NAMESPACE: &str = "default";
/// How many bytes of an answer are read at most.
const MAX_ANSWER: usize = 64 << 10;

/// Asks whether the watches of children have caught up.
pub(super) struct Arrivals {
    children: Vec<GroupResource>,
    metrics: Metrics,
    /// Ready when they have.
    shown: Option<BoxFuture<'static, ()>>,
}

impl Arrivals {
    /// For a watch whose objects have children in the ring.
    pub(super) fn of(context: &RequestContext, scope: &Scope, metrics: &Metrics) -> Option<Self> {
        let children =
            context.admitted.policy.families.get(&scope.resource).filter(|children| !children.is_empty())?.clone();
        Some(Self { children, metrics: metrics.clone(), shown: None })
    }

    /// Asks about all that has come to this watch.
    pub(super) fn ask(&mut self, view: &View) {
        self.shown = Some(shown(view, &self.children, &self.metrics));
    }

    /// Whether they have caught up, since a moment ago.
    pub(super) fn poll_shown(&mut self, context: &mut Context<'_>) -> bool {
        self.shown.take_if(|shown| shown.poll_unpin(context).is_ready()).is_some()
    }
}

/// Ready when the client was shown the children of all that has come.
fn shown(view: &View, children: &[GroupResource], metrics: &Metrics) -> BoxFuture<'static, ()> {
    let (beside, metrics) = (view.watches_beside(children), metrics.clone());
    let resource = view.scope().resource.clone();
    async move {
        let all = join_all(beside.iter().map(Watching::caught_up));
        let in_time = timeout(ARRIVAL_TIMEOUT, all).await.is_ok();
        metrics.arrived(in_time);
        if !in_time {
            tracing::warn!(%resource, "objects are shown before their children: a watch of these does not catch up");
        }
    }
    .boxed()
}

/// How the API server that serves a watch of children is asked what it knows, as its client.
#[derive(Clone)]
pub(super) struct CacheQuestion(AsClient);

impl CacheQuestion {
    /// None for a watch of what is no child in the ring: nothing waits for that.
    pub(super) fn of(asked: &AdmittedRequest, scope: &Arc<Scope>, own: OwnRequests) -> Option<Self> {
        asked.context.admitted.policy.families.values().find(|children| children.contains(&scope.resource))?;
        let mut client = AsClient::of(asked, scope, own);
        // On the connections of watches.
        client.request.extensions_mut().insert(Watch);
        Some(Self(client))
    }

    /// Asked by the connection of the watch, where that is known.
    pub(super) fn by(mut self, connection: Option<Connection>) -> CacheProbe {
        if let Some(connection) = connection {
            self.0.request.extensions_mut().insert(connection);
        }
        CacheProbe::new(move || self.clone().ask().boxed())
    }

    async fn ask(self) {
        let namespace = self.0.scope.namespace.as_deref().unwrap_or(ANY_NAMESPACE);
        // Its resource may have no namespaces.
        if self.list(Some(namespace)).await == Some(StatusCode::NOT_FOUND) {
            self.list(None).await;
        }
    }

    async fn list(&self, namespace: Option<&str>) -> Option<StatusCode> {
        let mut nothing = Query::default();
        nothing.set("fieldSelector", NOTHING);
        let answer = self.0.list(namespace, &nothing, None).await?.ok()?;
        let status = answer.status();
        // To its end, which frees its place on the connection; what it says is of no interest.
        drop(self.0.budget.collect(answer.into_body(), MAX_ANSWER).await);
        Some(status)
    }
}
