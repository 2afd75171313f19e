//! A whole system: control plane, sharder replicas, and shards of which each is a proxy with an unmodified operator
//! behind it.

mod children;
mod install;
mod kubelet;
mod monitor;
mod operator;
mod plane;
mod probe;
mod published;
mod replicas;
mod shard;
mod sharder;
mod shards;
mod until;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use ringside_ring::{
    Ring, RingKind, RingLabels, RingName,
    cluster_ring::{Fence, GroupResource},
};
use tokio_util::task::AbortOnDropHandle;

pub use self::{
    kubelet::Ended,
    monitor::Monitor,
    plane::Plane,
    probe::metrics,
    shard::Shard,
    sharder::{Return, Sharder},
};
use self::{operator::Lone, plane::Place, published::Subject};
pub(crate) use self::{operator::OPERATOR, probe::until_ready};
use crate::{
    audit,
    checker::{
        Report, Verdict, Writes,
        outside::{self, Outside},
    },
    collector::Collector,
    control_plane::ControlPlane,
    eventually::TimedOut,
    live::Ability,
    observer,
    process::{Folder, ProcessError, keep_logs},
    shard_identity::ShardIdentity,
    toolchain::{self, Operator, built},
    wall_clock::WallClock,
};

/// Where the shards' Pods are, as in the example manifests.
pub const NAMESPACE: &str = "default";

/// The ring of the example manifests, which is that of a system alone on its plane.
pub const RING: &str = "websites";

/// What the API server calls the sharder.
pub const SHARDER_USER: &str = "system:serviceaccount:ringside-system:ringside-sharder";

/// The operator's ServiceAccount in the example manifests.
const SERVICE_ACCOUNT: &str = "website-controller";

/// A system does not run as it should.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// What it is made of failed.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
    /// A process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A part does not get ready; the end of its log says more.
    #[error("{source}; the end of the log of {name}:\n{tail}")]
    NotReady {
        /// The process.
        name: String,
        /// What was waited for.
        source: TimedOut,
        /// The end of its log.
        tail: String,
    },
    /// What was waited for did not come about.
    #[error(transparent)]
    TimedOut(#[from] TimedOut),
}

/// How the parts are configured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The duration of the shard Leases.
    pub lease_duration: Duration,
    /// How long a controller must have been silent about an object before it is handed over.
    pub drain_grace: Duration,
    /// How often the sharder scans all objects.
    pub sync_period: Duration,
    /// How many objects an operator works on at once.
    pub concurrency: usize,
    /// How long an operator tries to renew its leader's Lease before it gives up.
    pub renew_deadline: Duration,
    /// Whether operators make chains of three: the Secret belongs to the ConfigMap, and only that to the Website. That in Go does.
    pub chain: bool,
    /// What shards run, where it is not said for one of them.
    pub operator: Operator,
    /// Whether the children are resources of the ring.
    pub children_in_ring: bool,
    /// The kind of the ring.
    pub kind: RingKind,
    /// Whether sharders serve ControllerRings beside ClusterRings.
    pub controller_rings: bool,
    /// Who keeps a shard from writing to objects that are not its own.
    pub fence: Fence,
    /// The log filter of proxies and sharders.
    pub log_filter: String,
    /// How the operators of shards find their proxy; in a container none but that in Go.
    pub way_in: WayIn,
    /// Whether the API server reaches the sharder's webhook. If not, it is told an address where nothing listens.
    pub webhook: bool,
    /// How long the webhook's certificates are valid, where it is not as usual.
    pub certificate_lifetime: Option<Duration>,
    /// The webhook's certificate, where another program keeps it, and the sharder makes none.
    pub kept_certificate: Option<KeptCertificate>,
    /// Whether shards reach the API server, it etcd, and it the webhook, by lines that can be slow, or broken.
    pub lines: bool,
    /// Whether the API server writes down every request, instead of what comes of writes.
    pub audit_requests: bool,
    /// Whether the controller manager runs, which collects what has no owner any more.
    pub controller_manager: bool,
    /// More flags for the API server.
    pub api_server_flags: Vec<String>,
    /// Whether the sharder adds the proxy to pods that ask for it.
    pub injector: bool,
    /// The wall clock of sharders, where it is not the machine's.
    pub sharder_clock: Option<WallClock>,
}

/// What cert-manager keeps for the sharder.
#[derive(Clone, Debug)]
pub struct KeptCertificate {
    /// The folder with `tls.crt` and `tls.key`, as the kubelet shows the Secret.
    pub folder: PathBuf,
    /// The Certificate, as `NAMESPACE/NAME`.
    pub name: String,
}

/// How a client finds its API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayIn {
    /// A kubeconfig, named in the environment.
    Kubeconfig,
    /// A service account's folder where every container has it, and the address in the environment, and nothing else.
    InCluster,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // Renewed in time on a machine that is four times as slow, too.
            lease_duration: Duration::from_secs(10),
            drain_grace: Duration::from_secs(1),
            // Far more often than the 5 minutes of the contract would only hide what a watch has missed.
            sync_period: Duration::from_secs(300),
            concurrency: 4,
            // What controller-runtime does where no option says otherwise.
            renew_deadline: Duration::from_secs(10),
            chain: false,
            operator: Operator::Go,
            children_in_ring: true,
            kind: RingKind::ClusterRing,
            controller_rings: false,
            fence: Fence::Proxy,
            log_filter: "info".to_owned(),
            way_in: WayIn::Kubeconfig,
            webhook: true,
            certificate_lifetime: None,
            kept_certificate: None,
            lines: false,
            audit_requests: false,
            api_server_flags: Vec::new(),
            controller_manager: false,
            injector: false,
            sharder_clock: None,
        }
    }
}

impl Settings {
    /// The usual ones with Leases so short that a dead shard is given up after 10 s.
    pub fn with_short_leases() -> Self {
        Self { lease_duration: Duration::from_secs(5), ..Self::default() }
    }

    /// The usual ones, on an API server that knows no MutatingAdmissionPolicy, as those before Kubernetes 1.36 by default.
    pub fn without_label_policies() -> Self {
        let resource = |name: &str| format!("admissionregistration.k8s.io/v1/{name}=false");
        let none = [resource("mutatingadmissionpolicies"), resource("mutatingadmissionpolicybindings")];
        let flags = [
            "--feature-gates=MutatingAdmissionPolicy=false".to_owned(),
            format!("--runtime-config={}", none.join(",")),
        ];
        // Older ones don't know the flags.
        let flags = if Ability::LabelPolicies.is_there() { flags.into() } else { Vec::new() };
        Self { api_server_flags: flags, ..Self::default() }
    }
}

fn named(settings: &Settings, ring: &str) -> RingName {
    RingName::new(settings.kind, ring).unwrap_or_else(|fault| panic!("{fault}"))
}

/// What all parts of a system share.
struct Base {
    settings: Settings,
    place: Place,
    collector: Collector,
    monitor: Monitor,
    folder: Folder,
    lives: AtomicUsize,
    plane: Arc<Plane>,
}

impl Base {
    /// What an operator in this Pod calls itself: unique to one life of its process, also when a Pod of the same name
    /// comes back.
    fn instance(&self, pod: &str) -> String {
        format!("{pod}.{}", self.lives.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a Pod of the operator.
    async fn pod(&self, name: &str) -> anyhow::Result<ShardIdentity> {
        let (control_plane, namespace) = (&self.plane.control_plane, &self.place.namespace);
        ShardIdentity::create(control_plane, namespace, SERVICE_ACCOUNT, name, self.folder.path()).await
    }
}

/// A running system.
pub struct System {
    // Dropped in this order: the control plane after all that use it.
    shards: Vec<Shard>,
    /// Operators without a proxy.
    lone: Vec<Lone>,
    watches: Option<AbortOnDropHandle<()>>,
    ring: Option<RingName>,
    base: Base,
}

impl System {
    /// Builds what is missing, starts a control plane, and installs the `Website` resource and all permissions.
    pub async fn start(settings: Settings) -> Result<Self, SystemError> {
        let plane = Arc::new(Plane::start(settings.clone()).await?);
        let place = Place { ring: named(&settings, RING), namespace: NAMESPACE.to_owned(), is_shared: false };
        install::rights_of_ring(&plane.control_plane.client(), &place, settings.operator).await?;
        Self::at(plane, place, settings).await
    }

    /// Starts a system beside others, with a ring and a namespace of this name. Its plane has sharders, and what
    /// `settings` say of the plane counts for nothing.
    ///
    /// What changes the plane panics: a case that does so has a plane of its own.
    pub async fn on(plane: &Arc<Plane>, name: &str, settings: Settings) -> Result<Self, SystemError> {
        install::namespace(&plane.control_plane.client(), name).await?;
        let place = Place { ring: named(&settings, name), namespace: name.to_owned(), is_shared: true };
        install::rights_of_ring(&plane.control_plane.client(), &place, settings.operator).await?;
        Self::at(Arc::clone(plane), place, settings).await
    }

    async fn at(plane: Arc<Plane>, place: Place, settings: Settings) -> Result<Self, SystemError> {
        let folder = Folder::create("system").context("create a folder")?;
        let monitor = Monitor::new();
        let collector = Collector::start(monitor.clone()).await.context("start the collector")?;
        let lives = AtomicUsize::new(1);
        let base = Base { settings, place, collector, monitor, folder, lives, plane };
        Ok(Self { shards: Vec::new(), lone: Vec::new(), watches: None, ring: None, base })
    }

    /// The plane, to change it.
    fn plane_mut(&mut self) -> &mut Plane {
        Arc::get_mut(&mut self.base.plane).expect("a case that changes its plane has one of its own")
    }

    /// What the API server calls its shards.
    pub fn shards_user(&self) -> String {
        format!("system:serviceaccount:{}:{SERVICE_ACCOUNT}", self.namespace())
    }

    /// Gives the sharder, and the proxies of the example's account in these namespaces, what they need for another ring.
    pub async fn allow(&self, ring: &(impl Clone + Into<Ring>), namespaces: &[&str]) -> Result<(), SystemError> {
        self.base.plane.allow(ring, namespaces).await
    }

    /// The namespace of its objects and shards.
    pub fn namespace(&self) -> &str {
        &self.base.place.namespace
    }

    /// The control plane that all of it runs on.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.base.plane.control_plane
    }

    /// Kills the API server and starts it again, beneath all that use it.
    pub async fn restart_api_server(&mut self) -> Result<(), SystemError> {
        self.stop_api_server().await?;
        self.start_api_server().await
    }

    /// Kills the API server.
    pub async fn stop_api_server(&mut self) -> Result<(), SystemError> {
        Ok(self.plane_mut().control_plane.stop_api_server().await?)
    }

    /// It is started with these flags from now on.
    pub fn set_api_server_flags(&mut self, flags: Vec<String>) {
        self.plane_mut().control_plane.set_api_server_flags(flags);
    }

    /// Starts it again, and waits until it is ready.
    pub async fn start_api_server(&mut self) -> Result<(), SystemError> {
        Ok(self.plane_mut().control_plane.start_api_server().await?)
    }

    /// The folder with the logs of its shards.
    pub fn dir(&self) -> &std::path::Path {
        self.base.folder.path()
    }

    /// Copies the logs of all processes, the control plane's too, to a folder that stays.
    pub fn keep_logs(&self) -> std::io::Result<Option<PathBuf>> {
        keep_logs(&[self.dir(), self.base.plane.dir(), self.base.plane.control_plane.dir()])
    }

    /// Starts so many sharder replicas, creates the ring, and waits until a sharder has taken it up.
    pub async fn start_sharding(&mut self, replicas: usize) -> Result<RingName, SystemError> {
        self.start_sharders(replicas).await?;
        self.start_ring().await
    }

    /// The same with a sharder that is not ours, a small one after the thesis.
    pub async fn start_other_sharding(&mut self) -> Result<RingName, SystemError> {
        let program = built(toolchain::other_sharder).await?;
        self.plane_mut().start_other_sharder(&program, RING).await?;
        self.start_ring().await
    }

    /// Creates the ring, and waits until a sharder has taken it up.
    pub async fn start_ring(&mut self) -> Result<RingName, SystemError> {
        let (client, place) = (self.base.plane.control_plane.client(), &self.base.place);
        let ring = install::ring(&client, place, &self.base.settings).await?;
        let subject = Subject::of(self.base.settings.operator);
        // Of a shared plane others are looked at by others, and the audit log is not judged.
        let (namespace, resources) = match place.is_shared {
            true => (Some(&*place.namespace), subject.of_ring(false)),
            false => (None, subject.of_ring(true)),
        };
        self.watches = Some(observer::watch(&client, &ring, &resources, namespace, self.base.monitor.clone()));
        self.ring = Some(ring.clone());
        Ok(ring)
    }

    /// Starts sharder replicas until there are so many, and waits until they are ready.
    pub async fn start_sharders(&mut self, replicas: usize) -> Result<(), SystemError> {
        self.plane_mut().start_sharders(replicas).await
    }

    /// Kills all sharder replicas at once (SIGKILL).
    pub async fn kill_sharders(&mut self) -> Result<(), SystemError> {
        for sharder in &self.plane_mut().sharders {
            sharder.process().end().await?;
        }
        Ok(())
    }

    /// Starts them again, all at once.
    pub async fn return_sharders(&mut self, pods: Return) -> Result<(), SystemError> {
        self.plane_mut().return_sharders(pods).await
    }

    /// Starts an operator that talks to the API server itself: how it was before sharding.
    pub async fn add_unsharded(&mut self, name: &str) -> Result<(), SystemError> {
        let namespace = self.base.place.namespace.clone();
        self.lone.push(Lone::unsharded(&self.base, name, &namespace).await?);
        Ok(())
    }

    /// Ends all operators that talk to the API server themselves.
    pub async fn remove_unsharded(&mut self) -> Result<(), SystemError> {
        for operator in self.lone.extract_if(.., |one| !one.is_shard) {
            operator.stop(&self.base).await?;
        }
        Ok(())
    }

    /// The sharder replicas that run.
    pub fn sharders(&self) -> impl Iterator<Item = &Sharder> {
        self.base.plane.sharders.iter()
    }

    /// What happens in it, to look at while it is worked with.
    pub fn monitor(&self) -> &Monitor {
        &self.base.monitor
    }

    /// The verdict, with what the API server says of the children: forgotten, and apart, is what waited for longer than
    /// `bound`.
    pub async fn report(&self, bound: Duration) -> Result<Report, SystemError> {
        let apart = match &self.ring {
            Some(ring) if self.base.settings.children_in_ring => {
                let client = self.base.plane.control_plane.client();
                let apart = children::apart(&client, &self.base.place.namespace, &RingLabels::of(ring), bound).await;
                apart.context("list owners and children")?
            }
            _ => Vec::new(),
        };
        Ok(Report { apart, ..self.monitor().report(bound) })
    }

    /// The verdict on all writes so far, from what the API server wrote down about them.
    pub async fn judge_writes(&self) -> Result<Verdict, SystemError> {
        let ring = self.ring.clone().context("there is no ring whose writes could be judged")?;
        let (log, seen, user) = (self.control_plane().audit_log(), self.monitor().versions(), self.shards_user());
        let resources = install::of_ring(&self.base.settings);
        let is_of_ring = move |of: &GroupResource| of.resource == "leases" || resources.contains(of);
        let judged = tokio::task::spawn_blocking(move || {
            let mut writes = Writes::new();
            seen.into_iter().filter(|seen| is_of_ring(&seen.resource)).for_each(|seen| writes.seen(seen));
            audit::read(&log, &RingLabels::of(&ring), &user, |write| {
                if is_of_ring(&write.resource) {
                    writes.record(write);
                }
            })?;
            Ok(writes.verdict())
        });
        judged.await.map_err(anyhow::Error::from)?
    }

    /// What was seen of the operators' work outside the ring, where these replicas are no shards: from what the API server wrote
    /// down about writes to its resources and to those beside it.
    pub async fn judge_outside(&self, unsharded: &'static [&'static str]) -> Result<outside::Seen, SystemError> {
        let ring = self.ring.clone().context("there is no ring whose writes could be judged")?;
        let (log, user) = (self.control_plane().audit_log(), self.shards_user());
        let root = install::of_ring(&self.base.settings).swap_remove(0);
        let judged = tokio::task::spawn_blocking(move || {
            let mut outside = Outside::default();
            let is_lease = |resource: &GroupResource| resource.resource == "leases";
            audit::read(&log, &RingLabels::of(&ring), &user, |write| {
                if !is_lease(&write.resource) {
                    outside.record(write, &root);
                }
            })?;
            Ok(outside.verdict(unsharded))
        });
        judged.await.map_err(anyhow::Error::from)?
    }

    /// Fails when a part has ended that should run.
    pub fn check(&self) -> Result<(), SystemError> {
        if self.watches.as_ref().is_some_and(AbortOnDropHandle::is_finished) {
            return Err(anyhow!("the observer has ended").into());
        }
        self.base.plane.check()?;
        self.lone.iter().try_for_each(Lone::check)?;
        self.shards.iter().try_for_each(Shard::check)
    }
}
