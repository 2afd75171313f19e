//! What passes late, or not at all: between a shard and the API server, between that and the webhook, or etcd.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

use crate::{
    chaos::{
        run::Run,
        schedule::{Fault, Kind},
    },
    line::{Line, Passing},
    system::{NAMESPACE, Sharder},
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

/// The lines that a fault is about: a shard's, those of all webhooks, or etcd's.
fn concerned<'a>(run: &'a Run, fault: &Fault) -> Result<Vec<&'a Line>> {
    let lines: Vec<_> = match (&fault.shard, fault.kind) {
        (Some(shard), _) => run.system.shard(shard)?.line().into_iter().collect(),
        (None, Kind::SilentWebhook) => run.system.sharders().filter_map(Sharder::line).collect(),
        (None, _) => run.system.control_plane().line_to_etcd().into_iter().collect(),
    };
    ensure!(!lines.is_empty(), NO_LINE);
    Ok(lines)
}

/// How many pieces came late on them, or had to wait.
fn hindered(run: &Run, fault: &Fault) -> Result<usize> {
    Ok(concerned(run, fault)?.into_iter().map(Line::hindered).sum())
}

/// From now on nothing passes as it did. Returns what was hindered before.
pub(super) fn begin(run: &Run, fault: &Fault) -> Result<usize> {
    let before = hindered(run, fault)?;
    let passing = match fault.kind {
        Kind::SlowApiServer => Passing::Late(LATE),
        Kind::Partition => Passing::Nothing,
        // Webhooks, and etcd, hear what they are asked, and their answers do not arrive.
        _ => Passing::Questions,
    };
    concerned(run, fault)?.into_iter().for_each(|line| line.set(passing));
    Ok(before)
}

/// What waited arrives. Returns how many pieces those were, and what came late.
pub(super) fn end(run: &Run, fault: &Fault, before: usize) -> Result<usize> {
    concerned(run, fault)?.into_iter().for_each(|line| line.set(Passing::Everything));
    Ok(hindered(run, fault)? - before)
}

/// Both, and all else waits meanwhile.
pub(super) async fn hinder(run: &mut Run, fault: &Fault) -> Result<usize> {
    let before = begin(run, fault)?;
    let passed = async {
        if fault.kind == Kind::SilentWebhook {
            until_asked(run, fault, before).await?;
        }
        run.pass(Instant::now() + fault.lasts).await
    };
    let passed = passed.await;
    let hit = end(run, fault, before);
    passed.and(hit)
}

/// Has the webhook asked until its answer did not arrive. After the leader's death no webhook is asked until there is
/// another leader, which tells where its webhook is.
async fn until_asked(run: &mut Run, fault: &Fault, before: usize) -> Result<()> {
    let until = Instant::now() + ASKED_FOR;
    while hindered(run, fault)? == before && Instant::now() < until {
        ask_webhook(run).await?;
        run.pass(Instant::now() + ASKED_EVERY).await?;
    }
    Ok(())
}

/// Leads a shard to the API server that lags. Returns how many connections it had made before.
pub(super) fn lead_to_other(run: &mut Run, shard: &str) -> Result<usize> {
    let (other, lag) = run.other_api_server.as_ref().context("there is no other API server")?;
    let line = run.system.shard(shard)?.line().context(NO_LINE)?;
    lag.set(Passing::Late(BEHIND));
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

/// Has the webhook asked about an object that it leaves alone: no other client may be creating one just then.
async fn ask_webhook(run: &Run) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(run.client.clone(), NAMESPACE);
    let named = ObjectMeta { generate_name: Some("of-nobody-".to_owned()), ..ObjectMeta::default() };
    maps.create(&PostParams::default(), &ConfigMap { metadata: named, ..ConfigMap::default() }).await?;
    Ok(())
}
