//! Whatever somebody writes into the labels of a ring, each object belongs to exactly one live shard a moment later, and no
//! live shard loses one that it was not asked to let go of. Each way to write is tried with the webhook, with the policy in
//! the API server, with both, and with neither.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stderr, reason = "what was measured")]

mod acknowledgement;
mod belongings;
mod ground;
mod history;
mod removal;
mod writes;

use ringside_e2e::system::Settings;

use self::ground::Ground;

/// An API server that knows no MutatingAdmissionPolicy, as those before Kubernetes 1.36 by default.
fn without_policies() -> Settings {
    let resource = |name: &str| format!("admissionregistration.k8s.io/v1/{name}=false");
    let none = [resource("mutatingadmissionpolicies"), resource("mutatingadmissionpolicybindings")];
    let flags =
        ["--feature-gates=MutatingAdmissionPolicy=false".to_owned(), format!("--runtime-config={}", none.join(","))];
    Settings { api_server_flags: flags.into(), ..Settings::default() }
}

#[tokio::test]
async fn labels_are_kept_with_webhook_and_policy() {
    let ground = Ground::start(Settings::default(), true).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    writes::changes_of_owner(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

#[tokio::test]
async fn labels_are_kept_without_the_webhook() {
    let ground = Ground::start(Settings { webhook: false, ..Settings::default() }, true).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    writes::changes_of_owner(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

#[tokio::test]
async fn labels_are_kept_by_the_webhook_alone() {
    let ground = Ground::start(without_policies(), false).await;
    writes::strips_and_copies(&ground).await;
    writes::strips_of_children(&ground).await;
    ground.assert_nobody_lost_anything();
    ground.assert_all_was_in_time();
}

/// Nothing keeps the labels then: a shard loses what is stripped, and gets it back.
#[tokio::test]
async fn what_nobody_kept_is_assigned_again() {
    let ground = Ground::start(Settings { webhook: false, ..without_policies() }, false).await;
    writes::strips_and_copies(&ground).await;
    writes::to_nobody(&ground).await;
    ground.assert_all_was_in_time();
}
