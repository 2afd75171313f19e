//! What of other shards is not shown by name, and which writes are refused, counted and asked about.

use std::collections::BTreeMap;

use serde_json::{Value, json as value};
use tokio::time::{advance, timeout};

use super::*;
use crate::{
    fence::DrainGuard,
    views::{DrainingObject, fixtures},
    wire,
};

mod children;
mod flight;
mod many;
mod names;
mod owners;
mod unlabelled;

const GRACE: Duration = Duration::from_secs(2);
pub(super) const THINGS: &str = "/apis/x.io/v1/namespaces/a/things";
pub(super) const PARTS: &str = "/apis/x.io/v1/namespaces/a/parts";

/// The labels of one object: shard and drain.
pub(super) type Labels = (Option<&'static str>, Option<&'static str>);

pub(super) const OURS: Labels = (Some("me"), None);
pub(super) const DRAINING: Labels = (Some("me"), Some("m1"));
const OTHERS: Labels = (Some("other"), None);
pub(super) const NOBODYS: Labels = (None, None);

/// What the API server has: metadata by path.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

fn parts() -> GroupResource {
    GroupResource { group: "x.io".into(), resource: "parts".into() }
}

/// A shard of things, which control parts, which control parts.
pub(super) struct Fenced {
    pub(super) lab: Lab,
    objects: Objects,
}

fn metadata(name: &str, (shard, drain): Labels, owner: Option<Value>) -> Value {
    let labels: BTreeMap<_, _> =
        [("s", shard), ("d", drain)].into_iter().filter_map(|(key, it)| Some((key, it?))).collect();
    value!({"name": name, "namespace": "a", "uid": format!("uid-{name}"), "labels": labels,
        "ownerReferences": owner.map(|owner| vec![owner])})
}

/// As the reference of who controls something.
fn owner(kind: &str, name: &str) -> Value {
    value!({"apiVersion": "x.io/v1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true})
}

fn answer(objects: &Objects, seen: &Seen) -> Response<Body> {
    let path = seen.uri.path();
    let is_question = seen.uri.query().is_some_and(|query| query.contains("fieldSelector"));
    let body = if path == "/apis/x.io/v1" {
        value!({"resources": [
            {"name": "things", "kind": "Thing", "namespaced": true},
            {"name": "parts/scale", "kind": "Part", "namespaced": true},
            {"name": "parts", "kind": "Part", "namespaced": true},
        ]})
    } else if is_question {
        let objects = objects.lock();
        let of = objects.iter().filter(|(it, _)| it.rsplit_once('/').is_some_and(|(of, _)| of == path));
        // All of the collection, as of a server that knows no field selectors.
        let items: Vec<_> = of.map(|(_, metadata)| value!({ "metadata": metadata })).collect();
        value!({ "items": items })
    } else {
        value!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": objects.lock().get(path)})
    };
    json(full(body.to_string()))
}

/// Whether a drain is held for so long.
pub(super) async fn holds(guard: &DrainGuard, time: Duration) -> bool {
    timeout(time, guard.wait_idle()).await.is_err()
}

impl Fenced {
    pub(super) fn new() -> Self {
        let objects = Objects::default();
        let served = objects.clone();
        Self::over(Lab::new(move |seen| answer(&served, seen)), objects)
    }

    /// With this API server for all but the proxy's own questions.
    pub(super) fn answering(respond: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Self {
        let objects = Objects::default();
        let served = objects.clone();
        let is_question = |seen: &Seen| seen.method == Method::GET && !seen.headers.contains_key(header::AUTHORIZATION);
        let answer = move |seen: &Seen| if is_question(seen) { answer(&served, seen) } else { respond(seen) };
        Self::over(Lab::new(answer), objects)
    }

    /// With the labels of the ring hidden.
    pub(super) fn hiding() -> Self {
        let objects = Objects::default();
        let served = objects.clone();
        Self::over(Lab::hiding(move |seen| answer(&served, seen)), objects)
    }

    fn over(lab: Lab, objects: Objects) -> Self {
        let families = [(things(), [parts()].into())].into();
        let policy = Policy { resources: [things(), parts()].into(), families, ..Policy::default() };
        lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
        Self { lab, objects }
    }

    fn put(&self, path: &str, labels: Labels, owner: Option<Value>) {
        let name = path.rsplit('/').next().unwrap();
        self.objects.lock().insert(path.to_owned(), metadata(name, labels, owner));
    }

    /// A thing `b`, as its labels say.
    pub(super) fn thing(&self, labels: Labels) {
        self.put(&format!("{THINGS}/b"), labels, None);
    }

    /// The drains are known of what there was when the hold on the Lease began.
    fn listed(&self) {
        self.lab.shared.fence.listed(&things(), self.term());
    }

    fn term(&self) -> u64 {
        self.lab.shared.gate.pass(GRACE).now_or_never().unwrap().unwrap().number
    }

    /// The thing `b`, whose drain began within this hold on the Lease.
    pub(super) fn drained(&self) -> DrainGuard {
        self.listed();
        self.found_drained()
    }

    /// The same; it was drained before, unless the drains of before are known.
    fn found_drained(&self) -> DrainGuard {
        let object =
            DrainingObject { uid: "uid-b".into(), name: "b".into(), ..fixtures::drained(things(), Some("a"), 7) };
        self.lab.shared.fence.drained(Arc::new(object), GRACE, self.term())
    }

    /// Lets the thing `b` go, up to the acknowledgement.
    async fn let_go(&self) {
        let guard = self.drained();
        guard.wait_idle().await;
        assert!(guard.close());
    }

    async fn status(&self, method: &str, uri: &str) -> StatusCode {
        self.lab.send(ask(method, uri)).await.status()
    }

    pub(super) async fn write(
        &self,
        method: &str,
        uri: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> StatusCode {
        let mut request = ask(method, uri).map(|_| full(body));
        request.headers_mut().insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        self.lab.send(request).await.status()
    }

    /// How many requests of that method reached the API server.
    fn reached(&self, method: &str) -> usize {
        self.lab.seen.lock().iter().filter(|seen| seen.method == method).count()
    }

    /// How many questions about labels did.
    fn questions(&self) -> usize {
        let seen = self.lab.seen.lock();
        seen.iter().filter(|seen| seen.uri.query().is_some_and(|query| query.contains("fieldSelector"))).count()
    }
}
