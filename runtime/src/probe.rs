//! Asks an [admin server](crate::admin): as a kubelet's exec probe or hook, or to wait until a program is ready.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use http::{Request, StatusCode, header, request::Builder};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::{admin::Probe, explain::causes};

/// Why a probe does not pass.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The checks that fail, a line each, as the admin server tells them.
    #[error("{0}")]
    Failing(String),
    /// There is no server to ask.
    #[error("nothing listens on {address}: {source}; has it started, and is this its --admin-listen?")]
    Unreachable {
        /// Who was asked.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The answer did not come in time.
    #[error("no answer from {address} within {within:?}: it hangs, or has too little CPU")]
    TimedOut {
        /// Who was asked.
        address: SocketAddr,
        /// For how long.
        within: Duration,
    },
    /// Another server listens there.
    #[error("what listens on {address} is no admin server ({what}): is this the --admin-listen to ask?")]
    Foreign {
        /// Who was asked.
        address: SocketAddr,
        /// What came instead.
        what: String,
    },
}

/// Asks the admin server at `address` whether `probe` passes.
///
/// # Errors
/// When it does not, or does not say so within that time.
pub async fn ask(address: SocketAddr, probe: Probe, within: Duration) -> Result<(), ProbeError> {
    let (status, text) = answer(address, Request::get(probe.path()), within).await?;
    done(address, status, &text)
}

/// Has the admin server at `address` do something that it does for who has this token.
///
/// # Errors
/// When it does not do it, or does not say so within that time.
pub async fn post(address: SocketAddr, path: &str, token: &str, within: Duration) -> Result<(), ProbeError> {
    let request = Request::post(path).header(header::AUTHORIZATION, format!("Bearer {}", token.trim_end()));
    let (status, text) = answer(address, request, within).await?;
    done(address, status, &text)
}

fn done(address: SocketAddr, status: StatusCode, text: &str) -> Result<(), ProbeError> {
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::SERVICE_UNAVAILABLE => Err(ProbeError::Failing(text.trim_end().to_owned())),
        _ => Err(ProbeError::Foreign { address, what: status.to_string() }),
    }
}

async fn answer(address: SocketAddr, request: Builder, within: Duration) -> Result<(StatusCode, String), ProbeError> {
    let answer = timeout(within, exchange(address, request)).await;
    answer.unwrap_or(Err(ProbeError::TimedOut { address, within }))
}

async fn exchange(address: SocketAddr, request: Builder) -> Result<(StatusCode, String), ProbeError> {
    let unreachable = |source| ProbeError::Unreachable { address, source };
    let foreign = |error: &dyn std::error::Error| ProbeError::Foreign { address, what: causes(error) };
    // What was to listen on `[::]` may do so on IPv4 alone.
    let by_ipv4 = (address.ip() == Ipv6Addr::LOCALHOST).then(|| (Ipv4Addr::LOCALHOST, address.port()).into());
    let addresses: Vec<_> = [address].into_iter().chain(by_ipv4).collect();
    let stream = TcpStream::connect(&*addresses).await.map_err(unreachable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| foreign(&error))?;
    let request = request.header(header::HOST, address.to_string()).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| foreign(&error))?;
    // Moves the sender in: the connection ends when that is dropped.
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok::<_, hyper::Error>((status, String::from_utf8_lossy(&body).into_owned()))
    };
    // The connection makes progress only while it is polled. What goes wrong with it fails the exchange too.
    let (answer, _) = tokio::join!(exchange, connection);
    answer.map_err(|error| foreign(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;
    use crate::{
        admin::{self, Health},
        shutdown::Shutdown,
    };

    /// More than any answer on loopback takes.
    const LONG: Duration = Duration::from_secs(20);

    async fn listen() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn it_tells_what_the_admin_server_tells_a_fault_a_line() {
        let (listener, address) = listen().await;
        let health = Health::new();
        let (lease, ring) = (health.check("lease", Probe::Ready), health.check("ring", Probe::Ready));
        tokio::spawn(admin::serve(listener, (health, Arc::default()), admin::Router::new(), Shutdown::new()));
        ring.fail("there is no ClusterRing 'example'");
        let by_ipv6 = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
        assert!(ask(by_ipv6, Probe::Live, LONG).await.is_ok(), "where `[::]` was asked for, and is not there");
        let error = ask(address, Probe::Ready, LONG).await.unwrap_err().to_string();
        assert_eq!(error, "lease: not there yet\nring: there is no ClusterRing 'example'");
        ask(address, Probe::Live, LONG).await.unwrap();
        lease.pass();
        ring.pass();
        ask(address, Probe::Ready, LONG).await.unwrap();
    }

    #[tokio::test]
    async fn an_absent_a_silent_and_a_foreign_server_are_told_apart() {
        let (listener, address) = listen().await;
        let silent = ask(address, Probe::Live, Duration::from_millis(50)).await.unwrap_err().to_string();
        assert!(silent.contains("within 50ms") && silent.contains(&address.to_string()), "{silent}");
        drop(listener);
        let absent = ask(address, Probe::Live, LONG).await.unwrap_err().to_string();
        assert!(
            absent.contains(&format!("nothing listens on {address}")) && absent.contains("--admin-listen"),
            "{absent}"
        );
        for answer in ["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "220 mail.example.com ESMTP\r\n"] {
            let (listener, address) = listen().await;
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                std::future::pending::<()>().await;
            });
            let foreign = ask(address, Probe::Live, LONG).await.unwrap_err().to_string();
            assert!(foreign.contains("no admin server"), "{foreign}");
        }
    }
}
