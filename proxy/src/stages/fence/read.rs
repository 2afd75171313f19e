//! A get of one object: what is another shard's is not there.

use http::Response;

use super::{Handler, ownership_check::OwnershipCheck, target};
use crate::{
    body::Body,
    metadata::{self, MAX_OBJECT},
    stages::context::AdmittedRequest,
    status::Refusal,
};

/// The object, or its `status`, whose answer has the object's labels. Of one that is longer than [`MAX_OBJECT`] the labels are
/// asked for, and it passes as a stream.
pub(super) async fn read<S: Handler>(
    next: S,
    check: OwnershipCheck,
    request: AdmittedRequest,
) -> Result<Response<Body>, Refusal> {
    let (target, asked) = (target(&request.context.info.resource), check.fence.asking());
    let response = next.call(request).await?;
    if !response.status().is_success() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let (whole, body) = check.questions.budget.peek(body, MAX_OBJECT).await;
    match whole.ok().flatten().and_then(|whole| metadata::of_answer(&head.headers, &whole).ok()) {
        Some(metadata) => check.shown(&target, &metadata, asked)?,
        // A Table without objects, an answer to HEAD, an object without end.
        None => match check.ask(&target).await? {
            Some(metadata) => check.shown(&target, &metadata, asked)?,
            // Deleted meanwhile: its owner can't be found out any more.
            None => return Err(check.gone(&target)),
        },
    }
    Ok(Response::from_parts(head, body))
}

/// What is not the object: its scale, its log.
pub(super) async fn ask_and_read<S: Handler>(
    next: S,
    check: OwnershipCheck,
    request: AdmittedRequest,
) -> Result<Response<Body>, Refusal> {
    let (target, asked) = (target(&request.context.info.resource), check.fence.asking());
    if let Some(metadata) = check.ask(&target).await? {
        check.shown(&target, &metadata, asked)?;
    }
    next.call(request).await
}
