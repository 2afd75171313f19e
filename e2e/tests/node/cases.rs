//! The table of cases.

use std::{future::Future, pin::Pin, sync::Arc};

use ringside_e2e::{
    compatibility::{Outcome, Row},
    toolchain::{Environment, without_python},
};

use crate::{Shared, deployed, lifecycle, streams};

type Run = fn(Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function of the modules beside this one; it panics when it fails.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
    /// Of a case that compares what passes through the proxy with what passes without it: behaviour and representation.
    compares: Option<(&'static str, &'static str)>,
    /// What is in its way on this machine.
    pub(crate) obstacle: fn() -> Option<String>,
}

impl Case {
    /// The same, ignored where there is something to say against it.
    fn unless(self, obstacle: fn() -> Option<String>) -> Self {
        Self { obstacle, ..self }
    }

    /// What the page about compatibility says once it has passed.
    pub(crate) fn row(&self) -> Option<Row> {
        let (behaviour, representation) = self.compares?;
        Some(Row { behaviour: behaviour.to_owned(), representation: representation.to_owned(), outcome: Outcome::Same })
    }
}

/// A case under the name of its function.
macro_rules! case {
    ($($name:ident)::+) => { case!($($name)::+, None) };
    ($($name:ident)::+, $behaviour:literal, $representation:literal) => {
        case!($($name)::+, Some(($behaviour, $representation)))
    };
    ($($name:ident)::+, $compares:expr) => {
        Case {
            name: concat!($("::", stringify!($name)),+).trim_start_matches("::"),
            run: |shared| Box::pin($($name)::+(shared)),
            compares: $compares,
            obstacle: || None,
        }
    };
}

/// The longest first.
pub(crate) fn all() -> Vec<Case> {
    [deployed(), streams_by_kubectl(), streams_by_hand(), others()].concat()
}

fn deployed() -> Vec<Case> {
    vec![
        case!(deployed::token::a_rotated_token_is_used_and_the_lease_kept),
        case!(deployed::rollout::from_one_leader_to_shards_and_back_nobody_works_beside_another),
        case!(deployed::restarted::a_controller_from_before_a_gap_is_restarted_by_its_liveness_probe),
        case!(deployed::kopf::kopf_from_before_a_gap_is_restarted_by_its_liveness_probe)
            .unless(|| without_python(&Environment::of_process())),
        case!(deployed::sharing::replicas_share_the_work),
        case!(deployed::sharing::a_controller_with_nothing_but_the_in_cluster_folder_has_its_share),
        case!(deployed::changes::a_rolling_update_leaves_every_object_owned),
        case!(deployed::changes::a_deleted_pod_ends_in_order_and_lets_go_of_its_lease),
        case!(deployed::webhook::a_replica_that_ends_or_is_killed_fails_no_create),
        case!(deployed::confinement::runs_as_confined_as_its_manifest_says),
        case!(deployed::confinement::nothing_leads_the_controller_past_the_proxy),
        case!(deployed::confinement::nothing_of_the_proxy_listens_beyond_loopback),
    ]
}

fn streams_by_kubectl() -> Vec<Case> {
    vec![
        case!(streams::exec::output_and_exit_code_are_the_same, "exec: output and exit code", "SPDY, WebSocket"),
        case!(
            streams::exec::a_command_that_is_not_there_is_refused_alike,
            "exec of a command that is not there",
            "SPDY, WebSocket"
        ),
        case!(
            streams::exec::much_input_arrives_whole_and_its_end_is_seen,
            "exec: 8 MiB of input, and its end",
            "SPDY, WebSocket"
        ),
        case!(streams::exec::much_output_arrives_whole, "exec: 8 MiB of output", "SPDY, WebSocket"),
        case!(streams::exec::much_goes_both_ways_at_once, "exec: 8 MiB both ways at once", "SPDY, WebSocket"),
        case!(
            streams::terminal::a_terminal_has_the_size_of_ours_and_follows_it,
            "exec with a terminal that changes its size",
            "SPDY, WebSocket"
        ),
        case!(
            streams::attach::input_reaches_it_and_its_output_comes_back,
            "attach: input and output",
            "SPDY, WebSocket"
        ),
        case!(streams::logs::logs_are_the_same, "logs: followed to their end, whole, the last lines", "HTTP/2"),
        case!(
            streams::exec::into_a_pod_of_the_ring,
            "exec into a pod of the ring: 8 MiB both ways at once, the end of input, exit code",
            "SPDY, WebSocket"
        ),
        case!(
            streams::port_forward::to_a_pod_of_the_ring,
            "port-forward to a pod of the ring: 8 MiB both ways on each of two connections, or from the pod alone",
            "SPDY, WebSocket"
        ),
        case!(
            streams::port_forward::much_comes_back_whole,
            "port-forward: 8 MiB both ways on each of two connections",
            "SPDY, WebSocket"
        ),
        case!(
            streams::port_forward::the_end_that_the_pod_makes_is_seen_after_all_it_sent,
            "port-forward: 8 MiB from the pod, which then closes",
            "SPDY, WebSocket"
        ),
        case!(
            streams::port_forward::the_end_of_our_half_is_seen_in_the_pod,
            "port-forward: the end of the client's half, as the pod sees it",
            "SPDY, WebSocket"
        ),
    ]
}

fn streams_by_hand() -> Vec<Case> {
    vec![
        case!(
            streams::by_hand::exec,
            "exec: each channel, the end of input, the exit code",
            "WebSocket by hand: v4.channel.k8s.io, v5.channel.k8s.io"
        ),
        case!(
            streams::by_hand::attach,
            "attach: each channel",
            "WebSocket by hand: v4.channel.k8s.io, v5.channel.k8s.io"
        ),
        case!(streams::by_hand::port_forward, "port-forward: each channel", "WebSocket by hand: v4.channel.k8s.io"),
        case!(
            streams::by_hand::log_by_websocket,
            "log, followed to its end",
            "WebSocket by hand: binary.k8s.io, base64.binary.k8s.io"
        ),
        case!(
            streams::by_hand::log_by_http,
            "log: whole, followed to its end, the last lines, the first bytes with the time of each line",
            "HTTP/1.1, HTTP/2"
        ),
        case!(
            streams::logs::a_line_comes_when_it_is_written,
            "log, followed while it is written: each line before the next one is written",
            "HTTP/1.1, HTTP/2"
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case!(streams::ends::with_its_client, "a session ends in the pod when its client is gone", "SPDY, WebSocket"),
        case!(streams::ends::with_the_proxy),
        case!(streams::ends::with_the_lease),
        case!(lifecycle::gone_after_sigkill_of_the_owner),
        case!(lifecycle::gone_after_an_interrupt),
        case!(lifecycle::gone_after_sigterm),
        case!(lifecycle::refusals::without_root_one_line_says_so),
        case!(lifecycle::refusals::without_capabilities_one_line_says_so),
        case!(lifecycle::refusals::without_cgroups_one_line_says_so),
    ]
}
