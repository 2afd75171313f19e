//! A HorizontalPodAutoscaler follows what replicas write (`deploy/autoscaling`): up under load and down after it, a step at a time.
//!
//! Kubernetes' own controller decides. The metrics API before it is a relay's, which says what Prometheus would.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::Api;
use ringside_e2e::{
    case,
    live::Group,
    manifests,
    relay::{Offer, Relay, Script},
    system::{NAMESPACE, Settings, System, metrics},
    toolchain::Need,
    workload::Workload,
};
use serde_json::{Value, json};
use tokio::time::sleep;

/// The cases.
pub(crate) fn group() -> Group {
    let cases = vec![
        case!(replicas_follow_the_load_up_and_down_once)
            .works()
            .needs(Need::ControllerManager)
            .costs("minutes of load, and of quiet after it"),
    ];
    Group::new("autoscaling", cases)
}

const OBJECTS: usize = 60;
/// A change takes two reconciles, so a replica with two workers carries five changes a second.
const WORK: Duration = Duration::from_millis(200);
const CARRIED: f64 = 5.0;
/// What the manifest advises.
const PART: f64 = 0.7;
/// Changes a second that one replica carries well, and that three do.
const LITTLE: u32 = 2;
const MUCH: u32 = 9;
const ENOUGH: usize = 3;
const DEADLINE: Duration = Duration::from_secs(90);
/// Replicas are given so long to come to where they belong, and then stay there.
const MOVES: Duration = Duration::from_secs(300);
const STAYS: Duration = Duration::from_secs(60);
/// The time over which writes are counted.
const WINDOW: Duration = Duration::from_secs(15);
const FORGOTTEN: Duration = Duration::from_secs(300);
const METRIC: &str = "ringside_writes_per_second";

fn load(per_second: u32) -> Workload {
    Workload { work: WORK, interval: Duration::from_secs(1) / per_second, ..Workload::idle("site", OBJECTS) }
}

async fn replicas_follow_the_load_up_and_down_once() {
    let settings = Settings { concurrency: 2, controller_manager: true, ..Settings::default() };
    let mut system = System::start(settings).await.unwrap();
    system.start_sharding(1).await.unwrap();
    let mut scaled = Scaled::new(&system).await;
    system.add_shard("shard-0").await.unwrap();
    system.share_out(&load(LITTLE), DEADLINE).await.unwrap();

    let little = load(LITTLE).start_updates(&system.control_plane().client());
    scaled.follow(&mut system, 2 * WINDOW).await;
    let of_one_change = scaled.per_second() / f64::from(LITTLE);
    assert!(of_one_change > 0.0, "proxies count no writes");
    scale(&system, of_one_change * CARRIED * PART).await;
    scaled.follow(&mut system, STAYS).await;
    assert_eq!(scaled.seen, [1], "one carries that");
    little.stop().await.unwrap();

    let much = load(MUCH).start_updates(&system.control_plane().client());
    scaled.until(&mut system, ENOUGH).await;
    scaled.follow(&mut system, STAYS).await;
    assert_eq!(scaled.seen, [1, 2, 3]);
    much.stop().await.unwrap();

    let little = load(LITTLE).start_updates(&system.control_plane().client());
    scaled.until(&mut system, 1).await;
    scaled.follow(&mut system, STAYS).await;
    assert_eq!(scaled.seen, [1, 2, 3, 2, 1]);
    little.stop().await.unwrap();

    system.until_all_worked_on(&load(LITTLE), DEADLINE).await.unwrap();
    let (report, writes) = (system.report(FORGOTTEN).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!(writes.lost, []);
}

/// The manifest with shorter times, from one replica on.
async fn scale(system: &System, target: f64) {
    let mut scaler = manifests::read(&file("hpa.yaml")).unwrap().remove(0);
    let spec = &mut scaler.data["spec"];
    assert_eq!(spec["metrics"][0]["external"]["metric"]["name"], METRIC);
    spec["minReplicas"] = json!(1);
    spec["metrics"][0]["external"]["target"]["averageValue"] = json!(format!("{}m", (target * 1e3).round()));
    for (direction, quiet) in [("scaleUp", 10), ("scaleDown", 30)] {
        spec["behavior"][direction]["stabilizationWindowSeconds"] = json!(quiet);
        spec["behavior"][direction]["policies"][0]["periodSeconds"] = json!(20);
    }
    manifests::apply(&system.control_plane().client(), &[scaler]).await.unwrap();
}

fn file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/autoscaling").join(name)
}

/// What is to be scaled, and what its replicas write.
struct Scaled {
    deployments: Api<Deployment>,
    /// How many replicas it was to have, one after the other.
    seen: Vec<usize>,
    /// What each proxy has counted.
    counted: BTreeMap<String, f64>,
    /// What all of them have, by the time.
    written: VecDeque<(Instant, f64)>,
    /// What they write in a second, in thousandths.
    told: Arc<AtomicU64>,
    _metrics: Relay,
}

impl Scaled {
    async fn new(system: &System) -> Self {
        let told = Arc::<AtomicU64>::default();
        let relay = serve(system, told.clone()).await;
        let client = system.control_plane().client();
        let labels = json!({"app": "scaled"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "website-controller", "namespace": NAMESPACE},
            "spec": {
                "replicas": 1, "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    // No node runs it: its replicas are the system's.
                    "spec": {"containers": [{"name": "none", "image": "none"}]},
                },
            },
        });
        manifests::apply(&client, &manifests::parse(&deployment.to_string()).unwrap()).await.unwrap();
        let (counted, written) = (BTreeMap::new(), VecDeque::from([(Instant::now(), 0.0)]));
        let deployments = Api::namespaced(client, NAMESPACE);
        Self { deployments, seen: vec![1], counted, written, told, _metrics: relay }
    }

    fn per_second(&self) -> f64 {
        self.told.load(Ordering::Relaxed) as f64 / 1e3
    }

    /// Runs as many replicas as are wanted, for so long.
    async fn follow(&mut self, system: &mut System, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            self.step(system).await;
        }
    }

    /// The same, until so many are.
    async fn until(&mut self, system: &mut System, replicas: usize) {
        let begin = Instant::now();
        while self.seen.last() != Some(&replicas) {
            self.step(system).await;
            assert!(begin.elapsed() < MOVES, "{:?}, {} writes a second", self.seen, self.per_second());
        }
    }

    async fn step(&mut self, system: &mut System) {
        sleep(Duration::from_secs(1)).await;
        self.count(system).await;
        let wanted = self.deployments.get("website-controller").await.unwrap().spec.unwrap().replicas.unwrap();
        let (wanted, running) = (usize::try_from(wanted).unwrap(), system.shards().count());
        if self.seen.last() != Some(&wanted) {
            eprintln!("{wanted} replicas at {:.1} writes a second", self.per_second());
            self.seen.push(wanted);
        }
        for one in running..wanted {
            system.add_shard(&format!("shard-{one}-{}", self.seen.len())).await.unwrap();
        }
        for _ in wanted..running {
            let last = system.shards().last().unwrap().name().to_owned();
            system.remove_shard(&last).await.unwrap();
        }
    }

    /// As `sum(rate(...))` does: what a proxy had counted when it was first seen is no part of it.
    async fn count(&mut self, system: &System) {
        let told = join_all(system.shards().map(|shard| async {
            let text = metrics(shard.admin_port()).await.unwrap_or_default();
            (shard.name().to_owned(), writes(&text))
        }));
        let mut more = 0.0;
        for (shard, counted) in told.await {
            let before = self.counted.insert(shard, counted).unwrap_or(counted);
            more += (counted - before).max(0.0);
        }
        let all = self.written.back().map_or(0.0, |(_, all)| *all) + more;
        self.written.push_back((Instant::now(), all));
        while self.written.len() > 2 && self.written[0].0.elapsed() > WINDOW {
            self.written.pop_front();
        }
        let (since, before) = self.written[0];
        let per_second = (all - before) / since.elapsed().as_secs_f64().max(1.0);
        // No number is below 0, or that large.
        self.told.store(format!("{:.0}", per_second * 1e3).parse().unwrap_or_default(), Ordering::Relaxed);
    }
}

/// What the rule of `adapter-rules.yaml` counts.
fn writes(told: &str) -> f64 {
    let counts = |line: &&str| {
        let labels = [r#"verb="write""#, r#"outcome="ok""#, r#"ring="websites""#];
        line.starts_with("ringside_proxy_requests_total{") && labels.iter().all(|label| line.contains(label))
    };
    told.lines().filter(counts).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The metrics API that the API server asks.
async fn serve(system: &System, told: Arc<AtomicU64>) -> Relay {
    const GROUP: &str = "external.metrics.k8s.io";
    let relay = Relay::start(system.control_plane(), Offer::Both).await.unwrap();
    relay.ask_first(move |request| {
        request.uri.path().ends_with(METRIC).then_some(())?;
        let value = json!({
            "metricName": METRIC, "metricLabels": {"ring": "websites"}, "timestamp": Timestamp::now().to_string(),
            "value": format!("{}m", told.load(Ordering::Relaxed)),
        });
        Some(answer(&json!({
            "kind": "ExternalMetricValueList", "apiVersion": format!("{GROUP}/v1beta1"), "metadata": {}, "items": [value],
        })))
    });
    let resource = json!({"name": METRIC, "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
    let resources = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1beta1"), "resources": [resource],
    });
    relay.answer_others(Script::new(StatusCode::OK).json(&resources));
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": NAMESPACE},
            // The name resolves to loopback.
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1beta1.{GROUP}")},
            "spec": {
                "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"namespace": NAMESPACE, "name": "metrics", "port": relay.address().port()},
            },
        }),
    ];
    for object in objects {
        let object = manifests::parse(&object.to_string()).unwrap();
        manifests::apply(&system.control_plane().client(), &object).await.unwrap();
    }
    relay
}

fn answer(body: &Value) -> Response<ringside_e2e::relay::Passing> {
    let body = Full::from(body.to_string()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}
