//! Watches, and their events as they come.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use futures::future::try_join_all;
use http::header;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{Encoding, Mark, Protocol, Turn, WATCHES};
use crate::proxy::{
    client::{Call, Connection},
    started::Target,
    upstream::{LIVE, PROTOBUF},
};

/// Events of each watch before those that count.
const WARM_UP: usize = 20;

/// Watches on one connection.
pub(in crate::proxy) struct Watches {
    open: Vec<Watch>,
    _connection: Connection,
}

struct Watch {
    body: Incoming,
    /// None for JSON.
    frames: Option<Frames>,
}

impl Watches {
    /// Opens them.
    pub(in crate::proxy) async fn open(
        target: &Target,
        path: &'static str,
        encoding: Encoding,
        watches: usize,
    ) -> anyhow::Result<Self> {
        let mut connection = Connection::open(target, Protocol::Http2).await?;
        let accept = match encoding {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
        };
        let mut open = Vec::new();
        for _ in 0..watches {
            let answer = connection.send(&Call::get(path, accept)).await?;
            let form = answer.headers().get(header::CONTENT_TYPE).map(|it| it.as_bytes().to_vec()).unwrap_or_default();
            let frames = form.starts_with(PROTOBUF.as_bytes()).then(Frames::default);
            open.push(Watch { body: answer.into_body(), frames });
        }
        Ok(Self { open, _connection: connection })
    }

    /// Waits until each watch has had an event.
    pub(in crate::proxy) async fn begun(&mut self) -> anyhow::Result<()> {
        try_join_all(self.open.iter_mut().map(Watch::some)).await.map(drop)
    }

    /// Waits until all together have had so many events. Returns how many there were. All are read to the end: what is left unread
    /// on one would keep the connection from the others.
    async fn take(&mut self, events: usize) -> anyhow::Result<usize> {
        let had = AtomicUsize::new(0);
        let take = async |watch: &mut Watch| {
            while had.load(Ordering::Relaxed) < events {
                had.fetch_add(watch.some().await?, Ordering::Relaxed);
            }
            anyhow::Ok(())
        };
        try_join_all(self.open.iter_mut().map(take)).await?;
        Ok(had.into_inner())
    }
}

impl Watch {
    /// How many events end in what comes next; there is one.
    async fn some(&mut self) -> anyhow::Result<usize> {
        loop {
            let frame = self.body.frame().await.context("a watch ended")??;
            let Some(bytes) = frame.data_ref() else { continue };
            let ended = match &mut self.frames {
                Some(frames) => frames.count(bytes),
                None => bytes.iter().filter(|byte| **byte == b'\n').count(),
            };
            if ended > 0 {
                return Ok(ended);
            }
        }
    }
}

/// So many events, on `WATCHES` watches together.
pub(super) async fn run(target: &Target, encoding: Encoding, events: usize) -> anyhow::Result<Turn> {
    let mut watches = Watches::open(target, LIVE, encoding, WATCHES).await?;
    watches.take(WARM_UP * WATCHES).await?;
    let mark = Mark::of(target)?;
    let had = watches.take(events).await?;
    mark.turn(target, had as f64, Vec::new())
}

/// Protobuf events, each behind its length in four bytes.
#[derive(Debug, Default)]
struct Frames {
    length: u32,
    known: usize,
    left: usize,
}

impl Frames {
    /// How many end in these bytes.
    fn count(&mut self, mut bytes: &[u8]) -> usize {
        let mut ended = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                ended += usize::from(self.left == 0);
                bytes = &bytes[taken..];
                continue;
            }
            self.length = self.length << 8 | u32::from(*first);
            self.known += 1;
            bytes = rest;
            if self.known == 4 {
                (self.left, self.known, self.length) = (self.length as usize, 0, 0);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_wherever_they_are_cut() {
        let event = [&[0, 0, 0, 3][..], b"abc"].concat();
        let all = event.repeat(3);
        for size in 1..=all.len() {
            let mut frames = Frames::default();
            assert_eq!(all.chunks(size).map(|piece| frames.count(piece)).sum::<usize>(), 3, "{size}");
        }
    }
}
