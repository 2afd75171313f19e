//! An ordinary operator, as a developer would write it with kube: a ConfigMap and a Secret for each Website, by
//! server-side apply. It elects no leader, as kube has no election, and knows nothing of replicas at work beside it.

mod report;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use clap::Parser;
use futures::StreamExt as _;
use k8s_openapi::{
    ByteString, NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{Controller, controller, watcher},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use report::Reporter;

const MANAGER: &str = "website-operator";

/// The pause before another try.
const BACKOFF: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Options {
    /// Name of this process, as status.reconciledBy shows it
    #[arg(long, env = "INSTANCE")]
    instance: String,
    /// How many Websites are worked on at once
    #[arg(long, env = "CONCURRENCY", default_value_t = 4)]
    concurrency: u16,
    /// URL that the start and end of each reconcile are reported to
    #[arg(long, env = "COLLECTOR")]
    collector: Option<http::Uri>,
}

#[derive(Clone, Debug, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "web.example.com", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase")]
struct WebsiteSpec {
    #[serde(default)]
    content: String,
    #[serde(default)]
    work_millis: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WebsiteStatus {
    observed_generation: Option<i64>,
    reconciled_by: String,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    #[error("report to the collector: {0:#}")]
    Report(#[from] anyhow::Error),
}

struct Operator {
    client: Client,
    instance: String,
    reporter: Reporter,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let client = Client::try_default().await?;
    let reporter = Reporter::new(options.collector, options.instance.clone());
    let operator = Operator { client: client.clone(), instance: options.instance, reporter };
    Controller::new(Api::<Website>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Secret>::all(client), watcher::Config::default())
        .with_config(controller::Config::default().concurrency(options.concurrency))
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| controller::Action::requeue(BACKOFF), Arc::new(operator))
        .for_each(async |done| {
            if let Err(error) = done {
                say(&error);
            }
        })
        .await;
    Ok(())
}

#[allow(clippy::print_stderr, reason = "its log")]
fn say(error: &dyn std::error::Error) {
    let causes = std::iter::successors(Some(error), |error| error.source());
    eprintln!("{}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
}

async fn reconcile(website: Arc<Website>, operator: Arc<Operator>) -> Result<controller::Action, Error> {
    if website.metadata.deletion_timestamp.is_some() {
        return Ok(controller::Action::await_change());
    }
    operator.reporter.start(&website.metadata).await?;
    let done = operator.set_up(&website).await;
    operator.reporter.end(&website.metadata, done.as_ref().err()).await?;
    done?;
    Ok(controller::Action::await_change())
}

impl Operator {
    /// Makes a Website what its spec says.
    async fn set_up(&self, website: &Website) -> kube::Result<()> {
        tokio::time::sleep(Duration::from_millis(website.spec.work_millis)).await;
        let content = BTreeMap::from([("index.html".to_owned(), website.spec.content.clone())]);
        let site = BTreeMap::from([("site".to_owned(), ByteString(website.name_any().into_bytes()))]);
        let metadata = || ObjectMeta {
            name: website.metadata.name.clone(),
            owner_references: website.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        self.put(website, &ConfigMap { metadata: metadata(), data: Some(content), ..ConfigMap::default() }).await?;
        self.put(website, &Secret { metadata: metadata(), data: Some(site), ..Secret::default() }).await?;

        let reconciled_by = self.instance.clone();
        let status = WebsiteStatus { observed_generation: website.metadata.generation, reconciled_by };
        if website.status.as_ref() != Some(&status) {
            let patch = Patch::Merge(json!({ "status": status }));
            let api: Api<Website> = self.beside(website);
            api.patch_status(&website.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn put<K>(&self, website: &Website, child: &K) -> kube::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + k8s_openapi::Resource
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let (name, params) = (website.name_any(), PatchParams::apply(MANAGER).force());
        self.beside::<K>(website).patch(&name, &params, &Patch::Apply(child)).await.map(drop)
    }

    /// Objects in a Website's namespace.
    fn beside<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, website: &Website) -> Api<K> {
        Api::namespaced(self.client.clone(), website.metadata.namespace.as_deref().unwrap_or_default())
    }
}
