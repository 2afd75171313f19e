//! The versions in which a resource is served, and the one in which it is asked for.
//!
//! A version is a way to ask: objects have the same uid and resourceVersion in each. So another one changes no decision, and ends
//! no index. One that works is kept for as long as it is served: a new one may have a conversion webhook that does not answer.

use std::collections::BTreeMap;

use arc_swap::ArcSwap;
use kube::discovery::ApiResource;

use crate::lock::Mutex;

/// Looks in a row that fail until people are told: a webhook that restarts is not down.
const FAILURES: usize = 2;

struct State {
    served: Vec<ApiResource>,
    /// Which of them is asked for.
    used: usize,
}

/// The versions of one resource.
pub(super) struct Versions {
    state: ArcSwap<State>,
    /// Those that could not be listed at the last look, how often in a row, and why.
    failing: Mutex<BTreeMap<String, (usize, String)>>,
}

impl Versions {
    /// The first is asked for.
    pub(super) fn new(served: Vec<ApiResource>) -> Self {
        Self { state: ArcSwap::from_pointee(State { served, used: 0 }), failing: Mutex::default() }
    }

    /// The version that is asked for.
    pub(super) fn used(&self) -> ApiResource {
        let state = self.state.load();
        state.served[state.used].clone()
    }

    /// The other versions.
    pub(super) fn others(&self) -> Vec<ApiResource> {
        let state = self.state.load();
        let others = state.served.iter().enumerate().filter(|(at, _)| *at != state.used);
        others.map(|(_, api)| api.clone()).collect()
    }

    /// These are served from now on. The one that is asked for stays so while it is among them.
    pub(super) fn serve(&self, served: &[ApiResource]) {
        self.state.rcu(|state| {
            let used = served.iter().position(|api| *api == state.served[state.used]).unwrap_or_default();
            State { served: served.to_vec(), used }
        });
        self.failing.lock().retain(|version, _| served.iter().any(|api| api.version == *version));
    }

    /// Another version is asked for, if this one was until now.
    pub(super) fn leave(&self, version: &str) {
        self.state.rcu(|state| {
            let is_used = state.served[state.used].version == version;
            let used = if is_used { (state.used + 1) % state.served.len() } else { state.used };
            State { served: state.served.clone(), used }
        });
    }

    /// These could not be listed, and why; returns whether that is to be told, or no more.
    pub(super) fn tried(&self, failed: BTreeMap<String, String>) -> bool {
        let before = self.faults();
        {
            let failing = &mut *self.failing.lock();
            let again = |version: &str| failing.get(version).map_or(1, |(times, _)| times + 1);
            *failing = failed.into_iter().map(|(version, why)| (version.clone(), (again(&version), why))).collect();
        }
        before.keys().ne(self.faults().keys())
    }

    /// Whether any failed at the last look.
    pub(super) fn are_failing(&self) -> bool {
        !self.failing.lock().is_empty()
    }

    /// The versions that can't be listed, and why.
    pub(super) fn faults(&self) -> BTreeMap<String, String> {
        let failing = self.failing.lock();
        let lasting = failing.iter().filter(|(_, (times, _))| *times >= FAILURES);
        lasting.map(|(version, (_, why))| (version.clone(), why.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(version: &str) -> ApiResource {
        let (kind, plural) = ("Thing".to_owned(), "things".to_owned());
        let (group, version) = ("x.io".to_owned(), version.to_owned());
        ApiResource { api_version: format!("{group}/{version}"), group, version, kind, plural }
    }

    #[test]
    fn used_version_stays_while_it_is_served_and_works() {
        let versions = Versions::new(vec![api("v1")]);
        versions.leave("v1");
        assert_eq!(versions.used().version, "v1", "there is no other");
        versions.serve(&[api("v2"), api("v1")]);
        assert_eq!((versions.used().version, versions.others()), ("v1".to_owned(), vec![api("v2")]));
        versions.leave("v1");
        versions.leave("v1");
        assert_eq!(versions.used().version, "v2", "what was asked for before it was left counts once");
        versions.leave("v2");
        assert_eq!(versions.used().version, "v1");
        versions.serve(&[api("v2")]);
        assert_eq!((versions.used().version, versions.others()), ("v2".to_owned(), vec![]));
    }

    #[test]
    fn version_that_fails_twice_is_told_until_it_works() {
        let versions = Versions::new(vec![api("v1"), api("v2")]);
        let failed = || BTreeMap::from([("v2".to_owned(), "no answer".to_owned())]);
        assert!(!versions.tried(failed()) && versions.are_failing());
        assert!(versions.tried(failed()));
        assert_eq!(versions.faults(), failed());
        assert!(!versions.tried(failed()));
        assert!(versions.tried(BTreeMap::new()) && !versions.are_failing());
    }
}
