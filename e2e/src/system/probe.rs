//! Readiness, asked for as the kubelet does.

use std::{net::Ipv4Addr, time::Duration};

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::SystemError;
use crate::{eventually::eventually, process::Process};

/// A proxy waits for its Lease and for the ring; a loaded machine makes that longer.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `/readyz` on that port says yes, and fails at once when the process ends instead.
pub(super) async fn until_ready(process: &Process, admin_port: u16) -> Result<(), SystemError> {
    let what = format!("{} is ready", process.name());
    let ready = eventually(&what, READY_DEADLINE, || async {
        if process.check_running().is_err() {
            return Ok(false);
        }
        match readyz(admin_port).await {
            Ok((StatusCode::OK, _)) => Ok(true),
            Ok((status, text)) => Err(format!("{status}: {text}")),
            Err(error) => Err(error.to_string()),
        }
    });
    let outcome = ready.await.map_err(|source| SystemError::NotReady {
        name: process.name().to_owned(),
        source,
        tail: process.log_tail(),
    });
    if !outcome? {
        process.check_running()?;
    }
    Ok(())
}

async fn readyz(port: u16) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/readyz").header(http::header::HOST, "127.0.0.1").body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection makes progress only while it is polled.
    tokio::select! {
        answer = exchange => answer,
        ended = connection => Err(ended.map_or_else(Into::into, |()| "the connection ended".into())),
    }
}
