//! What a container has written.

use std::{fmt::Write as _, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use ringside_e2e::{
    compatibility::{
        client::{Ask, Endpoint, Http},
        compare::{Bodies, answers},
    },
    eventually::eventually,
};
use tokio::{io::AsyncWriteExt as _, time::timeout};

use super::{DEADLINE, start_pod_in};
use crate::Fixture;

const LINES: usize = 2000;

/// All of them, as the guest writes them.
pub(super) fn all() -> String {
    (0..LINES).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "line {line}");
        text
    })
}

/// The name of a pod that has written [`all`] and ended.
pub(super) async fn written(fixture: &Fixture, namespace: &str) -> &'static str {
    const NAME: &str = "logs-written";
    start_pod_in(&fixture.node, namespace, NAME, "", &format!("[lines, '{LINES}']")).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(fixture.node.client(), namespace);
    eventually("the pod has ended", DEADLINE, || async {
        let phase = pods.get(NAME).await.map_err(|error| error.to_string())?.status.and_then(|it| it.phase);
        if phase.as_deref() == Some("Succeeded") { Ok(()) } else { Err(format!("{phase:?}")) }
    })
    .await
    .unwrap();
    NAME
}

/// Each line comes when it is written, and not when there are more: nothing is written before all have seen what was. Of a pod
/// that is nobody's business, and of one of the ring.
pub(crate) async fn a_line_comes_when_it_is_written(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let pod = "logs-live";
        start_pod_in(&fixture.node, site.namespace, pod, "stdin: true", "[echo]").await.unwrap();
        let writer = &streams.ways_to(&site).await[0];
        let mut writer = writer.start(&["attach", "-n", site.namespace, "-i", pod]);
        let mut writes = writer.stdin.take().unwrap();
        // There is an answer when there is a line.
        writes.write_all(b"zero\n").await.unwrap();
        let ask = Ask::get(format!("/api/v1/namespaces/{}/pods/{pod}/log?follow=true", site.namespace));
        let mut followers = Vec::new();
        for http in Http::BOTH {
            let mark = streams.mark();
            let follow = |endpoint: &'_ Endpoint| {
                let (endpoint, ask, mark) = (endpoint.clone(), ask.clone(), mark.clone());
                async move { timeout(DEADLINE, endpoint.open(http, &ask, &mark)).await.unwrap().unwrap() }
            };
            let (direct, proxied) = tokio::join!(follow(&streams.direct.endpoint), follow(&site.proxy.server.endpoint));
            answers(&direct.without_body(), &proxied.without_body(), Bodies::Exact).unwrap();
            followers.extend([(format!("directly, {}", http.name()), direct)]);
            followers.extend([(format!("through the proxy, {}", http.name()), proxied)]);
        }
        for line in ["zero", "one", "two"] {
            if line != "zero" {
                writes.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            let wanted = format!("heard {line}\n");
            for (who, open) in &mut followers {
                let read = timeout(DEADLINE, open.until(|read| read.len() >= wanted.len())).await;
                let read = read.unwrap_or_else(|_| panic!("{who}: {line} does not come")).unwrap();
                assert_eq!(String::from_utf8_lossy(&read), wanted, "{who}");
            }
        }
        writer.kill().await.unwrap();
    }
}
