//! Hides the labels of the ring in all answers about its resources, unless the proxy is told to show them.
//!
//! May change `Accept`, from which it takes YAML where JSON is accepted as well, and `Accept-Encoding`. In answers in JSON and
//! protobuf it overwrites the entries, so that these are as long as before; in a watch by WebSocket who joins its connections
//! does. Counts requests that may be answered in YAML. Connections to Pods, and what is behind the API server, are not touched.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{FutureExt, TryFutureExt};
use http::{HeaderValue, Response, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::{
    Answered, Handler,
    context::{AdmittedRequest, RequestContext},
    fence::CONNECTS,
};
use crate::{
    body::{Body, BodyError, Polled},
    labels::{Filter, Keys},
    metrics::Metrics,
    request::representation::{JSON, PROTOBUF, essence, prefer_json},
};

/// Hides labels in answers.
#[derive(Clone, Debug)]
pub struct Hide<S> {
    next: S,
    /// `None` where they are shown.
    keys: Option<Keys>,
    metrics: Metrics,
}

impl<S> Hide<S> {
    /// Wraps the stages that answer.
    pub fn new(next: S, keys: Option<Keys>, metrics: Metrics) -> Self {
        Self { next, keys, metrics }
    }

    /// Returns the labels to hide in the answer, if it is about objects of the ring.
    fn keys(&self, RequestContext { info, admitted, .. }: &RequestContext) -> Option<Keys> {
        let resource = &info.resource;
        let connects = resource.subresource.as_deref().is_some_and(|it| CONNECTS.contains(&it));
        let is_of_ring = admitted.policy.resources.contains(&resource.kind);
        self.keys.clone().filter(|_| is_of_ring && !connects)
    }
}

impl<S: Handler> Handler for Hide<S> {
    fn call(&self, mut asked: AdmittedRequest) -> Answered {
        let Some(keys) = self.keys(&asked.context) else { return self.next.call(asked) };
        let request = &mut asked.request;
        if !prefer_json(request.headers_mut(), "yaml") {
            self.metrics.unfiltered();
        }
        request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        asked.context.hidden = Some(keys.clone());
        self.next.call(asked).map_ok(|response| hidden(response, keys)).boxed()
    }
}

fn hidden(response: Response<Body>, keys: Keys) -> Response<Body> {
    let form = response.headers().get(header::CONTENT_TYPE).and_then(|form| form.to_str().ok()).map(essence);
    let filter = match form.as_deref() {
        Some(JSON) => Filter::json(keys),
        Some(PROTOBUF) => Filter::protobuf(keys),
        _ => return response,
    };
    response.map(|body| filtered(body, filter))
}

/// A body in which the filter hides labels.
pub(super) fn filtered(body: Body, filter: Filter) -> Body {
    Filtered { body, filter, last: None, ended: false }.boxed_unsync()
}

/// A body without the labels.
struct Filtered {
    body: Body,
    filter: Filter,
    /// Trailers, which come after what is held back.
    last: Option<Frame<Bytes>>,
    ended: bool,
}

impl http_body::Body for Filtered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        loop {
            if self.ended {
                return Poll::Ready(self.last.take().map(Ok));
            }
            let passed = match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.filter.push(data),
                end => {
                    self.ended = true;
                    self.last = end.and_then(Result::err);
                    self.filter.end()
                }
            };
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.filter.held() == 0 && (self.ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, held) = (self.body.size_hint(), self.filter.held() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + held);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}
