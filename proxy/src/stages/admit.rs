//! Lets requests for resources through while this is a shard that knows what its ring shards.
//!
//! Holds a request a little when that is not so yet, then refuses it. Adds [`Admitted`] to the request, so
//! that all later stages decide on one and the same state. Ends the body of a response, with an error, at
//! once when the Lease is lost, unless it is a watch that ends in order ([`EndsInOrder`]). Discovery, version, health and openapi
//! pass at any time. All the same while the controller may lead by a lock that the ring may have lost
//! ([`crate::election::lead`]), but for requests about that lock.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use http::{Request, Response};
use ringside_ring::cluster_ring::GroupResource;
use tokio::{sync::watch, time::timeout};

use super::{Answered, Next};
use crate::{
    body::{Body, BoxError, until},
    election::{Hold, LeadInDoubt, Locks, lead::Lead},
    membership::{Gate, Term},
    policy::{Knowledge, Policy, Read},
    request::RequestInfo,
    status::Refusal,
};

/// On a response: it is a watch that says nothing on which its client may act once what it was admitted by is over, and ends in
/// order when its client can open another.
#[derive(Clone, Copy, Debug)]
pub struct EndsInOrder;

/// How long a request may wait for the Lease and the ring: at a start both take a few round trips, and
/// clients give up on a request after 10 s at the earliest (client-go's election timeout).
pub const ADMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// On a request: the state that it was admitted in.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The time of holding the Lease.
    pub term: Term,
    /// The ring's resources.
    pub policy: Arc<Policy>,
    /// The time in which the controller may act; none of a request that tells it whether it may.
    lead: Option<Lead>,
    state: State,
    changes: watch::Receiver<Knowledge>,
}

impl Admitted {
    /// From where on what the client knows of a resource can be trusted; none for one that was never the ring's.
    pub fn floor(&self, resource: &GroupResource) -> Option<Read> {
        self.policy.floors.get(resource).map(|floor| floor.during(self.term.number))
    }

    /// Returns, with the error for a stream, when that state has ended.
    pub fn over(&self) -> impl Future<Output = BoxError> + Send + 'static {
        let (term, lead) = (self.term.over(), self.doubted());
        async move {
            tokio::select! {
                error = term => error,
                error = lead => error,
            }
        }
    }

    /// Returns, with the error for a stream, when it has ended because the controller may not lead.
    fn doubted(&self) -> impl Future<Output = BoxError> + Send + 'static {
        let lead = self.lead.as_ref().map(Lead::over);
        async move {
            match lead {
                Some(lead) => lead.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns when a request like this one would be admitted.
    pub fn regained(&self) -> impl Future<Output = ()> + Send + 'static {
        let (state, acts) = (self.state.clone(), self.lead.is_some());
        async move { while admission(state.clone(), acts).await.is_err() {} }
    }

    /// Returns when that state has ended, and a request like this one would be admitted again.
    pub fn renewed(&self) -> impl Future<Output = ()> + Send + 'static {
        let (over, regained) = (self.over(), self.regained());
        async move {
            over.await;
            regained.await;
        }
    }

    /// Whether it has.
    pub fn is_over(&self) -> bool {
        self.over().now_or_never().is_some()
    }

    /// The answer, for as long as that state lasts.
    fn bound(&self, mut answer: Response<Body>) -> Response<Body> {
        match answer.extensions_mut().remove::<EndsInOrder>() {
            Some(EndsInOrder) => answer,
            None => answer.map(|body| until(body, self.over())),
        }
    }

    /// Why it has.
    fn why(&self) -> Refusal {
        if self.term.is_on() { LeadInDoubt.into() } else { Refusal::NotAShard }
    }

    /// Returns when the controller is to be shown another set of a resource's objects: this shard's alone, or all.
    pub fn policy_changed(&self, resource: GroupResource) -> impl Future<Output = ()> + Send + 'static {
        let before = self.policy.narrows(&resource);
        let mut changes = self.changes.clone();
        async move {
            let changed = changes.wait_for(|now| now.narrows(&resource) != before).await.is_ok();
            if !changed {
                // Nobody follows the ring any more: the proxy is ending.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Admit<S> {
    next: S,
    state: State,
}

/// What decides.
#[derive(Clone, Debug)]
pub struct State {
    /// Open while this is a shard.
    pub gate: Gate,
    /// What is known of the ring.
    pub knowledge: watch::Sender<Knowledge>,
    /// The locks of the controller's elections.
    pub locks: Arc<Locks>,
    /// The ring's hold on the real ones.
    pub hold: Arc<Hold>,
}

impl<S> Admit<S> {
    /// Around the stages for requests of a shard.
    pub fn new(next: S, state: State) -> Self {
        Self { next, state }
    }
}

/// `acts` unless the request is how the controller finds out whether it may.
async fn admission(state: State, acts: bool) -> Result<Admitted, Refusal> {
    let mut changes = state.knowledge.subscribe();
    let known = timeout(ADMIT_TIMEOUT, changes.wait_for(|now| matches!(now, Knowledge::Known(_)))).await.is_ok();
    // Before the policy is read: a change after that ends the watch that was decided on the old one.
    let now = changes.borrow_and_update().clone();
    let policy = match now {
        Knowledge::Known(policy) if known => policy,
        Knowledge::Known(_) => return Err(Refusal::PolicyUnknown("the ring was only just read".to_owned())),
        Knowledge::Unknown(reason) => return Err(Refusal::PolicyUnknown(reason)),
    };
    let term = state.gate.pass(ADMIT_TIMEOUT).await?;
    let lead = if acts { Some(state.hold.lead(&state.locks, ADMIT_TIMEOUT).await?) } else { None };
    Ok(Admitted { term, policy, lead, state, changes })
}

impl<S: Next> Next for Admit<S> {
    fn call(&self, mut request: Request<Body>) -> Answered {
        let info = request.extensions().get::<RequestInfo>().filter(|info| info.resource.is_some());
        let Some(info) = info else { return self.next.call(request) };
        let acts = !self.state.locks.is_about_a_lead(info);
        let admission = admission(self.state.clone(), acts);
        let next = self.next.clone();
        let admitted = async move {
            let admitted = admission.await?;
            let (over, lasting) = (admitted.over(), admitted.clone());
            let reads = request.extensions().get::<RequestInfo>().is_some_and(|info| info.verb.reads());
            request.extensions_mut().insert(admitted);
            tokio::select! {
                response = next.call(request) => Ok(lasting.bound(response?)),
                _ = over => Err(if reads { lasting.why() } else { Refusal::LostMeanwhile }),
            }
        };
        admitted.boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use http::{HeaderMap, Method};

    use super::*;
    use crate::{body::empty, election::hold::tests::Server, policy, request::representation::Encoding};

    #[tokio::test]
    async fn a_write_that_may_have_been_done_when_the_lease_was_lost_is_not_to_be_repeated() {
        for (method, repeat) in [(Method::GET, true), (Method::POST, false), (Method::DELETE, false)] {
            let state = State {
                gate: Gate::new(),
                knowledge: policy::channel(),
                locks: Arc::new(Locks::new("ns".into())),
                hold: Arc::new(Server::default().hold()),
            };
            let (gate, knowledge) = (state.gate.clone(), state.knowledge.clone());
            gate.open(Term::new("me".parse().unwrap(), "s=me".into(), || true));
            knowledge.send_replace(Knowledge::Known(Arc::default()));
            let sent = Arc::new(tokio::sync::Notify::new());
            let arrived = sent.clone();
            let server = move |_: Request<Body>| {
                arrived.notify_one();
                pending::<Result<Response<Body>, Refusal>>()
            };
            let mut request = Request::builder().method(method).uri("/api/v1/namespaces/a/pods").body(empty()).unwrap();
            let info = RequestInfo::of(request.method(), request.uri(), &HeaderMap::new()).unwrap();
            request.extensions_mut().insert(info);
            let (refused, ()) = tokio::join!(Admit::new(server, state).call(request), async {
                sent.notified().await;
                gate.close();
            });
            let response = refused.unwrap_err().into_response(Encoding::Json);
            assert!(response.status().is_server_error());
            assert_eq!(response.headers().contains_key(http::header::RETRY_AFTER), repeat);
        }
    }
}
