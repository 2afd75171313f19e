//! Lets requests for resources through while this is a shard that knows what its ring shards.
//!
//! Holds a request a little when that is not so yet, then refuses it. All later stages decide on one and the same state
//! ([`Admitted`]). Ends the body of a response, with an error, at once when the Lease is lost, unless it is a watch: that says
//! nothing then on which its client may act, and ends in order when its client can open another. Discovery, version, health and
//! openapi are sent at any time. It refuses what is ambiguous, and keeps CBOR out (`negotiate`). All the same while the controller may lead by a lock that the ring may have lost
//! ([`crate::election::lead`]), but for requests about that lock.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::ready};
use ringside_ring::cluster_ring::GroupResource;
use tokio::{sync::watch, time::timeout};

use super::{
    Answered, Handler, Upstream,
    context::{AdmittedRequest, IncomingRequest, RequestContext},
    forward::Forward,
    negotiate::negotiate,
};
use crate::{
    body::{BoxError, until},
    election::{Hold, LeadInDoubt, Locks, lead::Lead},
    membership::{Gate, LeaseTerm},
    policy::{Policy, Read, RingState},
    request::Verb,
    status::Refusal,
};

/// How long a request may wait for the Lease and the ring: at a start both take a few round trips, and
/// clients give up on a request after 10 s at the earliest (client-go's election timeout).
pub const ADMIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The state that a request was admitted in.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// The time of holding the Lease.
    pub term: LeaseTerm,
    /// The ring's resources.
    pub policy: Arc<Policy>,
    /// The time in which the controller may act; none of a request that tells it whether it may.
    lead: Option<Lead>,
    state: AdmitState,
    changes: watch::Receiver<RingState>,
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

    /// Whether the admission has ended.
    pub fn is_over(&self) -> bool {
        self.over().now_or_never().is_some()
    }

    /// The refusal to return once the admission has ended.
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
                // The task that follows the ring has ended: the proxy is ending.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Lets requests for resources through while this is a shard that knows its ring.
#[derive(Clone, Debug)]
pub struct Admit<S, U> {
    next: S,
    free: Forward<U>,
    state: AdmitState,
}

/// What decides.
#[derive(Clone, Debug)]
pub struct AdmitState {
    /// Open while this is a shard.
    pub gate: Gate,
    /// What is known of the ring.
    pub knowledge: watch::Sender<RingState>,
    /// The locks of the controller's elections.
    pub locks: Arc<Locks>,
    /// The ring's hold on the real ones.
    pub hold: Arc<Hold>,
}

impl<S, U> Admit<S, U> {
    /// Around the stages for requests of a shard; `free` sends what needs none.
    pub fn new(next: S, free: Forward<U>, state: AdmitState) -> Self {
        Self { next, free, state }
    }
}

/// `acts` unless the request is how the controller finds out whether it may.
async fn admission(state: AdmitState, acts: bool) -> Result<Admitted, Refusal> {
    let mut changes = state.knowledge.subscribe();
    let known = timeout(ADMIT_TIMEOUT, changes.wait_for(|now| matches!(now, RingState::Known(_)))).await.is_ok();
    // Before the policy is read: a change after that ends the watch that was decided on the old one.
    let now = changes.borrow_and_update().clone();
    let policy = match now {
        RingState::Known(policy) if known => policy,
        RingState::Known(_) => return Err(Refusal::PolicyUnknown("the ring was only just read".to_owned())),
        RingState::Unknown(reason) => return Err(Refusal::PolicyUnknown(reason)),
    };
    let term = state.gate.pass(ADMIT_TIMEOUT).await?;
    let lead = if acts { Some(state.hold.lead(&state.locks, ADMIT_TIMEOUT).await?) } else { None };
    Ok(Admitted { term, policy, lead, state, changes })
}

impl<S: Handler, U: Upstream> Handler<IncomingRequest> for Admit<S, U> {
    fn call(&self, IncomingRequest { mut request, info, origin }: IncomingRequest) -> Answered {
        let negotiated = info.map_err(Refusal::from).and_then(|info| {
            negotiate(&mut request, info.as_ref())?;
            Ok(info)
        });
        let info = match negotiated {
            Ok(info) => info,
            Err(refusal) => return ready(Err(refusal)).boxed(),
        };
        let Some(info) = info else { return self.free.send(request, Some(origin.stalled)) };
        let acts = !self.state.locks.is_about_a_lead(&info);
        let admission = admission(self.state.clone(), acts);
        let next = self.next.clone();
        let admitted = async move {
            let (verb, admitted) = (info.verb, admission.await?);
            let (over, lasting) = (admitted.over(), admitted.clone());
            let context = RequestContext::new(info, admitted, origin);
            tokio::select! {
                answer = next.call(AdmittedRequest { request, context }) => {
                    let answer = answer?;
                    let lasts_by_itself = verb == Verb::Watch && answer.status().is_success();
                    Ok(if lasts_by_itself { answer } else { answer.map(|body| until(body, lasting.over())) })
                }
                _ = over => Err(if verb.reads() { lasting.why() } else { Refusal::LostMeanwhile }),
            }
        };
        admitted.boxed()
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use http::{Method, Request, Response};

    use super::*;
    use crate::{
        body::{Body, empty},
        budget::Budget,
        election::hold::tests::Server,
        policy,
        request::representation::Encoding,
        upstream::UpstreamError,
    };

    /// Of a shard that knows its ring.
    fn state() -> AdmitState {
        let state = AdmitState {
            gate: Gate::new(),
            knowledge: policy::ring_state(),
            locks: Arc::new(Locks::new("ns".into())),
            hold: Arc::new(Server::default().hold()),
        };
        state.gate.open(LeaseTerm::new("me".parse().unwrap(), "s=me".into(), || true));
        state.knowledge.send_replace(RingState::Known(Arc::default()));
        state
    }

    /// Admitted for as long as a test lasts.
    pub(in crate::stages) fn admitted() -> Admitted {
        admission(state(), false).now_or_never().unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_write_that_may_have_been_done_when_the_lease_was_lost_is_not_to_be_repeated() {
        for (method, repeat) in [(Method::GET, true), (Method::POST, false), (Method::DELETE, false)] {
            let state = state();
            let gate = state.gate.clone();
            let sent = Arc::new(tokio::sync::Notify::new());
            let arrived = sent.clone();
            let server = move |_: Request<Body>| {
                arrived.notify_one();
                pending::<Result<Response<Body>, Refusal>>()
            };
            let request = Request::builder().method(method).uri("/api/v1/namespaces/a/pods").body(empty()).unwrap();
            let incoming = IncomingRequest::of(request, Budget::default()).unwrap();
            let none = tower::service_fn(|_| pending::<Result<Response<Body>, UpstreamError>>());
            let (refused, ()) = tokio::join!(Admit::new(server, Forward::new(none), state).call(incoming), async {
                sent.notified().await;
                gate.close();
            });
            let response = refused.unwrap_err().into_response(Encoding::Json);
            assert!(response.status().is_server_error());
            assert_eq!(response.headers().contains_key(http::header::RETRY_AFTER), repeat);
        }
    }
}
