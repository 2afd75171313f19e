//! Joins the two connections of an upgraded request: exec, attach, port-forward, a watch by WebSocket.
//!
//! Changes no byte of what passes, but for what [`Watched`] takes out of a watch. Ends the connection when the Lease is lost or the proxy ends by force, and a
//! watch when [`Watched`] says so.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ringside_runtime::contained::contained;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

use super::{
    Next,
    admit::Admitted,
    tap::{Handed, Watched},
};
use crate::{body::Body, request::RequestInfo, status::Refusal};

/// What is read from the API server at once; as much as `tokio::io::copy` takes.
const BUFFER: usize = 8 << 10;

/// See the module.
#[derive(Clone, Debug)]
pub struct Upgrade<S> {
    next: S,
    upgraded: TaskTracker,
    abort: CancellationToken,
}

impl<S> Upgrade<S> {
    /// Around the stages that send the request; joined connections are tracked in `upgraded` and cut by `abort`.
    pub fn new(next: S, upgraded: TaskTracker, abort: CancellationToken) -> Self {
        Self { next, upgraded, abort }
    }
}

impl<S: Next> Service<Request<Body>> for Upgrade<S> {
    type Response = Response<Body>;
    type Error = Refusal;
    type Future = BoxFuture<'static, Result<Response<Body>, Refusal>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.next.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let wants = request.extensions().get::<RequestInfo>().is_some_and(|info| info.upgrade);
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let (true, Some(client)) = (wants, client) else { return self.next.call(request).boxed() };
        let over = request.extensions().get::<Admitted>().map(|admitted| admitted.term.over());
        let answered = self.next.call(request);
        let (upgraded, abort) = (self.upgraded.clone(), self.abort.clone());
        let joined = async move {
            let mut response = answered.await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Ok(response);
            }
            let server = response.extensions_mut().remove::<OnUpgrade>();
            let watched = response.extensions_mut().remove::<Handed>().and_then(|handed| handed.take());
            if let Some(server) = server {
                upgraded.spawn(contained(async move {
                    let until = async {
                        match over {
                            Some(over) => drop(over.await),
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = join(client, server, watched) => {}
                        () = until => {}
                        () = abort.cancelled() => {}
                    }
                }));
            }
            Ok(response)
        };
        joined.boxed()
    }
}

async fn join(client: OnUpgrade, server: OnUpgrade, watched: Option<Watched>) {
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
        copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    if let Err(error) = tokio::try_join!(up, down(from_server, to_client, watched)) {
        tracing::debug!(%error, "an upgraded connection ended early");
    }
}

/// Copies what the server sends; a watch has come as far as what was written to the client.
async fn down(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut watched: Option<Watched>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        // Between two pieces only: a piece that is written in part would be followed by what can't stand there.
        let length = tokio::select! {
            biased;
            told = end_of(&mut watched) => {
                to.write_all(&told.unwrap_or_default()).await?;
                to.shutdown().await?;
                // An error ends the other direction too.
                return Err(io::Error::other("the watch was ended"));
            }
            length = from.read(&mut buffer) => length,
        };
        let (length, gone) = match length {
            Ok(length) => (length, Ok(())),
            Err(error) => (0, Err(error)),
        };
        if length == 0 {
            let close = watched.as_ref().and_then(Watched::close);
            to.write_all(&close.unwrap_or_default()).await?;
            to.shutdown().await?;
            return gone;
        }
        match &mut watched {
            Some(watched) => {
                to.write_all(&watched.pass(Bytes::copy_from_slice(&buffer[..length]))).await?;
                to.flush().await?;
                watched.delivered();
            }
            None => {
                to.write_all(&buffer[..length]).await?;
                to.flush().await?;
            }
        }
    }
}

async fn end_of(watched: &mut Option<Watched>) -> Option<Bytes> {
    match watched {
        Some(watched) => poll_fn(|context| watched.poll_end(context)).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::future::{pending, poll_immediate};
    use ringside_ring::cluster_ring::GroupResource;
    use tokio::io::duplex;

    use super::*;
    use crate::{frames::Frames, views::Views};

    #[tokio::test]
    async fn a_watch_by_websocket_has_come_as_far_as_what_the_client_took() {
        let event = br#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"12"}}}"#;
        let message = [&[0x81, u8::try_from(event.len()).unwrap()][..], event].concat();
        let (views, things) = (Views::new(), GroupResource { group: "x.io".into(), resource: "things".into() });
        let view = views.open(things.clone(), None, None);
        // The client's side takes half of the message before somebody reads it.
        let ((mut server, from), (to, mut client)) = (duplex(1024), duplex(message.len() / 2));
        server.write_all(&message).await.unwrap();
        let watched = Watched::new(Frames::websocket(), Some(view), true, pending().boxed());
        let mut copying = Box::pin(down(from, to, Some(watched)));
        let (twelve, mut taken) = ("12".parse().unwrap(), vec![0; message.len()]);
        assert!(poll_immediate(&mut copying).await.is_none());
        assert_eq!(views.behind(&things, None, &twelve), 1);
        tokio::select! {
            _ = &mut copying => unreachable!("the server goes on"),
            read = client.read_exact(&mut taken) => assert_eq!(read.unwrap(), message.len()),
        }
        assert!(poll_immediate(&mut copying).await.is_none());
        assert_eq!((taken, views.behind(&things, None, &twelve)), (message, 0));
        drop(server);
        copying.await.unwrap();
        assert_eq!(views.count(), 0);
    }
}
