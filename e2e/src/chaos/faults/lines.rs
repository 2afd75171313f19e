//! What passes late, or not at all: between a shard and the API server, between that and the webhook, or etcd.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use crate::{
    chaos::{run::Run, schedule::Kind},
    line::{Line, Passing},
    system::NAMESPACE,
};

/// How late each answer of etcd is to a slow API server, and each question to it. A write takes several.
const LATE: Duration = Duration::from_millis(60);

/// How late each answer of etcd is to the other API server, and each question to it. A renewal takes several, and has to be
/// done before a shard Lease of 5 s runs out.
const BEHIND: Duration = Duration::from_millis(400);

/// How often the webhook is asked that is to be silent, until it was, and for how long.
const ASKED_EVERY: Duration = Duration::from_millis(200);
const ASKED_FOR: Duration = Duration::from_secs(30);

const NO_LINE: &str = "the system has no such line";

/// Parts a shard from the API server. Returns what its line had hindered before.
pub(super) fn part(run: &mut Run, shard: &str) -> Result<usize> {
    let line = run.system.shard(shard)?.line().context(NO_LINE)?;
    line.set(Passing::Nothing);
    Ok(line.hindered())
}

/// What waited arrives. Returns how many pieces those were.
pub(super) fn join(run: &mut Run, shard: &str, before: usize) -> Result<usize> {
    let line = run.system.shard(shard)?.line().context(NO_LINE)?;
    line.set(Passing::Everything);
    Ok(line.hindered() - before)
}

/// Leads a shard to the API server that lags. Returns how many connections it had made before.
pub(super) fn lead_to_other(run: &mut Run, shard: &str) -> Result<usize> {
    let (other, lag) = run.other_api_server.as_ref().context("there is no other API server")?;
    let line = run.system.shard(shard)?.line().context(NO_LINE)?;
    lag.delay(BEHIND);
    let before = line.connections();
    line.lead_to(other.address());
    Ok(before)
}

/// Leads it back. Returns how many connections it made to the other one.
pub(super) fn lead_back(run: &mut Run, shard: &str, before: usize) -> Result<usize> {
    if !run.is_under_way(Kind::OtherApiServer) {
        run.other_api_server.iter().for_each(|(_, lag)| lag.release());
    }
    let line = run.system.shard(shard)?.line().context(NO_LINE)?;
    let connected = line.connections() - before;
    line.lead_to(run.system.control_plane().address());
    Ok(connected)
}

/// The API server is slow, or hangs. Returns how many pieces came late.
pub(super) async fn hinder_api_server(run: &mut Run, kind: Kind, lasts: Duration) -> Result<usize> {
    let passing = match kind {
        Kind::SlowApiServer => Passing::Late(LATE),
        _ => Passing::Questions,
    };
    let line = |run: &Run| run.system.control_plane().line_to_etcd().context(NO_LINE).map(Line::hindered);
    let set =
        |run: &Run, passing| run.system.control_plane().line_to_etcd().into_iter().for_each(|line| line.set(passing));
    let before = line(run)?;
    set(run, passing);
    let passed = run.pass(Instant::now() + lasts).await;
    set(run, Passing::Everything);
    passed?;
    Ok(line(run)? - before)
}

/// The webhooks of all replicas hear what they are asked, and their answers do not arrive. Returns how many those were.
pub(super) async fn silence_webhook(run: &mut Run, lasts: Duration) -> Result<usize> {
    let lines =
        |run: &Run| run.system.sharders().filter_map(|sharder| sharder.line().map(Line::hindered)).sum::<usize>();
    let set = |run: &Run, passing| {
        run.system.sharders().filter_map(|sharder| sharder.line()).for_each(|line| line.set(passing));
    };
    let (before, until) = (lines(run), Instant::now() + ASKED_FOR);
    set(run, Passing::Questions);
    let passed = async {
        // After the leader's death nobody is asked until there is another, who tells where its webhook is.
        while lines(run) == before && Instant::now() < until {
            ask_webhook(run).await?;
            run.pass(Instant::now() + ASKED_EVERY).await?;
        }
        run.pass(Instant::now() + lasts).await
    }
    .await;
    set(run, Passing::Everything);
    passed?;
    Ok(lines(run) - before)
}

/// Has the webhook asked about an object that it leaves alone: nobody else may be creating one just then.
async fn ask_webhook(run: &Run) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(run.client.clone(), NAMESPACE);
    let named = ObjectMeta { generate_name: Some("of-nobody-".to_owned()), ..ObjectMeta::default() };
    maps.create(&PostParams::default(), &ConfigMap { metadata: named, ..ConfigMap::default() }).await?;
    Ok(())
}
