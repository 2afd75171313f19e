//! What came by: heads and bodies of marked requests.

use std::{
    collections::{BTreeSet, HashMap},
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    MARK, Relay,
    forward::{Fault, Passing},
};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The version of HTTP that it came by.
    pub version: Version,
    /// The method.
    pub method: Method,
    /// Path and query, as they were written.
    pub target: String,
    /// The headers. With HTTP/2 the `:authority` stands in `host`.
    pub headers: HeaderMap,
    /// The body, as far as it came.
    pub body: Vec<u8>,
    /// With HTTP/1.1, the head as it was written.
    pub head: Option<String>,
    /// What was answered, once the head of that is there.
    pub answer: Option<Answered>,
    /// What passed since the connection speaks another protocol.
    pub upgraded: Option<Upgraded>,
}

/// What passed on a connection that goes on with another protocol, all of it.
#[derive(Clone, Default)]
pub struct Upgraded {
    /// From the client.
    pub sent: Vec<u8>,
    /// From the server.
    pub answered: Vec<u8>,
    /// Nothing will follow.
    pub ended: bool,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes sent, {} answered, ended: {}", self.sent.len(), self.answered.len(), self.ended)
    }
}

/// An answer as the relay sent it on.
#[derive(Clone)]
pub struct Answered {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as far as it was sent; of a longer one the first [`KEPT`] bytes.
    pub body: Vec<u8>,
    /// How many bytes were sent.
    pub length: usize,
    /// What came behind the body.
    pub trailers: Option<HeaderMap>,
}

impl fmt::Debug for Answered {
    /// Without the body, of which a reader of a failed test's words sees the length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} bytes and {:?}", self.status, self.length, self.headers)
    }
}

/// So much is kept of an answer: all of what tests compare, but for lists that no memory should hold twice.
pub const KEPT: usize = 4 << 20;

/// A request that is kept, and whom its answer is added to.
pub(super) type Entry = Arc<Mutex<Recorded>>;

/// The requests that came, by mark; and of those without one what they asked for.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<String, Vec<Entry>>>, Mutex<BTreeSet<(String, String)>>);

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// What came with this mark since the last call, in the order of arrival. A body that is still under way is there as
    /// far as it came.
    pub fn take(&self, mark: &str) -> Vec<Recorded> {
        let kept = locked(&self.rules.records.0).remove(mark).unwrap_or_default();
        kept.iter().map(|recorded| locked(recorded).clone()).collect()
    }

    /// Whether something came with this mark since it was last taken.
    pub fn has(&self, mark: &str) -> bool {
        locked(&self.rules.records.0).contains_key(mark)
    }

    /// Methods and targets of all that came without a mark: what the client asks of itself, and no test.
    pub fn unmarked(&self) -> BTreeSet<(String, String)> {
        locked(&self.rules.records.1).clone()
    }

    /// How many connections that came with this mark, and went on with another protocol, are open.
    pub fn open(&self, mark: &str) -> usize {
        let is_open = |entry: &&Entry| locked(entry).upgraded.as_ref().is_some_and(|upgraded| !upgraded.ended);
        locked(&self.rules.records.0).get(mark).map_or(0, |entries| entries.iter().filter(is_open).count())
    }
}

impl Records {
    /// Keeps the request if it has a mark, and from its body what is read from it later.
    pub(super) fn keep(&self, request: Request<Incoming>, heads: Option<&Heads>) -> (Request<Passing>, Option<Entry>) {
        let head = heads.and_then(|heads| heads.take(&request));
        let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let Some(mark) = request.headers().get(MARK).and_then(|mark| mark.to_str().ok()) else {
            locked(&self.1).insert((request.method().to_string(), target));
            return (request.map(|body| body.map_err(Fault::from).boxed_unsync()), None);
        };
        let mut headers = request.headers().clone();
        if let Some(authority) = request.uri().authority()
            && let Ok(host) = authority.as_str().parse()
        {
            headers.entry(http::header::HOST).or_insert(host);
        }
        let recorded = Recorded {
            version: request.version(),
            method: request.method().clone(),
            target,
            headers,
            body: Vec::new(),
            head,
            answer: None,
            upgraded: None,
        };
        let recorded = Arc::new(Mutex::new(recorded));
        locked(&self.0).entry(mark.to_owned()).or_default().push(recorded.clone());
        (request.map(|body| Kept { body, recorded: recorded.clone(), keep: keep_sent }.boxed_unsync()), Some(recorded))
    }
}

/// Adds the answer to its request, and from its body what is read from it later.
pub(super) fn answered(response: Response<Passing>, recorded: Option<Entry>) -> Response<Passing> {
    let Some(recorded) = recorded else { return response };
    let (status, headers) = (response.status(), response.headers().clone());
    locked(&recorded).answer = Some(Answered { status, headers, body: Vec::new(), length: 0, trailers: None });
    response.map(|body| Kept { body, recorded, keep: keep_answered }.boxed_unsync())
}

fn keep_sent(recorded: &mut Recorded, frame: &Frame<Bytes>) {
    if let Some(data) = frame.data_ref() {
        recorded.body.extend_from_slice(data);
    }
}

fn keep_answered(recorded: &mut Recorded, frame: &Frame<Bytes>) {
    let Some(answer) = &mut recorded.answer else { return };
    if let Some(data) = frame.data_ref() {
        answer.length += data.len();
        let room = KEPT.saturating_sub(answer.body.len()).min(data.len());
        answer.body.extend_from_slice(&data[..room]);
    }
    if let Some(trailers) = frame.trailers_ref() {
        answer.trailers = Some(trailers.clone());
    }
}

/// A body that is copied as it is read. It says of itself what the original does, so that it is framed alike.
struct Kept<B> {
    body: B,
    recorded: Entry,
    keep: fn(&mut Recorded, &Frame<Bytes>),
}

impl<B> Body for Kept<B>
where
    B: Body<Data = Bytes, Error: Into<Fault>> + Unpin,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            (self.keep)(&mut locked(&self.recorded), frame);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request whose connection goes on with another protocol; when dropped, it has ended.
pub(super) struct KeptUpgrade(Entry);

impl KeptUpgrade {
    pub(super) fn begin(entry: &Entry) -> Self {
        locked(entry).upgraded = Some(Upgraded::default());
        Self(entry.clone())
    }

    /// Keeps what one side sends.
    pub(super) fn keep(&self, side: fn(&mut Upgraded) -> &mut Vec<u8>) -> Keep {
        let entry = self.0.clone();
        Box::new(move |bytes| {
            if let Some(upgraded) = &mut locked(&entry).upgraded {
                side(upgraded).extend_from_slice(bytes);
            }
        })
    }
}

impl Drop for KeptUpgrade {
    fn drop(&mut self) {
        if let Some(upgraded) = &mut locked(&self.0).upgraded {
            upgraded.ended = true;
        }
    }
}

/// What was received since the last request by HTTP/1.1: a parsed head has lost the case of the names.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads(Arc<Mutex<Vec<u8>>>);

impl Heads {
    /// The head of the request that was parsed just now.
    fn take<B>(&self, request: &Request<B>) -> Option<String> {
        let received = std::mem::take(&mut *locked(&self.0));
        let received = String::from_utf8_lossy(&received);
        let first = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri());
        let head = &received[received.find(&first)?..];
        head.find("\r\n\r\n").map(|end| head[..end].to_owned())
    }

    pub(super) fn keep(self) -> Keep {
        Box::new(move |bytes| locked(&self.0).extend_from_slice(bytes))
    }
}

/// What becomes of received bytes.
pub(super) type Keep = Box<dyn Fn(&[u8]) + Send>;

/// A connection whose received bytes are copied.
pub(super) struct Copied<S> {
    pub(super) stream: S,
    /// None on HTTP/2, where bytes say nothing without the connection's state.
    pub(super) keep: Option<Keep>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Copied<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if let Some(keep) = &self.keep {
            keep(&buffer.filled()[before..]);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Copied<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
