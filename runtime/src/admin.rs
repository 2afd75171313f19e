//! The admin server: `/livez`, `/readyz`, `/metrics`, and beside a controller `/startedz` and `/controllerz`.

use std::{collections::BTreeMap, io, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{net::TcpListener, sync::watch};

use crate::shutdown::Shutdown;

/// Which probe a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/livez`: when it fails, the process should be restarted.
    Live,
    /// `/readyz`: when it fails, the process can't do its work at the moment. A failing live check fails it too.
    Ready,
    /// `/startedz`, where there is a check of it: passes for good once each of its checks has passed, as a startupProbe
    /// asks no longer then. Such a check is one of readiness too.
    Started,
    /// `/controllerz`, where there is a check of it: when it fails, the controller beside the process should be restarted.
    Controller,
}

impl Probe {
    /// Where it is asked for.
    pub fn path(self) -> &'static str {
        match self {
            Self::Live => "/livez",
            Self::Ready => "/readyz",
            Self::Started => "/startedz",
            Self::Controller => "/controllerz",
        }
    }
}

/// How it stands with a check.
#[derive(Clone, Debug)]
struct Checked {
    probe: Probe,
    result: Result<(), String>,
    /// Whether it has ever passed.
    passed: bool,
}

impl Checked {
    fn counts_for(&self, probe: Probe) -> bool {
        match probe {
            Probe::Ready => self.probe != Probe::Controller,
            Probe::Started => self.probe == Probe::Started && !self.passed,
            Probe::Live | Probe::Controller => self.probe == probe,
        }
    }
}

type Checks = BTreeMap<&'static str, Checked>;

/// The checks behind the probes. A check that nobody has passed yet fails.
#[derive(Clone, Debug)]
pub struct Health(Arc<watch::Sender<Checks>>);

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Checks::new())))
    }
}

impl Health {
    /// No checks: live and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check; it fails until its owner says otherwise.
    pub fn check(&self, name: &'static str, probe: Probe) -> Check {
        self.0.send_modify(|checks| {
            checks.insert(name, Checked { probe, result: Err("not there yet".to_owned()), passed: false });
        });
        Check { name, health: self.clone() }
    }

    fn has(&self, probe: Probe) -> bool {
        self.0.borrow().values().any(|state| state.probe == probe)
    }

    /// What fails `probe`, as `name: reason`; empty when it passes.
    pub fn failures(&self, probe: Probe) -> Vec<String> {
        let fails = |(name, state): (&&str, &Checked)| {
            let reason = state.result.as_ref().err()?;
            state.counts_for(probe).then(|| format!("{name}: {reason}"))
        };
        self.0.borrow().iter().filter_map(fails).collect()
    }
}

/// One check, in the hands of the part that knows.
#[derive(Clone, Debug)]
pub struct Check {
    name: &'static str,
    health: Health,
}

impl Check {
    /// It is as it should be.
    pub fn pass(&self) {
        self.set(Ok(()));
    }

    /// It is not, and why.
    pub fn fail(&self, reason: impl Into<String>) {
        self.set(Err(reason.into()));
    }

    fn set(&self, result: Result<(), String>) {
        self.health.0.send_modify(|checks| {
            if let Some(state) = checks.get_mut(self.name) {
                state.passed |= result.is_ok();
                state.result = result;
            }
        });
    }
}

#[derive(Clone)]
struct Admin {
    health: Health,
    registry: Arc<Registry>,
}

/// The routes, for a server of one's own or a test.
pub fn router(health: Health, registry: Arc<Registry>) -> Router {
    let mut probes = vec![Probe::Live, Probe::Ready];
    probes.extend([Probe::Started, Probe::Controller].into_iter().filter(|probe| health.has(*probe)));
    let router = probes.into_iter().fold(Router::new(), |router, of| {
        router.route(of.path(), get(move |State(admin): State<Admin>| async move { probe(&admin.health, of) }))
    });
    router
        .route("/metrics", get(|State(admin): State<Admin>| async move { metrics(&admin.registry) }))
        .with_state(Admin { health, registry })
}

/// Serves the routes until the shutdown.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    registry: Arc<Registry>,
    shutdown: Shutdown,
) -> io::Result<()> {
    axum::serve(listener, router(health, registry)).with_graceful_shutdown(async move { shutdown.wait().await }).await
}

fn probe(health: &Health, probe: Probe) -> Response {
    let failures = health.failures(probe);
    if failures.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, failures.join("\n") + "\n").into_response()
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_until_it_passes_and_liveness_is_part_of_readiness() {
        let health = Health::new();
        assert!(health.failures(Probe::Ready).is_empty());
        let lease = health.check("lease", Probe::Ready);
        assert_eq!(health.failures(Probe::Ready), ["lease: not there yet"]);
        assert!(health.failures(Probe::Live).is_empty());
        lease.pass();
        assert!(health.failures(Probe::Ready).is_empty());
        health.check("gap", Probe::Live).fail("the controller must restart");
        assert_eq!(health.failures(Probe::Ready), ["gap: the controller must restart"]);
        assert_eq!(health.failures(Probe::Live), health.failures(Probe::Ready));
    }

    #[test]
    fn what_has_started_stays_started_and_is_ready_only_while_all_checks_pass() {
        let health = Health::new();
        let (lease, drains) = (health.check("lease", Probe::Started), health.check("drains", Probe::Ready));
        assert_eq!(health.failures(Probe::Started), ["lease: not there yet"]);
        drains.fail("its watch has not begun yet");
        lease.pass();
        assert_eq!(health.failures(Probe::Started), [""; 0], "readiness is no part of it");
        lease.fail("lost");
        assert_eq!(health.failures(Probe::Started), [""; 0]);
        assert_eq!(health.failures(Probe::Ready), ["drains: its watch has not begun yet", "lease: lost"]);
    }
}
