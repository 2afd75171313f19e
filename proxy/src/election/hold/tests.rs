//! The ring's hold on real locks, against a small API server and under a paused clock.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body as KubeBody;
use serde_json::{Value, json};

use ringside_runtime::clock::{Clock, TokioClock};

use super::*;
use crate::election::{object::RECORD, tests::record as election};

mod beginning;

/// An API server that has nothing but locks, by their paths; clones share it.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    asked: Vec<String>,
    refusing: Option<StatusCode>,
    /// It answers nothing.
    silent: bool,
    /// So long an answer takes.
    takes: Duration,
}

impl Server {
    /// The hold of the ring `example` on what is here.
    pub(crate) fn hold(&self) -> Hold {
        self.hold_by_clock(Arc::new(TokioClock::start()))
    }

    fn hold_by_clock(&self, clock: SharedClock) -> Hold {
        Hold::new(self.client(), &"example".parse().unwrap(), clock)
    }

    pub(crate) fn client(&self) -> Client {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<KubeBody>| {
            let this = this.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                if this.0.lock().silent {
                    std::future::pending::<()>().await;
                }
                let takes = this.0.lock().takes;
                tokio::time::sleep(takes).await;
                Ok::<_, Infallible>(this.answer(&parts.method, parts.uri.path(), &body))
            }
        });
        Client::new(service, "ns")
    }

    /// Stores an object.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().objects.insert(path.to_owned(), object);
    }

    /// The object at this path.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.0.lock().objects.get(path).cloned().unwrap_or_default()
    }

    fn answer(&self, method: &Method, path: &str, body: &Bytes) -> Response<KubeBody> {
        let state = &mut *self.0.lock();
        state.asked.push(format!("{method} {path}"));
        let failure = |status: StatusCode| {
            let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
            let body = json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": status.as_u16()});
            let mut response = Response::new(KubeBody::from(serde_json::to_vec(&body).unwrap()));
            *response.status_mut() = status;
            response
        };
        if let Some(status) = state.refusing {
            return failure(status);
        }
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let path = match *method {
            Method::POST => format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap()),
            _ => path.to_owned(),
        };
        let stored = state.objects.get(&path);
        match (method, stored) {
            (&Method::GET, Some(_)) => {}
            (&Method::POST, Some(_)) => return failure(StatusCode::CONFLICT),
            (&Method::PUT, Some(stored))
                if sent["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"] =>
            {
                return failure(StatusCode::CONFLICT);
            }
            (&Method::PATCH, Some(stored)) => {
                let mut stored = stored.clone();
                json_patch::merge(&mut stored, &sent);
                state.objects.insert(path.clone(), stored);
            }
            (&Method::POST, None) | (&Method::PUT, Some(_)) => {
                state.version += 1;
                let mut stored = sent;
                stored["metadata"]["resourceVersion"] = state.version.to_string().into();
                state.objects.insert(path.clone(), stored);
            }
            _ => return failure(StatusCode::NOT_FOUND),
        }
        Response::new(KubeBody::from(serde_json::to_vec(&state.objects[&path]).unwrap()))
    }

    /// What was asked since this was asked.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().asked)
    }

    fn writes(&self) -> usize {
        self.asked().iter().filter(|asked| !asked.starts_with("GET")).count()
    }

    /// Gives the lock to this holder, as a replica past the proxies would.
    pub(crate) fn is_held_by(&self, name: &LockName, holder: &str) {
        drop(self.hold_by(name, holder));
    }

    /// The same, as it was read then.
    fn hold_by(&self, name: &LockName, holder: &str) -> Object {
        let mut object = election(name.kind, &name.name, holder);
        let state = &mut *self.0.lock();
        state.version += 1;
        object.metadata_mut().resource_version = Some(state.version.to_string());
        state.objects.insert(path(name), serde_json::to_value(&object).unwrap());
        object
    }

    fn is_silent(&self, silent: bool) {
        self.0.lock().silent = silent;
    }

    pub(crate) fn refuse(&self, status: Option<StatusCode>) {
        self.0.lock().refusing = status;
    }

    /// Who holds the lock.
    pub(crate) fn holder(&self, name: &LockName) -> String {
        self.record(name)["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// The record in the lock.
    fn record(&self, name: &LockName) -> Value {
        let object = self.0.lock().objects.get(&path(name)).cloned().unwrap_or_default();
        match name.kind {
            Kind::Lease => object["spec"].clone(),
            Kind::ConfigMap => {
                serde_json::from_str(object["metadata"]["annotations"][RECORD].as_str().unwrap_or("null")).unwrap()
            }
        }
    }
}

fn path(LockName { kind, namespace, name }: &LockName) -> String {
    match kind {
        Kind::Lease => format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"),
        Kind::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps/{name}"),
    }
}

fn locks() -> [LockName; 2] {
    [Kind::Lease, Kind::ConfigMap].map(|kind| LockName { kind, namespace: "ns".to_owned(), name: "lock".to_owned() })
}

const RING: &str = "ringside-example";
/// Of a Lease, and of a ConfigMap.
const TRANSITIONS: [&str; 2] = ["leaseTransitions", "leaderTransitions"];

fn judged(object: Object) -> Claim {
    Claim { object: Some(object), judged: true }
}

#[tokio::test]
async fn a_lock_that_is_not_there_or_free_is_taken_and_keeps_what_else_is_in_it() {
    for name in locks() {
        let (server, wish) = (Server::default(), election(name.kind, "lock", "me"));
        server.hold().take(&name, &judged(wish)).await.unwrap();
        let record = server.record(&name);
        assert_eq!(
            (&record["holderIdentity"], &record["leaseDurationSeconds"]),
            (&json!(RING), &json!(15)),
            "{record}"
        );
        assert_eq!(record[TRANSITIONS[usize::from(name.kind == Kind::ConfigMap)]], 0);
        let renewed: Timestamp = record["renewTime"].as_str().unwrap().parse().unwrap();
        assert!(Timestamp::now().duration_since(renewed).abs().as_secs() < 60, "{renewed}");

        let server = Server::default();
        server.is_held_by(&name, "");
        server.hold().take(&name, &Claim::default()).await.unwrap();
        let record = server.record(&name);
        assert_eq!(
            (&record["holderIdentity"], &record["leaseDurationSeconds"]),
            (&json!(RING), &json!(15)),
            "{record}"
        );
        if name.kind == Kind::ConfigMap {
            assert_eq!(server.0.lock().objects[&path(&name)]["data"], json!({"a": "b"}));
        }
    }
}

#[tokio::test]
async fn what_somebody_else_holds_is_taken_only_as_it_was_judged() {
    for name in locks() {
        let server = Server::default();
        let known = server.hold_by(&name, "old");
        let hold = server.hold();
        assert_eq!(hold.take(&name, &Claim::default()).await, Err(LockRefusal::Conflict(name.clone())));
        server.is_held_by(&name, "old");
        // It was renewed since.
        assert_eq!(hold.take(&name, &judged(known)).await, Err(LockRefusal::Conflict(name.clone())));
        assert!(!hold.is_sure(&name));
        let known = server.hold_by(&name, "old");
        hold.take(&name, &judged(known)).await.unwrap();
        assert!(hold.is_sure(&name));
        assert_eq!(server.record(&name)["holderIdentity"], RING);
    }
}

#[tokio::test]
async fn shards_that_begin_together_hold_it_together() {
    for name in locks() {
        let (server, wish) = (Server::default(), election(name.kind, "lock", "me"));
        let shards = [server.hold(), server.hold(), server.hold()];
        let wish = judged(wish);
        let taken = shards.iter().map(|hold| hold.take(&name, &wish));
        futures::future::try_join_all(taken).await.unwrap();
        assert!(shards.iter().all(|hold| hold.is_sure(&name)));
        assert_eq!(server.record(&name)[TRANSITIONS[usize::from(name.kind == Kind::ConfigMap)]], 0, "it is one hold");
    }
}

/// fabric8 reads no other field, and no other form of a time, than it writes.
#[tokio::test]
async fn a_record_in_a_config_map_has_the_form_in_which_the_controller_writes_it() {
    let (server, name) = (Server::default(), locks()[1].clone());
    let record = r#"{"holderIdentity":"me","leaseDuration":6.5,"acquireTime":"2026-01-01T00:00:00.123Z","renewTime":"2026-01-01T00:00:00.123Z","leaderTransitions":2}"#;
    let mut wish = election(name.kind, "lock", "me");
    wish.metadata_mut().annotations = Some([(RECORD.to_owned(), record.to_owned())].into());
    let hold = server.hold();
    for round in 0..2 {
        hold.take(&name, &judged(wish.clone())).await.unwrap();
        let record = server.record(&name);
        let fields: Vec<_> = record.as_object().unwrap().keys().collect();
        assert_eq!(fields.len(), 5, "{round}: {fields:?}");
        let renewed = record["renewTime"].as_str().unwrap();
        assert_eq!((renewed.len(), &renewed[19..20]), ("2026-01-01T00:00:00.123Z".len(), "."), "{renewed}");
        assert_eq!((&record["leaderTransitions"], &record["leaseDuration"]), (&json!(2), &json!(6.5)));
    }
    assert_eq!(hold.standings.lock()[&name].lasts, Duration::from_millis(6500));
}

#[tokio::test]
async fn what_the_api_server_refuses_is_told_with_its_words() {
    let (name, server) = (locks()[0].clone(), Server::default());
    for (status, code) in [(StatusCode::FORBIDDEN, 403), (StatusCode::INTERNAL_SERVER_ERROR, 503)] {
        server.refuse(Some(status));
        let refused = server.hold().take(&name, &Claim::default()).await.unwrap_err();
        assert_eq!(refused.answer().0, code);
        assert!(refused.to_string().contains("can't be held for the ring"), "{refused}");
    }
}

/// A proxy whose controller leads by this lock.
async fn leading(server: &Server, name: &LockName) -> (Arc<Locks>, Arc<Hold>) {
    leading_by(server.hold(), name).await
}

async fn leading_by(hold: Hold, name: &LockName) -> (Arc<Locks>, Arc<Hold>) {
    let (locks, hold) = (Arc::new(Locks::new("ns".to_owned())), Arc::new(hold));
    let object = election(name.kind, "lock", "me");
    let judged = super::super::Judged { name: name.clone(), object, status: StatusCode::CREATED };
    let judged = judged.taken_for(&hold).await.unwrap();
    let parts = Request::new(()).into_parts().0;
    locks
        .adopt(&super::super::LockRequest::Create(name.kind, name.namespace.clone()), &parts, &Bytes::new(), judged)
        .unwrap();
    (locks, hold)
}

/// So much time, in which the controllers do nothing.
async fn pass(holders: &[(Arc<Locks>, Arc<Hold>)], seconds: f64) {
    let keeping = holders.iter().map(|(locks, hold)| Box::pin(hold.keep(locks)));
    tokio::select! {
        (never, ..) = futures::future::select_all(keeping) => match never {},
        () = tokio::time::sleep(Duration::from_secs_f64(seconds)) => {}
    }
}

/// The controller renews its lock, as it does every two seconds; whether it is told that it goes on to lead.
async fn renews(locks: &Locks, hold: &Hold, name: &LockName) -> bool {
    let object = election(name.kind, "lock", "me");
    let sure = hold.make_sure(name, &Claim { object: Some(object.clone()), judged: false }).await;
    if sure.is_ok() {
        locks.record_claim(name.clone(), Some(&object));
    }
    sure.is_ok()
}

/// So much time, in which the controllers renew their locks.
async fn pass_leading(holders: &[(Arc<Locks>, Arc<Hold>)], name: &LockName, seconds: f64) {
    let renewing = async {
        loop {
            for (locks, hold) in holders {
                renews(locks, hold, name).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    tokio::select! {
        () = pass(holders, seconds) => {}
        () = renewing => {}
    }
}

/// Whether the controller may act now.
async fn may_act((locks, hold): &(Arc<Locks>, Arc<Hold>)) -> bool {
    hold.lead(locks, Duration::ZERO).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_few_renewals_are_enough_for_all_shards() {
    for name in locks() {
        let server = Server::default();
        let shards = [leading(&server, &name).await, leading(&server, &name).await, leading(&server, &name).await];
        let _ = server.writes();
        for shards in [&shards[..], &shards[..1]] {
            pass_leading(shards, &name, 60.0).await;
            let renewals = server.writes();
            assert!((9..=14).contains(&renewals), "{renewals} in four times 15 s by {}", shards.len());
            assert!(shards.iter().all(|(_, hold)| hold.is_sure(&name)));
        }
        assert_eq!(server.record(&name)["holderIdentity"], RING);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_takes_all_the_same_is_shown_to_the_controller() {
    for name in locks() {
        let server = Server::default();
        let (locks, hold) = leading(&server, &name).await;
        server.is_held_by(&name, "old");
        let shard = [(locks.clone(), hold.clone())];
        pass(&shard, 4.0).await;
        assert!(!locks.knows(&name));
        assert_eq!(server.record(&name)["holderIdentity"], "old");
        assert!(!may_act(&shard[0]).await, "it was told to lead and can't know yet that it does not");
        // No controller leads here by the lock any more, so no shard asks for it.
        let _ = server.asked();
        pass(&shard, 60.0).await;
        assert!(!may_act(&shard[0]).await, "it has not asked since: it may stand still, and goes on any moment");
        locks.refused(&name);
        pass(&shard, 14.0).await;
        locks.refused(&name);
        assert!(!may_act(&shard[0]).await, "it tries for a while");
        pass(&shard, 1.5).await;
        assert!(may_act(&shard[0]).await, "its renewals have failed for longer than it tries");
        assert_eq!(server.asked(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_somebody_deletes_is_made_again() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let shard = [leading(&server, &name).await];
    server.0.lock().objects.clear();
    pass(&shard, 4.0).await;
    assert_eq!(server.record(&name)["holderIdentity"], RING);
    assert!(may_act(&shard[0]).await);
}

/// A replica past the proxies may lead 15 s after the last renewal. A controller goes on for up to that long after it
/// was told to lead.
#[tokio::test(start_paused = true)]
async fn a_controller_does_not_act_where_somebody_else_may_lead() {
    for (name, silent) in locks().into_iter().flat_map(|name| [(name.clone(), false), (name, true)]) {
        let server = Server::default();
        let shard = [leading(&server, &name).await];
        let lead = shard[0].1.lead(&shard[0].0, Duration::ZERO).await.unwrap();
        let fails = |fails: bool| match silent {
            true => server.is_silent(fails),
            false => server.refuse(fails.then_some(StatusCode::INTERNAL_SERVER_ERROR)),
        };
        fails(true);
        pass(&shard, 9.0).await;
        assert!(renews(&shard[0].0, &shard[0].1, &name).await, "no other holder can lead for 6 s more");
        pass(&shard, 2.0).await;
        assert!(may_act(&shard[0]).await);
        assert!(!renews(&shard[0].0, &shard[0].1, &name).await, "it is to stop in time");
        let mut over = Box::pin(lead.over());
        assert!(futures::FutureExt::now_or_never(&mut over).is_none());
        pass(&shard, 2.0).await;
        assert!(!may_act(&shard[0]).await, "it was told to lead 4 s ago");
        assert!(futures::FutureExt::now_or_never(over).is_some(), "what it reads and sends is cut");
        assert!(shard[0].1.doubted_for() > Duration::from_millis(500));
        fails(false);
        pass(&shard, 5.0).await;
        assert!(may_act(&shard[0]).await, "the lock is the ring's as it was");
        assert_eq!(server.record(&name)["holderIdentity"], RING);
        assert_eq!(shard[0].1.doubted_for(), Duration::ZERO);
    }
}

/// The clock tells that the time is over, even if no task ran meanwhile.
#[tokio::test(start_paused = true)]
async fn after_a_gap_of_the_shard_lease_a_controller_acts_once_the_lock_is_seen_to_be_the_rings() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let shard = [leading(&server, &name).await];
    // Longer than the controller goes on by itself.
    tokio::time::sleep(Duration::from_secs(10)).await;
    shard[0].0.record_claim(name.clone(), Some(&election(name.kind, "lock", "me")));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!may_act(&shard[0]).await, "no shard has renewed it for 13 s");
    pass(&shard, 0.5).await;
    assert!(may_act(&shard[0]).await);
    // What was known in a term before counts no more: another holder may have the lock.
    server.is_held_by(&name, "old");
    pass(&shard, 0.1).await;
    assert!(!may_act(&shard[0]).await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_controller_that_is_gone_is_not_kept() {
    for name in locks() {
        let server = Server::default();
        let shard = [leading(&server, &name).await];
        pass(&shard, 9.0 * 60.0).await;
        assert_eq!(
            server.holder(&name),
            RING,
            "it may stand still, and goes on as the leader when it does not any more"
        );
        pass(&shard, 2.0 * 60.0).await;
        let _ = server.asked();
        pass(&shard, 60.0).await;
        assert_eq!(server.asked(), Vec::<String>::new(), "it runs out, and who is left may lead");
        assert!(shard[0].0.knows(&name));
        assert!(renews(&shard[0].0, &shard[0].1, &name).await);
        pass(&shard, 10.0).await;
        assert!(server.writes() > 0, "it is back");
    }
}

/// Another shard may have renewed it right after the last look.
#[tokio::test(start_paused = true)]
async fn a_renewal_of_another_shard_counts_from_the_last_look() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let (locks, hold) = leading(&server, &name).await;
    let looked = hold.clock.now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.is_held_by(&name, RING);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let _ = server.asked();
    hold.look(&name, Some(looked), &locks).await.unwrap();
    assert_eq!(hold.standings.lock()[&name].renewed, looked);
    assert_eq!(server.writes(), 0);
    let again = hold.clock.now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    hold.look(&name, Some(again), &locks).await.unwrap();
    assert_eq!(server.writes(), 0, "7 s ago, or 3 s less");
    tokio::time::sleep(Duration::from_secs(2)).await;
    hold.look(&name, Some(again), &locks).await.unwrap();
    assert_eq!(server.writes(), 1);
}

/// A user labels the lock. For a replica that elects by it nothing has happened.
#[tokio::test(start_paused = true)]
async fn what_else_is_written_into_a_lock_renews_it_for_nobody() {
    for name in locks() {
        let server = Server::default();
        let shard = [leading(&server, &name).await];
        let labels = async {
            for second in 0.. {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut object = server.get(&path(&name));
                object["metadata"]["resourceVersion"] = format!("9{second}").into();
                object["metadata"]["labels"] = json!({"second": second.to_string()});
                server.put(&path(&name), object);
            }
        };
        tokio::select! {
            () = labels => {}
            () = pass(&shard, 8.0) => {}
        }
        assert_eq!(server.writes(), 3, "when it was taken, at the first look of a term, and after 6 s");
        assert_eq!(server.record(&name)["holderIdentity"], RING);
    }
}

/// The answer to a renewal comes after another holder has taken the lock.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_does_not_bring_a_lock_back() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let (locks, hold) = leading(&server, &name).await;
    let (asked, real) = (hold.clock.now(), server.get(&path(&name)));
    let real: DynamicObject = serde_json::from_value(real).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.is_held_by(&name, "old");
    assert!(matches!(hold.look(&name, Some(asked), &locks).await, Err(LockRefusal::Conflict(_))));
    hold.seen(&name, (asked, true), &real, LASTS);
    assert!(!hold.is_sure(&name) && !hold.covers(&locks));
    // Nor is a lock that was won again lost by the word of before.
    server.is_held_by(&name, "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    hold.take(&name, &Claim::default()).await.unwrap();
    let own = hold.clock.now();
    hold.seen(&name, (own, true), &real, LASTS);
    hold.seen(&name, (own - Duration::from_millis(500), true), &real, LASTS);
    assert_eq!(hold.standings.lock()[&name].renewed, own);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_comes_after_another_knows_what_the_controller_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let kept = || crate::election::Kept::new(crate::access::Handout::to(folder.path().to_owned()));
    let name = locks()[1].clone();
    let before = Locks::kept_in("ns".to_owned(), kept());
    before.record_claim(name.clone(), Some(&election(name.kind, "lock", "me")));
    before.wait_until_kept();
    let server = Server::default();
    let shard = [(Arc::new(Locks::kept_in("ns".to_owned(), kept())), Arc::new(server.hold()))];
    assert!(!may_act(&shard[0]).await, "it may believe to lead, and the leader is unknown");
    pass(&shard, 0.5).await;
    assert_eq!(server.holder(&name), RING);
    assert!(may_act(&shard[0]).await);
    // Another holder leads by now.
    server.is_held_by(&name, "old");
    let shard = [(Arc::new(Locks::kept_in("ns".to_owned(), kept())), Arc::new(server.hold()))];
    shard[0].0.refused(&name);
    pass(&shard, 14.0).await;
    assert!(!may_act(&shard[0]).await);
    pass(&shard, 2.0).await;
    assert!(may_act(&shard[0]).await, "it can't believe that any more");
    shard[0].0.record_claim(name.clone(), None);
    shard[0].0.wait_until_kept();
    let none = Locks::kept_in("ns".to_owned(), kept());
    assert_eq!(none.led(), []);
}

/// A clock that goes on while timers stand still.
struct Boots {
    running: TokioClock,
    slept: Mutex<Duration>,
}

impl Clock for Boots {
    fn now(&self) -> Moment {
        self.running.now() + *self.slept.lock()
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_machine_slept_a_lock_is_as_old_as_it_is() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let clock = Arc::new(Boots { running: TokioClock::start(), slept: Mutex::default() });
    let shard = [leading_by(server.hold_by_clock(clock.clone()), &name).await];
    pass(&shard, 1.0).await;
    assert!(may_act(&shard[0]).await);
    server.is_held_by(&name, "old");
    *clock.slept.lock() = Duration::from_secs(15);
    assert!(!may_act(&shard[0]).await, "another holder may have it since");
    assert!(!renews(&shard[0].0, &shard[0].1, &name).await);
}

/// Each answer takes as long as it may: a renewal that comes about counts from when it was sent.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_slow_puts_no_lead_in_doubt() {
    let (name, server) = (locks()[0].clone(), Server::default());
    let shard = [leading(&server, &name).await];
    let acts = async {
        // After the first look of the term.
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.0.lock().takes = Duration::from_millis(3_500);
        loop {
            assert!(may_act(&shard[0]).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = pass_leading(&shard, &name, 60.0) => {}
        () = acts => {}
    }
    assert!(server.writes() > 5);
}
