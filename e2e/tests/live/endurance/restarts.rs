//! An API server that hangs, and one that is killed and started again, in the middle of watches and writes.

use std::time::Instant;

use ringside_e2e::eventually::eventually;
use tokio::net::TcpStream;

use super::{
    clients::{Client, End, NAMES, Watch},
    fixture::{DEADLINE, LONG_LEASE, NOTICED_WITHIN, config_map, left, objects_by},
    follower::Follower,
    report,
};
use crate::proxies::Proxies;

const SHARD: &str = "restarts";

pub(crate) async fn clients_recover_from_an_api_server_that_hangs_and_restarts(mut fixture: Proxies) {
    let proxy = fixture.proxy(SHARD, LONG_LEASE).await;
    let objects = objects_by(&proxy).await;
    let follower = Follower::start(objects.clone()).await;
    let client = Client::new(&proxy).await;
    // As a controller that repeats what fails: an attempt without an answer may have been done after all.
    let write = async |name: &str| {
        eventually("a write succeeds", DEADLINE, || async {
            match objects.create(&Default::default(), &config_map(SHARD, name, 0)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                created => created.map(drop).map_err(|error| error.to_string()),
            }
        })
        .await
        .unwrap();
        follower.until_seen(name, DEADLINE).await;
    };
    let past = async |fixture: &Proxies| {
        Watch::past(TcpStream::connect(fixture.control_plane.address()).await.unwrap(), fixture).await
    };
    write("before").await;

    let (watch, mut silent) = (client.watch(NAMES).await, past(&fixture).await);
    let api_server = fixture.control_plane.api_server().unwrap();
    api_server.pause().unwrap();
    let paused = Instant::now();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    report(&format!("an API server that hangs: noticed after {:?}", paused.elapsed()));
    silent.nothing(left(paused)).await;
    api_server.resume().unwrap();
    write("after-a-pause").await;

    let (watch, broken) = (client.watch(NAMES).await, past(&fixture).await);
    fixture.control_plane.stop_api_server().await.unwrap();
    assert_eq!(watch.end(NOTICED_WITHIN).await, End::InOrder);
    assert_eq!(broken.end(NOTICED_WITHIN).await, End::Error, "past the proxy");
    fixture.control_plane.start_api_server().await.unwrap();
    write("after-a-restart").await;
}
