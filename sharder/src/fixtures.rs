//! A fake API server for tests: a small store of objects, a record of what was asked, and faults on demand.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    io,
    sync::Arc,
    time::Duration,
};

use crate::lock::{Mutex, rank};
use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use percent_encoding::percent_decode_str;
use ringside_ring::RingKind;
use serde_json::{Value, json};

mod watches;

use self::watches::Watches;

/// What it answers.
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

type Interceptor = Box<dyn FnMut(&Asked, &mut BTreeMap<String, Value>) -> Option<StatusCode> + Send>;

/// A request, as far as tests look at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
    /// Whether it is a server-side apply, which makes what is not there.
    pub(crate) applies: bool,
    /// Which forms of the answer are asked for.
    pub(crate) accept: String,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    asked: Vec<Asked>,
    intercept: Option<Interceptor>,
    version: u64,
    /// None: who watches is told to list again.
    watches: Option<Watches>,
    drops_labels: bool,
    puts_labels_back: bool,
    hides_labels: bool,
    write_takes: Duration,
    list_takes: Duration,
    /// How long what is asked of one object takes, by method and path.
    takes: HashMap<(Method, String), Duration>,
    is_away: bool,
    /// How patches of objects of a resource are refused.
    refusal: Option<(&'static str, StatusCode, String)>,
}

/// The server; clones share it. Objects are stored by the path they are read at.
#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<State, { rank::FAKE_API }>>);

impl FakeApi {
    /// A client of this server.
    pub(crate) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let this = this.clone();
            async move {
                if this.0.lock().is_away {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let asked = Asked {
                    applies: header(CONTENT_TYPE).starts_with("application/apply-patch"),
                    accept: header(ACCEPT).to_owned(),
                    method: parts.method,
                    path: parts.uri.path().to_owned(),
                    query: parts.uri.query().unwrap_or_default().to_owned(),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                };
                Ok(this.carry_out(asked).await)
            }
        });
        Client::new(service, "default")
    }

    /// A server that shows changes to who watches, and gives each change a version.
    pub(crate) fn live() -> Self {
        let this = Self::default();
        this.0.lock().watches = Some(Watches::default());
        this
    }

    /// From now on watches show nothing of a collection, until they are to show it all.
    pub(crate) fn hold_watches_on(&self, collection: &str, holds: bool) {
        self.0.lock().watches.iter_mut().for_each(|watches| watches.hold(collection, holds));
    }

    /// From now on no client reaches it, or every client does. What was watched has ended.
    pub(crate) fn is_away(&self, is_away: bool) {
        let state = &mut *self.0.lock();
        state.is_away = is_away;
        state.watches = state.watches.take().map(|_| Watches::default());
    }

    /// Stores an object.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let state = &mut *self.0.lock();
        if let Some(watches) = &mut state.watches {
            state.version += 1;
            object["metadata"]["resourceVersion"] = json!((1_000 + state.version).to_string());
            let kind = if state.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
            watches.show(kind, path, &object);
        }
        state.objects.insert(path.to_owned(), object);
    }

    /// The object at this path as it is now.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(path).cloned()
    }

    /// Deletes an object, as another client.
    pub(crate) fn remove(&self, path: &str) {
        let state = &mut *self.0.lock();
        let gone = state.objects.remove(path);
        state.version += 1;
        if let (Some(watches), Some(mut gone)) = (&mut state.watches, gone) {
            gone["metadata"]["resourceVersion"] = json!((1_000 + state.version).to_string());
            watches.show("DELETED", path, &gone);
        }
    }

    /// Looks at each request before it is carried out; may change the store, or answer with a failure.
    pub(crate) fn intercept(
        &self,
        intercept: impl FnMut(&Asked, &mut BTreeMap<String, Value>) -> Option<StatusCode> + Send + 'static,
    ) {
        self.0.lock().intercept = Some(Box::new(intercept));
    }

    /// From now on it answers patches of these objects as one that has not read the roles yet; none, as one that has.
    pub(crate) fn forget_roles(&self, resource: Option<&'static str>) {
        let refusal = |of| (of, StatusCode::FORBIDDEN, format!("User \"sharder\" cannot patch resource \"{of}\""));
        self.0.lock().refusal = resource.map(refusal);
    }

    /// From now on it can't call a webhook that has to admit patches of these objects; none, it can.
    pub(crate) fn lose_webhook(&self, resource: Option<&'static str>) {
        let why = "Internal error occurred: failed calling webhook \"w.example.com\": connection refused";
        self.0.lock().refusal = resource.map(|of| (of, StatusCode::INTERNAL_SERVER_ERROR, why.to_owned()));
    }

    /// From now on labels don't survive a write, as with an admission policy that knows only its own.
    pub(crate) fn drop_labels(&self) {
        self.0.lock().drops_labels = true;
    }

    /// From now on labels are after a write as they were before it, as with an admission policy that protects them.
    pub(crate) fn put_labels_back(&self) {
        self.0.lock().puts_labels_back = true;
    }

    /// From now on objects are shown without labels, and written as they are shown, as by a conversion that loses labels.
    pub(crate) fn hide_labels(&self, hides: bool) {
        self.0.lock().hides_labels = hides;
    }

    /// From now on writes take this long; one whose client has gone away is carried out all the same.
    pub(crate) fn slow_writes(&self, write_takes: Duration) {
        self.0.lock().write_takes = write_takes;
    }

    /// From now on this is carried out so much later.
    pub(crate) fn slow(&self, method: Method, path: &str, takes: Duration) {
        self.0.lock().takes.insert((method, path.to_owned()), takes);
    }

    /// What was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.lock().asked.clone()
    }

    /// The writes, in order, as `METHOD path`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.asked().into_iter().filter(|asked| asked.method != Method::GET);
        writes.map(|asked| format!("{} {}", asked.method, asked.path)).collect()
    }

    async fn carry_out(&self, asked: Asked) -> Answer {
        let takes = self.0.lock().takes.get(&(asked.method.clone(), asked.path.clone())).copied().unwrap_or_default();
        let write_takes = self.0.lock().write_takes.max(takes);
        if asked.method == Method::GET || write_takes.is_zero() {
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            let (answer, list_takes) = (self.answer(&asked), self.0.lock().list_takes);
            if asked.method == Method::GET && is_collection(&asked.path) && !list_takes.is_zero() {
                tokio::time::sleep(list_takes).await;
            }
            return answer;
        }
        let this = self.clone();
        let write = tokio::spawn(async move {
            tokio::time::sleep(write_takes).await;
            this.answer(&asked)
        });
        write.await.unwrap()
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let state = &mut *self.0.lock();
        state.asked.push(asked.clone());
        let State { objects, intercept, .. } = state;
        if let Some(status) = intercept.as_mut().and_then(|intercept| intercept(asked, objects)) {
            return failure(status);
        }
        let refused =
            state.refusal.as_ref().filter(|(of, ..)| asked.method == Method::PATCH && asked.path.contains(of));
        if let Some((_, status, why)) = refused {
            return refusal(*status, why);
        }
        match asked.method {
            Method::GET if asked.query.contains("watch=true") && state.watches.is_some() => state.watch(asked),
            // A client that watches is told to list again, and so sees what changes.
            Method::GET if asked.query.contains("watch=true") => {
                let gone = json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
                success(&json!({"type": "ERROR", "object": gone}))
            }
            Method::GET => match objects.get(&asked.path) {
                Some(object) => success(object),
                None if is_collection(&asked.path) => {
                    let items: Vec<_> = objects
                        .iter()
                        .filter(|(path, _)| contains(&asked.path, path))
                        .map(|(_, object)| object)
                        .filter(|object| is_selected(&asked.query, object))
                        .collect();
                    let version = if state.watches.is_some() { 1_000 + state.version } else { 1 };
                    success(&json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}))
                }
                None => failure(StatusCode::NOT_FOUND),
            },
            Method::POST if is_collection(&asked.path) && asked.body["metadata"]["name"].is_string() => {
                state.create(format!("{}/{}", asked.path, asked.body["metadata"]["name"].as_str().unwrap()), asked)
            }
            Method::PATCH if asked.applies && !objects.contains_key(&asked.path) => {
                state.create(asked.path.clone(), asked)
            }
            // A question, such as a review: what is stored there is the answer.
            Method::POST if objects.contains_key(&asked.path) => success(&objects[&asked.path]),
            Method::DELETE => match objects.remove(&asked.path) {
                Some(object) => success(&object),
                None => failure(StatusCode::NOT_FOUND),
            },
            _ => state.write(asked),
        }
    }
}

/// Plural names end in `s`; objects in the tests don't.
fn is_collection(path: &str) -> bool {
    path.ends_with('s')
}

/// Whether the object at `path` is in the collection, which is of one namespace or of all.
fn contains(collection: &str, path: &str) -> bool {
    let (folder, plural) = collection.rsplit_once('/').unwrap();
    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
    parent == collection
        || (parent.starts_with(&format!("{folder}/namespaces/")) && parent.ends_with(&format!("/{plural}")))
}

/// Whether the label selector of a list shows an object; of all selectors `in`, `notin`, and lists of `key` and `!key` are
/// known; others show everything.
fn is_selected(query: &str, object: &Value) -> bool {
    let selector = query.split('&').find_map(|parameter| parameter.strip_prefix("labelSelector="));
    let selector = selector.unwrap_or_default().replace('+', " ");
    let selector = percent_decode_str(&selector).decode_utf8().unwrap();
    let labels = &object["metadata"]["labels"];
    let Some((expression, values)) = selector.trim_end_matches(')').split_once(" (") else {
        return selector.split(',').filter(|term| !term.is_empty()).all(|term| match term.strip_prefix('!') {
            Some(key) => labels[key].is_null(),
            None if term.contains('=') => true,
            None => !labels[term].is_null(),
        });
    };
    let (key, operator) = expression.split_once(' ').unwrap();
    let value = labels[key].as_str();
    let named = value.is_some_and(|value| values.split(',').any(|one| one == value));
    named == (operator == "in")
}

impl State {
    /// All there is as added, where that is asked for, and then what changes.
    fn watch(&mut self, asked: &Asked) -> Answer {
        let shown = asked.query.contains("sendInitialEvents=true").then(|| {
            let of_collection = self.objects.iter().filter(|(path, _)| contains(&asked.path, path));
            of_collection.map(|(_, object)| object.clone()).collect()
        });
        let version = 1_000 + self.version;
        match &mut self.watches {
            Some(watches) => watches.open(&asked.path, shown, version),
            None => failure(StatusCode::GONE),
        }
    }

    fn create(&mut self, path: String, asked: &Asked) -> Answer {
        if self.objects.contains_key(&path) {
            return failure(StatusCode::CONFLICT);
        }
        self.version += 1;
        let mut object = asked.body.clone();
        object["metadata"]["resourceVersion"] = json!((1_000 + self.version).to_string());
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        let answer = success(&object);
        if let Some(watches) = &mut self.watches {
            watches.show("ADDED", &path, &object);
        }
        self.objects.insert(path, object);
        answer
    }

    fn write(&mut self, asked: &Asked) -> Answer {
        let Some(stored) = self.objects.get_mut(&asked.path) else { return failure(StatusCode::NOT_FOUND) };
        let before = stored["metadata"]["labels"].clone();
        let object = &mut stored.clone();
        if self.hides_labels {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
        match &asked.body {
            Value::Array(_) => {
                let patch: json_patch::Patch = serde_json::from_value(asked.body.clone()).unwrap();
                if json_patch::patch(object, &patch).is_err() {
                    return failure(StatusCode::UNPROCESSABLE_ENTITY);
                }
            }
            body if asked.method == Method::PATCH => json_patch::merge(object, body),
            body => {
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return failure(StatusCode::CONFLICT);
                }
                *object = body.clone();
            }
        }
        if self.drops_labels {
            object["metadata"]["labels"] = json!({RingKind::ClusterRing.names().lease_label: "example"});
        }
        if self.puts_labels_back {
            object["metadata"]["labels"] = before;
        }
        if !asked.query.contains("dryRun=All") {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!((1_000 + self.version).to_string());
            *stored = object.clone();
            if let Some(watches) = &mut self.watches {
                watches.show("MODIFIED", &asked.path, object);
            }
        }
        if self.hides_labels {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
        success(object)
    }
}

fn success(body: &Value) -> Answer {
    Response::new(Full::new(Bytes::from(serde_json::to_vec(body).unwrap())).boxed_unsync())
}

fn failure(status: StatusCode) -> Answer {
    refusal(status, "as the test wishes")
}

fn refusal(status: StatusCode, message: &str) -> Answer {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16()});
    let mut response = success(&body);
    *response.status_mut() = status;
    response
}
