//! Joins the two connections of an upgraded request: exec, attach, port-forward, a watch by WebSocket.
//!
//! Changes no byte of what passes, but for what [`Watched`] takes out of a watch and [`Filter`] hides in it, and pings of the proxy's own between the
//! client's frames ([`heartbeat`]). Ends the connection when the Lease is lost or the proxy ends by force, and a watch only when
//! [`Watched`] says so, or when its pings are not answered, and each a while after one of its sides has ended. In sessions of
//! exec, attach and port-forward nobody asks but the client.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{OptionFuture, select};
use http::{HeaderMap, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ringside_runtime::contained::contained;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) mod borders;
pub mod heartbeat;
#[cfg(test)]
mod tests;

use self::{borders::Borders, heartbeat::Heartbeat};
use super::{admit::Admitted, context::AdmittedRequest, tap::Watched};
use crate::{
    body::Body,
    fence::Ticket,
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
    under_way: (Option<Arc<Ticket>>, Option<Arc<Caller>>),
}

impl ClientSide {
    /// Takes it from the request.
    pub(super) fn of(AdmittedRequest { request, context }: &mut AdmittedRequest) -> Option<Self> {
        let connection = request.extensions_mut().remove::<OnUpgrade>().filter(|_| context.info.upgrade)?;
        let under_way = (context.ticket.take(), context.origin.caller.take());
        Some(Self { connection, admitted: context.admitted.clone(), hidden: context.hidden.take(), under_way })
    }
}

impl Upgrades {
    /// Joins the client's side and the API server's, if it has changed the protocol; of a watch as far as that lets it.
    pub(super) fn join(
        &self,
        client: ClientSide,
        mut response: Response<Body>,
        watched: Option<Watched>,
    ) -> Response<Body> {
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        let Some(server) = response.extensions_mut().remove::<OnUpgrade>() else { return response };
        let ClientSide { connection, admitted, hidden, under_way } = client;
        let ends_in_order = watched.as_ref().is_some_and(Watched::ends_in_order);
        let closed = OptionFuture::from(watched.as_ref().and_then(Watched::closed));
        let heartbeat = (watched.is_some() && is_websocket(response.headers())).then(Heartbeat::new);
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
    watched: (Option<Watched>, Option<Filter>),
    heartbeat: Option<Heartbeat>,
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
    if let Err(error) = both(up, down(from_server, to_client, watched, heartbeat.as_ref())).await {
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
            () = heartbeat.due(), if borders.at_border() => {
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

/// Copies what the server sends, but for answers to `heartbeat` and for labels that `filter` hides; a watch has come as far as what was written to the client.
async fn down(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (mut watched, mut filter): (Option<Watched>, Option<Filter>),
    heartbeat: Option<&Heartbeat>,
) -> io::Result<()> {
    let mut shown = move |bytes: Bytes| match &mut filter {
        Some(filter) => filter.push(bytes),
        None => bytes,
    };
    let (mut buffer, mut pongs) = (vec![0; BUFFER], heartbeat.map(Heartbeat::pongs));
    loop {
        let may_read_on = watched.as_ref().is_none_or(Watched::may_read_on);
        // Between two pieces only: a piece that is written in part would be followed by what can't stand there.
        let length = tokio::select! {
            biased;
            own = own_of(&mut watched) => match own? {
                Own::Piece(piece) => {
                    write(&mut to, &shown(piece), &mut watched).await?;
                    continue;
                }
                Own::End(told) => {
                    to.write_all(&told.unwrap_or_default()).await?;
                    to.shutdown().await?;
                    // An error ends the other direction too.
                    return Err(io::Error::other("the watch was ended"));
                }
            },
            length = from.read(&mut buffer), if may_read_on => length,
            error = silence(heartbeat) => Err(error),
        };
        let (length, gone) = match length {
            Ok(length) => (length, Ok(())),
            Err(error) => (0, Err(error)),
        };
        let mut piece = Vec::new();
        match &mut pongs {
            Some(pongs) if length == 0 => pongs.release(&mut piece),
            Some(pongs) => pongs.pass(&buffer[..length], &mut piece),
            None => piece.extend_from_slice(&buffer[..length]),
        }
        let piece = Bytes::from(piece);
        let piece = match &mut watched {
            Some(watched) => watched.take(piece),
            None => piece,
        };
        write(&mut to, &shown(piece), &mut watched).await?;
        if length == 0 {
            while let Some(piece) = arrived(&mut watched).await? {
                write(&mut to, &shown(piece), &mut watched).await?;
            }
            let last = watched.as_mut().and_then(|watched| watched.list_after_the_gap().or_else(|| watched.close()));
            to.write_all(&last.unwrap_or_default()).await?;
            to.shutdown().await?;
            return gone;
        }
        heartbeat.into_iter().for_each(Heartbeat::heard);
    }
}

/// Returns when the API server is gone without a word.
async fn silence(heartbeat: Option<&Heartbeat>) -> io::Error {
    match heartbeat {
        Some(heartbeat) => heartbeat.unanswered().await,
        None => std::future::pending().await,
    }
    io::Error::new(io::ErrorKind::TimedOut, "the API server does not answer to a ping")
}

/// Writes what the client gets now; its watch has come as far as that.
async fn write(mut to: impl AsyncWrite + Unpin, piece: &[u8], watched: &mut Option<Watched>) -> io::Result<()> {
    to.write_all(piece).await?;
    to.flush().await?;
    watched.iter_mut().for_each(Watched::delivered);
    Ok(())
}

/// What a watch has to say that does not come from the server now.
enum Own {
    /// What the client missed, or what waited and is the client's.
    Piece(Bytes),
    /// It has to end, after this.
    End(Option<Bytes>),
}

/// Returns what a watch has to say by itself: in the order of the body of a plain watch.
async fn own_of(watched: &mut Option<Watched>) -> io::Result<Own> {
    let Some(watched) = watched else { return std::future::pending().await };
    let poll = |watched: &mut Watched, context: &mut Context<'_>| match watched.poll_arrived(context) {
        Poll::Ready(Ok(None)) => match watched.poll_first(context) {
            Poll::Ready(Some(first)) => Poll::Ready(Ok(Own::Piece(first))),
            _ => watched.poll_end(context).map(|told| Ok(Own::End(told))),
        },
        Poll::Ready(Ok(Some(piece))) => Poll::Ready(Ok(Own::Piece(piece))),
        Poll::Ready(Err(half)) => Poll::Ready(Err(io::Error::other(half))),
        Poll::Pending => Poll::Pending,
    };
    poll_fn(|context| poll(watched, context)).await
}

/// Returns the next that waits, when it is the client's; none where nothing waits.
async fn arrived(watched: &mut Option<Watched>) -> io::Result<Option<Bytes>> {
    let Some(watched) = watched else { return Ok(None) };
    poll_fn(|context| watched.poll_arrived(context)).await.map_err(io::Error::other)
}

/// Whether it is a WebSocket that is asked for, or agreed on.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket"))
}
