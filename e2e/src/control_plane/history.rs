//! The past of a control plane: etcd forgets it when it is told to.

use std::net::Ipv4Addr;

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Lets the etcd on this port forget what was before a revision, by the gateway that it has for clients without gRPC.
pub(super) async fn forget(etcd_port: u16, before: &str) -> Result<(), Fault> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, etcd_port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let asked = serde_json::json!({ "revision": before }).to_string();
    let request = Request::post("/v3/kv/compaction").header(header::HOST, "127.0.0.1");
    let request = request.body(Full::new(Bytes::from(asked)))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let said = response.into_body().collect().await?.to_bytes();
        if status == StatusCode::OK { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned().into()) }
    };
    // The connection makes progress only while it is polled.
    tokio::select! {
        answer = exchange => answer,
        ended = connection => Err(ended.map_or_else(Into::into, |()| "the connection ended".into())),
    }
}
