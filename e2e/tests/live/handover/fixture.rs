//! Proxies that are a shard each, and nothing else: the tests are sharders and controllers.

use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    client::Body,
};
use ringside_e2e::{eventually::eventually, proxy::Proxy};
use ringside_ring::RingLabels;
use serde_json::{Value, json};

use crate::proxies::{NAMESPACE, Proxies, labels};

pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// A shard of its own: what one client still sees holds nothing of the others.
pub(crate) struct Fixture {
    pub(crate) shard: String,
    pub(crate) proxied: Client,
    pub(crate) labels: RingLabels,
    pub(crate) secrets: Api<Secret>,
    pub(crate) proxy: Proxy,
}

pub(crate) async fn start() -> Proxies {
    Proxies::start("{drainDeadlineSeconds: 5, resources: [{group: '', resource: secrets, controlledResources: [{group: '', resource: configmaps}]}]}").await
}

impl Fixture {
    /// A shard of this name.
    pub(crate) async fn start(proxies: &Proxies, name: &str) -> Self {
        let proxy = proxies.proxy(name, &["--drain-grace=200ms", "--lease-duration=60s"]).await;
        let proxied = proxy.client().await.unwrap();
        let secrets = Api::namespaced(proxies.control_plane.client(), NAMESPACE);
        let fixture = Self { shard: name.to_owned(), secrets, labels: labels(), proxied, proxy };
        // As each client begins: no watch goes on from before.
        assert_eq!(fixture.list("limit=1").await.0, StatusCode::OK);
        fixture
    }

    /// Makes a Secret of the shard, and returns its resourceVersion.
    pub(crate) async fn create(&self, name: &str) -> String {
        self.create_for(name, "shop").await
    }

    /// The same, of another app.
    pub(crate) async fn create_for(&self, name: &str, app: &str) -> String {
        let labels = json!({&self.labels.shard: self.shard, "app": app});
        let secret = json!({"metadata": {"name": name, "labels": labels}, "type": "Opaque"});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let created = self.secrets.create(&PostParams::default(), &secret).await.unwrap();
        created.metadata.resource_version.unwrap()
    }

    /// As the sharder does it.
    pub(crate) async fn drain(&self, name: &str, value: &str) {
        self.label(name, &json!({&self.labels.drain: value})).await;
    }

    pub(crate) async fn label(&self, name: &str, labels: &Value) {
        let patch = json!({"metadata": {"labels": labels}});
        self.secrets.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(crate) async fn is_let_go(&self, name: &str) -> bool {
        let labels = self.secrets.get(name).await.unwrap().metadata.labels.unwrap_or_default();
        !labels.contains_key(&self.labels.shard)
    }

    pub(crate) async fn until_let_go(&self, name: &str) {
        let sought = format!("the proxy releases {name}");
        let released = eventually(&sought, SOON, || async {
            if self.is_let_go(name).await { Ok(()) } else { Err("not yet".to_owned()) }
        });
        released.await.unwrap();
    }

    /// Waits until the proxy's metrics say of its drains, how many there are and how old the oldest is, what is sought.
    pub(crate) async fn until_drains(&self, sought: impl Fn(f64, f64) -> bool) {
        let drains = eventually("the proxy counts its drains", SOON, || async {
            let metrics =
                ringside_e2e::system::metrics(self.proxy.admin_port).await.map_err(|error| error.to_string())?;
            let value = |name: &str| {
                let found =
                    metrics.lines().find(|line| line.starts_with(name)).and_then(|line| line.rsplit(' ').next());
                found.unwrap().parse().unwrap()
            };
            let (drains, oldest) = (value("ringside_proxy_drains{"), value("ringside_proxy_oldest_drain_seconds{"));
            if sought(drains, oldest) { Ok(()) } else { Err(format!("{drains}, the oldest of {oldest} s")) }
        });
        drains.await.unwrap();
    }

    /// Asks the proxy.
    pub(crate) async fn get(&self, target: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let request = headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
        self.proxied.send(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Asks the proxy for a list.
    pub(crate) async fn list(&self, query: &str) -> (StatusCode, Value) {
        let headers = [("accept", "application/json"), (header::ACCEPT_ENCODING.as_str(), "identity")];
        let response = self.get(&format!("{SECRETS}?{query}"), &headers).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
