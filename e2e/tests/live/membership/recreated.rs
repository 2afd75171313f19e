//! A Pod that is made again under its name, as a StatefulSet does, while the Lease of the one before is held.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use ringside_e2e::system::NAMESPACE;
use tokio::time::sleep;

use super::fixture::{DEADLINE, Fixture, USUAL};

const NAME: &str = "recreated";

/// Nobody has said that the controller of the one before has ended: it may run on, where its node is parted from the others. So
/// its Lease has to stand still for as long as it lasts, whoever has that name by then.
pub(crate) async fn waits(fixture: &Fixture) {
    let (ring, url) = (fixture.ring(NAME).await, fixture.system.control_plane().url());
    let before = fixture.shard(&ring, NAME, USUAL, &url, None).await;
    let last = fixture.history.until_renewed(NAME, DEADLINE).await;
    before.proxy.process.kill().unwrap();
    drop(before);
    let pods: Api<Pod> = Api::namespaced(fixture.client(), NAMESPACE);
    pods.delete(NAME, &DeleteParams::default().grace_period(0)).await.unwrap();
    let again = fixture.begin(&ring, NAME, USUAL, &url, None).await;
    let (mut asked, mut is_ready) = (0, false);
    while !is_ready {
        is_ready = again.is_ready().await;
        let after = last.at.elapsed();
        assert!(!is_ready || after >= USUAL, "it is ready {after:?} after the last renewal by the one before");
        assert!(after < DEADLINE, "it is not ready; the end of its log:\n{}", again.process.log_tail());
        asked += 1;
        sleep(Duration::from_millis(50)).await;
    }
    println!("{NAME}: ready {:?} after the last renewal by the one before, asked {asked} times", last.at.elapsed());
    let now = fixture.history.until_renewed(NAME, DEADLINE).await;
    assert!(now.acquired > last.acquired, "{now:?} goes on with {last:?}");
}
