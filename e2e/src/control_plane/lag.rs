//! What stands between an API server and etcd, so that the API server can be held in the past.

use std::{io, net::Ipv4Addr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// As much as is read of a connection at once.
const PIECE: usize = 64 << 10;

/// A relay before etcd. What etcd sends can be held back: then the API server knows nothing newer, and answers what it may
/// answer from memory with the past. Not for longer than etcd's clients wait for a sign of life, which is 30 s
/// (`keepaliveTime` of k8s.io/apiserver).
#[derive(Debug)]
pub struct Lag {
    held: watch::Sender<bool>,
    port: u16,
    _relaying: AbortOnDropHandle<()>,
}

impl Lag {
    pub(super) async fn before(etcd: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (held, holding) = watch::channel(false);
        let relaying = AbortOnDropHandle::new(tokio::spawn(relay(listener, etcd, holding)));
        Ok(Self { held, port, _relaying: relaying })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// From now on the API server learns nothing.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// It learns what it missed.
    pub fn release(&self) {
        self.held.send_replace(false);
    }
}

async fn relay(listener: TcpListener, etcd: u16, held: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(connection(client, etcd, held.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Ends when either side does.
async fn connection(client: TcpStream, etcd: u16, mut held: watch::Receiver<bool>) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, etcd)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = async { tokio::io::copy(&mut from_client, &mut to_server).await.map(drop) };
    let down = async {
        let mut piece = vec![0; PIECE];
        loop {
            let read = from_server.read(&mut piece).await?;
            if read == 0 || held.wait_for(|held| !held).await.is_err() {
                return io::Result::Ok(());
            }
            to_client.write_all(&piece[..read]).await?;
        }
    };
    tokio::select! {
        ended = up => ended,
        ended = down => ended,
    }
}
