//! The way of a request, one layer a file, in this order.
//!
//! | stage | what it may do |
//! | --- | --- |
//! | [`answer`] | takes the request in: takes off what belongs to the client's connection, and finds out what is asked (`enter`). Turns refusals into `Status` objects, counts |
//! | [`authenticate`] | refuses requests without the local token or one that the API server accepts, and takes the local one off |
//! | [`admit`] | keeps CBOR out, and sends what is about no resource. Holds requests for resources until this is a shard that knows its ring, and while it is unknown who leads; cuts their answers when that ends, but for watches of main resources, which say what leaves |
//! | [`hide`] | hides the labels of the ring from the controller, in all answers about its resources |
//! | [`elect`] | answers requests for the lock of the controller's election itself |
//! | [`peer`] | keeps what the controller says of itself to kopf's peers, and shows it no other shard among them |
//! | [`fence`] | refuses writes to what is another shard's, and shows nothing of it by name |
//! | [`select`] | adds the shard's selector to what selects objects of the ring (`narrow`), marks watches that go on from before its resources changed (`resume`), and keeps reads of these from beginning in the past (`raise`) |
//! | [`tap`] | notes how far each watch has come; ends it when the ring's resources change; has the two connections of an upgraded request joined (`upgrade`) |
//! | [`begin`] | begins a watch from nothing by a list, where the API server has no streaming lists |
//! | [`forward`] | sends the request |

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use ringside_ring::RingLabels;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::{Service, ServiceBuilder};

use crate::{
    access::Token,
    body::{Body, BodyError, BodyStalled},
    budget::{Budget, Unread},
    config::{DeletionTimestamps, ForeignTokens},
    election::{Hold, Locks},
    fence::Fence,
    gap::GapDetector,
    labels::Keys,
    membership::{Gate, LeaseTerm},
    metrics::Metrics,
    peering::{Peerings, RingPeer},
    policy::RingState,
    status::Refusal,
    upstream::UpstreamError,
    views::Views,
};

pub mod admit;
pub mod answer;
mod as_client;
pub mod authenticate;
pub mod begin;
pub mod context;
pub mod elect;
mod enter;
pub mod fence;
pub mod forward;
pub mod hide;
mod list;
mod narrow;
mod negotiate;
pub mod peer;
mod raise;
mod resume;
pub mod select;
pub mod tap;
#[cfg(test)]
mod tests;
pub mod upgrade;

use context::AdmittedRequest;

/// The longest body that the API server takes (`MaxRequestBodyBytes` of k8s.io/apiserver).
const MAX_BODY: usize = 3 << 20;

/// An answer that is awaited.
pub type Answered = BoxFuture<'static, Result<Response<Body>, Refusal>>;

/// A stage, with those inside it, down to the API server. All requests share it.
pub trait Handler<R = AdmittedRequest>: Clone + Send + Sync + 'static {
    /// Sends a request on its way.
    fn call(&self, request: R) -> Answered;
}

impl<R, S: Handler<R>> Handler<R> for Arc<S> {
    fn call(&self, request: R) -> Answered {
        (**self).call(request)
    }
}

#[cfg(test)]
impl<F, A> Handler<context::IncomingRequest> for F
where
    F: Fn(Request<Body>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Response<Body>, Refusal>> + Send + 'static,
{
    fn call(&self, incoming: context::IncomingRequest) -> Answered {
        Box::pin(self(incoming.request))
    }
}

#[cfg(test)]
impl<F, A> Handler for F
where
    F: Fn(Request<Body>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Response<Body>, Refusal>> + Send + 'static,
{
    fn call(&self, admitted: AdmittedRequest) -> Answered {
        Box::pin(self(admitted.request))
    }
}

/// What sends requests, behind the last stage. It is always ready: it waits in its calls.
pub trait Upstream:
    Service<Request<Body>, Response = Response<Body>, Error = UpstreamError, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<U> Upstream for U where
    U: Service<Request<Body>, Response = Response<Body>, Error = UpstreamError, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Sends requests of the proxy's own.
pub type OwnRequests = Arc<dyn Fn(Request<Body>) -> Answered + Send + Sync>;

/// All of a request's body, which the API server reads at once as well.
async fn whole(budget: &Budget, body: Body) -> Result<Bytes, Refusal> {
    budget.collect(body, MAX_BODY).await.map_err(|unread| match unread {
        Unread::TooLong(most) => Refusal::TooLong(most),
        Unread::NoRoom(_) => Refusal::NoRoom,
        Unread::Broken(BodyError(cut)) if cut.is::<BodyStalled>() => Refusal::BodyStalled(BodyStalled),
        Unread::Broken(cut) => Refusal::Cut(cut.to_string()),
    })
}

/// What the stages share with other rooms.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The local token.
    pub token: Arc<Token>,
    /// What is done with those of other accounts.
    pub foreign_tokens: ForeignTokens,
    /// Whether the controller ran through a gap.
    pub gaps: GapDetector,
    /// Open while this is a shard.
    pub gate: Gate,
    /// What is known of the ring.
    pub knowledge: watch::Sender<RingState>,
    /// The newest generation of the ring, as the Lease says.
    pub newest: watch::Sender<i64>,
    /// The locks of the controller's elections.
    pub locks: Arc<Locks>,
    /// The ring's hold on the real ones.
    pub hold: Arc<Hold>,
    /// What it says of itself to kopf's peers.
    pub peerings: Arc<Peerings>,
    /// The identity under which the ring appears among kopf peers.
    pub presence: Arc<RingPeer>,
    /// What the controller can still see.
    pub views: Views,
    /// What it may not write any more, and what it is writing.
    pub fence: Fence,
    /// The labels of the ring's objects.
    pub labels: Arc<RingLabels>,
    /// Whether the controller does not see them.
    pub hides_labels: bool,
    /// Which clients find a deletionTimestamp in each `DELETED`.
    pub marks: DeletionTimestamps,
    /// Counters.
    pub metrics: Metrics,
    /// What all buffers draw from.
    pub budget: Budget,
    /// What outlives its request: upgraded connections, and the wait for an answer whose client has left.
    pub upgraded: TaskTracker,
    /// Ends watches, without an error, when the proxy ends.
    pub closing: CancellationToken,
    /// Cuts what has not ended then.
    pub abort: CancellationToken,
}

impl Shared {
    /// The Lease is not held any more since that term ended.
    pub fn lost(&self, term: &LeaseTerm) {
        self.hold.knows_nothing();
        self.gaps.begins();
        self.views.term_over(term.began);
    }
}

/// The stack over `upstream`.
pub fn stack(
    shared: &Shared,
    upstream: impl Upstream,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = std::convert::Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    let forward = forward::Forward::new(upstream);
    let own = forward.own();
    let accounts = authenticate::Accounts::new(own.clone(), shared.budget.clone());
    ServiceBuilder::new()
        .layer_fn(|next| answer::Answer::new(Arc::new(next), shared.metrics.clone(), shared.budget.clone()))
        .layer_fn(|next| {
            let (token, gaps) = (shared.token.clone(), shared.gaps.clone());
            let foreign = authenticate::Foreign::new(shared.foreign_tokens, accounts.clone(), shared.metrics.clone());
            authenticate::Authenticate::new(Arc::new(next), token, gaps, shared.views.clone(), foreign)
        })
        .layer_fn(|next| {
            let (gate, knowledge) = (shared.gate.clone(), shared.knowledge.clone());
            let (locks, hold) = (shared.locks.clone(), shared.hold.clone());
            admit::Admit::new(Arc::new(next), forward.clone(), admit::AdmitState { gate, knowledge, locks, hold })
        })
        .layer_fn(|next| {
            let keys = shared.hides_labels.then(|| Keys::of(&shared.labels));
            hide::Hide::new(Arc::new(next), keys, shared.metrics.clone())
        })
        .layer_fn(|next| {
            elect::Elect::new(Arc::new(next), shared.locks.clone(), shared.hold.clone(), shared.closing.clone())
        })
        .layer_fn(|next| peer::Peers::new(Arc::new(next), shared.peerings.clone(), shared.presence.clone()))
        .layer_fn(|next| {
            let alone = fence::DetachedWrites { tasks: shared.upgraded.clone(), abort: shared.abort.clone() };
            let state = fence::FenceState {
                fence: shared.fence.clone(),
                views: shared.views.clone(),
                labels: shared.labels.clone(),
                hides_labels: shared.hides_labels,
            };
            fence::Fence::new(Arc::new(next), own.clone(), state, shared.metrics.clone(), alone)
        })
        .layer_fn(|next| {
            let (fence, views, metrics) = (shared.fence.clone(), shared.views.clone(), shared.metrics.clone());
            select::Select::new(Arc::new(next), own.clone(), fence, views, metrics)
        })
        .layer_fn(|next| {
            let state = tap::TapState {
                views: shared.views.clone(),
                marks: shared.marks,
                metrics: shared.metrics.clone(),
                closing: shared.closing.clone(),
                upgrades: upgrade::Upgrades { joined: shared.upgraded.clone(), abort: shared.abort.clone() },
            };
            tap::Tap::new(Arc::new(next), own.clone(), state)
        })
        .layer_fn(|next| begin::Begin::new(Arc::new(next), own.clone()))
        .service(forward.clone())
}
