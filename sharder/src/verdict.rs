//! What probes of the API server came to.

use tokio::sync::watch;

/// Whether the API server does what it should with a probe, or why not; none while that is not known.
pub(crate) type Verdict = Option<Result<(), String>>;

/// What is known of that. Clones share it.
pub(crate) type Verdicts = watch::Sender<Verdict>;
