//! Carries a schedule out on a running system, and says of each fault what it hit.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Client;
use ringside_ring::{RingLabels, RingName};
use tokio::time::{Instant, sleep};

use super::{
    faults,
    schedule::{Fault, Kind, Planned},
};
use crate::{
    control_plane::{AnotherApiServer, Lag},
    line::Line,
    system::{Ended, System},
    workload::Workload,
};

/// How often is looked at what has ended meanwhile.
const LOOK: Duration = Duration::from_millis(250);

/// What became of a fault.
#[derive(Clone, Debug)]
pub struct Injected {
    /// When it began, since the beginning of the records.
    pub at: Duration,
    /// When it was over.
    pub until: Duration,
    /// The fault.
    pub fault: Fault,
    /// How many it hit: processes, pieces on a line, objects. Or why it could not be carried out.
    pub hit: Result<usize, String>,
}

/// A system to which things happen.
pub(super) struct Run {
    /// With which a shard can be for a while, where that is to happen. It ends before the control plane does.
    pub(super) other_api_server: Option<(AnotherApiServer, Lag)>,
    pub(super) system: System,
    pub(super) ring: RingName,
    pub(super) labels: RingLabels,
    pub(super) client: Client,
    pub(super) workload: Workload,
    /// What has happened.
    pub(super) injected: Vec<Injected>,
    /// Processes that ended by themselves and were started again.
    pub(super) revived: Vec<Ended>,
    under_way: Vec<UnderWay>,
    /// No replica of the sharder is to run just now.
    pub(super) without_sharders: bool,
}

/// A fault that others happen beside.
struct UnderWay {
    /// In what was injected.
    index: usize,
    ends: Instant,
    /// What its line had hindered, or carried, when it began, or how many objects it concerns.
    hindered: usize,
}

impl Run {
    /// A run on this system, under this work.
    pub(super) fn new(
        system: System,
        other_api_server: Option<(AnotherApiServer, Lag)>,
        ring: RingName,
        workload: Workload,
    ) -> Self {
        Self {
            labels: RingLabels::of(&ring),
            client: system.control_plane().client(),
            other_api_server,
            system,
            ring,
            workload,
            injected: Vec::new(),
            revived: Vec::new(),
            under_way: Vec::new(),
            without_sharders: false,
        }
    }

    /// Lets everything happen at its time, or so much later as what was before took longer than planned.
    pub(super) async fn carry_out(&mut self, planned: &[Planned], say: impl Fn(&str)) -> Result<()> {
        let (begun, mut late) = (Instant::now(), Duration::ZERO);
        let end = planned.iter().map(|planned| planned.at + planned.fault.lasts).max().unwrap_or_default();
        for planned in planned {
            let Planned { at, fault } = planned;
            self.pass(begun + *at + late).await?;
            self.end_where(|_, other| fault.ends(other)).await?;
            // What has ended can neither stand still nor be killed.
            self.revive().await?;
            say(&format!("{:>7.1} s  {fault}", self.system.monitor().now().as_secs_f64()));
            self.inject(fault).await;
            late = begun.elapsed().saturating_sub(planned.over());
        }
        self.pass(begun + end + late).await?;
        self.end_all().await
    }

    async fn inject(&mut self, fault: &Fault) {
        let at = self.system.monitor().now();
        let begun = match fault.has_others_beside() {
            true => faults::begin(self, fault).await,
            false => faults::happen(self, fault).await,
        };
        let index = self.injected.len();
        let hit = begun.map_err(|error| format!("{error:#}"));
        // What began in part has to end too, at once.
        let lasts = if hit.is_ok() { fault.lasts } else { Duration::ZERO };
        if fault.has_others_beside() {
            let hindered = hit.as_ref().copied().unwrap_or_default();
            self.under_way.push(UnderWay { index, ends: Instant::now() + lasts, hindered });
        }
        self.injected.push(Injected { at, until: self.system.monitor().now(), fault: fault.clone(), hit });
    }

    /// Lets time pass: what has ended is started again, and faults end that last for a while.
    pub(super) async fn pass(&mut self, until: Instant) -> Result<()> {
        loop {
            self.revive().await?;
            let now = Instant::now();
            self.end_where(|under_way, _| under_way.ends <= now).await?;
            if now >= until {
                return Ok(());
            }
            sleep(LOOK.min(until - now)).await;
        }
    }

    /// Waits until that is so, for at most `within`, while time passes.
    pub(super) async fn until<F>(&mut self, what: &str, within: Duration, mut look: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<(), String>>,
    {
        let until = Instant::now() + within;
        loop {
            let Err(seen) = look().await else { return Ok(()) };
            ensure!(Instant::now() < until, "{what}: not within {within:?}; last seen: {seen}");
            self.pass(Instant::now() + LOOK).await?;
        }
    }

    /// Starts again what has ended by itself. A control plane that is not whole would only look like a fault of others.
    pub(super) async fn revive(&mut self) -> Result<()> {
        self.system.control_plane().check_running()?;
        self.revived.extend(self.system.revive_shards()?);
        if !self.without_sharders {
            self.revived.extend(self.system.revive_sharders().await?);
        }
        Ok(())
    }

    /// Whether a fault of this kind goes on.
    pub(super) fn is_under_way(&self, kind: Kind) -> bool {
        self.under_way.iter().any(|one| self.injected[one.index].fault.kind == kind)
    }

    /// Ends what is under way.
    pub(super) async fn end_all(&mut self) -> Result<()> {
        self.end_where(|_, _| true).await
    }

    async fn end_where(&mut self, ends: impl Fn(&UnderWay, &Fault) -> bool) -> Result<()> {
        // Time passes while the API server is down, or hears nothing of etcd, as well. What waits for it here would keep it so.
        let plane = self.system.control_plane();
        let can_ask = plane.api_server().is_some() && plane.line_to_etcd().is_none_or(Line::answers);
        let (ending, going_on) = std::mem::take(&mut self.under_way).into_iter().partition::<Vec<_>, _>(|one| {
            let fault = &self.injected[one.index].fault;
            ends(one, fault) && (can_ask || !fault.asks_at_its_end())
        });
        self.under_way = going_on;
        for UnderWay { index, hindered, .. } in ending {
            let fault = self.injected[index].fault.clone();
            let hit = faults::end(self, &fault, hindered).await.map_err(|error| format!("{error:#}"));
            let until = self.system.monitor().now();
            let injected = &mut self.injected[index];
            injected.until = until;
            // The first fault says more than what followed from it.
            injected.hit = std::mem::replace(&mut injected.hit, Ok(0)).and(hit);
        }
        Ok(())
    }
}
