//! An API server that hangs, and one that is killed and started again, in the middle of watches, lists and writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use ringside_e2e::{
    system::{Settings, System},
    workload::Workload,
};
use tokio::{net::TcpStream, task::JoinHandle, time::sleep};

use super::{
    clients::{Client, End, NAMES, Watch},
    fixture::{DEADLINE, Fixture, command, config_map, objects_by},
    follower::Follower,
    report,
};

const SHARD: &str = "restarts";
/// What is promised of a peer that hangs.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
/// Between two writes, and two lists.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn clients_recover_from_an_api_server_that_hangs_and_restarts(mut fixture: Fixture) -> Fixture {
    let identity = fixture.identity(SHARD).await;
    // So that it is not the Lease that ends the streams.
    let options = vec!["--lease-duration=120s".to_owned()];
    let mut command = command();
    command.args(options).arg("--kubeconfig").arg(identity.kubeconfig());
    let proxy = fixture.start_proxy(SHARD, command).await;
    let follower = Follower::start(objects_by(&proxy).await).await;
    let work = Work::start(objects_by(&proxy).await);
    let client = Client::new(&proxy).await;
    let watch = client.watch(NAMES).await;
    work.until_written(10).await;

    let mut past = Watch::past(connection(&fixture).await, &fixture).await;
    let api_server = fixture.control_plane.api_server().unwrap();
    api_server.pause().unwrap();
    let paused = Instant::now();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    let noticed = paused.elapsed();
    past.nothing(NOTICED_WITHIN.saturating_sub(paused.elapsed())).await;
    api_server.resume().unwrap();
    let before = work.written();
    work.until_written(before + 10).await;
    report(&format!("an API server that hangs: noticed after {noticed:?}"));

    let watch = client.watch(NAMES).await;
    let past = Watch::past(connection(&fixture).await, &fixture).await;
    let before = work.written();
    fixture.control_plane.stop_api_server().await.unwrap();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    assert_eq!(past.end(NOTICED_WITHIN).await, End::Error, "past the proxy");
    fixture.control_plane.start_api_server().await.unwrap();
    work.until_written(before + 10).await;

    let (written, lists) = work.stop().await;
    let labels = config_map(SHARD, "", 0).metadata.labels.unwrap();
    let (key, value) = labels.into_iter().next().unwrap();
    let labels = format!("{key}={value}");
    follower.until_equal(&fixture.objects(), &labels, DEADLINE).await;
    let there = fixture.objects().list(&ListParams::default().labels(&labels)).await.unwrap().items.len();
    report(&format!("{written} writes and {lists} lists beside it, all of them whole"));
    assert_eq!(there, written);
    fixture
}

/// Past the proxy.
async fn connection(fixture: &Fixture) -> TcpStream {
    TcpStream::connect(fixture.address()).await.unwrap()
}

/// The same beneath whole shards: Go clients with all that they do, and the sharder.
pub(crate) async fn operators_recover_from_an_api_server_that_restarts() {
    // So that it is not the Lease that ends what the operators do: they would have to end themselves.
    let settings = Settings { lease_duration: Duration::from_secs(120), ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    let workload = Workload { work: PAUSE, ..Workload::idle("site", 20) };
    system.share_out(&workload, DEADLINE).await.unwrap();
    system.restart_api_server().await.unwrap();
    // Each object is changed, and somebody works on it.
    system.until_all_worked_on(&workload, DEADLINE).await.unwrap();
    let report = system.report(DEADLINE).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

/// A writer and a reader of lists that repeat what fails, as controllers do.
struct Work {
    ends: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    writer: JoinHandle<()>,
    reader: JoinHandle<usize>,
}

impl Work {
    fn start(api: Api<ConfigMap>) -> Self {
        let (ends, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let writer = tokio::spawn(write(api.clone(), ends.clone(), written.clone()));
        let reader = tokio::spawn(read(api, ends.clone(), written.clone()));
        Self { ends, written, writer, reader }
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    async fn until_written(&self, wanted: usize) {
        let start = Instant::now();
        while self.written() < wanted {
            assert!(start.elapsed() < DEADLINE, "{} of {wanted} written", self.written());
            assert!(!self.writer.is_finished() && !self.reader.is_finished());
            sleep(PAUSE).await;
        }
    }

    /// How many objects were written, and how many whole lists read.
    async fn stop(self) -> (usize, usize) {
        self.ends.store(true, Ordering::SeqCst);
        self.writer.await.unwrap();
        let lists = self.reader.await.unwrap();
        (self.written.load(Ordering::SeqCst), lists)
    }
}

async fn write(api: Api<ConfigMap>, ends: Arc<AtomicBool>, written: Arc<AtomicUsize>) {
    while !ends.load(Ordering::SeqCst) {
        let name = format!("written-{}", written.load(Ordering::SeqCst));
        match api.create(&PostParams::default(), &config_map(SHARD, &name, 0)).await {
            Ok(_) => drop(written.fetch_add(1, Ordering::SeqCst)),
            // An attempt without an answer was done after all.
            Err(kube::Error::Api(status)) if status.is_already_exists() => drop(written.fetch_add(1, Ordering::SeqCst)),
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

/// A list is whole, or it is an error.
async fn read(api: Api<ConfigMap>, ends: Arc<AtomicBool>, written: Arc<AtomicUsize>) -> usize {
    let mut lists = 0;
    while !ends.load(Ordering::SeqCst) {
        let least = written.load(Ordering::SeqCst);
        match api.list(&ListParams::default()).await {
            Ok(list) => {
                assert!(list.items.len() >= least, "{} of {least}", list.items.len());
                lists += 1;
            }
            Err(error) => assert!(!matches!(error, kube::Error::SerdeError(_)), "half a list: {error}"),
        }
        sleep(PAUSE).await;
    }
    lists
}
