//! What can happen to a system, a file a family. Each says what it hit.

mod api_server;
mod belongings;
mod lines;
mod objects;
mod processes;
mod refusals;
mod sharders;
mod strangers;

use anyhow::Result;

pub(super) use self::belongings::DRAIN_DEADLINES;

use super::{
    run::Run,
    schedule::{Fault, Kind},
};
use crate::churn::Change;

/// Waits until what keeps labels, and shards from each other's objects, is in place.
pub(super) async fn until_protected(run: &mut Run) -> Result<()> {
    belongings::until_condition(run, "Fenced", "True").await?;
    belongings::until_condition(run, "LabelsProtected", "True").await
}

/// Begins what others happen beside. Returns what its line had hindered, or carried, before, or how many it concerns.
pub(super) async fn begin(run: &mut Run, fault: &Fault) -> Result<usize> {
    let shard = fault.shard.as_deref().unwrap_or_default();
    match fault.kind {
        Kind::Pause | Kind::PauseController => processes::pause(run, fault.kind, shard).map(|()| 0),
        Kind::OtherApiServer => lines::lead_to_other(run, shard),
        Kind::RefuseChildren => refusals::of_children(run, &fault.objects).await,
        Kind::RefuseAcknowledgements => refusals::of_acknowledgements(run, shard).await,
        Kind::StrangersLeases => strangers::make_leases(run, shard).await,
        _ => lines::begin(run, fault),
    }
}

/// Ends it. Returns how many were hit: processes, pieces that waited, connections, objects, Leases.
pub(super) async fn end(run: &mut Run, fault: &Fault, before: usize) -> Result<usize> {
    let shard = fault.shard.as_deref().unwrap_or_default();
    match fault.kind {
        Kind::Pause | Kind::PauseController => processes::resume(run, fault.kind, shard),
        Kind::OtherApiServer => lines::lead_back(run, shard, before),
        Kind::RefuseChildren | Kind::RefuseAcknowledgements => refusals::end(run, fault).await.map(|()| before),
        Kind::StrangersLeases => strangers::delete_leases(run, shard).await,
        _ => lines::end(run, fault, before),
    }
}

/// Does the rest, from beginning to end. Returns how many were hit.
pub(super) async fn happen(run: &mut Run, fault: &Fault) -> Result<usize> {
    let shard = fault.shard.clone().unwrap_or_default();
    match fault.kind {
        kind @ (Kind::Join | Kind::Leave | Kind::Retire | Kind::Restart | Kind::Kill) => {
            Change { kind, shard }.carry_out(&mut run.system).await?;
            Ok(1)
        }
        Kind::KillProxy | Kind::KillController => processes::kill(run, fault.kind, &shard).await,
        Kind::KillLeader => sharders::kill_leader(run).await,
        Kind::KillSharders => sharders::kill_all(run, fault.lasts).await,
        Kind::SilentWebhook | Kind::SlowApiServer | Kind::LateApiServer => lines::hinder(run, fault).await,
        Kind::RestartApiServer => api_server::restart(run, fault.lasts).await,
        Kind::ForgetHistory => api_server::forget_history(run).await,
        Kind::DefineAgain => api_server::define_again(run).await,
        Kind::DeadConversion => api_server::prefer_a_version_without_conversion(run, fault.lasts).await,
        Kind::EditRing => belongings::edit_ring(run).await,
        Kind::DeleteWebhook => belongings::delete_webhook(run).await,
        Kind::DeletePolicies => belongings::delete_policies(run).await,
        Kind::MakeAgain => objects::make_again(run, &fault.objects).await,
        Kind::StripLabels => objects::strip(run, &fault.objects).await,
        Kind::ForgeLabels => objects::forge(run, &fault.objects).await,
        Kind::Pause
        | Kind::PauseController
        | Kind::Partition
        | Kind::OtherApiServer
        | Kind::RefuseChildren
        | Kind::RefuseAcknowledgements
        | Kind::StrangersLeases => begin(run, fault).await,
    }
}
