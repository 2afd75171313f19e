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
    server: watch::Sender<SocketAddr>,
    passing: watch::Sender<Passing>,
    hindered: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _relaying: AbortOnDropHandle<()>,
}

/// One direction of one connection.
struct Direction {
    answers: bool,
    passing: watch::Receiver<Passing>,
    hindered: Arc<AtomicUsize>,
}

impl Line {
    /// A line to a server, on which everything passes.
    pub async fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (passing, passes) = watch::channel(Passing::Everything);
        let (server, leads) = watch::channel(server);
        let (hindered, connections) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let relaying = relay(listener, leads, passes, hindered.clone(), connections.clone());
        let relaying = AbortOnDropHandle::new(tokio::spawn(relaying));
        Ok(Self { address, server, passing, hindered, connections, _relaying: relaying })
    }

    /// Where it begins.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this passes.
    pub fn set(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    /// From now on it leads to this server. Connections to another end.
    pub fn lead_to(&self, server: SocketAddr) {
        self.server.send_if_modified(|leads| std::mem::replace(leads, server) != server);
    }

    /// How many connections were made by it so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many pieces came late, or had to wait, so far.
    pub fn hindered(&self) -> usize {
        self.hindered.load(Ordering::Relaxed)
    }
}

async fn relay(
    listener: TcpListener,
    server: watch::Receiver<SocketAddr>,
    passing: watch::Receiver<Passing>,
    hindered: Arc<AtomicUsize>,
    connected: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let direction = |answers| Direction { answers, passing: passing.clone(), hindered: hindered.clone() };
        connected.fetch_add(1, Ordering::Relaxed);
        connections.spawn(connection(client, server.clone(), direction(false), direction(true)));
        while connections.try_join_next().is_some() {}
    }
}

/// Ends when either side does, or the line leads elsewhere.
async fn connection(
    client: TcpStream,
    mut leads: watch::Receiver<SocketAddr>,
    up: Direction,
    down: Direction,
) -> io::Result<()> {
    let server = *leads.borrow_and_update();
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        ended = up.pass(from_client, to_server) => ended,
        ended = down.pass(from_server, to_client) => ended,
        _ = leads.changed() => Ok(()),
    }
}

impl Direction {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            // The end of a connection is told no sooner than what was sent before.
            let read = from.read(&mut piece).await.unwrap_or_default();
            self.hinder().await;
            if read == 0 {
                return Ok(());
            }
            to.write_all(&piece[..read]).await?;
        }
    }

    /// Returns when it is time for what was read.
    async fn hinder(&mut self) {
        let passing = *self.passing.borrow();
        let answers = self.answers;
        let waits = move |passing: &Passing| match passing {
            Passing::Everything | Passing::Late(_) => false,
            Passing::Questions => answers,
            Passing::Nothing => true,
        };
        if let Passing::Late(by) = passing {
            self.hindered.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(by).await;
        } else if waits(&passing) {
            self.hindered.fetch_add(1, Ordering::Relaxed);
            // It fails when the line is gone, and this with it.
            let _ = self.passing.wait_for(|passing| !waits(passing)).await;
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
    async fn what_waited_arrives_afterwards() {
        let (line, mut client, mut server) = connected().await;
        line.set(Passing::Nothing);
        client.write_all(b"?").await.unwrap();
        server.write_all(b"!").await.unwrap();
        assert!(!arrives(&mut server, NOTHING).await && !arrives(&mut client, NOTHING).await);
        line.set(Passing::Everything);
        assert!(arrives(&mut server, SOON).await && arrives(&mut client, SOON).await);
        assert_eq!(line.hindered(), 2);
    }

    #[tokio::test]
    async fn questions_pass_alone() {
        let (line, mut client, mut server) = connected().await;
        line.set(Passing::Questions);
        client.write_all(b"?").await.unwrap();
        server.write_all(b"!").await.unwrap();
        assert!(arrives(&mut server, SOON).await);
        assert!(!arrives(&mut client, NOTHING).await);
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
