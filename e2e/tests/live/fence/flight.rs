//! Writes under way while their object is drained.

use std::time::Duration;

use futures::{SinkExt as _, channel::mpsc};
use http::Method;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use ringside_e2e::{
    compatibility::client::{Ask, Http},
    eventually::eventually,
};
use serde_json::json;

use super::fixture::{DEADLINE, Fixture, MERGE, WEBSITES};

/// Many times the grace of these proxies.
const LONG: Duration = Duration::from_secs(3);

pub(crate) async fn slow_write(fixture: &Fixture) {
    let shard = fixture.shard("slow").await;
    let path = format!("{WEBSITES}/slow");
    fixture.website("slow", shard.name).await;
    let body = json!({"metadata": {"annotations": {"slow": "yes"}}}).to_string();
    let (begin, end) = body.split_at(10);
    let (mut sender, receiver) = mpsc::unbounded::<Result<Frame<Bytes>, std::io::Error>>();
    let frame = |text: &str| Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())));
    sender.send(frame(begin)).await.unwrap();
    let patch = Ask::new(Method::PATCH, &path).header("content-type", MERGE).unsized_body();
    let endpoint = shard.endpoint().clone();
    let writing =
        tokio::spawn(async move { endpoint.open_with(Http::Two, &patch, "slow", StreamBody::new(receiver)).await });
    // Counted by now.
    eventually("the write is under way", DEADLINE, || async {
        let metrics = metrics(shard.proxy.admin_port).await;
        metrics
            .lines()
            .find(|line| line.starts_with("ringside_proxy_writes_in_flight{") && line.ends_with(" 1.0"))
            .map(drop)
            .ok_or(metrics)
    })
    .await
    .unwrap();

    fixture.drain(&path).await;
    let held = tokio::time::timeout(LONG, fixture.until_let_go(&path)).await;
    assert!(held.is_err(), "it was let go while a write was under way");
    let drains = metrics(shard.proxy.admin_port).await;
    assert!(
        drains.lines().any(|line| line.starts_with("ringside_proxy_drains{") && line.ends_with(" 1.0")),
        "{drains}"
    );

    sender.send(frame(end)).await.unwrap();
    drop(sender);
    let answer = writing.await.unwrap().unwrap().collect().await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    fixture.until_let_go(&path).await;
    let object = fixture.admin(&Ask::get(&path)).await;
    assert_eq!(object["metadata"]["annotations"]["slow"], "yes");
}

async fn metrics(port: u16) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}
