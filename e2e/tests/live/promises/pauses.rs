//! A proxy that stands still for 5, 20 and 60 s while its controller runs on: what the controller sends meanwhile waits in
//! the proxy's socket, and what the proxy had sent before waits on its way to the API server, while others get its objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use ringside_e2e::{
    checker::{Landed, Verdict},
    eventually::eventually,
    relay::{Offer, Relay},
    system::{Settings, Shard, System},
    workload::Workload,
};
use ringside_ring::{RingName, cluster_ring::Fence};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::promises::{
    request::{Request, audited, endpoint, owned},
    rest::{Still, come_to_rest, is_clean},
};

/// Who stands still, and for how long. The fourth goes on.
const PAUSES: [(&str, Duration); 3] =
    [("shard-0", Duration::from_secs(5)), ("shard-1", Duration::from_secs(20)), ("shard-2", Duration::from_secs(60))];
const OTHER: &str = "shard-3";

/// Those that were dead to the sharder before they went on.
const GIVEN_UP: [&str; 2] = ["shard-1", "shard-2"];

const OBJECTS: usize = 80;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);

/// How audit ids begin of what is sent before a pause and arrives at the proxy as a whole during it, of what is sent during
/// the pause, and of what has left the proxy before it and arrives at the API server at its end.
const BEFORE: &str = "before";
const DURING: &str = "during";
const HELD: &str = "held";

/// So many of each, each to another object.
const SENT: usize = 3;

/// What a proxy had let through before it was stopped leaves it in the moment in which it goes on.
const MOMENT: Duration = Duration::from_secs(2);

fn workload() -> Workload {
    Workload {
        work: Duration::from_millis(100),
        // So that every operator is at work at any moment.
        interval: Duration::from_millis(20),
        seed: 60,
        ..Workload::idle("site", OBJECTS)
    }
}

/// A system in which the proxies that stand still reach the API server by a relay.
struct Fixture {
    system: System,
    relay: Relay,
    ring: RingName,
}

/// A proxy before, during and after its pause.
struct Paused<'a> {
    fixture: &'a Fixture,
    shard: &'a Shard,
    pause: Duration,
    since: Timestamp,
    until: Instant,
    before: Vec<Request>,
    during: Vec<Request>,
    held: Vec<Request>,
}

/// What came of a pause.
struct Outcome {
    /// When the proxy stood still.
    paused: Timestamp,
    /// When the proxy went on.
    resumed: Timestamp,
    /// The answers to what was sent during the pause.
    during: Vec<String>,
    /// What the API server wrote down about what had left the proxy before.
    held: Vec<Value>,
}

impl<'a> Paused<'a> {
    /// Half of each request that is sent before is there; of those that are sent meanwhile the connections. Others have left
    /// the proxy and wait in the relay.
    async fn prepare(fixture: &'a Fixture, (name, pause): (&str, Duration)) -> Self {
        let shard = fixture.system.shards().find(|shard| shard.name() == name).unwrap();
        let objects = owned(&fixture.system, &fixture.ring, name).await;
        assert!(objects.len() >= 3 * SENT, "{name} has {}", objects.len());
        let proxy = endpoint(shard);
        let requests = async |when: &str, objects: &[String]| {
            let mut requests = Vec::new();
            for object in objects {
                requests.push(Request::new(&proxy, &mark(when, name), object).await);
            }
            requests
        };
        let mut before = requests(BEFORE, &objects[..SENT]).await;
        for request in &mut before {
            request.until_admitted().await;
        }
        let during = requests(DURING, &objects[SENT..2 * SENT]).await;
        let mut held = requests(HELD, &objects[2 * SENT..3 * SENT]).await;
        fixture.relay.hold(&mark(HELD, name));
        for request in &mut held {
            request.send().await;
        }
        eventually("they have left the proxy", DEADLINE, || async {
            let here = fixture.relay.held(&mark(HELD, name));
            if here == SENT { Ok(()) } else { Err(format!("{here} have")) }
        })
        .await
        .unwrap();
        Self { fixture, shard, pause, since: Timestamp::now(), until: Instant::now(), before, during, held }
    }

    async fn pause(&mut self) {
        self.shard.proxy().pause().unwrap();
        (self.since, self.until) = (Timestamp::now(), Instant::now() + self.pause);
        for request in &mut self.during {
            request.send_head().await;
            request.send_body().await;
        }
        for request in &mut self.before {
            request.send_body().await;
        }
    }

    async fn resume(self) -> Outcome {
        sleep_until(self.until).await;
        let name = self.shard.name();
        if GIVEN_UP.contains(&name) {
            eventually("others have its objects", DEADLINE, || async {
                let owned = self.fixture.system.monitor().picture().owned.get(name).copied();
                owned.map_or(Ok(()), |objects| Err(format!("it has {objects}")))
            })
            .await
            .unwrap();
        }
        let held = self.release().await;
        let resumed = Timestamp::now();
        self.shard.proxy().resume().unwrap();
        let mut during = Vec::new();
        for request in self.during {
            during.push(request.answer().await);
        }
        for request in self.before.into_iter().chain(self.held) {
            request.answer().await;
        }
        Outcome { paused: self.since, resumed, during, held }
    }

    /// Lets the API server have what had left the proxy; returns what it wrote down about that.
    async fn release(&self) -> Vec<Value> {
        let mark = mark(HELD, self.shard.name());
        self.fixture.relay.release(&mark);
        eventually("the API server has answered all of it", DEADLINE, || async {
            let written = audited(&self.fixture.system.control_plane().audit_log(), &mark);
            if written.len() == SENT { Ok(written) } else { Err(format!("{written:?}")) }
        })
        .await
        .unwrap()
    }
}

/// How all requests of this time by this shard are marked.
fn mark(when: &str, shard: &str) -> String {
    format!("{when}-{shard}")
}

/// Pauses all three and resumes each in its time.
async fn pause_all(fixture: &Fixture) -> BTreeMap<String, Outcome> {
    let mut paused = Vec::new();
    for one in PAUSES {
        paused.push(Paused::prepare(fixture, one).await);
    }
    for one in &mut paused {
        one.pause().await;
    }
    let mut outcomes = BTreeMap::new();
    for one in paused {
        outcomes.insert(one.shard.name().to_owned(), one.resume().await);
    }
    outcomes
}

/// What landed on objects that were others' by then, of proxies that stood still, and what came of each pause.
async fn after_pauses(settings: Settings) -> (Verdict, BTreeMap<String, Outcome>) {
    let fence = settings.fence;
    let mut system = System::start(settings).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let relay = Relay::start(system.control_plane(), Offer::Both).await.unwrap();
    for (shard, _) in PAUSES {
        system.add_relayed_shard(shard, &relay).await.unwrap();
    }
    system.add_shard(OTHER).await.unwrap();
    system.share_out(&workload(), DEADLINE).await.unwrap();
    let updates = workload().start_updates(&system.control_plane().client());
    let fixture = Fixture { system, relay, ring };
    let paused = fixture.system.monitor().now();
    let outcomes = pause_all(&fixture).await;
    updates.stop().await.unwrap();
    let Fixture { mut system, relay: _relay, .. } = fixture;
    let at_rest = come_to_rest(&mut system, &workload()).await;
    let still = Still { shards: &GIVEN_UP, felt: paused..=at_rest };
    let report = system.report(DEADLINE).await.unwrap();
    let verdict = system.judge_writes().await.unwrap();
    for (shard, outcome) in &outcomes {
        let held: Vec<_> = outcome.held.iter().map(|event| &event["responseStatus"]["code"]).collect();
        println!("{fence:?}, {shard}: {:?} to what was sent during the pause, {held:?} before", outcome.during);
    }
    println!("{fence:?}: {} writes of former owners were refused by the fence", verdict.kept_out);
    assert!(is_clean(&report, &still), "{report:#?}");
    assert_eq!(report.objects.values().sum::<usize>(), OBJECTS);
    assert_eq!(verdict.barred, [], "an owner may write");
    assert!(verdict.unknown == 0 && verdict.by_shards > OBJECTS);
    assert_eq!((verdict.deleted.len(), verdict.overtaken.len(), verdict.left_behind.len()), (0, 0, 0), "{verdict:#?}");
    for shard in GIVEN_UP {
        assert!(outcomes[shard].during.iter().all(|answer| answer != "200"), "{shard}: {:?}", outcomes[shard].during);
    }
    (verdict, outcomes)
}

fn sent<'a>(landed: &'a [Landed], when: &str) -> Vec<&'a Landed> {
    landed.iter().filter(|landed| landed.id.starts_with(when)).collect()
}

/// Requests that the proxy had let through when it was stopped: nobody could take them back.
pub(crate) async fn of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands() {
    let settings = Settings::default();
    let (verdict, outcomes) = after_pauses(settings.clone()).await;
    let foreign = &verdict.foreign;
    let (before, during, held) = (sent(foreign, BEFORE), sent(foreign, DURING), sent(foreign, HELD));
    let ours: BTreeSet<_> = before.iter().chain(&during).chain(&held).map(|landed| &landed.id).collect();
    let own: Vec<_> = foreign.iter().filter(|landed| !ours.contains(&landed.id)).collect();
    println!(
        "landed on others' objects: {} that had left the proxy before the pause, {} that had not, {} of the operators",
        held.len(),
        before.len(),
        own.len()
    );
    assert_eq!(held.len(), SENT * GIVEN_UP.len(), "what the API server's fence is for");
    assert!(during.is_empty() && verdict.late.is_empty(), "{during:#?} {:#?}", verdict.late);
    for shard in GIVEN_UP {
        let of_shard = |landed: &&&Landed| landed.shard == shard;
        // A worker of an operator has one request under way.
        assert!(own.iter().filter(of_shard).count() <= settings.concurrency, "{own:#?}");
    }
    for landed in before.into_iter().chain(own) {
        let shard = &*landed.shard;
        assert!(GIVEN_UP.contains(&shard), "the others have lost nothing: {landed:#?}");
        let Outcome { paused, resumed, .. } = &outcomes[shard];
        // It had left the proxy before that stood still, or left as soon as it went on.
        let left = if landed.received < *resumed { paused } else { resumed };
        let after = landed.received.duration_since(*left);
        assert!(after.as_secs_f64() < MOMENT.as_secs_f64(), "{after:?} after {left}: {landed:#?}");
    }
}

/// The API server refuses even those: it holds each write against the labels of the object as it is then.
pub(crate) async fn behind_the_api_servers_fence_nothing_of_a_proxy_that_stood_still_lands() {
    let (verdict, outcomes) = after_pauses(Settings { fence: Fence::ApiServer, ..Settings::default() }).await;
    for shard in GIVEN_UP {
        for event in &outcomes[shard].held {
            let policy = "websites".parse::<RingName>().unwrap().made_for();
            let said = event["responseStatus"]["message"].as_str().unwrap_or_default();
            assert_eq!(event["responseStatus"]["code"], 403, "{event:#}");
            assert!(said.contains(&format!("ValidatingAdmissionPolicy '{policy}'")), "{said}");
        }
    }
    assert!(verdict.foreign.is_empty() && verdict.late.is_empty(), "{:#?} {:#?}", verdict.foreign, verdict.late);
}
