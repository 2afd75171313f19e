//! What the cases stand on: a control plane, a ring, and proxies without controllers.

use std::time::Duration;

use http::{Method, StatusCode};
use ringside_e2e::{
    compatibility::client::{Answer, Ask, Endpoint, Http},
    eventually::eventually,
    proxy::Proxy,
};
use ringside_ring::RingLabels;
use serde_json::{Value, json};

use crate::proxies::{Proxies, endpoint, labels};

/// A loaded machine takes its time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// How long a controller must be silent about an object.
const GRACE: &str = "300ms";

/// A custom resource that controls a built-in one.
const SPEC: &str = "{resources: [{group: web.example.com, resource: websites, controlledResources: [{group: '', resource: configmaps}]}]}";

pub(crate) const WEBSITES: &str = "/apis/web.example.com/v1/namespaces/default/websites";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const MERGE: &str = "application/merge-patch+json";

/// A shard that does not run: what belongs to it is another's.
pub(crate) const OTHER: &str = "other";

pub(crate) struct Fixture {
    labels: RingLabels,
    admin: Endpoint,
    proxies: Proxies,
}

/// A proxy, and a client of it.
pub(crate) struct Shard {
    pub(crate) name: &'static str,
    pub(crate) proxy: Proxy,
    pub(crate) endpoint: Endpoint,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let proxies = Proxies::start(SPEC).await;
        let control_plane = &proxies.control_plane;
        let admin = Endpoint::new(control_plane.address(), &control_plane.ca_path(), control_plane.admin_token());
        Self { labels: labels(), admin: admin.unwrap(), proxies }
    }

    /// Starts the proxy of a shard.
    pub(crate) async fn shard(&self, name: &'static str) -> Shard {
        let proxy = self.proxies.proxy(name, &["--drain-grace", GRACE]).await;
        Shard { name, endpoint: endpoint(&proxy), proxy }
    }

    /// Asks the API server as its administrator, and expects that it does as it is told.
    pub(crate) async fn admin(&self, ask: &Ask) -> Value {
        let answer = self.admin.exchange(Http::Two, ask, "admin").await.unwrap();
        assert!(answer.status.is_success(), "{} {}: {}", ask.method, ask.target, answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Makes an object of that shard.
    pub(crate) async fn create(&self, collection: &str, mut object: Value, shard: &str) -> Value {
        object["metadata"]["labels"] = json!({ &*self.labels.shard: shard });
        self.admin(&Ask::new(Method::POST, collection).body("application/json", object.to_string())).await
    }

    pub(crate) async fn website(&self, name: &str, shard: &str) -> Value {
        self.create(WEBSITES, website(name), shard).await
    }

    /// Sets labels as a sharder does, or takes them off.
    pub(crate) async fn label(&self, path: &str, shard: Value, drain: Value) {
        let labels = json!({"metadata": {"labels": {&*self.labels.shard: shard, &*self.labels.drain: drain}}});
        self.admin(&Ask::new(Method::PATCH, path).body(MERGE, labels.to_string())).await;
    }

    /// Whose the object is, and whether it is drained.
    pub(crate) async fn ownership(&self, path: &str) -> (Option<String>, bool) {
        let object = self.admin(&Ask::get(path)).await;
        let label = |key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
        (label(&self.labels.shard), label(&self.labels.drain).is_some())
    }

    /// Drains the object.
    pub(crate) async fn drain(&self, path: &str) {
        let shard = self.ownership(path).await.0;
        self.label(path, json!(shard), json!("move-1")).await;
    }

    /// Waits for the acknowledgement.
    pub(crate) async fn until_let_go(&self, path: &str) {
        eventually("the shard releases the object", DEADLINE, || async {
            let now = self.ownership(path).await;
            if now == (None, false) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await
        .unwrap();
    }

    pub(crate) async fn give_to(&self, path: &str, shard: &str) {
        self.label(path, json!(shard), Value::Null).await;
    }
}

impl Shard {
    pub(crate) async fn send(&self, ask: &Ask) -> Answer {
        self.endpoint.exchange(Http::Two, ask, "shard").await.unwrap()
    }

    /// How a request is answered; what is unexpected says so itself.
    pub(crate) async fn expect(&self, ask: &Ask, status: StatusCode) {
        let answer = self.send(ask).await;
        assert_eq!(answer.status, status, "{} {}: {}", ask.method, ask.target, answer.text());
    }

    /// That the fence answers so.
    pub(crate) async fn refuses(&self, ask: &Ask, status: StatusCode) {
        let answer = self.send(ask).await;
        let ours = answer.text().contains("ringside-proxy: ");
        assert!(answer.status == status && ours, "{} {}: {} {}", ask.method, ask.target, answer.status, answer.text());
    }
}

pub(crate) fn website(name: &str) -> Value {
    json!({"apiVersion": "web.example.com/v1", "kind": "Website", "metadata": {"name": name}, "spec": {"content": "a"}})
}

/// A reference to the website that controls an object.
pub(crate) fn reference(owner: &Value) -> Value {
    json!({"apiVersion": "web.example.com/v1", "kind": "Website", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

/// A ConfigMap that this website controls.
pub(crate) fn child(name: &str, owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [reference(owner)]}})
}

/// A merge patch that changes what no other client does.
pub(crate) fn touch(path: &str) -> Ask {
    let annotations = json!({"metadata": {"annotations": {"touched": "yes"}}});
    Ask::new(Method::PATCH, path).body(MERGE, annotations.to_string())
}
