//! Finds out which account a token belongs to that is no proxy's: by a SelfSubjectReview with that token.
//!
//! The answer is kept for a minute, by the token's hash. So a token that the API server does not accept costs one question a
//! minute, and its requests reach neither gate nor fence nor budget.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, StatusCode, header};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::{
    body::{Body, full},
    budget::Budget,
    stages::OwnRequests,
    status::Refusal,
};

/// How long an answer counts.
const KEPT: Duration = Duration::from_secs(60);
/// How long it counts that there was none.
const UNANSWERED_KEPT: Duration = Duration::from_secs(1);
/// How many tokens are asked about at once that were no account's before, and how long one waits for its turn.
const AT_ONCE: usize = 8;
const TURN: Duration = Duration::from_secs(3);
/// How long an answer may take. With [`TURN`] it is less than a connection has to show a right token.
const ANSWER: Duration = Duration::from_secs(5);
/// How many tokens are kept. Those without an account make room for others.
const MAX_TOKENS: usize = 1024;
/// The longest answer: an account may be in many groups.
const MAX_ANSWER: usize = 1 << 20;

const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const QUESTION: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// What an API server calls a client whose token it did not look at.
const ANONYMOUS: &str = "system:anonymous";

/// The name of an account, or of a token whose account may not ask who it is.
pub(crate) type Account = Arc<str>;

/// The tokens that came, and whose they are. Cheap to clone.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    send: OwnRequests,
    budget: Budget,
    turns: Semaphore,
    tokens: Mutex<HashMap<[u8; 32], Arc<KnownToken>>>,
}

/// What is known of one token. The lock is held while it is asked about: one question is enough for all who wait.
type KnownToken = tokio::sync::Mutex<Option<Known>>;

struct Known {
    until: Instant,
    account: Result<Account, NoAccount>,
}

/// Why a token has no account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoAccount {
    /// The API server does not accept it.
    Rejected,
    /// The API server did not say.
    Unanswered(Arc<str>),
}

impl From<NoAccount> for Refusal {
    fn from(none: NoAccount) -> Self {
        match none {
            NoAccount::Rejected => Self::RejectedToken,
            NoAccount::Unanswered(why) => Self::UnverifiedToken(why),
        }
    }
}

impl Accounts {
    /// Asks by these requests; answers draw from the budget.
    pub fn new(send: OwnRequests, budget: Budget) -> Self {
        let (turns, tokens) = (Semaphore::new(AT_ONCE), Mutex::default());
        Self(Arc::new(Inner { send, budget, turns, tokens }))
    }

    /// Returns the account of the token in this header.
    ///
    /// # Errors
    /// When the API server does not accept the token, or does not answer.
    pub(super) async fn of(&self, authorization: &HeaderValue) -> Result<Account, NoAccount> {
        let hash: [u8; 32] = Sha256::digest(authorization.as_bytes()).into();
        let token = self.token(hash);
        let mut known = token.lock().await;
        if let Some(known) = known.as_ref().filter(|known| Instant::now() < known.until) {
            return known.account.clone();
        }
        let had_account = known.as_ref().is_some_and(|known| known.account.is_ok());
        let account = self.ask(authorization, hash, had_account).await;
        let kept = if matches!(account, Err(NoAccount::Unanswered(_))) { UNANSWERED_KEPT } else { KEPT };
        *known = Some(Known { until: Instant::now() + kept, account: account.clone() });
        account
    }

    fn token(&self, hash: [u8; 32]) -> Arc<KnownToken> {
        let mut tokens = self.0.tokens.lock();
        if tokens.len() >= MAX_TOKENS && !tokens.contains_key(&hash) {
            let has_account = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.account.is_ok());
            tokens.retain(|_, token| token.try_lock().is_ok_and(|known| has_account(&known)));
            if tokens.len() >= MAX_TOKENS {
                tokens.clear();
            }
        }
        tokens.entry(hash).or_default().clone()
    }

    /// Asks with the token. One that had an account waits for no turn: however many others come, it is asked about at once.
    async fn ask(&self, authorization: &HeaderValue, hash: [u8; 32], had_account: bool) -> Result<Account, NoAccount> {
        let unanswered = |why: &str| NoAccount::Unanswered(why.into());
        let _turn = if had_account {
            None
        } else {
            let turn = timeout(TURN, self.0.turns.acquire()).await;
            Some(turn.map_err(|_| unanswered("too many unknown tokens are asked about"))?)
        };
        let answer = async {
            let (head, body) =
                (self.0.send)(question(authorization)).await.map_err(|why| unanswered(&why.to_string()))?.into_parts();
            match head.status {
                status if status.is_success() => {
                    let body = self.0.budget.collect(body, MAX_ANSWER).await;
                    body.map_err(|unread| unanswered(&unread.to_string())).and_then(|body| user(&body))
                }
                StatusCode::UNAUTHORIZED => Err(NoAccount::Rejected),
                status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                    Err(unanswered(&format!("the API server answered {status}")))
                }
                // It is known, and may not ask, or this API server has no such reviews.
                _ => Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()),
            }
        };
        let late = |_| unanswered(&format!("no answer from the API server within {ANSWER:?}"));
        timeout(ANSWER, answer).await.map_err(late)?
    }
}

fn question(authorization: &HeaderValue) -> Request<Body> {
    let mut request = Request::new(full(QUESTION));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(PATH);
    let headers =
        [(header::AUTHORIZATION, authorization.clone()), (header::CONTENT_TYPE, JSON), (header::ACCEPT, JSON)];
    request.headers_mut().extend(headers);
    request
}

/// The user's name in a review.
fn user(review: &[u8]) -> Result<Account, NoAccount> {
    let review: Option<SelfSubjectReview> = serde_json::from_slice(review).ok();
    let user = review.and_then(|review| review.status?.user_info?.username);
    match user.as_deref() {
        Some(ANONYMOUS) => Err(NoAccount::Rejected),
        Some(name) => Ok(name.into()),
        None => Err(NoAccount::Unanswered("the API server's review names no user".into())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, future::join_all};
    use http::Response;
    use tokio::time::{advance, sleep};

    use super::*;

    fn bearer(token: &str) -> HeaderValue {
        format!("Bearer {token}").parse().unwrap()
    }

    /// An API server that knows tokens that begin with `known`, and takes a moment; and how often it was asked.
    fn accounts() -> (Accounts, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = asked.clone();
        let send = Arc::new(move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep(Duration::from_millis(100)).await;
                assert_eq!((request.method(), request.uri().path()), (&Method::POST, PATH));
                let token = request.headers()[header::AUTHORIZATION].to_str().unwrap().to_owned();
                let (status, user) = match token.as_str() {
                    "Bearer silent" => return std::future::pending().await,
                    "Bearer busy" => (StatusCode::TOO_MANY_REQUESTS, ""),
                    "Bearer powerless" => (StatusCode::FORBIDDEN, ""),
                    "Bearer nobody" => (StatusCode::CREATED, ANONYMOUS),
                    token if token.starts_with("Bearer known") => (StatusCode::CREATED, "jane"),
                    _ => (StatusCode::UNAUTHORIZED, ""),
                };
                let review = serde_json::json!({"metadata": {}, "status": {"userInfo": {"username": user}}});
                Ok(Response::builder().status(status).body(full(review.to_string())).unwrap())
            }
            .boxed()
        });
        (Accounts::new(send, Budget::default()), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_asked_about_once_a_minute() {
        let (accounts, asked) = accounts();
        for (token, is_known) in [("known", true), ("invented", false), ("powerless", true), ("nobody", false)] {
            let before = asked.load(Ordering::Relaxed);
            let bearer = bearer(token);
            let all = join_all((0..100).map(|_| accounts.of(&bearer))).await;
            assert!(all.iter().all(|account| account.is_ok() == is_known), "{token}");
            advance(KEPT - Duration::from_secs(1)).await;
            assert_eq!((accounts.of(&bearer).await.is_ok(), asked.load(Ordering::Relaxed)), (is_known, before + 1));
            advance(Duration::from_secs(2)).await;
            assert_eq!((accounts.of(&bearer).await.is_ok(), asked.load(Ordering::Relaxed)), (is_known, before + 2));
        }
        assert_eq!(&*accounts.of(&bearer("known")).await.unwrap(), "jane");
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_question_is_not_kept() {
        let (accounts, asked) = accounts();
        for token in ["silent", "busy"] {
            let before = asked.load(Ordering::Relaxed);
            assert!(matches!(accounts.of(&bearer(token)).await, Err(NoAccount::Unanswered(_))), "{token}");
            advance(UNANSWERED_KEPT).await;
            drop(accounts.of(&bearer(token)).await);
            assert_eq!(asked.load(Ordering::Relaxed), before + 2, "{token}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn invented_tokens_keep_no_known_account_waiting() {
        let (accounts, _) = accounts();
        accounts.of(&bearer("known")).await.unwrap();
        advance(KEPT).await;
        let invented: Vec<_> = (0..20 * MAX_TOKENS).map(|number| bearer(&format!("invented-{number}"))).collect();
        let mut flood = Box::pin(join_all(invented.iter().map(|token| accounts.of(token))));
        assert!((&mut flood).now_or_never().is_none());
        let begun = Instant::now();
        assert_eq!(&*accounts.of(&bearer("known")).await.unwrap(), "jane");
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(flood.await.iter().all(Result::is_err));
        assert!(accounts.0.tokens.lock().len() <= MAX_TOKENS);
    }
}
