//! What an error of the API server, or of a write that was not sent, means for what comes next.

use kube::core::Status;
use ringside_runtime::explain::code;

/// The reason of the error for a write that was accepted and taken back: ours, no reason of the API server.
pub(crate) const UNDONE: &str = "LabelsUndone";

/// Whether the API server accepted a write, and a webhook, policy or conversion took it back.
pub(crate) fn is_undone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == UNDONE)
}

/// Whether a write that ended so was refused, and will never be carried out.
///
/// Without an answer it may be. After 429 too: that comes after such a one as well, as it is then asked for again.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    code(error).is_some_and(|code| code < 500 && code != 429)
}

/// Whether the API server refuses the write for what it is or what it is to, and no write before it can be under way: the same will
/// come of it next time.
///
/// So it is where a webhook can't be called that has to be: that is asked before anything is stored. What others change all the time
/// (409) is not refused.
pub(crate) fn is_certainly_refused(error: &kube::Error) -> bool {
    let calls_webhook = |status: &Status| status.code == 500 && status.message.contains("failed calling webhook");
    matches!(code(error), Some(400 | 403 | 405 | 413 | 422))
        || is_undone(error)
        || matches!(error, kube::Error::Api(status) if calls_webhook(status))
}

/// Whether it is the API server's authorizer that refuses the write, and no policy: one that has just started says so of everything,
/// until it has read the roles.
pub(crate) fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 && status.message.contains("cannot patch resource"))
}

/// The error of a write that was not sent: there was no hold for it any more.
#[derive(Debug, thiserror::Error)]
#[error("the hold on the Lease of the object's shard has ended")]
pub(crate) struct HoldEnded;

/// Whether a write was not sent as its hold had ended.
pub(crate) fn has_ended(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<HoldEnded>())
}

/// Whether the request fails the same way until a user changes something.
pub(crate) fn lasts(error: &kube::Error) -> bool {
    is_undone(error) || matches!(code(error), Some(401 | 403 | 404 | 405))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_carried_out_or_passes_is_not_certainly_refused() {
        for (code, message, expected) in [
            (403, "denied", true),
            (422, "invalid", true),
            (500, "Internal error occurred: failed calling webhook \"w.example.com\": connection refused", true),
            (500, "etcdserver: request timed out", false),
            (409, "the object has been modified", false),
            (429, "too many requests", false),
            (504, "timeout", false),
        ] {
            let error = kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed());
            assert_eq!(is_certainly_refused(&error), expected, "{code} {message}");
        }
    }
}
