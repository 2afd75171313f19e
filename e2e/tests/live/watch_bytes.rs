//! The bytes of a watch, as they come.

use std::sync::Arc;

use futures::StreamExt as _;
use http::Response;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::{io::AsyncReadExt as _, sync::Mutex, task::JoinHandle};

/// What was read so far.
pub(crate) type Seen = Arc<Mutex<Vec<u8>>>;

/// Reads a watch until it ends, by HTTP or by WebSocket.
pub(crate) fn read(response: Response<Body>, websocket: bool) -> (Seen, JoinHandle<()>) {
    let seen = Seen::default();
    let all = seen.clone();
    let reading = tokio::spawn(async move {
        if websocket {
            let mut bytes = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            let mut buffer = vec![0; 4096];
            while let Ok(length @ 1..) = bytes.read(&mut buffer).await {
                all.lock().await.extend(&buffer[..length]);
            }
        } else {
            let mut pieces = response.into_body().into_data_stream();
            while let Some(Ok(piece)) = pieces.next().await {
                all.lock().await.extend(piece);
            }
        }
    });
    (seen, reading)
}
