//! Commands in a container.

use std::sync::Arc;

use super::{MUCH, POD, Way, digest, filling, way::show};
use crate::Shared;

pub(crate) async fn output_and_exit_code_are_the_same(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let output = streams.run(&["exec", POD, "--", "/guest", "say", "to stdout", "to stderr\n", "7"], b"").await;
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"to stdout");
    assert!(output.stderr.starts_with(b"to stderr\n"), "{}", show(&output));
}

pub(crate) async fn a_command_that_is_not_there_is_refused_alike(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let refused = async |way: &Way| {
        let output = way.run(&["exec", POD, "--", "/no/such/program"], b"").await;
        assert_eq!(output.status.code(), Some(1), "{}: {}", way.name, show(&output));
        let text = String::from_utf8(output.stderr).unwrap();
        // Each attempt has an id.
        let words = text.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    let ways = streams.ways().await;
    for pair in ways.chunks(2) {
        let texts = tokio::join!(refused(&pair[0]), refused(&pair[1]));
        assert!(texts.0 == texts.1 && texts.0.contains("/no/such/program"), "{}: {texts:#?}", pair[1].name);
    }
    streams.assert_alike(&ways).await;
}

pub(crate) async fn much_input_arrives_whole_and_its_end_is_seen(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let input = filling(MUCH);
    // It answers only at the end of its input: so the half of the stream was closed that leads there, and only that.
    let output = streams.run(&["exec", "-i", POD, "--", "/guest", "digest"], &input).await;
    let digest = digest(&input);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{MUCH} {digest}\n"), "{}", show(&output));
}

pub(crate) async fn much_output_arrives_whole(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let output = streams.run(&["exec", POD, "--", "/guest", "fill", &MUCH.to_string()], b"").await;
    assert!(output.status.success() && output.stdout == filling(MUCH), "{}", show(&output));
}

pub(crate) async fn much_goes_both_ways_at_once(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let input = filling(MUCH);
    let output = streams.run(&["exec", "-i", POD, "--", "/guest", "cat"], &input).await;
    assert!(output.status.success() && output.stdout == input, "{}", show(&output));
}

/// The fence asks first whose the pod is, and keeps its hold on it while the session goes on.
pub(crate) async fn into_a_pod_of_the_ring(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    let [_, site] = streams.sites();
    let command =
        |command: &[&'static str]| [&["exec", "-n", site.namespace, "-i", POD, "--", "/guest"], command].concat();
    let input = filling(MUCH);
    let output = streams.run_at(&site, &command(&["cat"]), &input).await;
    assert!(output.status.success() && output.stdout == input, "{}", show(&output));
    let output = streams.run_at(&site, &command(&["digest"]), &input).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{MUCH} {}\n", digest(&input)), "{}", show(&output));
    let output = streams.run_at(&site, &command(&["say", "to stdout", "to stderr\n", "7"]), b"").await;
    assert_eq!(output.status.code(), Some(7), "{}", show(&output));
}
