//! Readiness, asked for as the kubelet does, and metrics.

use std::{io, net::Ipv4Addr, time::Duration};

use ringside_runtime::{admin::Probe, probe};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::SystemError;
use crate::{control_plane::START_DEADLINE, eventually::eventually, process::Process};

/// What is asked is on loopback and does nothing to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// What is counted, as `/metrics` on that port tells it.
pub async fn metrics(admin_port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port)).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Waits until `/readyz` on that port says yes, and fails at once when the process ends instead.
pub(crate) async fn until_ready(process: &Process, admin_port: u16) -> Result<(), SystemError> {
    let what = format!("{} is ready", process.name());
    let ready = eventually(&what, START_DEADLINE, || async {
        if process.check_running().is_err() {
            return Ok(());
        }
        let asked = probe::ask((Ipv4Addr::LOCALHOST, admin_port).into(), Probe::Ready, ANSWER_DEADLINE).await;
        asked.map_err(|error| error.to_string())
    });
    ready.await.map_err(|source| SystemError::NotReady {
        name: process.name().to_owned(),
        source,
        tail: process.log_tail(),
    })?;
    Ok(process.check_running()?)
}
