//! From the first vote to a lead that is won again.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
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
use tokio::time::sleep;

use super::{
    fixture::{DEADLINE, Fixture, NAMESPACE, SERVICE_ACCOUNT, USER},
    programs::{LEASE, Program},
};

/// Who holds the real lock while shards lead.
pub(crate) const RING: &str = "ringside-websites";

/// Where a ConfigMap has the record.
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

/// Five Leases long, as the programs have them: one that is not renewed is lost by then.
pub(crate) const HOLDS: Duration = Duration::from_secs(30);

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
        Self::behind(fixture.shard(name).await, fixture, name, lock, program).await
    }

    /// Behind this proxy.
    pub(crate) async fn behind(proxy: Proxy, fixture: &Fixture, name: &str, lock: &str, program: Program) -> Self {
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
/// once, and nobody has to scale to zero between.
pub(crate) async fn there_and_back(fixture: &Fixture, name: &str, program: Program) {
    let (lock, names) = (format!("{name}-lock"), ["old", "0", "1", "new"].map(|part| format!("{name}-{part}")));
    let [old, first, second, new] = &names;
    let (real, waits) = (Real::of(fixture, &lock), 2 * LEASE);
    let old = Candidate::start_plain(fixture, old, &lock, program).await;
    old.until_said(&["leading"]).await;
    let shards = [
        Candidate::start(fixture, first, &lock, program).await,
        Candidate::start(fixture, second, &lock, program).await,
    ];
    sleep(waits).await;
    assert!(shards.iter().all(|shard| shard.said().is_empty()), "a shard leads beside the old leader");
    assert_eq!(real.holder().await, format!("{name}-old-controller"));

    old.process.kill().unwrap();
    let start = Instant::now();
    for shard in &shards {
        shard.until_said(&["leading"]).await;
    }
    eprintln!("{name}: shards lead {:?} after the old leader was killed", start.elapsed());
    assert_eq!(real.holder().await, RING);

    let new = Candidate::start_plain(fixture, new, &lock, program).await;
    let [first, second] = shards;
    sleep(waits).await;
    drop(first);
    sleep(waits).await;
    assert_eq!(second.said(), ["leading"]);
    assert!(new.said().is_empty(), "who has no sidecar leads beside a shard");
    drop(second);
    let start = Instant::now();
    new.until_said(&["leading"]).await;
    eprintln!("{name}: a replica without the sidecar leads {:?} after the last shard was gone", start.elapsed());
    assert_eq!(real.holder().await, format!("{name}-new-controller"));
}

/// Two shards, and the program in front of each.
pub(crate) async fn of(fixture: &Fixture, name: &str, program: Program) {
    let lock = format!("{name}-lock");
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER);
    let shards = [format!("{name}-0"), format!("{name}-1")];
    let candidates = [
        Candidate::start(fixture, &shards[0], &lock, program).await,
        Candidate::start(fixture, &shards[1], &lock, program).await,
    ];
    for candidate in &candidates {
        candidate.until_said(&["leading"]).await;
    }
    assert_little_began(&mut asked, &lock, (name, candidates.len()));

    sleep(HOLDS).await;
    for candidate in &candidates {
        assert_eq!(candidate.said(), ["leading"], "{}", candidate.process.log_tail());
    }
    assert_only_renewed(&mut asked, &lock, LEASE);
    let real = Real::of(fixture, &lock);
    assert_eq!(real.holder().await, RING);

    // Somebody takes the first shard's Lease.
    hold(&real.leases, &shards[0], "somebody-else").await;
    candidates[0].until_said(&["leading", "lost"]).await;
    hold(&real.leases, &shards[0], "").await;
    candidates[0].until_said(&["leading", "lost", "leading"]).await;
    assert_eq!(candidates[1].said(), ["leading"], "the other shard has nothing to do with it");
    assert_eq!(real.holder().await, RING);
    let (_, again) = of_lock(&mut asked, &lock);
    assert_eq!(again, [], "the lock is known");
}

/// That little of elections which have just begun reached the API server. Until a controller has written to its lock nobody knows
/// that it is one: what it reads before comes from the API server, which judges that write as well, and stores nothing of it.
pub(crate) fn assert_little_began(asked: &mut Requests, lock: &str, (who, elections): (&str, usize)) {
    let (_, begun) = of_lock(asked, lock);
    let stores = |request: &&Request| request.verb != "get" && !request.uri.contains("dryRun=All");
    assert_eq!(begun.iter().filter(stores).collect::<Vec<_>>(), Vec::<&Request>::new());
    // With none of them something else was looked for.
    assert!((1..=BEGINS * elections).contains(&begun.len()), "{begun:#?}");
    eprintln!("{who}: {} requests of {elections} elections reached the API server as they began", begun.len());
}

/// That of elections by a lock, which have gone on for [`HOLDS`] since the last look, nothing has reached the API server but
/// the ring's own renewals, and few of these. `lasts` is how long the lock does without one.
pub(crate) fn assert_only_renewed(asked: &mut Requests, lock: &str, lasts: Duration) {
    let (of_ring, of_controllers) = of_lock(asked, lock);
    assert_eq!(of_controllers, [], "requests of the election reached the API server");
    // One in two fifths of the lock's time, by whichever shard, and some that a busy machine makes too many.
    let most = 3 * HOLDS.as_secs() / lasts.as_secs() + 2;
    let renewals = of_ring.iter().filter(|request| request.verb == "update").count();
    assert!(
        (1..=most).contains(&u64::try_from(renewals).unwrap()),
        "{renewals} renewals of the real lock, {most} at most"
    );
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
    pub(crate) fn of(fixture: &Fixture, name: &str) -> Self {
        let client = fixture.control_plane.client();
        let (leases, maps) = (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client, NAMESPACE));
        Self { leases, maps, name: name.to_owned() }
    }

    /// Who holds it; empty if nobody does.
    pub(crate) async fn holder(&self) -> String {
        let lease = self.leases.get_opt(&self.name).await.unwrap();
        let of_lease = lease.and_then(|lease| lease.spec?.holder_identity);
        let map = self.maps.get_opt(&self.name).await.unwrap();
        let of_map = map.and_then(|map| {
            let record: Value = serde_json::from_str(map.annotations().get(RECORD)?).unwrap();
            Some(record["holderIdentity"].as_str()?.to_owned())
        });
        of_lease.or(of_map).unwrap_or_default()
    }
}

impl Real {
    /// When the ring renewed a Lease the last time, by the clock of the proxy that did; none when it is another's.
    pub(crate) async fn renewed_by_ring(&self) -> Option<SystemTime> {
        let spec = self.leases.get(&self.name).await.unwrap().spec.unwrap();
        spec.renew_time.filter(|_| spec.holder_identity.as_deref() == Some(RING)).map(|renewed| renewed.0.into())
    }
}

/// Somebody has a Lease from now on.
pub(crate) async fn hold(leases: &Api<Lease>, shard: &str, holder: &str) {
    let patch = json!({"spec": {"holderIdentity": holder}});
    leases.patch(shard, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}
