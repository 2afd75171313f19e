//! A server of TLS, HTTP/1.1 and HTTP/2, and nothing else.

use std::{error::Error, net::SocketAddr, sync::Arc};

use http::{Request, Response};
use hyper::{
    body::{Body, Bytes, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Requests on one connection, as kube-apiserver allows by default.
const STREAMS: u32 = 100;

/// Answers by `answer` until the process ends.
pub(super) async fn serve<A, F, B, E>(listen: SocketAddr, tls: ServerConfig, answer: A) -> anyhow::Result<()>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    let (listener, acceptor) = (TcpListener::bind(listen).await?, TlsAcceptor::from(Arc::new(tls)));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, builder, answer) = (acceptor.clone(), builder.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            // Clients leave as they like; what breaks shows with them.
            let _ = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}
