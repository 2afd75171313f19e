//! A line between two programs on loopback, at TCP's level: what passes can be late, or wait, as on a network that is slow or
//! broken. What waited arrives afterwards, as by TCP.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// As much as is read of a connection at once.
const PIECE: usize = 64 << 10;

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Everything, at once.
    Everything,
    /// Everything, each piece so much later.
    Late(Duration),
    /// What clients send, and no answer.
    Questions,
    /// Nothing, in neither direction.
    Nothing,
}

/// A line. It ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    shared: Arc<Shared>,
    _relaying: AbortOnDropHandle<()>,
}

/// What a line and its connections share.
#[derive(Debug)]
struct Shared {
    server: watch::Sender<SocketAddr>,
    passing: watch::Sender<Passing>,
    hindered: AtomicUsize,
    connections: AtomicUsize,
}

impl Line {
    /// A line to a server, on which everything passes.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (server, passing) = (watch::Sender::new(server), watch::Sender::new(Passing::Everything));
        let (hindered, connections) = <(AtomicUsize, AtomicUsize)>::default();
        let shared = Arc::new(Shared { server, passing, hindered, connections });
        let relaying = AbortOnDropHandle::new(tokio::spawn(relay(listener, shared.clone())));
        Ok(Self { address, shared, _relaying: relaying })
    }

    /// The same where it is wanted.
    pub(crate) async fn where_wanted(wanted: bool, server: SocketAddr) -> anyhow::Result<Option<Self>> {
        Ok(if wanted { Some(Self::to(server).await.context("lay a line")?) } else { None })
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether answers arrive, late or at once.
    pub fn answers(&self) -> bool {
        matches!(*self.shared.passing.borrow(), Passing::Everything | Passing::Late(_))
    }

    /// From now on this passes.
    pub fn set(&self, passing: Passing) {
        self.shared.passing.send_replace(passing);
    }

    /// From now on only questions pass. An API server that asks etcd by it knows nothing newer, and answers what it may answer
    /// from memory with the past: not for longer than etcd's clients wait for a sign of life, which is 30 s (`keepaliveTime` of
    /// k8s.io/apiserver).
    pub fn hold(&self) {
        self.set(Passing::Questions);
    }

    /// Everything passes again, what waited too.
    pub fn release(&self) {
        self.set(Passing::Everything);
    }

    /// From now on it leads to this server. Connections to another end.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.server.send_if_modified(|leads| std::mem::replace(leads, server) != server);
    }

    /// How many connections were made by it so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many pieces came late, or had to wait, so far.
    pub fn hindered(&self) -> usize {
        self.shared.hindered.load(Ordering::Relaxed)
    }
}

async fn relay(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        connections.spawn(connection(client, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Ends when either side does, or the line leads elsewhere.
async fn connection(client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut leads = shared.server.subscribe();
    let server = *leads.borrow_and_update();
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        ended = shared.pass(false, from_client, to_server) => ended,
        ended = shared.pass(true, from_server, to_client) => ended,
        _ = leads.changed() => Ok(()),
    }
}

impl Shared {
    /// Passes one direction of a connection on: questions or answers.
    async fn pass(&self, answers: bool, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            // The end of a connection is told no sooner than what was sent before.
            let read = from.read(&mut piece).await.unwrap_or_default();
            self.hinder(answers).await;
            if read == 0 {
                return Ok(());
            }
            to.write_all(&piece[..read]).await?;
        }
    }

    /// Returns when it is time for what was read.
    async fn hinder(&self, answers: bool) {
        let waits = move |passing: &Passing| match passing {
            Passing::Everything | Passing::Late(_) => false,
            Passing::Questions => answers,
            Passing::Nothing => true,
        };
        let passing = *self.passing.borrow();
        if let Passing::Late(by) = passing {
            self.hindered.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(by).await;
        } else if waits(&passing) {
            self.hindered.fetch_add(1, Ordering::Relaxed);
            // It fails when the line is gone, and this with it.
            let _ = self.passing.subscribe().wait_for(|passing| !waits(passing)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::time::{Instant, timeout};

    use super::*;

    /// Long enough for loopback.
    const SOON: Duration = Duration::from_secs(10);
    /// So long nothing is waited for that is not to come.
    const NOTHING: Duration = Duration::from_millis(100);

    /// A line to a server, and a connection by it: both ends.
    async fn connected() -> (Line, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let line = Line::to(listener.local_addr().unwrap()).await.unwrap();
        let client = TcpStream::connect(line.address()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (line, client, server)
    }

    async fn arrives(stream: &mut TcpStream, within: Duration) -> bool {
        timeout(within, stream.read_u8()).await.is_ok()
    }

    #[tokio::test]
    async fn what_does_not_pass_arrives_afterwards() {
        for (passing, asks, hindered) in [(Passing::Nothing, false, 2), (Passing::Questions, true, 1)] {
            let (line, mut client, mut server) = connected().await;
            line.set(passing);
            client.write_all(b"?").await.unwrap();
            server.write_all(b"!").await.unwrap();
            assert_eq!(arrives(&mut server, if asks { SOON } else { NOTHING }).await, asks, "{passing:?}");
            assert!(!arrives(&mut client, NOTHING).await, "{passing:?}");
            line.set(Passing::Everything);
            assert!((asks || arrives(&mut server, SOON).await) && arrives(&mut client, SOON).await, "{passing:?}");
            assert_eq!(line.hindered(), hindered);
        }
    }

    #[tokio::test]
    async fn who_was_connected_connects_again_when_the_line_leads_elsewhere() {
        let (line, mut client, _server) = connected().await;
        let elsewhere = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        line.lead_to(elsewhere.local_addr().unwrap());
        assert_eq!(timeout(SOON, client.read(&mut [0])).await.unwrap().unwrap_or_default(), 0, "it has ended");
        let mut client = TcpStream::connect(line.address()).await.unwrap();
        let (mut server, _) = timeout(SOON, elsewhere.accept()).await.unwrap().unwrap();
        client.write_all(b"?").await.unwrap();
        assert!(arrives(&mut server, SOON).await);
        assert_eq!(line.connections(), 2);
    }

    #[tokio::test]
    async fn a_piece_comes_as_late_as_was_said() {
        let (line, mut client, mut server) = connected().await;
        line.set(Passing::Late(NOTHING));
        let sent = Instant::now();
        client.write_all(b"?").await.unwrap();
        assert!(arrives(&mut server, SOON).await);
        assert!(sent.elapsed() >= NOTHING);
    }
}
