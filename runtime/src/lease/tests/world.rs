//! An API server with one Lease, and who keeps it.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::client::Body;
use serde_json::json;

use super::super::*;
use crate::clock::TokioClock;

/// An API server that knows one Lease, with the faults that a scenario asks for.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) lease: Option<Lease>,
    pub(super) version: u64,
    /// Requests that are answered with 500.
    pub(super) failing: bool,
    /// Requests that are answered with 429.
    pub(super) busy: bool,
    /// Requests that are answered with 403.
    pub(super) forbidden: bool,
    /// Requests that land and are never answered.
    pub(super) mute: bool,
    /// Writes that land and are never answered.
    pub(super) mute_writes: bool,
    /// Requests are answered so late.
    pub(super) slow: Duration,
    /// Requests arrive so late.
    pub(super) far: Duration,
    /// Watches are served, each for as long as the Lease stays as it is.
    pub(super) watched: bool,
    /// The next read comes before another client's create, and our create after it.
    pub(super) hidden_once: bool,
    /// Another client writes a label right before our next write.
    pub(super) labelled_once: bool,
    pub(super) writes: usize,
}

impl Fake {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }

    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().unwrap();
        edit(&mut lease);
        self.store(lease);
    }

    fn answer(&mut self, method: &Method, sent: Option<Lease>) -> Result<Lease, (StatusCode, &'static str)> {
        if self.failing {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
        }
        if self.busy {
            return Err((StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"));
        }
        if self.forbidden {
            return Err((StatusCode::FORBIDDEN, "Forbidden"));
        }
        let missing = (StatusCode::NOT_FOUND, "NotFound");
        match (method, sent) {
            (&Method::GET, _) if std::mem::take(&mut self.hidden_once) => Err(missing),
            (&Method::GET, _) => self.lease.clone().ok_or(missing),
            (&Method::POST, Some(_)) if self.lease.is_some() => Err((StatusCode::CONFLICT, "AlreadyExists")),
            (&Method::POST, Some(lease)) => {
                self.writes += 1;
                Ok(self.store(lease))
            }
            (_, Some(lease)) => {
                if std::mem::take(&mut self.labelled_once) {
                    self.edit(|lease| {
                        lease.metadata.labels.get_or_insert_default().insert("state".into(), "dead".into());
                    });
                }
                let current = self.lease.as_ref().ok_or(missing)?.metadata.resource_version.clone();
                if lease.metadata.resource_version != current {
                    return Err((StatusCode::CONFLICT, "Conflict"));
                }
                self.writes += 1;
                Ok(self.store(lease))
            }
            (_, None) => Err((StatusCode::BAD_REQUEST, "BadRequest")),
        }
    }
}

pub(super) type Shared = Arc<Mutex<Fake>>;

fn client(fake: &Shared) -> Client {
    let fake = fake.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let fake = fake.clone();
        async move {
            let method = request.method().clone();
            let query = request.uri().query().unwrap_or_default().to_owned();
            if query.contains("fieldSelector") {
                return followed(&fake, query.contains("watch=true")).await;
            }
            let body = request.into_body().collect_bytes().await?;
            let far = fake.lock().unwrap().far;
            tokio::time::sleep(far).await;
            let answer = fake.lock().unwrap().answer(&method, serde_json::from_slice(&body).ok());
            let (mute, slow) = {
                let fake = fake.lock().unwrap();
                (fake.mute || fake.mute_writes && method != Method::GET, fake.slow)
            };
            tokio::time::sleep(slow).await;
            if mute {
                std::future::pending::<()>().await;
            }
            let (status, body) = match answer {
                Ok(lease) => (StatusCode::OK, serde_json::to_vec(&lease)?),
                Err((status, reason)) => {
                    let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "reason": reason, "message": reason, "code": status.as_u16()});
                    (status, serde_json::to_vec(&failure)?)
                }
            };
            Ok::<_, tower::BoxError>(Response::builder().status(status).body(Body::from(body))?)
        }
    });
    Client::new(service, "default")
}

/// The answer to a list, or to a watch: a client that watches is told to list again when the Lease has changed.
async fn followed(fake: &Shared, watch: bool) -> Result<Response<Body>, tower::BoxError> {
    let (served, version) = {
        let fake = fake.lock().unwrap();
        (fake.watched, fake.version)
    };
    let body = match (served, watch) {
        (false, _) => {
            return Ok(Response::builder().status(StatusCode::FORBIDDEN).body(Body::from(b"{}".to_vec()))?);
        }
        (true, false) => {
            let items: Vec<_> = fake.lock().unwrap().lease.clone().into_iter().collect();
            json!({"metadata": {"resourceVersion": version.to_string()}, "items": items})
        }
        (true, true) => {
            while fake.lock().unwrap().version == version {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}})
        }
    };
    Ok(Response::new(Body::from(serde_json::to_vec(&body)?)))
}

pub(super) fn terms() -> LeaseParams {
    LeaseParams {
        namespace: "default".into(),
        name: "a".into(),
        holder: "a".into(),
        duration: Duration::from_secs(15),
        labels: BTreeMap::from([("ring".into(), Some("example".into())), ("older".into(), None)]),
        annotations: BTreeMap::from([("uid".into(), "1".into())]),
        facts: watch::channel(BTreeMap::from([("weight".into(), Some("2".into())), ("unsaid".into(), None)])).1,
        prompt: false,
    }
}

pub(super) fn lease_of(holder: &str, uid: &str) -> Lease {
    let mut lease = Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    };
    lease.metadata.name = Some("a".into());
    lease.metadata.annotations = Some(BTreeMap::from([("uid".into(), uid.into())]));
    lease
}

pub(super) struct World {
    pub(super) fake: Shared,
    pub(super) clock: SharedClock,
    pub(super) lease_handle: LeaseHandle,
    pub(super) shutdown: Shutdown,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl World {
    pub(super) fn start(lease: Option<Lease>) -> Self {
        Self::with(Fake::default(), lease, terms())
    }

    /// One that watches the Lease while another has it.
    pub(super) fn prompt(lease: Lease) -> Self {
        Self::with(Fake { watched: true, ..Fake::default() }, Some(lease), LeaseParams { prompt: true, ..terms() })
    }

    pub(super) fn with(fake: Fake, lease: Option<Lease>, terms: LeaseParams) -> Self {
        let fake = Arc::new(Mutex::new(fake));
        if let Some(lease) = lease {
            fake.lock().unwrap().store(lease);
        }
        let clock: SharedClock = Arc::new(TokioClock::start());
        let shutdown = Shutdown::new();
        let (lease_handle, keeping) = keep(client(&fake), terms, clock.clone(), shutdown.clone());
        Self { fake, clock, lease_handle, shutdown, task: tokio::spawn(keeping) }
    }

    pub(super) fn spec(&self) -> LeaseSpec {
        self.fake.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    pub(super) fn seconds(&self) -> u64 {
        self.clock.now().since(ringside_ring::Moment::default()).as_secs()
    }
}

/// What a holder writes when it renews.
pub(super) fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}
