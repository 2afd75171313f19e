#![allow(clippy::unwrap_used)]

mod ending;

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::client::Body;
use serde_json::json;

use super::*;
use crate::clock::TokioClock;

/// An API server that knows one Lease, with the faults that a scenario asks for.
#[derive(Default)]
struct Fake {
    lease: Option<Lease>,
    version: u64,
    /// Requests that are answered with 500.
    failing: bool,
    /// Requests that are answered with 403.
    forbidden: bool,
    /// Requests that land and are never answered.
    mute: bool,
    /// Writes that land and are never answered.
    mute_writes: bool,
    /// Requests are answered so late.
    slow: Duration,
    /// Requests arrive so late.
    far: Duration,
    /// Watches are served, each for as long as the Lease stays as it is.
    watched: bool,
    /// The next read comes before somebody's create, and our create after it.
    hidden_once: bool,
    writes: usize,
}

impl Fake {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        lease
    }

    fn edit(&mut self, edit: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().unwrap();
        edit(&mut lease);
        self.store(lease);
    }

    fn answer(&mut self, method: &Method, sent: Option<Lease>) -> Result<Lease, (StatusCode, &'static str)> {
        if self.failing {
            return Err((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"));
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

type Shared = Arc<Mutex<Fake>>;

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

/// The answer to a list, or to a watch: whoever watches is told to list again when the Lease has changed.
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

fn terms() -> Terms {
    Terms {
        namespace: "default".into(),
        name: "a".into(),
        holder: "a".into(),
        duration: Duration::from_secs(15),
        labels: BTreeMap::from([("ring".into(), "example".into())]),
        annotations: BTreeMap::from([("uid".into(), "1".into())]),
        facts: BTreeMap::from([("weight".into(), Some("2".into())), ("unsaid".into(), None)]),
        prompt: false,
    }
}

fn lease_of(holder: &str, uid: &str) -> Lease {
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

struct World {
    fake: Shared,
    clock: SharedClock,
    tenure: Tenure,
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<()>,
}

impl World {
    fn start(lease: Option<Lease>) -> Self {
        Self::with(Fake::default(), lease, terms())
    }

    /// One that watches the Lease while another has it.
    fn prompt(lease: Lease) -> Self {
        Self::with(Fake { watched: true, ..Fake::default() }, Some(lease), Terms { prompt: true, ..terms() })
    }

    fn with(fake: Fake, lease: Option<Lease>, terms: Terms) -> Self {
        let fake = Arc::new(Mutex::new(fake));
        if let Some(lease) = lease {
            fake.lock().unwrap().store(lease);
        }
        let clock: SharedClock = Arc::new(TokioClock::start());
        let shutdown = Shutdown::new();
        let (tenure, keeping) = keep(client(&fake), terms, clock.clone(), shutdown.clone());
        Self { fake, clock, tenure, shutdown, task: tokio::spawn(keeping) }
    }

    fn spec(&self) -> LeaseSpec {
        self.fake.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    fn seconds(&self) -> u64 {
        self.clock.now().since(ringside_ring::Moment::default()).as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_kept_and_released() {
    let mut world = World::start(None);
    world.tenure.until_held().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.tenure.held());
    assert!((18..=22).contains(&world.fake.lock().unwrap().writes), "one renewal every 3 s");
    assert_eq!(world.fake.lock().unwrap().lease.clone().unwrap().metadata.labels.unwrap()["ring"], "example");
    world.shutdown.trigger();
    (&mut world.task).await.unwrap();
    assert!(!world.tenure.held());
    assert_eq!(world.spec().holder_identity.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn anothers_lease_is_taken_only_after_it_stood_still_for_its_duration() {
    let world = World::start(Some(lease_of("b", "2")));
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!world.tenure.held());
        world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    }
    let since = world.seconds();
    world.tenure.until_held().await;
    assert!((15..=19).contains(&(world.seconds() - since)), "{}", world.seconds() - since);
    assert_eq!(world.spec().lease_transitions, Some(4));
}

fn now() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(k8s_openapi::jiff::Timestamp::now())
}

#[tokio::test(start_paused = true)]
async fn anothers_lease_stands_still_since_the_answer_that_showed_it() {
    let fake = Fake { far: Duration::from_secs(4), ..Fake::default() };
    let world = World::with(fake, Some(lease_of("b", "2")), terms());
    // The look was sent, and has not arrived.
    tokio::time::sleep(Duration::from_millis(3_900)).await;
    let renewed = world.clock.now();
    {
        let mut fake = world.fake.lock().unwrap();
        fake.far = Duration::ZERO;
        fake.edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    }
    world.tenure.until_held().await;
    let stood = world.clock.now().since(renewed);
    assert!(stood >= Duration::from_secs(15), "{stood:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_prompt_takes_a_lease_in_the_moment_in_which_it_is_released() {
    let world = World::prompt(lease_of("b", "2"));
    // Right after a look, so that the next one is far.
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    assert!(!world.tenure.held());
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some(String::new()));
    let since = world.clock.now();
    world.tenure.until_held().await;
    let took = world.clock.now().since(since);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn to_who_is_prompt_a_lease_stands_still_since_its_renewal_and_not_since_the_next_look() {
    let world = World::prompt(lease_of("b", "2"));
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().renew_time = Some(now()));
    let renewed = world.clock.now();
    world.tenure.until_held().await;
    let stood = world.clock.now().since(renewed);
    assert!((Duration::from_secs(15)..Duration::from_secs(17)).contains(&stood), "{stood:?}");
}

#[tokio::test(start_paused = true)]
async fn who_may_not_watch_looks_now_and_then() {
    let world = World::with(Fake::default(), Some(lease_of("b", "2")), Terms { prompt: true, ..terms() });
    tokio::time::sleep(Duration::from_millis(6_100)).await;
    world.fake.lock().unwrap().edit(|lease| lease.spec.as_mut().unwrap().holder_identity = Some(String::new()));
    let since = world.clock.now();
    world.tenure.until_held().await;
    assert!(world.clock.now().since(since) <= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn who_is_second_to_create_it_waits_for_the_first() {
    let world = World::start(Some(lease_of("b", "2")));
    world.fake.lock().unwrap().hidden_once = true;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reason = world.tenure.reason().unwrap();
    assert!(reason.contains("held by 'b'"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_goes_on_and_a_recreated_pod_waits() {
    let world = World::start(Some(lease_of("a", "1")));
    world.tenure.until_held().await;
    assert_eq!(world.seconds(), 0);
    assert_eq!(world.spec().lease_transitions, Some(3));

    let world = World::start(Some(lease_of("a", "2")));
    world.tenure.until_held().await;
    assert!(world.seconds() >= 15);
}

#[tokio::test(start_paused = true)]
async fn validity_ends_before_others_may_take_over_and_counts_from_the_start_of_a_renewal() {
    let world = World::start(None);
    world.tenure.until_held().await;
    world.fake.lock().unwrap().failing = true;
    world.tenure.until_lost().await;
    assert_eq!(world.seconds(), 12);
    // Nobody took it meanwhile, so it is ours again as soon as a renewal succeeds.
    world.fake.lock().unwrap().failing = false;
    world.tenure.until_held().await;
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_start_of_the_request_that_was_accepted() {
    let world = World::with(Fake { far: Duration::from_secs(4), ..Fake::default() }, None, terms());
    world.tenure.until_held().await;
    // A look, and the creation. The next renewal is on its way.
    assert_eq!(world.seconds(), 8);
    world.fake.lock().unwrap().failing = true;
    world.tenure.until_lost().await;
    assert_eq!(world.seconds(), 4 + 12);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_while_every_answer_takes_four_seconds() {
    for far in [true, false] {
        let mut fake = Fake::default();
        *(if far { &mut fake.far } else { &mut fake.slow }) = Duration::from_secs(4);
        let mut world = World::with(fake, None, terms());
        // A look, and the creation.
        let held = tokio::time::timeout(Duration::from_secs(60), world.tenure.until_held()).await;
        assert!(held.is_ok() && world.seconds() == 8, "after {} s", world.seconds());
        let lost = tokio::time::timeout(Duration::from_secs(300), world.tenure.until_lost()).await;
        assert!(lost.is_err(), "lost after {} s", world.seconds());
        world.shutdown.trigger();
        (&mut world.task).await.unwrap();
        assert_eq!(world.spec().holder_identity.as_deref(), Some(""), "released as slowly");
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_less_than_the_validity_costs_nothing() {
    let world = World::start(None);
    world.tenure.until_held().await;
    let faults: [fn(&mut Fake, bool); 2] = [|fake, on| fake.failing = on, |fake, on| fake.mute = on];
    for fault in faults {
        fault(&mut world.fake.lock().unwrap(), true);
        let lost = tokio::time::timeout(Duration::from_secs(6), world.tenure.until_lost()).await;
        assert!(lost.is_err());
        fault(&mut world.fake.lock().unwrap(), false);
        let lost = tokio::time::timeout(Duration::from_secs(20), world.tenure.until_lost()).await;
        assert!(lost.is_err());
    }
    assert_eq!(world.spec().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_write_is_a_loss_at_once_even_in_our_name() {
    let world = World::start(None);
    world.tenure.until_held().await;
    world.fake.lock().unwrap().edit(|lease| {
        lease.spec.as_mut().unwrap().renew_time = Some(now());
        lease.metadata.annotations = Some(BTreeMap::from([("uid".into(), "2".into())]));
    });
    world.tenure.until_lost().await;
    assert!(world.seconds() <= 3, "{}", world.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_label_written_by_others_is_no_loss() {
    let world = World::start(None);
    world.tenure.until_held().await;
    for _ in 0..5 {
        world.fake.lock().unwrap().edit(|lease| {
            lease.metadata.labels.get_or_insert_default().insert("state".into(), "ready".into());
        });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(world.tenure.held());
    }
    assert_eq!(world.fake.lock().unwrap().lease.clone().unwrap().metadata.labels.unwrap()["state"], "ready");
}

#[tokio::test(start_paused = true)]
async fn what_the_holder_says_of_itself_is_no_identity_is_written_with_each_renewal_and_ends_with_the_release() {
    let annotations = |fake: &Shared| fake.lock().unwrap().lease.clone().unwrap().metadata.annotations.unwrap();
    let said = |fake: &Shared| {
        let annotations = annotations(fake);
        (annotations.get("weight").cloned(), annotations.get("unsaid").cloned())
    };
    // Before a restart of the same instance it said something else.
    let mut before = lease_of("a", "1");
    let old =
        [("weight", "1"), ("unsaid", "x"), ("others", "y")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    before.metadata.annotations.get_or_insert_default().extend(old);
    let mut world = World::start(Some(before));
    world.tenure.until_held().await;
    assert_eq!(world.seconds(), 0);
    assert_eq!(said(&world.fake), (Some("2".into()), None));
    world.fake.lock().unwrap().edit(|lease| {
        lease.metadata.annotations.get_or_insert_default().extend([("weight".into(), "9".into())]);
    });
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(world.tenure.held());
    assert_eq!(said(&world.fake), (Some("2".into()), None));
    world.shutdown.trigger();
    (&mut world.task).await.unwrap();
    assert_eq!(said(&world.fake), (None, None));
    assert_eq!(annotations(&world.fake).into_keys().collect::<Vec<_>>(), ["others", "uid"]);
}

#[tokio::test(start_paused = true)]
async fn an_own_write_that_landed_without_an_answer_is_no_loss() {
    let world = World::start(None);
    world.tenure.until_held().await;
    let acquired = world.spec().acquire_time;
    world.fake.lock().unwrap().mute = true;
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.fake.lock().unwrap().mute = false;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(world.tenure.held());
    // A loss, however short, would have acquired it anew.
    assert_eq!(world.spec().acquire_time, acquired);
}
