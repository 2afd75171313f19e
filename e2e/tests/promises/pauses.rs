//! A proxy that stands still for 5, 20 and 60 s while its controller runs on: what the controller sends meanwhile waits in
//! the proxy's socket, while others get its objects.

use std::{collections::BTreeMap, fs, time::Duration};

use kube::{Api, api::ListParams};
use ringside_e2e::{
    checker::{Landed, Verdict},
    compatibility::client::{Endpoint, Http},
    eventually::eventually,
    system::{NAMESPACE, Settings, Shard, System},
    website::Website,
    workload::Workload,
};
use ringside_ring::{RingLabels, RingName, cluster_ring::Fence};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::client::TlsStream;

/// Who stands still, and for how long. The fourth goes on.
const PAUSES: [(&str, Duration); 3] =
    [("shard-0", Duration::from_secs(5)), ("shard-1", Duration::from_secs(20)), ("shard-2", Duration::from_secs(60))];
const OTHER: &str = "shard-3";

/// Those that were dead to the sharder before they went on.
const GIVEN_UP: [&str; 2] = ["shard-1", "shard-2"];

const OBJECTS: usize = 80;

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);

/// How audit ids begin of what is sent before a pause, and during it.
const BEFORE: &str = "before";
const DURING: &str = "during";

/// So many of either, each to another object.
const SENT: usize = 3;

fn workload() -> Workload {
    Workload {
        work: Duration::from_millis(100),
        // So that every operator is at work at any moment.
        interval: Duration::from_millis(20),
        seed: 60,
        ..Workload::idle("site", OBJECTS)
    }
}

/// A request through a proxy that is sent bit by bit, on a connection of its own.
struct Request {
    stream: TlsStream<TcpStream>,
    head: String,
    body: String,
}

impl Request {
    /// One that changes an annotation, on a connection that is there, with nothing sent yet.
    async fn new(proxy: &Endpoint, id: &str, name: &str) -> Self {
        let body = format!("{{\"metadata\":{{\"annotations\":{{\"sent\":\"{id}\"}}}}}}");
        let head = format!(
            "PATCH /apis/web.example.com/v1/namespaces/{NAMESPACE}/websites/{name} HTTP/1.1\r\nhost: {}\r\n\
             authorization: Bearer {}\r\naudit-id: {id}\r\ncontent-type: application/merge-patch+json\r\n\
             content-length: {}\r\nexpect: 100-continue\r\n\r\n",
            proxy.address(),
            proxy.token(),
            body.len(),
        );
        Self { stream: proxy.connect(Http::One).await.unwrap(), head, body }
    }

    async fn send_head(&mut self) {
        self.stream.write_all(self.head.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Returns when the proxy asks for the body: then it has let the request through.
    async fn until_admitted(&mut self) {
        self.send_head().await;
        let mut interim = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        timeout(DEADLINE, self.stream.read_exact(&mut interim)).await.unwrap().unwrap();
        assert!(interim.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&interim));
    }

    async fn send_body(&mut self) {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The status of the answer; empty when the connection was cut.
    async fn answer(mut self) -> String {
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n") || read.starts_with(b"HTTP/1.1 100 ") {
            if read.ends_with(b"\r\n\r\n") {
                read.clear();
            }
            match timeout(DEADLINE, self.stream.read_u8()).await.expect("an answer or an end") {
                Ok(byte) => read.push(byte),
                Err(_) => return String::new(),
            }
        }
        String::from_utf8_lossy(&read).split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

/// A proxy before, during and after its pause.
struct Paused<'a> {
    shard: &'a Shard,
    pause: Duration,
    until: Instant,
    before: Vec<Request>,
    during: Vec<Request>,
}

impl<'a> Paused<'a> {
    /// Half of each request that is sent before is there; of the others the connections.
    async fn prepare(system: &'a System, ring: &RingName, (name, pause): (&str, Duration)) -> Self {
        let shard = system.shards().find(|shard| shard.name() == name).unwrap();
        let objects = owned(system, ring, name).await;
        assert!(objects.len() >= 2 * SENT, "{name} has {}", objects.len());
        let token = fs::read_to_string(shard.access().join("token")).unwrap();
        let proxy = Endpoint::new(shard.address(), &shard.access().join("ca.crt"), token.trim()).unwrap();
        let (mut before, mut during) = (Vec::new(), Vec::new());
        for (index, object) in objects.iter().take(2 * SENT).enumerate() {
            if index < SENT {
                let mut request = Request::new(&proxy, &format!("{BEFORE}-{name}-{index}"), object).await;
                request.until_admitted().await;
                before.push(request);
            } else {
                during.push(Request::new(&proxy, &format!("{DURING}-{name}-{index}"), object).await);
            }
        }
        Self { shard, pause, until: Instant::now(), before, during }
    }

    async fn pause(&mut self) {
        self.shard.proxy().pause().unwrap();
        self.until = Instant::now() + self.pause;
        for request in &mut self.during {
            request.send_head().await;
            request.send_body().await;
        }
        for request in &mut self.before {
            request.send_body().await;
        }
    }

    /// Returns the answers to what was sent during the pause.
    async fn resume(self) -> Vec<String> {
        sleep_until(self.until).await;
        self.shard.proxy().resume().unwrap();
        let mut answers = Vec::new();
        for request in self.during {
            answers.push(request.answer().await);
        }
        for request in self.before {
            request.answer().await;
        }
        answers
    }
}

/// The names of a shard's objects.
async fn owned(system: &System, ring: &RingName, shard: &str) -> Vec<String> {
    let api: Api<Website> = Api::namespaced(system.control_plane().client(), NAMESPACE);
    let own = RingLabels::of(ring).owned_by(&shard.parse().unwrap());
    let found = api.list_metadata(&ListParams::default().labels(&own)).await.unwrap();
    found.items.iter().map(kube::ResourceExt::name_any).collect()
}

/// Pauses all three and resumes each in its time. Returns the answers to what was sent meanwhile, by shard.
async fn pause_all(system: &System, ring: &RingName) -> BTreeMap<String, Vec<String>> {
    let mut paused = Vec::new();
    for one in PAUSES {
        paused.push(Paused::prepare(system, ring, one).await);
    }
    for one in &mut paused {
        one.pause().await;
    }
    let mut answers = BTreeMap::new();
    for one in paused {
        answers.insert(one.shard.name().to_owned(), one.resume().await);
    }
    answers
}

/// What landed on objects that were others' by then, of proxies that stood still.
///
/// Also returns of which of them nothing that was sent meanwhile was carried out.
async fn after_pauses(fence: Fence) -> (Verdict, Vec<String>, Settings) {
    let settings = Settings { fence, ..Settings::default() };
    let mut system = System::start(settings.clone()).await.unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    for (shard, _) in PAUSES {
        system.add_shard(shard).await.unwrap();
    }
    system.add_shard(OTHER).await.unwrap();
    system.share_out(&workload(), DEADLINE).await.unwrap();
    let updates = workload().start_updates(&system.control_plane().client());
    let answers = pause_all(&system, &ring).await;
    updates.stop().await.unwrap();
    eventually("all objects have an owner", DEADLINE, || async {
        let picture = system.monitor().picture();
        let whole = picture.unassigned == 0 && picture.draining.is_empty();
        if whole { Ok(()) } else { Err(format!("{picture:?}")) }
    })
    .await
    .unwrap();
    let verdict = system.judge_writes().await.unwrap();
    println!("{fence:?}: answers to what was sent during the pauses: {answers:?}");
    let refused = answers.iter().filter(|(_, answers)| answers.iter().all(|answer| answer != "200"));
    let refused = refused.map(|(shard, _)| shard.clone()).collect();
    assert!(verdict.unknown == 0 && verdict.by_shards > OBJECTS);
    (verdict, refused, settings)
}

fn sent<'a>(landed: &'a [Landed], when: &str) -> Vec<&'a Landed> {
    landed.iter().filter(|landed| landed.id.starts_with(when)).collect()
}

/// Requests that the proxy had let through, and not passed on whole, when it was stopped: nobody could take them back.
#[tokio::test]
async fn of_a_proxy_that_stood_still_only_what_it_had_admitted_before_lands() {
    let (verdict, refused, settings) = after_pauses(Fence::Proxy).await;
    let foreign = &verdict.foreign;
    let (before, during) = (sent(foreign, BEFORE), sent(foreign, DURING));
    let own = foreign.len() - before.len() - during.len();
    println!("landed on others' objects: {} sent before a pause, {own} of the operators", before.len());
    assert!(during.is_empty(), "{during:#?}");
    assert!(refused.ends_with(&GIVEN_UP.map(str::to_owned)), "{refused:?}");
    assert!(before.len() <= SENT * PAUSES.len());
    // A worker of an operator has one request under way.
    assert!(own <= settings.concurrency * PAUSES.len(), "{foreign:#?}");
}

/// The API server refuses even those: it holds each write against the labels of the object as it is then.
#[tokio::test]
async fn behind_the_api_servers_fence_nothing_of_a_proxy_that_stood_still_lands() {
    let (verdict, refused, _) = after_pauses(Fence::ApiServer).await;
    assert!(verdict.foreign.is_empty(), "{:#?}", verdict.foreign);
    assert!(refused.ends_with(&GIVEN_UP.map(str::to_owned)), "{refused:?}");
}
