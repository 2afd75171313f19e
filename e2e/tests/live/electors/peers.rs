//! kopf, whose operators know of each other by a peering object and pause for their equals.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery::ApiResource,
};
use ringside_e2e::{
    audit::Requests,
    eventually::eventually,
    manifests,
    process::Process,
    proxy::Proxy,
    toolchain::{self, Environment},
};
use serde_json::json;

use super::{
    fixture::{DEADLINE, Fixture, MIGHTY, NAMESPACE},
    life::hold,
};

/// kopf's own definition.
const DEFINITION: &str = "
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
";

const USER: &str = "system:serviceaccount:default:mighty";
const PEERING: &str = "peers";

/// An operator: in a shard, or past the proxies.
struct Operator {
    name: String,
    process: Process,
    proxy: Option<Proxy>,
}

impl Operator {
    async fn start(fixture: &Fixture, name: &str, kubeconfig: &Path, proxy: Option<Proxy>) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("electors/kopf");
        let program = folder.join("operator.py");
        let python = tokio::task::spawn_blocking(move || toolchain::python(&Environment::of_process(), &folder));
        let mut command = python.await.unwrap().unwrap();
        command.args(["-m", "kopf", "run", "--namespace", NAMESPACE, "--peering", PEERING]).arg(program);
        command.env("KUBECONFIG", kubeconfig).env("POD_ID", name);
        let process = Process::spawn(name, &command, &log(fixture, name)).unwrap();
        Self { name: name.to_owned(), process, proxy }
    }

    async fn in_shard(fixture: &Fixture, name: &str) -> Self {
        let proxy = fixture.shard(name, MIGHTY, &[]).await;
        let kubeconfig = proxy.kubeconfig();
        Self::start(fixture, name, &kubeconfig, Some(proxy)).await
    }

    async fn plain(fixture: &Fixture, name: &str) -> Self {
        let identity = fixture.identity(name, MIGHTY).await;
        Self::start(fixture, name, identity.kubeconfig(), None).await
    }

    fn has_seen(&self, touch: &str) -> bool {
        self.log().lines().any(|line| line == format!("saw {touch}"))
    }

    /// Whether it stands back for an equal, by its own last words about that (kopf's `peering.py`).
    fn is_paused(&self) -> bool {
        let (log, pauses) = (self.log(), "Possibly conflicting operators");
        let about = log.lines().rfind(|line| line.contains(pauses) || line.contains("Resuming operations"));
        about.is_some_and(|line| line.contains(pauses))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap()
    }
}

fn log(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.folder.path().join(format!("{name}-kopf.log"))
}

/// What every operator that works sees, and the peering.
struct Touched {
    accounts: Api<ServiceAccount>,
    peerings: Api<DynamicObject>,
    times: usize,
}

impl Touched {
    async fn touch(&mut self) -> String {
        self.times += 1;
        let touch = self.times.to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": touch}}}));
        self.accounts.patch(MIGHTY, &PatchParams::default(), &patch).await.unwrap();
        touch
    }

    /// Touches it, and waits until these see that.
    async fn until_seen_by(&mut self, operators: &[&Operator]) {
        let touch = self.touch().await;
        until(&format!("all see touch {touch}"), operators, |operator| operator.has_seen(&touch)).await;
    }

    /// Waits until all pause, as one has come that has no sidecar; sees that none works while that one says twice that it is
    /// there.
    async fn until_all_pause(&mut self, operators: &[&Operator], plain: &str) {
        self.until_there(plain, "").await;
        until("all pause", operators, Operator::is_paused).await;
        let touch = self.touch().await;
        let mut said = String::new();
        for _ in 0..3 {
            said = self.until_there(plain, &said).await;
        }
        assert!(!operators.iter().any(|operator| operator.has_seen(&touch)), "an operator works beside another");
    }

    /// Waits until an operator has said that it is there, and not when this says; returns when.
    async fn until_there(&self, operator: &str, before: &str) -> String {
        let there = eventually("it is among the peers", DEADLINE, || async {
            let peering = self.peerings.get(PEERING).await.map_err(|error| error.to_string())?;
            let peers = &peering.data["status"];
            let said = peers[operator]["lastseen"].as_str().filter(|said| *said != before);
            said.map(str::to_owned).ok_or_else(|| peers.to_string())
        });
        there.await.unwrap()
    }
}

async fn until(what: &str, operators: &[&Operator], is: impl Fn(&Operator) -> bool) {
    let all = eventually(what, DEADLINE, || async {
        for Operator { name, process, .. } in operators {
            process.check_running().map_err(|error| format!("{name}: {error}\n{}", process.log_tail()))?;
        }
        let others: Vec<_> = operators.iter().filter(|operator| !is(operator)).map(|one| &one.name).collect();
        if others.is_empty() { Ok(()) } else { Err(format!("not {others:?}")) }
    });
    all.await.unwrap_or_else(|error| panic!("{error}"));
}

/// kopf keeps what it knew over a list. So after a gap, in which objects could move without a word to it, its proxy says that it is
/// to be restarted, until a process asks that began after it.
async fn restarted_after_a_gap(fixture: &Fixture, operator: Operator, touched: &mut Touched) -> Operator {
    let leases = Api::namespaced(fixture.control_plane.client(), NAMESPACE);
    let Operator { name, process, proxy } = operator;
    let proxy = proxy.unwrap();
    proxy.controller_may_go_on().await.unwrap();
    hold(&leases, &name, "somebody-else").await;
    let told = eventually("it is told to restart", DEADLINE, || async {
        proxy.controller_may_go_on().await.err().ok_or_else(|| "it may go on".to_owned())
    });
    let why = told.await.unwrap().to_string();
    assert!(why.contains("ran through a gap"), "{why}");
    hold(&leases, &name, "").await;
    proxy.until_ready().await.unwrap();
    let operator = Operator { name: name.clone(), process, proxy: None };
    touched.until_seen_by(&[&operator]).await;
    assert!(proxy.controller_may_go_on().await.is_err(), "that it is connected again proves nothing");
    drop(operator);
    let kubeconfig = proxy.kubeconfig();
    let operator = Operator::start(fixture, &name, &kubeconfig, Some(proxy)).await;
    touched.until_seen_by(&[&operator]).await;
    operator.proxy.as_ref().unwrap().controller_may_go_on().await.unwrap();
    operator
}

/// The definition, and a peering.
async fn set_up(client: &Client) -> Api<DynamicObject> {
    manifests::apply(client, &manifests::parse(DEFINITION).unwrap()).await.unwrap();
    manifests::served(client, "kopfpeerings.kopf.dev").await.unwrap();
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("kopf.dev", "v1", "KopfPeering"), "kopfpeerings");
    let peerings: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    peerings.create(&PostParams::default(), &DynamicObject::new(PEERING, &kind)).await.unwrap();
    peerings
}

/// All shards work, and the API server hears nothing of what they say to each other. One without the sidecar and the shards pause
/// for each other, as kopf has it, and the one that is left goes on.
pub(crate) async fn kopf(fixture: &Fixture) {
    let client = fixture.control_plane.client();
    let peerings = set_up(&client).await;
    let mut touched = Touched { accounts: Api::namespaced(client, NAMESPACE), peerings, times: 0 };

    let [first, second] = [Operator::in_shard(fixture, "kopf-0").await, Operator::in_shard(fixture, "kopf-1").await];
    touched.until_seen_by(&[&first, &second]).await;
    let mut said = String::new();
    for _ in 0..3 {
        said = touched.until_there("ringside-websites", &said).await;
    }
    touched.until_seen_by(&[&first, &second]).await;
    let real = touched.peerings.get(PEERING).await.unwrap();
    let peers: Vec<_> = real.data["status"].as_object().unwrap().keys().collect();
    assert_eq!(peers, ["ringside-websites"]);
    let mut asked = Requests::of(fixture.control_plane.audit_log(), USER).since().unwrap();
    asked.retain(|one| one.name == PEERING && one.verb != "watch" && !one.agent.starts_with("ringside-proxy/"));
    assert_eq!(asked, [], "an operator's own words reached the API server");

    let plain = Operator::plain(fixture, "kopf-plain").await;
    touched.until_all_pause(&[&first, &second, &plain], "kopf-plain").await;
    drop(plain);
    touched.until_seen_by(&[&first, &second]).await;
    let first = restarted_after_a_gap(fixture, first, &mut touched).await;

    let plain = Operator::plain(fixture, "kopf-back").await;
    touched.until_all_pause(&[&first, &second, &plain], "kopf-back").await;
    drop((first, second));
    touched.until_seen_by(&[&plain]).await;
}
