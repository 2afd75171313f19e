//! Answers by script.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    body::{Bytes, Frame},
    upgrade::OnUpgrade,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use tokio::{io::AsyncWriteExt as _, sync::Notify};

use super::forward::{Fault, Passing, full};

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// The status.
    pub status: StatusCode,
    /// The headers, each line its own.
    pub headers: Vec<(&'static str, String)>,
    /// The parts of the body, one after the other.
    pub body: Vec<Part>,
    /// What is sent behind the body.
    pub trailers: Option<HeaderMap>,
    /// So many more requests end without an answer: with HTTP/1.1 their connections, with HTTP/2 their streams.
    pub unanswered: Arc<AtomicUsize>,
}

/// A part of an answer's body.
#[derive(Clone, Debug)]
pub enum Part {
    /// These bytes, so many times.
    Bytes(Bytes, usize),
    /// The request's body, each piece as soon as it came.
    Echo,
    /// Once notified, the connection breaks, or with HTTP/2 the stream.
    Break(Arc<Notify>),
}

impl Script {
    /// An answer of this status and nothing else.
    pub fn new(status: StatusCode) -> Self {
        Self { status, ..Self::default() }
    }

    /// The same for who asks once more.
    pub fn after_no_answer(self) -> Self {
        Self { unanswered: Arc::new(AtomicUsize::new(1)), ..self }
    }

    /// The same with one more header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The same with one more part of the body.
    pub fn part(mut self, part: Part) -> Self {
        self.body.push(part);
        self
    }

    /// The same with a body in JSON.
    pub fn json(self, body: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string())
    }

    /// The same with a body of these bytes.
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.part(Part::Bytes(bytes.into(), 1))
    }
}

/// So says the script.
#[derive(Debug, thiserror::Error)]
#[error("no answer, as the script says")]
pub(super) struct NoAnswer;

/// Answers a request as the script says. Where it says 101, the bytes of its body are what is sent by the new protocol.
pub(super) fn play(script: Script, mut request: Request<Passing>) -> Result<Response<Passing>, Fault> {
    let ends = script.unanswered.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if ends.is_ok() {
        return Err(NoAnswer.into());
    }
    // As every server says it that has a clock (RFC 9110, section 6.6.1): what is recorded is all that is sent.
    let now = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let mut builder = Response::builder().status(script.status).header(header::DATE, now);
    for (name, value) in &script.headers {
        builder = builder.header(*name, value);
    }
    if let Some(upgrade) =
        request.extensions_mut().remove::<OnUpgrade>().filter(|_| script.status == StatusCode::SWITCHING_PROTOCOLS)
    {
        tokio::spawn(send(upgrade, script.body));
        return Ok(builder.body(full(Bytes::new()))?);
    }
    let mut asked = Some(request.into_body());
    let parts = script.body.into_iter().map(move |part| match part {
        Part::Bytes(bytes, times) => stream::iter((0..times).map(move |_| Ok(Frame::data(bytes.clone())))).boxed(),
        Part::Break(when) => {
            let broken = async move {
                when.notified().await;
                Err("so says the script".into())
            };
            stream::once(broken).boxed()
        }
        Part::Echo => {
            stream::iter(asked.take()).flat_map(BodyExt::into_data_stream).map(|it| it.map(Frame::data)).boxed()
        }
    });
    let trailers = stream::iter(script.trailers.map(|it| Ok(Frame::trailers(it))));
    let body = StreamBody::new(stream::iter(parts).flatten().chain(trailers));
    Ok(builder.body(body.boxed_unsync())?)
}

/// Sends the bytes and ends, or breaks off. (The client may be gone before.)
async fn send(upgrade: OnUpgrade, parts: Vec<Part>) {
    let Ok(upgraded) = upgrade.await else { return };
    let mut upgraded = TokioIo::new(upgraded);
    for part in parts {
        match part {
            Part::Bytes(bytes, times) => {
                for _ in 0..times {
                    let _ = upgraded.write_all(&bytes).await;
                }
            }
            Part::Break(when) => return when.notified().await,
            Part::Echo => {}
        }
    }
    let _ = upgraded.shutdown().await;
}
