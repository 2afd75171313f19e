//! Answers by which the API server asks to be left alone for a while.

use std::time::Duration;

use http::{Response, StatusCode, header::RETRY_AFTER};

/// How long it is, where an answer does not say. API Priority and Fairness says as much.
const USUAL: Duration = Duration::from_secs(1);
/// However much an answer asks for: an aggregated API server may ask for anything.
const LONGEST: Duration = Duration::from_secs(30);

/// The pause that an answer asks for: 429, or 503 with a `Retry-After` in seconds.
pub(super) fn pause<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let asked = seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST));
    match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => asked.or(Some(USUAL)),
        StatusCode::SERVICE_UNAVAILABLE => asked,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn who_is_overloaded_says_for_how_long() {
        for (status, after, asked) in [
            (429, Some("3"), Some(3)),
            (429, None, Some(1)),
            (429, Some("Fri, 31 Dec 1999 23:59:59 GMT"), Some(1)),
            (429, Some("86400"), Some(30)),
            (503, Some("5"), Some(5)),
            (503, None, None),
            (504, Some("5"), None),
            (200, Some("5"), None),
        ] {
            let mut answer = Response::builder().status(status);
            if let Some(after) = after {
                answer = answer.header(RETRY_AFTER, after);
            }
            assert_eq!(pause(&answer.body(()).unwrap()), asked.map(Duration::from_secs), "{status} {after:?}");
        }
    }
}
