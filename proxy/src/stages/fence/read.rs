//! A get of one object: what is another shard's is not there.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tower::ServiceExt;

use super::{Next, judge::Judge, target};
use crate::{
    body::{Body, BodyError},
    metadata::{self, MAX_OBJECT},
    request::Resource,
    status::Refusal,
};

/// The object, or its `status`, whose answer has the object's labels. Of one that is longer than [`MAX_OBJECT`] the labels are
/// asked for, and it passes as a stream.
pub(super) async fn read<S: Next>(
    next: S,
    judge: Judge,
    request: Request<Body>,
    resource: Resource,
) -> Result<Response<Body>, Refusal> {
    let response = next.oneshot(request).await?;
    if !response.status().is_success() {
        return Ok(response);
    }
    let target = target(&resource);
    let (head, body) = response.into_parts();
    let (shown, body) = peek(&head.headers, body).await;
    match shown {
        Some(metadata) => judge.shown(&target, &metadata)?,
        // A Table without objects, an answer to HEAD, an object without end.
        None => match judge.ask(&target).await? {
            Some(metadata) => judge.shown(&target, &metadata)?,
            // Deleted meanwhile: whose it was nobody can say any more.
            None => return Err(judge.gone(&target)),
        },
    }
    Ok(Response::from_parts(head, body))
}

/// What is not the object: its scale, its log.
pub(super) async fn ask_and_read<S: Next>(
    next: S,
    judge: Judge,
    request: Request<Body>,
    resource: Resource,
) -> Result<Response<Body>, Refusal> {
    let target = target(&resource);
    if let Some(metadata) = judge.ask(&target).await? {
        judge.shown(&target, &metadata)?;
    }
    next.oneshot(request).await
}

/// The metadata in a body, if it can be found, and the same body as it came.
async fn peek(headers: &HeaderMap, mut body: Body) -> (Option<metadata::Metadata>, Body) {
    let (mut collected, mut frames) = (Vec::new(), Vec::<Result<Frame<Bytes>, BodyError>>::new());
    let rest = loop {
        if collected.len() > MAX_OBJECT {
            break Some(http_body_util::BodyStream::new(body));
        }
        let Some(frame) = body.frame().await else { break None };
        let broken = frame.is_err();
        if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
            collected.extend_from_slice(data);
        }
        frames.push(frame);
        if broken {
            break None;
        }
    };
    let whole = rest.is_none() && frames.iter().all(Result::is_ok);
    let shown = if whole { metadata::of_answer(headers, &collected.into()).ok() } else { None };
    let rest = stream::iter(rest).flatten();
    (shown, StreamBody::new(stream::iter(frames).chain(rest)).boxed_unsync())
}
