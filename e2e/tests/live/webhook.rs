//! The webhook on a real control plane: its certificates, its replicas, and what happens without it.

pub(crate) mod calls;
mod certificates;
mod fixture;
mod injected;
mod missed;
mod outage;
mod trust;
mod unconcerned;

use ringside_e2e::{case, live::Group};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "webhook",
        vec![
            case!(certificates::certificates_are_exchanged_under_steady_creates_and_no_call_of_the_webhook_fails)
                .alone()
                .costs("a minute of traffic through three authorities"),
            case!(injected::a_certificate_that_somebody_else_keeps_is_shown_and_exchanged_and_what_is_injected_stays)
                .alone()
                .costs("a control plane of its own, and steady creates"),
            case!(missed::children_that_came_in_a_moment_without_the_webhook_have_their_labels_by_their_proxies)
                .works(),
            case!(outage::after_an_outage_of_all_sharders_every_object_has_an_owner).works(),
            case!(outage::without_its_webhook_configuration_the_sharder_assigns_objects_right_after_their_creation)
                .alone()
                .costs("times, measured on a machine that does nothing else"),
            case!(unconcerned::what_nothing_of_the_ring_owns_never_reaches_the_webhook),
            case!(unconcerned::a_webhook_that_says_nothing_holds_up_only_what_is_the_rings_and_is_out_of_the_way_soon)
                .alone()
                .costs("times, measured on a machine that does nothing else"),
        ],
    )
}
