//! Listeners that serve IPv4 and IPv6 alike, on machines that may have one of them alone.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

/// Listens on an address. Where the machine has no IPv6, `0.0.0.0` takes the place of `[::]`.
///
/// # Errors
/// When the system does not let it.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address, TcpListener::bind).await
}

/// How long to wait after the system refused a connection, as it does when no file descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Returns the next connection.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn bind<T>(address: SocketAddr, bind: impl AsyncFn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    match bind(address).await {
        Err(error) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && lacks_ipv6(&error) => {
            let instead = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            tracing::info!(%error, %address, %instead, "no IPv6 here; listening on IPv4 alone");
            bind(instead).await
        }
        bound => bound,
    }
}

/// Of a kernel without IPv6, or with IPv6 turned off.
fn lacks_ipv6(error: &io::Error) -> bool {
    let codes = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everywhere_means_ipv4_where_there_is_no_ipv6_and_all_other_errors_stay() {
        let bound = async |address: &str, errno: Errno| {
            let address: SocketAddr = address.parse().map_err(io::Error::other)?;
            let system = async |asked: SocketAddr| {
                if asked.is_ipv6() {
                    Err(io::Error::from_raw_os_error(errno.raw_os_error()))
                } else {
                    Ok(asked.to_string())
                }
            };
            bind(address, system).await
        };
        for errno in [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL] {
            assert_eq!(bound("[::]:9443", errno).await.ok().as_deref(), Some("0.0.0.0:9443"));
            assert!(bound("[::1]:9443", errno).await.is_err());
        }
        assert!(bound("[::]:9443", Errno::ADDRINUSE).await.is_err());
    }

    /// As a client without IPv6 reaches it.
    #[tokio::test]
    async fn a_listener_everywhere_is_reached_by_ipv4() {
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into()).await.expect("it listens");
        let port = listener.local_addr().expect("an address").port();
        tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("it is reached");
    }
}
