//! A terminal in a container, and its size.

use std::{fs::File, io, os::fd::OwnedFd, process::Stdio, sync::Arc};

use futures::future::join_all;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::{DEADLINE, POD, Way};
use crate::Shared;

pub(crate) async fn a_terminal_has_the_size_of_ours_and_follows_it(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let ways = streams.ways().await;
    join_all(ways.iter().map(session)).await;
    streams.assert_alike(&ways).await;
}

async fn session(way: &Way) {
    let terminal = Terminal::open().unwrap();
    terminal.resize(80, 24).unwrap();
    let mut command = way.command(&["exec", "-it", POD, "--", "/guest", "size"]);
    for stream in [std::process::Command::stdin, std::process::Command::stdout] {
        stream(command.as_std_mut(), terminal.other_side().unwrap());
    }
    let child = command.spawn().unwrap();
    let mut ours = tokio::fs::File::from_std(File::from(terminal.ours.try_clone().unwrap()));
    until(way, &mut ours, "80 x 24\r\n").await;
    terminal.resize(132, 50).unwrap();
    // The kernel tells only who has it as controlling terminal.
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::WINCH).unwrap();
    until(way, &mut ours, "132 x 50\r\n").await;
    ours.write_all(b"\r").await.unwrap();
    let output = timeout(DEADLINE, child.wait_with_output()).await.unwrap_or_else(|_| panic!("{}: no end", way.name));
    let output = output.unwrap();
    assert!(output.status.success(), "{}: {}", way.name, output.status);
}

async fn until(way: &Way, terminal: &mut tokio::fs::File, wanted: &str) {
    let mut seen = String::new();
    let found = async {
        while !seen.contains(wanted) {
            let mut buffer = [0; 256];
            let count = terminal.read(&mut buffer).await.unwrap();
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    let found = timeout(DEADLINE, found).await;
    assert!(found.is_ok(), "{}: no {wanted:?} in {seen:?}", way.name);
}

/// A terminal of our own making.
struct Terminal {
    ours: OwnedFd,
}

impl Terminal {
    fn open() -> io::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        Ok(Self { ours })
    }

    /// For the program that runs in it.
    fn other_side(&self) -> io::Result<Stdio> {
        let name = ptsname(&self.ours, Vec::new())?;
        let path = name.into_string().map_err(io::Error::other)?;
        Ok(File::options().read(true).write(true).open(path)?.into())
    }

    fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&self.ours, size)?)
    }
}
