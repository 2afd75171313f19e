//! Which resources the ring shards, learned from its `ClusterRing` and kept up to date.

use std::{collections::BTreeSet, convert::Infallible, pin::pin, sync::Arc};

use futures::StreamExt;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use ringside_ring::{ClusterRing, RingName, cluster_ring::GroupResource};
use ringside_runtime::{admin::Check, shutdown::Shutdown};
use tokio::sync::watch;

use ringside_runtime::explain::causes;

/// The ring's resources, as one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Every resource whose objects are distributed, the controlled ones included.
    pub resources: BTreeSet<GroupResource>,
    /// Those that the sharder drains; the objects that they control follow them.
    pub main: BTreeSet<GroupResource>,
}

impl Policy {
    /// What a ring says.
    pub fn of(ring: &ClusterRing) -> Self {
        let main = ring.spec.resources.iter().map(ringside_ring::cluster_ring::RingResource::group_resource).collect();
        Self { resources: ring.spec.all_resources(), main }
    }
}

/// What is known about the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing, and why: no request for a resource can be answered.
    Unknown(String),
    /// The ring as last seen.
    Known(Arc<Policy>),
}

impl Knowledge {
    /// Whether a resource is known to be the ring's.
    pub fn shards(&self, resource: &GroupResource) -> bool {
        matches!(self, Self::Known(policy) if policy.resources.contains(resource))
    }
}

/// The one who knows; others [`watch::Sender::subscribe`].
pub fn channel() -> watch::Sender<Knowledge> {
    watch::Sender::new(Knowledge::Unknown("the ClusterRing has not been read yet".to_owned()))
}

/// Follows the ring until the shutdown.
pub async fn follow(
    client: Client,
    ring: RingName,
    knowledge: watch::Sender<Knowledge>,
    check: Check,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    let only_this = watcher::Config::default().fields(&format!("metadata.name={ring}"));
    let mut events = pin!(watcher(Api::<ClusterRing>::all(client), only_this).default_backoff());
    let mut follower = Follower { ring, knowledge, check, listed: false };
    loop {
        tokio::select! {
            () = shutdown.wait() => return Ok(()),
            Some(event) = events.next() => follower.take(event),
        }
    }
}

struct Follower {
    ring: RingName,
    knowledge: watch::Sender<Knowledge>,
    check: Check,
    /// Whether the list that is under way has named the ring.
    listed: bool,
}

impl Follower {
    fn take(&mut self, event: watcher::Result<watcher::Event<ClusterRing>>) {
        match event {
            Ok(watcher::Event::Init) => self.listed = false,
            Ok(watcher::Event::InitApply(ring) | watcher::Event::Apply(ring)) => {
                self.listed = true;
                self.learn(Policy::of(&ring));
            }
            Ok(watcher::Event::InitDone) if self.listed => {}
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => self
                .forget(format!("there is no ClusterRing '{}': create it, or name another one with --ring", self.ring)),
            Err(error) => self.fail(&error),
        }
    }

    fn learn(&mut self, policy: Policy) {
        let resources: Vec<_> = policy.resources.iter().map(ToString::to_string).collect();
        let new = Knowledge::Known(Arc::new(policy));
        if self.knowledge.send_if_modified(|known| std::mem::replace(known, new.clone()) != new) {
            tracing::info!(ring = %self.ring, ?resources, "the ring's resources");
        }
        self.check.pass();
    }

    fn forget(&mut self, reason: String) {
        let new = Knowledge::Unknown(reason.clone());
        if self.knowledge.send_if_modified(|known| std::mem::replace(known, new.clone()) != new) {
            tracing::warn!(ring = %self.ring, reason, "no request for a resource is answered until this is mended");
        }
        self.check.fail(reason);
    }

    /// What was known stays valid while the API server is away: nobody can change the ring meanwhile.
    fn fail(&mut self, error: &watcher::Error) {
        let reason = explain(&self.ring, error);
        if matches!(*self.knowledge.borrow(), Knowledge::Known(_)) {
            tracing::warn!(ring = %self.ring, reason, "can't follow the ClusterRing; going on with what it last said");
        } else {
            self.forget(reason);
        }
    }
}

/// The remedy for an error, where there is one.
fn explain(ring: &RingName, error: &watcher::Error) -> String {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        WatchError(status) => Some(status.code),
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    };
    let error = causes(error);
    match code {
        Some(401) => {
            format!("can't read ClusterRing '{ring}': the API server does not accept this proxy's credentials: {error}")
        }
        Some(403) => format!(
            "may not read ClusterRing '{ring}': allow the pod's service account to get, list and watch clusterrings.sharding.timebertt.dev: {error}"
        ),
        Some(404) => format!(
            "can't read ClusterRing '{ring}': the API server does not know the resource; install its CustomResourceDefinition: {error}"
        ),
        _ => format!("can't read ClusterRing '{ring}' yet: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_ring::cluster_ring::{ClusterRingSpec, RingResource};
    use ringside_runtime::admin::{Health, Probe};

    use super::*;

    fn ring(resource: &str) -> ClusterRing {
        let resource = RingResource { resource: resource.into(), ..RingResource::default() };
        ClusterRing::new("example", ClusterRingSpec { resources: vec![resource], ..ClusterRingSpec::default() })
    }

    fn follower() -> (Follower, Health, watch::Receiver<Knowledge>) {
        let (health, knowledge) = (Health::new(), channel());
        let receiver = knowledge.subscribe();
        let check = health.check("ring", Probe::Ready);
        (Follower { ring: "example".parse().unwrap(), knowledge, check, listed: false }, health, receiver)
    }

    fn forbidden() -> watcher::Error {
        let status = kube::core::Status::failure("no", "Forbidden").with_code(403);
        watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn an_unknown_ring_is_named_and_heals_when_it_comes() {
        let (mut follower, health, knowledge) = follower();
        follower.take(Ok(watcher::Event::Init));
        follower.take(Ok(watcher::Event::InitDone));
        assert!(health.failures(Probe::Ready)[0].contains("there is no ClusterRing 'example'"));
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        assert!(health.failures(Probe::Ready).is_empty());
        let things = GroupResource { group: String::new(), resource: "things".into() };
        assert!(knowledge.borrow().shards(&things));
        follower.take(Ok(watcher::Event::Delete(ring("things"))));
        assert!(!knowledge.borrow().shards(&things));
        assert_eq!(health.failures(Probe::Ready).len(), 1);
    }

    #[test]
    fn a_missing_permission_is_explained_and_an_absent_api_server_changes_nothing_that_is_known() {
        let (mut follower, health, knowledge) = follower();
        follower.take(Err(forbidden()));
        let failure = health.failures(Probe::Ready).remove(0);
        assert!(
            failure.contains("may not read ClusterRing 'example'") && failure.contains("service account"),
            "{failure}"
        );
        follower.take(Ok(watcher::Event::Apply(ring("things"))));
        follower.take(Err(forbidden()));
        assert!(matches!(*knowledge.borrow(), Knowledge::Known(_)));
        assert!(health.failures(Probe::Ready).is_empty());
    }
}
