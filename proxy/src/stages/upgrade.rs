//! Joins the two connections of an upgraded request: exec, attach, port-forward, a watch by WebSocket.
//!
//! Changes no byte of what passes, but for what [`OpenWatch`] takes out of a watch and [`Filter`] hides in it, and pings
//! of the proxy's own between the client's frames (`heartbeat`). Ends the connection when the Lease is lost or the
//! proxy ends by force, and a watch only when [`OpenWatch`] says so, or when its pings are not answered, and each a while
//! after one of its sides has ended. In sessions of exec, attach and port-forward only the client sends pings.

use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{
    TryStreamExt,
    future::{OptionFuture, select},
    stream,
};
use http::{HeaderMap, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ringside_runtime::contained::contained;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) mod borders;
pub(super) mod heartbeat;
#[cfg(test)]
mod tests;

use self::{borders::Borders, heartbeat::Heartbeat};
use super::{admit::Admitted, context::AdmittedRequest, hide::filtered, tap::OpenWatch};
use crate::{
    body::{Body, BoxError},
    fence::WriteGuard,
    labels::{Filter, Keys},
    serve::Caller,
};

/// How long one side has to end when the other has ended.
const OTHER_SIDE: Duration = Duration::from_secs(10);
/// What is read of either side at once; as much as `tokio::io::copy` takes.
const BUFFER: usize = 8 << 10;

/// Joins connections.
#[derive(Clone, Debug)]
pub struct Upgrades {
    /// Those that are joined.
    pub joined: TaskTracker,
    /// Cuts them.
    pub abort: CancellationToken,
}

/// The client's side of a request that may become another protocol.
pub(super) struct ClientSide {
    connection: OnUpgrade,
    admitted: Admitted,
    hidden: Option<Keys>,
    /// Under way for as long as they are joined.
    under_way: (Option<Arc<WriteGuard>>, Option<Arc<Caller>>),
}

impl ClientSide {
    /// Takes it from the request.
    pub(super) fn of(AdmittedRequest { request, context }: &mut AdmittedRequest) -> Option<Self> {
        let connection = request.extensions_mut().remove::<OnUpgrade>().filter(|_| context.info.upgrade)?;
        let under_way = (context.write_guard.take(), context.origin.caller.take());
        Some(Self { connection, admitted: context.admitted.clone(), hidden: context.hidden.take(), under_way })
    }
}

impl Upgrades {
    /// Joins the client's side and the API server's, if it has changed the protocol; of a watch as far as that lets it.
    pub(super) fn join(
        &self,
        client: ClientSide,
        mut response: Response<Body>,
        watched: Option<OpenWatch>,
    ) -> Response<Body> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        let Some(server) = response.extensions_mut().remove::<OnUpgrade>() else { return response };
        let ClientSide { connection, admitted, hidden, under_way } = client;
        let ends_in_order = watched.as_ref().is_some_and(OpenWatch::ends_in_order);
        let closed = OptionFuture::from(watched.as_ref().and_then(OpenWatch::closed));
        let heartbeat = (watched.is_some() && is_websocket(response.headers())).then(|| Arc::new(Heartbeat::new()));
        let filter = hidden.filter(|_| heartbeat.is_some()).map(Filter::websocket);
        let (over, abort) = (admitted.over(), self.abort.clone());
        self.joined.spawn(contained(async move {
            let _under_way = under_way;
            tokio::select! {
                () = join(connection, server, (watched, filter), heartbeat) => {}
                _ = over, if !ends_in_order => {}
                Some(()) = closed => {}
                () = abort.cancelled() => {}
            }
        }));
        response
    }
}

async fn join(
    client: OnUpgrade,
    server: OnUpgrade,
    watched: (Option<OpenWatch>, Option<Filter>),
    heartbeat: Option<Arc<Heartbeat>>,
) {
    let (client, server) = match tokio::try_join!(client, server) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "an upgrade was not completed");
            return;
        }
    };
    let io = |upgraded: Upgraded| tokio::io::split(TokioIo::new(upgraded));
    let ((mut from_client, to_client), (from_server, mut to_server)) = (io(client), io(server));
    let up = async {
        match &heartbeat {
            Some(heartbeat) => up(&mut from_client, &mut to_server, heartbeat).await?,
            None => drop(copy(&mut from_client, &mut to_server).await?),
        }
        to_server.shutdown().await
    };
    if let Err(error) = both(up, down(from_server, to_client, watched, heartbeat.clone())).await {
        tracing::debug!(%error, "an upgraded connection ended early");
    }
}

/// Runs both directions. When one has ended, the other has [`OTHER_SIDE`]: what is joined holds drains for as long.
async fn both(up: impl Future<Output = io::Result<()>>, down: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let (up, down) = (pin!(up), pin!(down));
    let (ended, other) = select(up, down).await.factor_first();
    ended?;
    timeout(OTHER_SIDE, other).await?
}

/// Copies what the client sends, and between two of its frames asks the API server what `heartbeat` has to ask.
async fn up(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heartbeat: &Heartbeat,
) -> io::Result<()> {
    let (mut buffer, mut borders) = (vec![0; BUFFER], Borders::new());
    loop {
        let length = tokio::select! {
            biased;
            () = heartbeat.due(), if borders.at_frame_boundary() => {
                heartbeat.asked();
                to.write_all(&heartbeat.ping()).await?;
                to.flush().await?;
                continue;
            }
            length = from.read(&mut buffer) => length?,
        };
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        borders.pass(&buffer[..length]);
        if length == 0 || borders.is_closed() {
            heartbeat.last_said();
        }
        if length == 0 {
            return Ok(());
        }
    }
}

/// Copies what the server sends, but for what a watch withholds and for labels that `filter` hides; a watch has come as far as
/// what was written to the client.
async fn down(
    from: impl AsyncRead + Send + Unpin + 'static,
    mut to: impl AsyncWrite + Unpin,
    (watched, filter): (Option<OpenWatch>, Option<Filter>),
    heartbeat: Option<Arc<Heartbeat>>,
) -> io::Result<()> {
    let (mut body, gone) = received(from, heartbeat.clone());
    if let Some(watched) = watched {
        body = watched.heard_by(heartbeat).tap(body);
    }
    if let Some(filter) = filter {
        body = filtered(body, filter);
    }
    let mut copied = Ok(());
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                to.write_all(frame.data_ref().map_or(&[], |piece| piece)).await?;
                to.flush().await?;
            }
            Err(error) => copied = Err(io::Error::other(error)),
        }
    }
    to.shutdown().await?;
    // An error ends the other direction too.
    let ended = || io::Error::other("the watch was ended");
    copied.and_then(|()| if gone.load(Ordering::Relaxed) { Ok(()) } else { Err(ended()) })
}

/// What the server sends, and whether it has ended it.
fn received(
    from: impl AsyncRead + Send + Unpin + 'static,
    heartbeat: Option<Arc<Heartbeat>>,
) -> (Body, Arc<AtomicBool>) {
    let gone = Arc::<AtomicBool>::default();
    let from = (from, vec![0; BUFFER], heartbeat, gone.clone());
    let pieces = stream::try_unfold(from, |(mut from, mut buffer, heartbeat, gone)| async move {
        let length = tokio::select! {
            biased;
            length = from.read(&mut buffer) => length?,
            error = silence(heartbeat.as_deref()) => return Err(error),
        };
        gone.store(length == 0, Ordering::Relaxed);
        heartbeat.as_deref().into_iter().for_each(Heartbeat::heard);
        // A copy, as what waits for its children may be small.
        let piece = Bytes::copy_from_slice(&buffer[..length]);
        Ok((length > 0).then(|| (Frame::data(piece), (from, buffer, heartbeat, gone))))
    });
    (StreamBody::new(pieces.map_err(|error| BoxError::from(error).into())).boxed_unsync(), gone)
}

/// Returns when the API server is gone without a word.
async fn silence(heartbeat: Option<&Heartbeat>) -> io::Error {
    match heartbeat {
        Some(heartbeat) => heartbeat.unanswered().await,
        None => std::future::pending().await,
    }
    io::Error::new(io::ErrorKind::TimedOut, "the API server does not answer to a ping")
}

/// Whether it is a WebSocket that is asked for, or agreed on.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
