//! A network of its own for a proxy, in which packets can vanish.

use std::{ffi::OsStr, io, net::SocketAddr, path::Path, process::Command, sync::Arc, thread, time::Duration};

use ringside_e2e::{
    eventually::eventually,
    process::{Process, enter_network},
};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::DEADLINE;
use crate::proxies::Proxies;

/// Where the API server is, seen from inside.
pub(crate) const OUTSIDE: &str = "127.0.0.2";

/// A network namespace with nothing but loopback; gone when this is dropped.
pub(crate) struct Network {
    holder: Process,
}

/// Why there can be none.
pub(crate) fn unavailable() -> Option<String> {
    let script = format!("ip link set lo up && iptables -A INPUT -d {OUTSIDE} -j DROP");
    let tried = Command::new("unshare").args(["--net", "sh", "-c", &script]).output();
    let works = tried.as_ref().is_ok_and(|output| output.status.success());
    (!works).then(|| "no network in which packets vanish can be made here: it needs root, ip and iptables".to_owned())
}

impl Network {
    pub(crate) async fn create(fixture: &Proxies) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"]);
        let log = fixture.control_plane.dir().join("network.log");
        let holder = Process::spawn("network", &command, &log).unwrap();
        let ready = eventually("the network is there", DEADLINE, || async {
            holder.check_running().map_err(|error| error.to_string())?;
            if holder.log_tail().contains("ready") { Ok(()) } else { Err("not yet".to_owned()) }
        });
        ready.await.unwrap();
        Self { holder }
    }

    /// A program that runs inside.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.file())).arg(program);
        command
    }

    /// From now on packets to and from the API server vanish.
    pub(crate) fn cut(&self) {
        self.filter("--append");
    }

    /// They arrive again.
    pub(crate) fn mend(&self) {
        self.filter("--delete");
    }

    fn filter(&self, action: &str) {
        for side in ["--source", "--destination"] {
            let mut command = self.command("iptables");
            command.args(["--wait", action, "INPUT", side, OUTSIDE, "--jump", "DROP"]);
            assert!(command.status().unwrap().success());
        }
    }

    /// A listener inside.
    pub(crate) async fn listen(&self, address: SocketAddr) -> TcpListener {
        let listener = self.inside(move || std::net::TcpListener::bind(address)).await.unwrap();
        listener.set_nonblocking(true).unwrap();
        TcpListener::from_std(listener).unwrap()
    }

    /// A connection inside.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream =
            self.inside(move || std::net::TcpStream::connect_timeout(&address, Duration::from_secs(10))).await?;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }

    /// A socket stays in the network that it was made in, whichever thread uses it then.
    async fn inside<T: Send + 'static>(&self, act: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let file = self.file();
        let (done, outcome) = tokio::sync::oneshot::channel();
        // A thread of its own: it can't go back.
        thread::spawn(move || {
            let _ = done.send(enter_network(Path::new(&file)).and_then(|()| act()));
        });
        outcome.await.map_err(io::Error::other)?
    }

    fn file(&self) -> String {
        format!("/proc/{}/ns/net", self.holder.id())
    }
}

/// Makes that port of the network one of ours.
pub(crate) async fn publish(network: &Arc<Network>, port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let network = network.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let network = network.clone();
            tokio::spawn(async move {
                let Ok(mut inside) = network.connect(([127, 0, 0, 1], port).into()).await else { return };
                // Either side may go at any time.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut inside).await;
            });
        }
    });
}
