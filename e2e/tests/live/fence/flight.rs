//! Writes under way while their object is drained.

use futures::{SinkExt as _, channel::mpsc};
use http::Method;
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use ringside_e2e::{
    compatibility::client::{Ask, Http},
    eventually::eventually,
    system::metrics,
};
use serde_json::json;

use super::fixture::{DEADLINE, Fixture, MERGE, WEBSITES};

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
    let endpoint = shard.endpoint.clone();
    let writing =
        tokio::spawn(async move { endpoint.open_with(Http::Two, &patch, "slow", StreamBody::new(receiver)).await });
    let until_one = async |metric: &str| {
        eventually(&format!("{metric} is 1"), DEADLINE, || async {
            let metrics = metrics(shard.proxy.admin_port).await.map_err(|error| error.to_string())?;
            let one = metrics.lines().any(|line| line.starts_with(metric) && line.ends_with(" 1.0"));
            one.then_some(()).ok_or(metrics)
        })
        .await
        .unwrap();
    };
    until_one("ringside_proxy_writes_in_flight{").await;

    fixture.drain(&path).await;
    // One after the other: the first would have been released before either.
    for later in ["drained-later", "drained-last"] {
        let later_path = format!("{WEBSITES}/{later}");
        fixture.website(later, shard.name).await;
        fixture.drain(&later_path).await;
        fixture.until_let_go(&later_path).await;
    }
    assert_eq!(fixture.ownership(&path).await, (Some(shard.name.to_owned()), true), "a write to it is under way");
    until_one("ringside_proxy_drains{").await;

    sender.send(frame(end)).await.unwrap();
    drop(sender);
    let answer = writing.await.unwrap().unwrap().collect().await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.text());
    fixture.until_let_go(&path).await;
    let object = fixture.admin(&Ask::get(&path)).await;
    assert_eq!(object["metadata"]["annotations"]["slow"], "yes");
}
