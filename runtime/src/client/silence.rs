//! Notices that a server of HTTP/1.1 is gone behind a connection that lives.
//!
//! HTTP/1.1 has no pings, and TCP's questions are answered by the peer that holds the connection: the kernel of a
//! server that hangs, or a load balancer. So while nothing comes of an answer, its server is asked for `/livez` on a
//! new connection, and when that is not answered, the answer ends with an error. Any answer will do; that of `/livez`
//! waits in no queue (the flow schema `probes` exempts it). What this can't find is a server that is dead behind a
//! balancer that keeps its connections and has another server for new ones.

use std::{
    collections::HashMap,
    fmt,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{HeaderValue, Request, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::{BoxError, connector::Connector, handshake::Pings};
use crate::explain::causes;

/// The servers that answers come from. Those who wait for the same one share a question.
pub(super) struct Servers {
    pings: Pings,
    ask: Box<Ask>,
    asked: Mutex<HashMap<SocketAddr, Question>>,
}

/// Asks a server with these credentials; whether it answered.
type Ask = dyn Fn(SocketAddr, Option<HeaderValue>) -> BoxFuture<'static, bool> + Send + Sync;

#[derive(Clone)]
struct Question {
    begun: Instant,
    answered: Shared<BoxFuture<'static, bool>>,
}

impl Servers {
    /// Those that `connector` reaches.
    pub(super) fn new(connector: Connector, cluster: &Uri, pings: Pings) -> Self {
        let (path, host) = (format!("{}/livez", cluster.path().trim_end_matches('/')), cluster.authority().cloned());
        let host = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        let ask = move |server, authorization: Option<HeaderValue>| {
            let (connector, path, host) = (connector.clone(), path.clone(), host.clone());
            let asked = async move {
                let mut request = Request::get(path).body(Empty::<Bytes>::new())?;
                request.headers_mut().extend(host.map(|host| (header::HOST, host)));
                request.headers_mut().extend(authorization.map(|it| (header::AUTHORIZATION, it)));
                exchange(&connector, server, request).await
            };
            async move {
                let outcome = timeout(pings.timeout, asked).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
                if let Err(error) = &outcome {
                    tracing::debug!(%server, error = causes(&**error), "a silent server does not answer");
                }
                outcome.is_ok()
            }
            .boxed()
        };
        Self::asking(pings, Box::new(ask))
    }

    fn asking(pings: Pings, ask: Box<Ask>) -> Self {
        Self { pings, ask, asked: Mutex::default() }
    }

    /// For an answer of that server to a request with these credentials.
    pub(super) fn silence(self: &Arc<Self>, server: SocketAddr, authorization: Option<HeaderValue>) -> Silence {
        Silence { servers: self.clone(), server, authorization, heard: Instant::now(), state: State::Heard }
    }

    /// A question that began a moment ago, or a new one. A moment is shorter than the silence before it, so that its answer
    /// is later than what was heard last.
    fn ask(&self, server: SocketAddr, authorization: Option<HeaderValue>) -> Question {
        let (mut asked, now) = (self.asked.lock(), Instant::now());
        asked.retain(|_, question| question.begun + self.pings.after / 2 > now);
        let question = asked.entry(server).or_insert_with(|| {
            let answered = (self.ask)(server, authorization).shared();
            Question { begun: now, answered }
        });
        question.clone()
    }
}

/// How long nothing has come of an answer.
pub(super) struct Silence {
    servers: Arc<Servers>,
    server: SocketAddr,
    authorization: Option<HeaderValue>,
    /// When something came last, of the answer or from its server.
    heard: Instant,
    state: State,
}

enum State {
    /// Something came just now.
    Heard,
    /// Waits for the end of what is no silence yet.
    Waiting(Pin<Box<Sleep>>),
    /// The server is asked.
    Asking(Question),
}

impl Silence {
    /// Something came.
    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// Nothing came: ready when the server is gone.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let after = self.servers.pings.after;
        loop {
            self.state = match &mut self.state {
                State::Heard => State::Waiting(Box::pin(sleep_until(self.heard + after))),
                State::Waiting(until) => {
                    ready!(until.as_mut().poll(context));
                    let silent = self.heard + after <= Instant::now();
                    let ask = || State::Asking(self.servers.ask(self.server, self.authorization.clone()));
                    if silent { ask() } else { State::Heard }
                }
                State::Asking(question) => {
                    let answered = ready!(question.answered.poll_unpin(context));
                    let gone = !answered && self.heard < question.begun;
                    self.heard = self.heard.max(question.begun);
                    if gone {
                        self.state = State::Heard;
                        return Poll::Ready(());
                    }
                    State::Heard
                }
            };
        }
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Silence")
            .field("server", &self.server)
            .field("heard", &self.heard)
            .finish_non_exhaustive()
    }
}

/// Returns when there is an answer, whatever it says.
async fn exchange(connector: &Connector, server: SocketAddr, request: Request<Empty<Bytes>>) -> Result<(), BoxError> {
    let (mut sender, connection) = http1::handshake(connector.connect_to(server).await?).await?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // By then it has its answer, or an error.
        _ = connection => answer.await,
    };
    answer?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        future::poll_fn,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::{advance, sleep};

    use super::*;

    const ADDRESS: &str = "192.0.2.1:443";

    /// Servers that answer after a moment while that is true, and how often they were asked.
    fn servers(alive: bool) -> (Arc<Servers>, Arc<AtomicBool>, Arc<AtomicUsize>) {
        let (alive, count) = (Arc::new(AtomicBool::new(alive)), Arc::new(AtomicUsize::new(0)));
        let pings = Pings::default();
        let (answers, asked) = (alive.clone(), count.clone());
        let ask = move |_, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            let answers = answers.clone();
            async move {
                let is_alive = answers.load(Ordering::Relaxed);
                sleep(if is_alive { Duration::from_millis(1) } else { pings.timeout }).await;
                is_alive
            }
            .boxed()
        };
        (Arc::new(Servers::asking(pings, Box::new(ask))), alive, count)
    }

    async fn gone(silence: &mut Silence) {
        poll_fn(|context| silence.poll_gone(context)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_a_server_that_hangs_ends_in_time() {
        let (servers, alive, _) = servers(true);
        let begun = Instant::now();
        // At any moment between two questions.
        for hangs_after in [0, 3, 9, 11, 14, 19, 60] {
            let mut silence = servers.silence(ADDRESS.parse().unwrap(), None);
            alive.store(true, Ordering::Relaxed);
            let hanging = timeout(Duration::from_secs(hangs_after), gone(&mut silence)).await;
            assert!(hanging.is_err(), "it answers");
            alive.store(false, Ordering::Relaxed);
            let hung = Instant::now();
            gone(&mut silence).await;
            assert!(hung.elapsed() <= Duration::from_secs(20), "{:?} after {hangs_after} s", hung.elapsed());
        }
        assert!(begun.elapsed() > Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_since_the_question_counts() {
        let (servers, _, count) = servers(false);
        let mut silence = servers.silence(ADDRESS.parse().unwrap(), None);
        assert!(timeout(Duration::from_secs(15), gone(&mut silence)).await.is_err());
        silence.heard();
        assert!(timeout(Duration::from_secs(19), gone(&mut silence)).await.is_err());
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_for_a_server_ask_it_together() {
        let (servers, _, count) = servers(true);
        let mut watches = Vec::new();
        for _ in 0..500 {
            let mut silence = servers.silence(ADDRESS.parse().unwrap(), None);
            watches.push(tokio::spawn(async move { gone(&mut silence).await }));
            advance(Duration::from_millis(20)).await;
        }
        let before = count.load(Ordering::Relaxed);
        sleep(Duration::from_secs(100)).await;
        let asked = count.load(Ordering::Relaxed) - before;
        assert!((9..=20).contains(&asked), "{asked} times in 100 s");
        assert!(watches.iter().all(|watch| !watch.is_finished()));
    }
}
