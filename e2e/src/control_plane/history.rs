//! The past of a control plane: etcd forgets it when it is told to.

use anyhow::ensure;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

/// Lets the etcd on this port forget what was before a revision, by the gateway that it has for clients without gRPC.
pub(super) async fn forget(etcd_port: u16, before: &str) -> anyhow::Result<()> {
    let asked = serde_json::json!({ "revision": before }).to_string();
    let request = Request::post(format!("http://127.0.0.1:{etcd_port}/v3/kv/compaction"));
    let request = request.body(Full::new(Bytes::from(asked)))?;
    let response = Client::builder(TokioExecutor::new()).build_http().request(request).await?;
    let is_ok = response.status().is_success();
    let said = response.into_body().collect().await?.to_bytes();
    ensure!(is_ok, "{}", String::from_utf8_lossy(&said));
    Ok(())
}
