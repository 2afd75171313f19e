//! Tells a collector when a reconcile starts and ends. It is all that is special about this operator.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, Uri, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Posts to a collector. Without a URL it is silent.
pub(crate) struct Reporter {
    client: Client<HttpConnector, Full<Bytes>>,
    collector: Option<Uri>,
    instance: String,
}

impl Reporter {
    /// Reports as this instance, which is unique to one life of the process.
    pub(crate) fn new(collector: Option<Uri>, instance: String) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), collector, instance }
    }

    /// Reports that work on the object begins. When it returns without an error the collector knows.
    pub(crate) async fn start(&self, object: &ObjectMeta) -> anyhow::Result<()> {
        self.post(object, json!({"phase": "start"})).await
    }

    /// Reports that work on the object has ended, after its last write.
    pub(crate) async fn end(&self, object: &ObjectMeta, error: Option<&kube::Error>) -> anyhow::Result<()> {
        let outcome = match error {
            None => "done",
            Some(kube::Error::Api(status)) if status.reason == "AlreadyExists" => "alreadyExists",
            Some(_) => "failed",
        };
        self.post(object, json!({"phase": "end", "outcome": outcome})).await
    }

    async fn post(&self, object: &ObjectMeta, mut message: Value) -> anyhow::Result<()> {
        let Some(url) = &self.collector else { return Ok(()) };
        message["uid"] = json!(object.uid);
        message["generation"] = json!(object.generation);
        message["instance"] = json!(self.instance);
        let request = Request::post(url).header(CONTENT_TYPE, "application/json");
        let answer = self.client.request(request.body(Full::from(message.to_string()))?).await.context("post")?;
        ensure!(answer.status().is_success(), "{}", answer.status());
        Ok(())
    }
}
