//! A control plane with the `Website` resource, all permissions, and sharders: one system's own, or shared by several.

use std::{path::Path, process::Command, sync::Arc};

use anyhow::Context as _;
use ringside_ring::{Ring, RingName};

use super::{Return, Settings, Sharder, SystemError, install, published, sharder, until_ready};
use crate::{
    control_plane::ControlPlane,
    manifests,
    ports::free_port,
    process::{Folder, Process},
    relay::Relay,
    toolchain::{self, RingsidePrograms, built},
};

const OTHER_SHARDER: &str = "other-sharder";

/// Its account: another one than ours, which the guard of our sharder holds to what ours writes. What it may do is not tried.
const OTHER_ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: other-sharder, namespace: ringside-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: other-sharder}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: other-sharder, namespace: ringside-system}]
";

/// A running plane.
pub struct Plane {
    // Dropped in this order: the control plane after all that use it.
    pub(super) sharders: Vec<Sharder>,
    /// A name is not used again: it would be another replica's.
    sharders_begun: usize,
    /// A sharder that is not ours.
    pub(super) other_sharder: Option<Process>,
    pub(super) settings: Settings,
    pub(super) control_plane: ControlPlane,
    pub(super) ringside: RingsidePrograms,
    pub(super) folder: Folder,
}

/// Where a system is on its plane: its ring, and the namespace of its objects and shards.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) ring: RingName,
    pub(super) namespace: String,
    /// Whether others are beside it, so that it looks at its own namespace alone.
    pub(super) is_shared: bool,
}

impl Plane {
    /// Builds what is missing, and starts a plane without sharders.
    pub(super) async fn start(settings: Settings) -> Result<Self, SystemError> {
        let ringside = built(toolchain::ringside).await?;
        let control_plane = ControlPlane::start(install::options(&settings)).await?;
        install::resources_and_roles(&control_plane.client()).await?;
        published::define(&control_plane.client(), settings.operator).await?;
        if settings.controller_rings {
            install::controller_rings(&control_plane.client()).await?;
        }
        let folder = Folder::create("plane").context("create a folder")?;
        let (sharders, other_sharder) = (Vec::new(), None);
        Ok(Self { sharders, sharders_begun: 0, other_sharder, settings, control_plane, ringside, folder })
    }

    /// Starts a plane with so many sharders, for [`System::on`](super::System::on).
    pub async fn with_sharders(settings: Settings, sharders: usize) -> Result<Arc<Self>, SystemError> {
        let mut plane = Self::start(settings).await?;
        plane.start_sharders(sharders).await?;
        Ok(Arc::new(plane))
    }

    /// The control plane that all of it runs on.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The folder with the logs of the sharders.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Starts sharder replicas until there are so many, and waits until they are ready.
    pub(super) async fn start_sharders(&mut self, replicas: usize) -> Result<(), SystemError> {
        while self.sharders.len() < replicas {
            self.start_sharder(None).await?;
        }
        for sharder in &self.sharders {
            until_ready(sharder.process(), sharder.admin_port()).await?;
        }
        Ok(())
    }

    /// Starts one more, which reaches the API server by the relay, if there is one.
    pub(super) async fn start_sharder(&mut self, relay: Option<&Relay>) -> Result<(), SystemError> {
        let sharder = Sharder::start(self, self.sharders_begun, relay).await?;
        self.sharders_begun += 1;
        self.sharders.push(sharder);
        Ok(())
    }

    /// Starts a sharder that is not ours, a small one after the thesis, for one ring.
    pub(super) async fn start_other_sharder(&mut self, program: &Path, ring: &str) -> Result<(), SystemError> {
        manifests::apply(&self.control_plane.client(), &manifests::parse(OTHER_ACCOUNT)?).await?;
        let identity = sharder::identity(self, OTHER_SHARDER, OTHER_SHARDER).await?;
        let webhook_port = free_port().context("find a free port")?;
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", identity.kubeconfig())
            .args(["--clusterring", ring])
            .args(["--webhook-listen", &format!("127.0.0.1:{webhook_port}")]);
        let log = self.dir().join(format!("{OTHER_SHARDER}.log"));
        self.other_sharder = Some(Process::spawn(OTHER_SHARDER, &command, &log)?);
        Ok(())
    }

    /// Gives the sharder, and the proxies of the example's account in these namespaces, what they need for a ring.
    pub async fn allow(&self, ring: &(impl Clone + Into<Ring>), namespaces: &[&str]) -> Result<(), SystemError> {
        let ring: Ring = ring.clone().into();
        let name = ring.name().unwrap_or_else(|fault| panic!("{fault}"));
        install::rights(&self.control_plane.client(), &name, &ring.spec, namespaces).await
    }

    /// Starts replicas again that were killed, all at once.
    pub(super) async fn return_sharders(&mut self, pods: Return) -> Result<(), SystemError> {
        let killed = std::mem::take(&mut self.sharders);
        for sharder in killed {
            let sharder = sharder.again(self, pods).await?;
            self.sharders.push(sharder);
        }
        Ok(())
    }

    /// Fails when a part has ended that should run.
    pub(super) fn check(&self) -> Result<(), SystemError> {
        let sharders = self.sharders.iter().map(Sharder::process);
        Ok(sharders.chain(&self.other_sharder).try_for_each(Process::check_running)?)
    }
}
