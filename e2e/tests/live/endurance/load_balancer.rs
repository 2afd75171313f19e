//! A load balancer in front of a server that can be gone without any client being told: connections stay open and their
//! kernels acknowledge what is sent.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

pub(crate) struct LoadBalancer {
    address: SocketAddr,
    /// Connections up to this number are frozen.
    frozen: Arc<watch::Sender<u64>>,
    accepted: Arc<watch::Sender<u64>>,
}

impl LoadBalancer {
    /// In front of `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), target)
    }

    /// The same for a listener from elsewhere.
    pub(crate) fn on(listener: TcpListener, target: SocketAddr) -> Self {
        let (frozen, accepted) = (Arc::new(watch::Sender::new(0)), Arc::new(watch::Sender::new(0)));
        let address = listener.local_addr().unwrap();
        let (freezer, counter) = (frozen.clone(), accepted.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counter.send_modify(|number| *number += 1);
                let (number, frozen) = (*counter.borrow(), freezer.subscribe());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(target).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        () = copy(from_client, to_server, number, frozen.clone()) => {}
                        () = copy(from_server, to_client, number, frozen) => {}
                    }
                });
            }
        });
        Self { address, frozen, accepted }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A connection of who goes past the proxy.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// From now on nothing passes on the connections that there are; new ones work.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(*self.accepted.borrow());
    }

    /// From now on nothing passes at all, as when the server hangs; [`Self::freeze`] lets new connections work again.
    pub(crate) fn hang(&self) {
        self.frozen.send_replace(u64::MAX);
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: u64, mut frozen: watch::Receiver<u64>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            biased;
            _ = frozen.wait_for(|until| *until >= number) => None,
            read = from.read(&mut buffer) => Some(read),
        };
        match read {
            // Read on, so that the other side's kernel goes on acknowledging, and pass nothing on.
            None => {
                while from.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
                // Not even the end.
                return std::future::pending().await;
            }
            Some(Ok(length)) if length > 0 => {
                if to.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
            Some(_) => return,
        }
    }
}
