//! Answers by which the API server asks to be left alone for a while.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::time::Instant;
use tower::Service;

/// How long it is, where an answer does not say. API Priority and Fairness says as much.
const USUAL: Duration = Duration::from_secs(1);
/// However much an answer asks for: an aggregated API server may ask for anything.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A pause that the API server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// How long it is.
    pub lasts: Duration,
    /// The API group that it is about; none: all of them.
    pub group: Option<String>,
    /// When the request was sent that was answered so.
    pub sent: Instant,
}

impl Pause {
    /// What an answer asks for: 429, or 503 with a `Retry-After` in seconds.
    ///
    /// 429 is how the API server keeps itself from being overloaded (API Priority and Fairness), whatever was asked for. 503
    /// is said of what is behind it: an aggregated API server, which has API groups of its own.
    fn of<B>((path, sent): (&str, Instant), answer: &Response<B>) -> Option<Self> {
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        let asked = seconds.map(|seconds| Duration::from_secs(seconds).min(MAX_PAUSE));
        match answer.status() {
            StatusCode::TOO_MANY_REQUESTS => Some(Self { lasts: asked.unwrap_or(USUAL), group: None, sent }),
            StatusCode::SERVICE_UNAVAILABLE => asked.map(|lasts| Self { lasts, group: group(path), sent }),
            _ => None,
        }
    }
}

/// The API group that a path of the API server belongs to, if it is one of resources.
fn group(path: &str) -> Option<String> {
    let mut segments = path.trim_start_matches('/').split('/');
    match segments.next()? {
        "api" => Some(String::new()),
        "apis" => segments.next().map(str::to_owned),
        _ => None,
    }
}

/// Tells of each pause that an answer asks for.
#[derive(Clone, Debug)]
pub(super) struct Telling<S, F> {
    inner: S,
    asked: F,
}

impl<S, F> Telling<S, F> {
    pub(super) fn new(inner: S, asked: F) -> Self {
        Self { inner, asked }
    }
}

impl<S, F, A, B> Service<Request<A>> for Telling<S, F>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    F: Fn(Pause) + Clone + Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let (path, sent, asked) = (request.uri().path().to_owned(), Instant::now(), self.asked.clone());
        let answer = self.inner.call(request);
        answer.inspect_ok(move |answer| Pause::of((&path, sent), answer).into_iter().for_each(&asked)).boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        convert::Infallible,
        future::ready,
        sync::{Arc, Mutex},
    };

    use super::*;

    fn answer(status: u16, after: Option<&str>) -> Response<()> {
        let mut answer = Response::builder().status(status);
        if let Some(after) = after {
            answer = answer.header(RETRY_AFTER, after);
        }
        answer.body(()).unwrap()
    }

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
            let lasts = Pause::of(("/api/v1/pods", Instant::now()), &answer(status, after)).map(|pause| pause.lasts);
            assert_eq!(lasts, asked.map(Duration::from_secs), "{status} {after:?}");
        }
    }

    #[tokio::test]
    async fn what_an_extension_asks_for_is_about_its_own_group() {
        let told: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let note = told.clone();
        for (status, path) in [
            (503, "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods/p"),
            (503, "/api/v1/namespaces/n/configmaps/c"),
            (503, "/version"),
            (429, "/apis/metrics.k8s.io/v1beta1/namespaces/n/pods/p"),
        ] {
            let inner = tower::service_fn(move |_: Request<()>| ready(Ok::<_, Infallible>(answer(status, Some("2")))));
            let note = note.clone();
            let mut service = Telling::new(inner, move |pause: Pause| note.lock().unwrap().push(pause.group));
            service.call(Request::get(path).body(()).unwrap()).await.unwrap();
        }
        let group = |group: &str| Some(group.to_owned());
        assert_eq!(*told.lock().unwrap(), [group("metrics.k8s.io"), group(""), None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_says_when_its_request_was_sent() {
        let told: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (note, begin) = (told.clone(), Instant::now());
        let inner = tower::service_fn(|_: Request<()>| async {
            tokio::time::sleep(USUAL).await;
            Ok::<_, Infallible>(answer(429, None))
        });
        let mut service = Telling::new(inner, move |pause: Pause| note.lock().unwrap().push(pause.sent - begin));
        for _ in 0..2 {
            service.call(Request::get("/api/v1/pods").body(()).unwrap()).await.unwrap();
        }
        assert_eq!(*told.lock().unwrap(), [Duration::ZERO, USUAL]);
    }
}
