//! What a person reads in the log of a proxy whose API server is away.

use std::{sync::Arc, time::Duration};

use ringside_proxy::run_with;
use ringside_runtime::{
    client::ApiServer,
    clock::TokioClock,
    logging::{Format, dispatch, parse_filter},
    shutdown::Shutdown,
};
use tokio::time::sleep;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::{config, fake};

#[tokio::test(start_paused = true)]
async fn minute_without_api_server_is_fifteen_lines_in_the_log_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let (log, kubeconfig) = (folder.path().join("log"), folder.path().join("upstream"));
    let writer = BoxMakeWriter::new(Arc::new(std::fs::File::create(&log).unwrap()));
    // Beside another subscriber. Of one alone, an event that another test's thread meets first is off for all threads.
    let _other = tracing::Dispatch::new(NoSubscriber::new());
    let _logs = tracing::dispatcher::set_default(&dispatch(Format::Text, parse_filter("info").unwrap(), writer, false));
    let api = fake::start(&kubeconfig).await;
    api.lock().ring.send_replace(Some(fake::ring("things")));
    let any = "127.0.0.1:0".parse().unwrap();
    let (config, client) = (config(&folder, any, any, &[]), fake::client(&api));
    let server = ApiServer::find(Some(&kubeconfig), "test").unwrap();
    let clock = Arc::new(TokioClock::start());
    let proxy = tokio::spawn(run_with(config, server, (client.clone(), client), clock, Shutdown::new()));
    sleep(Duration::from_secs(120)).await;
    let before = std::fs::read_to_string(&log).unwrap();
    assert!(before.contains("holding the Lease") && before.contains("read the ring's resources"), "{before}");

    api.lock().away.send_replace(true);
    sleep(Duration::from_secs(60)).await;
    api.lock().away.send_replace(false);
    sleep(Duration::from_secs(60)).await;
    assert!(!proxy.is_finished());
    let said = std::fs::read_to_string(&log).unwrap().split_off(before.len());
    for part in ["can't watch the ring", "shard Lease lost", "the watch on drained objects failed", "holding the Lease"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.lines().count() <= 15, "{} lines: {said}", said.lines().count());
}
