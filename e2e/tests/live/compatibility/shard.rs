//! A proxy, the relay between it and the API server, and the way past both.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::Command, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use ringside_e2e::{
    compatibility::own_requests,
    control_plane::ControlPlane,
    eventually::eventually,
    ports::free_port,
    process::Process,
    relay::{Offer, Relay},
    shard_identity::ShardIdentity,
    toolchain::{self, Environment},
};
use ringside_ring::{RingName, ShardName, labels::RingLabels};
use ringside_runtime::{admin::Probe, probe};
use serde_json::Value;

use super::{
    client::{Ask, Endpoint, Http},
    fixture::{DEADLINE, NAMESPACE},
};

/// The mark of what is asked before the first case.
pub(crate) const WARM_UP: &str = "warm-up";

/// See the module.
pub(crate) struct Shard {
    /// Through the proxy.
    pub(crate) proxied: Endpoint,
    /// As the same Pod, straight to the API server.
    pub(crate) direct: Endpoint,
    /// As the same Pod, to the relay: for answers by script.
    pub(crate) scripted: Endpoint,
    pub(crate) relay: Relay,
    /// What the relay speaks with the proxy.
    pub(crate) upstream: Http,
    pub(crate) process: Process,
    pub(crate) identity: ShardIdentity,
    /// What selects the shard's objects.
    pub(crate) selector: String,
    /// How their names begin.
    pub(crate) owns: &'static str,
    labels: RingLabels,
    admin: SocketAddr,
}

/// Which shard.
#[derive(Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) ring: &'a str,
    pub(crate) name: &'a str,
    /// How the names of its objects begin.
    pub(crate) owns: &'static str,
    /// What its relay speaks.
    pub(crate) offer: Offer,
}

impl Shard {
    /// Starts it. The proxy answers by then, but may be no shard yet.
    pub(crate) async fn start(control_plane: &ControlPlane, member: Member<'_>) -> Result<Arc<Self>> {
        let Member { ring, name, owns, offer } = member;
        let dir = control_plane.dir();
        let relay = Relay::start(control_plane, offer).await?;
        let identity = ShardIdentity::create(control_plane, NAMESPACE, "controller", name, dir).await?;
        identity.connect_to(control_plane, &relay.url())?;
        let kubeconfig: Value = serde_json::from_slice(&std::fs::read(identity.kubeconfig())?)?;
        let token = kubeconfig["users"][0]["user"]["token"].as_str().context("a token")?.to_owned();

        let access = dir.join(format!("{name}.access"));
        let (address, admin) = (([127, 0, 0, 1], free_port()?).into(), ([127, 0, 0, 1], free_port()?).into());
        let built = tokio::task::spawn_blocking(|| toolchain::ringside(&Environment::of_process()));
        let mut command = Command::new(built.await??.proxy);
        command.args(["--ring", ring, "--kubeconfig"]).arg(identity.kubeconfig()).arg("--access-dir").arg(&access);
        command.args(["--listen", &format!("{address}"), "--admin-listen", &format!("{admin}")]);
        // What is compared is everything that passes; what is hidden is no part of it.
        command.arg("--show-labels");
        let process = Process::spawn(name, &command, &dir.join(format!("{name}.log")))?;
        let proxied = eventually("the proxy answers", DEADLINE, || async {
            process.check_running().map_err(|error| error.to_string())?;
            reached(&access, address).await.map_err(|error| format!("{error:#}"))
        });

        let ca = control_plane.ca_path();
        let (ring, shard): (RingName, ShardName) = (ring.parse()?, name.parse()?);
        let labels = RingLabels::of(&ring);
        Ok(Arc::new(Self {
            proxied: proxied.await?,
            direct: Endpoint::new(control_plane.address(), &ca, &token)?,
            scripted: Endpoint::new(relay.address(), &ca, &token)?,
            relay,
            upstream: if offer == Offer::Http1 { Http::One } else { Http::Two },
            process,
            identity,
            selector: labels.owned_by(&shard),
            owns,
            labels,
            admin,
        }))
    }

    /// Returns when it is a shard, and each of these collections was listed once, which is when the proxy looks how old a
    /// watch may be.
    pub(crate) async fn serves(&self, collections: &[&str]) -> Result<()> {
        for collection in collections {
            let ask = Ask::get(format!("{collection}?limit=1"));
            eventually("the proxy is a shard", DEADLINE, || async {
                self.process.check_running().map_err(|error| error.to_string())?;
                let listed = self.proxied.exchange(Http::Two, &ask, WARM_UP).await;
                let answer = listed.map_err(|error| format!("{error:#}"))?;
                if answer.status == StatusCode::OK { Ok(()) } else { Err(answer.text()) }
            })
            .await?;
        }
        // Asked as the client, and with its headers.
        let before = self.relay.take(WARM_UP).into_iter().filter(|it| !it.target.contains("labelSelector"));
        for question in before.filter(|it| it.target.contains("limit=")) {
            own_requests::note([(question.method.as_str(), question.target.as_str())])?;
        }
        Ok(())
    }

    /// Returns when it follows what is drained, too.
    pub(crate) async fn until_ready(&self) -> Result<()> {
        let ready = eventually("the proxy is ready", DEADLINE, || async {
            probe::ask(self.admin, Probe::Ready, DEADLINE).await.map_err(|error| error.to_string())
        });
        Ok(ready.await?)
    }

    /// Notes what the proxy asked of itself so far; all of it must be on the list.
    pub(crate) fn note_own_requests(&self) -> Result<()> {
        own_requests::note(self.relay.unmarked().iter().map(|(method, target)| (method.as_str(), target.as_str())))
    }

    /// Labels of an object that belongs to it.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(self.labels.shard.clone(), self.identity.pod().to_owned())])
    }
}

/// The proxy, once it lets in who has its token.
async fn reached(access: &Path, address: SocketAddr) -> Result<Endpoint> {
    let token = std::fs::read_to_string(access.join("token"))?;
    let endpoint = Endpoint::new(address, &access.join("ca.crt"), &token)?;
    let answer = endpoint.exchange(Http::Two, &Ask::get("/version"), WARM_UP).await?;
    ensure!(answer.status == StatusCode::OK, "{}", answer.text());
    Ok(endpoint)
}
