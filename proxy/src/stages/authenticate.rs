//! Refuses requests without the local token or another account's.
//!
//! Takes the token and all else that says who is asking off the request (`access/credentials.rs`): the API server is given our
//! own credentials. A request with another account's token keeps that, and is sent with nothing of the pod's. It passes only if the
//! API server accepts the token (`accounts`), and its buffers draw from that account's share of the budget.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::ready};
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio::time::Instant;

mod accounts;

pub use accounts::Accounts;

use super::{Answered, Handler, context::IncomingRequest};
use crate::{
    access::{
        Token,
        credentials::{self, Credentials},
    },
    config::ForeignTokens,
    gap::GapDetector,
    metrics::Metrics,
    status::Refusal,
    views::Views,
};
use accounts::{Account, NoAccount};

/// Refuses requests without the local token or another account's, and takes the local token off.
#[derive(Clone)]
pub struct Authenticate<S> {
    next: S,
    token: Arc<Token>,
    gaps: GapDetector,
    views: Views,
    foreign: Foreign,
}

/// What is done with another account's token.
#[derive(Clone)]
pub struct Foreign {
    tokens: ForeignTokens,
    accounts: Accounts,
    metrics: Metrics,
    /// When the log last said that one came.
    told: Arc<Mutex<Option<Instant>>>,
}

/// How often the log says it at most.
const TELL_EVERY: Duration = Duration::from_hours(1);

impl Foreign {
    /// As an option says it.
    pub fn new(tokens: ForeignTokens, accounts: Accounts, metrics: Metrics) -> Self {
        Self { tokens, accounts, metrics, told: Arc::default() }
    }

    /// Returns the account whose request passes.
    async fn account(&self, headers: &HeaderMap) -> Result<Account, Refusal> {
        let authorization = headers.get(header::AUTHORIZATION).ok_or(Refusal::Unauthorized)?;
        let agent = headers.get(header::USER_AGENT).and_then(|it| it.to_str().ok());
        let account = match self.tokens {
            ForeignTokens::Refuse => None,
            ForeignTokens::Pass => Some(self.accounts.of(authorization).await),
        };
        self.metrics.foreign(match &account {
            None => "refused",
            Some(Ok(_)) => "passed",
            Some(Err(NoAccount::Rejected)) => "rejected",
            Some(Err(NoAccount::Unanswered(_))) => "unanswered",
        });
        if let Some(Err(NoAccount::Rejected)) = &account {
            tracing::warn!(agent, "refused a request: the API server does not accept its token");
        } else if self.is_to_be_told() {
            let passes = matches!(account, Some(Ok(_)));
            tracing::info!(agent, passes, "request with another account's token: --foreign-tokens decides");
        }
        Ok(account.ok_or(Refusal::Unauthorized)??)
    }

    fn is_to_be_told(&self) -> bool {
        let mut told = self.told.lock();
        let is_due = told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if is_due {
            *told = Some(Instant::now());
        }
        is_due
    }
}

impl<S> Authenticate<S> {
    /// Around the stages for those who have the token; of which generation it is shows who ran through a gap, and that its views
    /// of before are not known.
    pub fn new(next: S, token: Arc<Token>, gaps: GapDetector, views: Views, foreign: Foreign) -> Self {
        Self { next, token, gaps, views, foreign }
    }
}

impl<S: Handler<IncomingRequest>> Handler<IncomingRequest> for Authenticate<S> {
    fn call(&self, mut incoming: IncomingRequest) -> Answered {
        let proves = |incoming: &IncomingRequest| incoming.origin.caller.iter().for_each(|caller| caller.proves());
        match credentials::take(incoming.request.headers_mut(), &self.token) {
            Credentials::Own(generation) => {
                proves(&incoming);
                self.gaps.seen(generation, || self.views.follow_others());
                self.next.call(incoming)
            }
            Credentials::Foreign => {
                let (foreign, next) = (self.foreign.clone(), self.next.clone());
                let passed = async move {
                    let account = foreign.account(incoming.request.headers()).await?;
                    proves(&incoming);
                    incoming.origin.budget = incoming.origin.budget.of_account(account);
                    next.call(incoming).await
                };
                passed.boxed()
            }
            Credentials::None => ready(Err(Refusal::Unauthorized)).boxed(),
        }
    }
}
