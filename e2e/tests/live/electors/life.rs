//! From the first vote to a lead that is won again.

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use ringside_e2e::{
    audit::{Request, Requests},
    eventually::eventually,
    process::Process,
    proxy::Proxy,
};
use serde_json::{Value, json};

use super::{
    fixture::{DEADLINE, Fixture, NAMESPACE, SERVICE_ACCOUNT, USER},
    programs::{LEASE, Program},
};

/// Who holds the real lock while shards lead.
pub(crate) const RING: &str = "ringside-websites";

/// Where a ConfigMap has the record.
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// Requests that an election may begin with: it looks for its lock, finds none or another's, and writes to it.
const BEGINS: usize = 6;

/// Who takes part: in a shard, or past the proxies.
pub(crate) struct Candidate {
    pub(crate) proxy: Option<Proxy>,
    process: Process,
}

impl Candidate {
    /// Behind the proxy of a shard.
    pub(crate) async fn start(fixture: &Fixture, name: &str, lock: &str, program: Program) -> Self {
        let proxy = fixture.shard(name, SERVICE_ACCOUNT, &[]).await;
        let process = run(fixture, (name, &proxy.kubeconfig()), lock, program).await;
        Self { proxy: Some(proxy), process }
    }

    /// As a replica without the sidecar.
    pub(crate) async fn start_plain(fixture: &Fixture, name: &str, lock: &str, program: Program) -> Self {
        let identity = fixture.identity(name, SERVICE_ACCOUNT).await;
        Self { proxy: None, process: run(fixture, (name, identity.kubeconfig()), lock, program).await }
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> Vec<String> {
        let log = fs::read_to_string(self.process.log()).unwrap();
        log.lines().filter(|line| ["leading", "lost"].contains(line)).map(str::to_owned).collect()
    }

    pub(crate) async fn until_said(&self, wanted: &[&str]) {
        let what = format!("it says {wanted:?}");
        let said = eventually(&what, DEADLINE, || async {
            self.process.check_running().map_err(|error| error.to_string())?;
            if let Some(proxy) = &self.proxy {
                proxy.process.check_running().map_err(|error| error.to_string())?;
            }
            let said = self.said();
            if said == wanted { Ok(()) } else { Err(format!("{said:?}")) }
        });
        said.await.unwrap_or_else(|error| panic!("{error}\n{}", self.process.log_tail()));
    }
}

async fn run(fixture: &Fixture, (name, kubeconfig): (&str, &Path), lock: &str, program: Program) -> Process {
    let (lock, identity) = (lock.to_owned(), format!("{name}-controller"));
    // What is not there yet is built or fetched.
    let mut command = tokio::task::spawn_blocking(move || program(&lock, &identity)).await.unwrap();
    command.env("KUBECONFIG", kubeconfig);
    Process::spawn(name, &command, &fixture.folder.path().join(format!("{name}-elector.log"))).unwrap()
}

/// A replica without the sidecar leads; then there are shards instead of it; then it is back. Shards and it never lead at
/// once, and no user has to scale to zero between.
pub(crate) async fn there_and_back(fixture: &Fixture, case: &str, program: Program) {
    let name = case.replace('_', "-");
    let [lock, old, first, second, new] = ["lock", "old", "0", "1", "new"].map(|part| format!("{name}-{part}"));
    let (real, mut asked) =
        (Real::within(fixture, NAMESPACE, &lock), Requests::of(fixture.control_plane.audit_log(), USER));
    let before = Candidate::start_plain(fixture, &old, &lock, program).await;
    before.until_said(&["leading"]).await;
    let shards = [
        Candidate::start(fixture, &first, &lock, program).await,
        Candidate::start(fixture, &second, &lock, program).await,
    ];
    until_looked(&mut asked, &lock, &[&first, &second]).await;
    real.until_kept_by(&format!("{old}-controller")).await;
    assert!(shards.iter().all(|shard| shard.said().is_empty()), "a shard leads beside the old leader");

    before.process.kill().unwrap();
    for shard in &shards {
        shard.until_said(&["leading"]).await;
    }
    assert_eq!(real.holder().await, RING);

    let after = Candidate::start_plain(fixture, &new, &lock, program).await;
    until_looked(&mut asked, &lock, &[&new]).await;
    let [one, other] = shards;
    drop(one);
    real.until_kept_by(RING).await;
    assert_eq!(other.said(), ["leading"]);
    assert!(after.said().is_empty(), "who has no sidecar leads beside a shard");
    drop(other);
    after.until_said(&["leading"]).await;
    assert_eq!(real.holder().await, format!("{new}-controller"));
}

/// Two shards, and the program in front of each.
pub(crate) async fn of(fixture: &Fixture, case: &str, program: Program) {
    let name = case.replace('_', "-");
    let [lock, first, second] = ["lock", "0", "1"].map(|part| format!("{name}-{part}"));
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER);
    let candidates = [
        Candidate::start(fixture, &first, &lock, program).await,
        Candidate::start(fixture, &second, &lock, program).await,
    ];
    for candidate in &candidates {
        candidate.until_said(&["leading"]).await;
    }
    let (led, real) = (Timestamp::now(), Real::within(fixture, NAMESPACE, &lock));
    real.until_kept_by(RING).await;
    for candidate in &candidates {
        assert_eq!(candidate.said(), ["leading"], "{}", candidate.process.log_tail());
    }

    // Another holder takes the first shard's Lease.
    hold(&real.leases, &first, "somebody-else").await;
    candidates[0].until_said(&["leading", "lost"]).await;
    hold(&real.leases, &first, "").await;
    candidates[0].until_said(&["leading", "lost", "leading"]).await;
    assert_eq!(candidates[1].said(), ["leading"], "the other shard has nothing to do with it");
    assert_eq!(real.holder().await, RING);
    assert_silent(&mut asked, &lock, candidates.len(), led);
}

/// That little of elections which have begun by a lock reached the API server before they had `led`, and nothing since then but
/// the ring's own renewals. Until a controller has written to its lock no proxy knows that it is one: what it reads
/// before comes from the API server, which judges that write as well, and stores nothing of it.
pub(crate) fn assert_silent(asked: &mut Requests, lock: &str, elections: usize, led: Timestamp) {
    let (of_ring, of_controllers) = of_lock(asked, lock);
    let (begun, later) = of_controllers.into_iter().partition::<Vec<_>, _>(|request| request.received < led);
    assert_eq!(later, [], "requests of the election reached the API server");
    let stores = |request: &&Request| request.verb != "get" && !request.uri.contains("dryRun=All");
    assert_eq!(begun.iter().filter(stores).collect::<Vec<_>>(), Vec::<&Request>::new());
    // With none of them something else was looked for.
    assert!((1..=BEGINS * elections).contains(&begun.len()), "{begun:#?}");
    assert!(of_ring.iter().any(|request| request.verb == "update"), "the ring renews the lock: {of_ring:#?}");
}

/// Waits until each of these Pods has looked at the lock twice: who took it for free would lead by it then.
async fn until_looked(asked: &mut Requests, lock: &str, pods: &[&str]) {
    let mut looks = BTreeMap::<String, usize>::new();
    let looked = eventually("they look at the lock", DEADLINE, || {
        for pod in of_lock(asked, lock).1.into_iter().filter_map(|request| request.pod) {
            *looks.entry(pod).or_default() += 1;
        }
        let all = pods.iter().all(|pod| looks.get(*pod).is_some_and(|looks| *looks > 1));
        std::future::ready(if all { Ok(()) } else { Err(format!("{looks:?}")) })
    });
    looked.await.unwrap();
}

/// What was asked about the lock since the last look: by the proxies of themselves, and by others.
fn of_lock(asked: &mut Requests, lock: &str) -> (Vec<Request>, Vec<Request>) {
    let mut requests = asked.since().unwrap();
    // A create names it in its body.
    let about = |request: &Request| request.name == lock || request.uri.contains(lock);
    requests.retain(|request| ["leases", "configmaps"].contains(&&*request.resource) && about(request));
    requests.into_iter().partition(|request| request.agent.starts_with("ringside-proxy/"))
}

/// The lock as the API server has it, of whichever kind.
pub(crate) struct Real {
    leases: Api<Lease>,
    maps: Api<ConfigMap>,
    name: String,
}

impl Real {
    pub(crate) fn within(fixture: &Fixture, namespace: &str, name: &str) -> Self {
        let client = fixture.control_plane.client();
        let (leases, maps) = (Api::namespaced(client.clone(), namespace), Api::namespaced(client, namespace));
        Self { leases, maps, name: name.to_owned() }
    }

    /// Who holds it, and when that was renewed, by the clock of who did.
    async fn record(&self) -> Option<(String, Timestamp)> {
        if let Some(lease) = self.leases.get_opt(&self.name).await.unwrap() {
            let spec = lease.spec?;
            return spec.holder_identity.zip(spec.renew_time.map(|renewed| renewed.0));
        }
        let map = self.maps.get_opt(&self.name).await.unwrap()?;
        let record: Value = serde_json::from_str(map.annotations().get(RECORD)?).unwrap();
        let said = |field: &str| Some(record[field].as_str()?.to_owned());
        Some((said("holderIdentity")?, said("renewTime")?.parse().unwrap()))
    }

    /// Its holder; empty if it has none.
    pub(crate) async fn holder(&self) -> String {
        self.record().await.unwrap_or_default().0
    }

    /// When it was renewed.
    pub(crate) async fn renewed(&self) -> Option<Timestamp> {
        Some(self.record().await?.1)
    }

    /// Waits until this one, and no other, has renewed it for longer than it lasts without that.
    async fn until_kept_by(&self, holder: &str) {
        let since = self.renewed().await.unwrap();
        let kept = eventually("the lock is renewed for longer than it lasts", DEADLINE, || async {
            let (held, renewed) = self.record().await.ok_or("it has no holder")?;
            assert_eq!(held, holder);
            let lasted = renewed.duration_since(since);
            if lasted.unsigned_abs() > LEASE { Ok(()) } else { Err(format!("for {lasted:?}")) }
        });
        kept.await.unwrap();
    }
}

/// `holder` has the Lease from now on.
pub(super) async fn hold(leases: &Api<Lease>, shard: &str, holder: &str) {
    let patch = json!({"spec": {"holderIdentity": holder}});
    leases.patch(shard, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}
