//! The connections to the relay.

use std::sync::Arc;

use futures::TryFutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::sleep,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    MARK, Rules,
    forward::{Fault, Forward, Passing, full},
    hindrance::{Hindrance, refusal},
    record::{self, Copied, Heads, locked},
    script::{self, NoAnswer},
};

/// The longest head by HTTP/2; as the API server's (Go's `DefaultMaxHeaderBytes`).
const MAX_HEAD: u32 = 1 << 20;

#[derive(Clone)]
pub(super) struct Connections {
    pub(super) acceptor: TlsAcceptor,
    pub(super) rules: Arc<Rules>,
    pub(super) forward: Forward,
    /// Given to each request.
    pub(super) mark: Option<HeaderValue>,
    pub(super) ended: CancellationToken,
}

impl Connections {
    pub(super) async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let serving = self.clone().connection(stream);
                    let serving = serving.map_err(|error| tracing::debug!(%error, "a connection to the relay broke"));
                    tokio::spawn(self.ended.clone().run_until_cancelled_owned(serving));
                }
                Err(error) => tracing::warn!(%error, "the relay can't accept a connection"),
            }
        }
    }

    async fn connection(self, stream: TcpStream) -> Result<(), Fault> {
        stream.set_nodelay(true)?;
        let stream = self.acceptor.accept(stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let heads = (!is_http2).then(Heads::default);
        let stream = TokioIo::new(Copied { stream, keep: heads.clone().map(Heads::keep) });
        let service = service_fn(move |request| {
            let (relay, heads) = (self.clone(), heads.clone());
            async move { relay.answer(request, heads.as_ref()).await }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        // Go writes the names of headers so.
        builder.http1().max_headers(super::MAX_HEADERS).preserve_header_case(true).title_case_headers(true);
        builder.http2().max_header_list_size(MAX_HEAD);
        builder.serve_connection_with_upgrades(stream, service).await
    }

    /// # Errors
    /// When there is to be no answer.
    async fn answer(&self, request: Request<Incoming>, heads: Option<&Heads>) -> Result<Response<Passing>, NoAnswer> {
        let hindrance = locked(&self.rules.hindrance).clone();
        let hindrance = hindrance.filter(|(resource, _)| request.uri().path().contains(resource));
        match hindrance.map(|(_, hindrance)| hindrance) {
            None => self.unhindered(request, heads).await,
            Some(Hindrance::Refused(status)) => Ok(refusal(status)),
            Some(Hindrance::Late(by)) => {
                let answer = self.unhindered(request, heads).await;
                sleep(by).await;
                answer
            }
        }
    }

    async fn unhindered(
        &self,
        mut request: Request<Incoming>,
        heads: Option<&Heads>,
    ) -> Result<Response<Passing>, NoAnswer> {
        let stand_in = locked(&self.rules.stand_in).clone();
        if let Some(answers) = stand_in {
            let (head, body) = request.into_parts();
            if let Some(answer) = answers(&head) {
                return Ok(answer);
            }
            request = Request::from_parts(head, body);
        }
        if let Some(mark) = &self.mark {
            // An API server that is given no audit id makes one up for each answer.
            for name in [MARK, "audit-id"] {
                request.headers_mut().insert(name, mark.clone());
            }
        }
        let mark = request.headers().get(MARK).and_then(|mark| mark.to_str().ok());
        let rules = &self.rules;
        let rule = mark.and_then(|mark| locked(&rules.marked).get(mark).cloned()).unwrap_or_default();
        let script = rule.script.or_else(|| locked(&rules.others).clone());
        let forward = rule.route.unwrap_or_else(|| self.forward.clone());
        let (mut request, entry) = rules.records.keep(request, heads);
        if let Some(hold) = rule.hold {
            request = match hold.wait(request).await {
                Ok(request) => request,
                Err(error) => return Ok(record::answered(failure(&*error), entry)),
            };
        }
        let response = match script {
            Some(script) => match script::play(script, request) {
                Err(error) if error.is::<NoAnswer>() => return Err(NoAnswer),
                played => played.unwrap_or_else(|error| failure(&*error)),
            },
            None => match forward.send(request, entry.as_ref()).await {
                Ok(response) => response.map(|body| body.map_err(Fault::from).boxed_unsync()),
                Err(error) => failure(&*error),
            },
        };
        Ok(record::answered(response, entry))
    }
}

/// What no API server answers, so that no test takes it for an answer.
fn failure(error: &dyn std::error::Error) -> Response<Passing> {
    let mut response = Response::new(full(format!("the relay failed: {error:?}")));
    *response.status_mut() = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
    response
}
