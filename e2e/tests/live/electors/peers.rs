//! kopf, whose operators know of each other by a peering object and pause for their equals.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ServiceAccount},
    jiff::SignedDuration,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use ringside_e2e::{
    audit::{Request, Requests},
    eventually::eventually,
    manifests,
    process::Process,
    proxy::Proxy,
    toolchain::{self, Environment},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    fixture::{DEADLINE, Fixture, NAMESPACE},
    life::hold,
};

/// kopf's own definition, and who its operators are here.
const SETTING: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kopfpeerings.kopf.dev}
spec:
  scope: Namespaced
  group: kopf.dev
  names: {kind: KopfPeering, plural: kopfpeerings, singular: kopfpeering}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: kopf, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kopf}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: kopf, namespace: default}]
";

const ACCOUNT: &str = "kopf";
const USER: &str = "system:serviceaccount:default:kopf";
const PEERING: &str = "peers";
/// Of the two who are left alone, and what they see.
const OTHER_PEERING: &str = "other-peers";
const TOUCHED: &str = "kopf-for-minutes";

/// As long as a peer counts that says nothing (`operator.py`).
const LIFETIME: Duration = Duration::from_secs(10);
/// How long two shards work: in less time chance makes too much of what they say on average.
const WORKS: Duration = Duration::from_mins(2);

/// How many seconds kopf waits between two times that it says of an operator with this life that it is there, each as likely:
/// `max(1, lifetime - randint(5, 10))` (its `peering.py`).
const PAUSES: [usize; 6] = [5, 4, 3, 2, 1, 1];

/// The shortest of these, less what clocks may differ by.
const APART: SignedDuration = SignedDuration::from_millis(900);

/// An operator: in a shard, or past the proxies.
struct Operator {
    name: String,
    process: Process,
    proxy: Option<Proxy>,
}

impl Operator {
    async fn start(fixture: &Fixture, name: &str, peering: &str, kubeconfig: &Path, proxy: Option<Proxy>) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors/kopf");
        let program = folder.join("operator.py");
        let python = tokio::task::spawn_blocking(move || toolchain::python(&Environment::of_process(), &folder));
        let mut command = python.await.unwrap().unwrap();
        command.args(["-m", "kopf", "run", "--namespace", NAMESPACE, "--peering", peering]).arg(program);
        command.env("KUBECONFIG", kubeconfig).env("POD_ID", name);
        let process = Process::spawn(name, &command, &log(fixture, name)).unwrap();
        Self { name: name.to_owned(), process, proxy }
    }

    async fn in_shard(fixture: &Fixture, name: &str, peering: &str) -> Self {
        let proxy = fixture.shard_of(name, ACCOUNT, &[]).await;
        let kubeconfig = proxy.kubeconfig();
        Self::start(fixture, name, peering, &kubeconfig, Some(proxy)).await
    }

    async fn plain(fixture: &Fixture, name: &str) -> Self {
        let identity = fixture.identity(name, ACCOUNT).await;
        Self::start(fixture, name, PEERING, identity.kubeconfig(), None).await
    }

    fn has_seen(&self, touch: &str) -> bool {
        self.log().lines().any(|line| line == format!("saw {touch}"))
    }

    /// Whether it has ever stood back for an equal, by its own words (kopf's `peering.py`): also one that began so.
    fn has_paused(&self) -> bool {
        self.log().contains("Possibly conflicting operators")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap()
    }
}

fn log(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.folder.path().join(format!("{name}-kopf.log"))
}

/// What every operator that works sees.
struct Touched {
    accounts: Api<ServiceAccount>,
    /// What is touched, by one case alone: who begins to look sees the last touch only.
    account: &'static str,
    times: usize,
}

impl Touched {
    fn last(&self) -> String {
        format!("{} {}", self.account, self.times)
    }

    /// Touches it; returns who of the operators sees that.
    async fn seen_by<'a>(&mut self, operators: &[&'a Operator], all: &[&str]) -> BTreeSet<&'a str> {
        self.times += 1;
        let touch = self.last();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": touch}}}));
        self.accounts.patch(self.account, &PatchParams::default(), &patch).await.unwrap();
        let seen =
            || operators.iter().filter(|one| one.has_seen(&touch)).map(|one| &*one.name).collect::<BTreeSet<_>>();
        let wanted: BTreeSet<_> = all.iter().copied().collect();
        let what = format!("{wanted:?} see touch {touch}");
        let sees = eventually(&what, DEADLINE, || async {
            for operator in operators {
                operator
                    .process
                    .check_running()
                    .map_err(|error| format!("{error}\n{}", operator.process.log_tail()))?;
            }
            if wanted.is_subset(&seen()) { Ok(()) } else { Err(format!("{:?}", seen())) }
        });
        sees.await.unwrap_or_else(|error| panic!("{error}"));
        seen()
    }

    /// That nobody of them sees a touch, for longer than a peer lasts.
    async fn seen_by_nobody(&mut self, operators: &[&Operator]) {
        // Who has just heard of another may be at it still.
        sleep(LIFETIME / 2).await;
        assert_eq!(self.seen_by(operators, &[]).await, BTreeSet::new());
        sleep(LIFETIME).await;
        let touch = self.last();
        let seen: Vec<_> = operators.iter().filter(|one| one.has_seen(&touch)).map(|one| &*one.name).collect();
        assert_eq!(seen, Vec::<&str>::new(), "somebody works beside another");
    }
}

/// Waits until an operator without the sidecar has said that it is there: that takes as long as a machine needs to start it.
async fn until_among_peers(peerings: &Api<DynamicObject>, operator: &Operator) {
    let what = format!("{} is among the peers", operator.name);
    let there = eventually(&what, DEADLINE, || async {
        let peering = peerings.get(PEERING).await.map_err(|error| error.to_string())?;
        let peers = &peering.data["status"];
        if peers[&operator.name].is_object() { Ok(()) } else { Err(peers.to_string()) }
    });
    there.await.unwrap();
}

/// kopf keeps what it knew over a list, so it is restarted after a gap, in which objects could move without a word to it. Here by
/// the test, as a kubelet does by the livenessProbe of its container.
async fn restarted_after_a_gap(
    fixture: &Fixture,
    leases: &Api<Lease>,
    (operator, other): (Operator, &Operator),
    touched: &mut Touched,
) -> Operator {
    let Operator { name, proxy, process } = operator;
    let proxy = proxy.unwrap();
    proxy.controller_may_go_on().await.unwrap();
    hold(leases, &name, "somebody-else").await;
    let told = eventually("it is told to restart", DEADLINE, || async {
        proxy.controller_may_go_on().await.err().ok_or_else(|| "it may go on".to_owned())
    });
    let why = told.await.unwrap().to_string();
    assert!(why.contains("ran through a gap"), "{why}");
    let operator = Operator { name: name.clone(), proxy: None, process };
    touched.seen_by(&[&operator, other], &[&other.name]).await;
    sleep(LIFETIME / 2).await;
    assert!(!operator.has_seen(&touched.last()), "it works without its Lease");
    hold(leases, &name, "").await;
    proxy.until_ready().await.unwrap();
    touched.seen_by(&[&operator], &[&name]).await;
    assert!(proxy.controller_may_go_on().await.is_err(), "that it is connected again proves nothing");
    drop(operator);
    let kubeconfig = proxy.kubeconfig();
    let operator = Operator::start(fixture, &name, PEERING, &kubeconfig, Some(proxy)).await;
    touched.seen_by(&[&operator], &[&name]).await;
    operator.proxy.as_ref().unwrap().controller_may_go_on().await.unwrap();
    operator
}

fn account(name: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Default::default()
    }
}

/// The definition, and a peering of this name.
async fn set_up(client: &Client, peering: &str) -> Api<DynamicObject> {
    manifests::apply(client, &manifests::parse(SETTING).unwrap()).await.unwrap();
    manifests::served(client, "kopfpeerings.kopf.dev").await.unwrap();
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kopf.dev", "v1", "KopfPeering"), "kopfpeerings");
    let peerings: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    peerings.create(&PostParams::default(), &DynamicObject::new(peering, &kind)).await.unwrap();
    peerings
}

/// Two shards work for minutes, and the API server hears nothing of what they say to each other.
pub(crate) async fn kopf_for_minutes(fixture: &Fixture) {
    let client = fixture.control_plane.client();
    let peerings = set_up(&client, OTHER_PEERING).await;
    let mut touched = Touched { accounts: Api::namespaced(client, NAMESPACE), account: TOUCHED, times: 0 };
    touched.accounts.create(&PostParams::default(), &account(TOUCHED)).await.unwrap();
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER);
    let shards = [
        Operator::in_shard(fixture, "kopf-2", OTHER_PEERING).await,
        Operator::in_shard(fixture, "kopf-3", OTHER_PEERING).await,
    ];
    let [first, second] = &shards;
    let start = Instant::now();
    while start.elapsed() < WORKS {
        touched.seen_by(&[first, second], &["kopf-2", "kopf-3"]).await;
        sleep(LIFETIME).await;
    }
    touched.seen_by(&[first, second], &["kopf-2", "kopf-3"]).await;
    assert!(!first.has_paused() && !second.has_paused(), "{}\n{}", first.log(), second.log());
    let real = peerings.get(OTHER_PEERING).await.unwrap();
    let peers: Vec<_> = real.data["status"].as_object().unwrap().keys().collect();
    assert_eq!(peers, ["ringside-websites"]);
    let asked = asked.since().unwrap();
    let of_peers = asked.iter().filter(|one| one.name == OTHER_PEERING && one.verb != "watch");
    let (of_ring, strangers) = of_peers.partition::<Vec<_>, _>(|one| one.agent.starts_with("ringside-proxy/"));
    assert!(strangers.is_empty(), "an operator's own words reached the API server: {strangers:#?}");
    assert_few_renewals(&of_ring, &shards);
}

/// That a proxy said that the ring is there whenever its controller did of itself, and not more often: it has no clock of its own
/// for that (`proxy/src/peering/presence.rs`).
fn assert_few_renewals(of_ring: &[&Request], shards: &[Operator]) {
    let times_of = |shard: &Operator| {
        let of_shard = of_ring.iter().filter(|one| one.pod.as_ref() == Some(&shard.name));
        let mut times: Vec<_> = of_shard.map(|one| one.received).collect();
        times.sort_unstable();
        times
    };
    let mut most = 0;
    for shard in shards {
        let pauses: Vec<_> = times_of(shard).windows(2).map(|two| two[1].duration_since(two[0])).collect();
        // With fewer it would not be there at times, if no other shard were.
        let least = usize::try_from(WORKS.as_secs() / LIFETIME.as_secs()).unwrap();
        assert!(pauses.len() >= least, "{} renewals of {}, {least} at least", pauses.len(), shard.name);
        // One that comes besides the controller's comes without its pause, whatever the average.
        assert!(pauses.iter().all(|pause| *pause >= APART), "{} renews too often: {pauses:?}", shard.name);
        let seconds = usize::try_from(pauses.iter().sum::<SignedDuration>().as_secs()).unwrap();
        most += 1 + seconds * PAUSES.len() / PAUSES.iter().sum::<usize>();
    }
    // As often as operators do on average, and a quarter more: chance seldom brings more than a tenth.
    most = most * 5 / 4;
    eprintln!("kopf: {} renewals of {} shards, {most} at most", of_ring.len(), shards.len());
    assert!(of_ring.len() <= most, "{} renewals, {most} at most", of_ring.len());
}

/// All shards work. One without the sidecar and the shards pause for each other, as kopf has it, and whoever is left goes on.
pub(crate) async fn kopf(fixture: &Fixture) {
    let client = fixture.control_plane.client();
    let peerings = set_up(&client, PEERING).await;
    let leases = Api::namespaced(client.clone(), NAMESPACE);
    let mut touched = Touched { accounts: Api::namespaced(client, NAMESPACE), account: ACCOUNT, times: 0 };

    let shards =
        [Operator::in_shard(fixture, "kopf-0", PEERING).await, Operator::in_shard(fixture, "kopf-1", PEERING).await];
    let [first, second] = &shards;
    touched.seen_by(&[first, second], &["kopf-0", "kopf-1"]).await;

    let plain = Operator::plain(fixture, "kopf-plain").await;
    until_among_peers(&peerings, &plain).await;
    touched.seen_by_nobody(&[first, second, &plain]).await;
    assert!([first, second, &plain].iter().all(|operator| operator.has_paused()), "{}", first.log());
    drop(plain);
    let start = Instant::now();
    touched.seen_by(&[first, second], &["kopf-0", "kopf-1"]).await;
    eprintln!("kopf: shards go on {:?} after one without the sidecar was gone", start.elapsed());

    let [first, second] = shards;
    let first = restarted_after_a_gap(fixture, &leases, (first, &second), &mut touched).await;
    touched.seen_by(&[&first, &second], &["kopf-0", "kopf-1"]).await;
    second.proxy.as_ref().unwrap().controller_may_go_on().await.unwrap();

    let plain = Operator::plain(fixture, "kopf-back").await;
    until_among_peers(&peerings, &plain).await;
    touched.seen_by_nobody(&[&first, &second, &plain]).await;
    drop((first, second));
    let start = Instant::now();
    touched.seen_by(&[&plain], &["kopf-back"]).await;
    eprintln!("kopf: one without the sidecar goes on {:?} after the last shard was gone", start.elapsed());
}
