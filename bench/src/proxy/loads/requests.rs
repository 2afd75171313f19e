//! Requests one after the other, on one connection or many.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use http::{HeaderValue, Method, header};
use hyper::body::Bytes;

use super::{Mark, Protocol, Turn};
use crate::{
    MEGABYTE,
    proxy::{
        client::{Call, Connection},
        started::Target,
        upstream::{POD, PODS},
    },
};

/// Those before count for nothing: connections upstream are made, code is paged in.
const WARM_UP: usize = 20;

pub(super) fn get() -> Call {
    Call::get(POD, "application/json")
}

pub(super) fn patch() -> Call {
    let form = HeaderValue::from_static("application/merge-patch+json");
    let accept = HeaderValue::from_static("application/json");
    let body = Bytes::from_static(br#"{"metadata":{"annotations":{"example.com/seen":"2026-01-02T03:04:05Z"}}}"#);
    Call {
        method: Method::PATCH,
        path: POD,
        headers: vec![(header::CONTENT_TYPE, form), (header::ACCEPT, accept)],
        body,
    }
}

/// So many requests in all, shared by the connections.
pub(super) async fn run(
    target: &Target,
    protocol: Protocol,
    connections: usize,
    call: &Call,
    requests: usize,
) -> anyhow::Result<Turn> {
    let mut opened = try_join_all((0..connections).map(|_| Connection::open(target, protocol))).await?;
    let each = requests.div_ceil(connections);
    try_join_all(opened.iter_mut().map(|connection| repeat(connection, call, WARM_UP))).await?;
    let mark = Mark::of(target)?;
    let latencies = try_join_all(opened.iter_mut().map(|connection| repeat(connection, call, each))).await?.concat();
    mark.turn(target, latencies.len() as f64, latencies)
}

async fn repeat(connection: &mut Connection, call: &Call, times: usize) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        connection.exchange(call).await?;
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}

/// Lists, until all of them together had so many bytes.
pub(super) async fn lists(target: &Target, bytes: usize) -> anyhow::Result<Turn> {
    let (mut connection, call) =
        (Connection::open(target, Protocol::Http2).await?, Call::get(PODS, "application/json"));
    connection.exchange(&call).await?;
    let (mark, mut read) = (Mark::of(target)?, 0);
    while read < bytes {
        read += connection.exchange(&call).await?;
    }
    mark.turn(target, read as f64 / MEGABYTE, Vec::new())
}
