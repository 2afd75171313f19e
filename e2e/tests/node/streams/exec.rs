//! Commands in a container.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::{MUCH, POD, Way, filling};
use crate::Shared;

pub(crate) async fn output_and_exit_code_are_the_same(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let output = streams.run(&["exec", POD, "--", "/guest", "say", "to stdout", "to stderr\n", "7"], b"").await;
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"to stdout");
    assert!(output.stderr.starts_with(b"to stderr\n"), "{}", super::show(&output));
}

pub(crate) async fn a_command_that_is_not_there_is_refused_alike(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let refused = async |way: &Way| {
        let output = way.run(&["exec", POD, "--", "/no/such/program"], b"").await;
        assert_eq!(output.status.code(), Some(1), "{}: {}", way.name, super::show(&output));
        let text = String::from_utf8(output.stderr).unwrap();
        // Each attempt has an id.
        let words = text.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    let ways = streams.ways();
    let (direct, proxied) = ways.split_at(2);
    for (direct, proxied) in direct.iter().zip(proxied) {
        let texts = tokio::join!(refused(direct), refused(proxied));
        assert!(texts.0 == texts.1 && texts.0.contains("/no/such/program"), "{}: {texts:#?}", proxied.name);
    }
}

pub(crate) async fn much_input_arrives_whole_and_its_end_is_seen(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let input = filling(MUCH);
    // It answers only at the end of its input: so the half of the stream was closed that leads there, and only that.
    let output = streams.run(&["exec", "-i", POD, "--", "/guest", "digest"], &input).await;
    let digest: String = Sha256::digest(&input).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{MUCH} {digest}\n"), "{}", super::show(&output));
}

pub(crate) async fn much_output_arrives_whole(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let output = streams.run(&["exec", POD, "--", "/guest", "fill", &MUCH.to_string()], b"").await;
    assert!(output.status.success() && output.stdout == filling(MUCH), "{}", super::show(&output));
}

pub(crate) async fn much_goes_both_ways_at_once(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let input = filling(MUCH);
    let output = streams.run(&["exec", "-i", POD, "--", "/guest", "cat"], &input).await;
    assert!(output.status.success() && output.stdout == input, "{}", super::show(&output));
}
