//! What a container has written.

use std::{fmt::Write as _, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::eventually::eventually;

use super::{DEADLINE, start_pod, start_pod_in};
use crate::Shared;

const LINES: usize = 2000;

/// Those of the guest's `lines`.
fn lines(from: usize, to: usize) -> String {
    (from..to).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "line {line}");
        text
    })
}

/// All of them.
pub(super) fn all() -> String {
    lines(0, LINES)
}

/// The name of a pod that has written [`all`] and ended.
pub(super) async fn written(shared: &Shared, namespace: &str) -> &'static str {
    const NAME: &str = "logs-written";
    start_pod_in(&shared.node, namespace, NAME, "", &format!("[lines, '{LINES}']")).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(shared.node.client(), namespace);
    eventually("the pod has ended", DEADLINE, || async {
        let phase = pods.get(NAME).await.map_err(|error| error.to_string())?.status.and_then(|it| it.phase);
        if phase.as_deref() == Some("Succeeded") { Ok(()) } else { Err(format!("{phase:?}")) }
    })
    .await
    .unwrap();
    NAME
}

pub(crate) async fn logs_are_the_same(shared: Arc<Shared>) {
    let streams = super::of(&shared).await;
    start_pod(&shared.node, "logs", "", &format!("[lines, '{LINES}', 1ms]")).await.unwrap();
    // It is still writing: whoever follows sees all of it, and the end.
    let followed = streams.run(&["logs", "--follow", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&followed.stdout), all());
    let whole = streams.run(&["logs", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&whole.stdout), all());
    let some = streams.run(&["logs", "--tail=10", "logs"], b"").await;
    assert_eq!(String::from_utf8_lossy(&some.stdout), lines(LINES - 10, LINES));
}
