//! What the proxy of a replica is doing now, as its admin server tells.

use anyhow::{anyhow, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use ringside_ring::doing::{Doing, Drain, PATH, Stream, StreamState};
use ringside_runtime::explain::{code, explain};

use crate::{
    cluster::ask_pod,
    output::{Table, seconds, wrap},
};

/// The name of the port at which the proxy's admin server is open to others than its Pod.
const PORT: &str = "ringside-admin";

/// Asks the proxy of a Pod, by way of the API server.
///
/// # Errors
/// When it can't be found or asked.
pub(super) async fn ask(client: &Client, (namespace, pod): (&str, &str)) -> anyhow::Result<Doing> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let found = pods.get(pod).await.map_err(|error| match code(&error) {
        Some(404) => anyhow!("there is no Pod {namespace}/{pod}"),
        _ => anyhow!("can't read Pod {namespace}/{pod}: {}", explain(&error)),
    })?;
    let Some(port) = admin_port(&found) else {
        bail!(
            "Pod {namespace}/{pod} opens no port '{PORT}': it has no proxy, or one that was injected with --no-metrics"
        );
    };
    ask_pod(client, (namespace, pod), port, PATH).await
}

/// Where its proxy can be asked.
fn admin_port(pod: &Pod) -> Option<u16> {
    let spec = pod.spec.as_ref()?;
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(PORT))?;
    u16::try_from(port.container_port).ok()
}

/// Renders it.
pub(super) fn screen(doing: &Doing) -> String {
    let Doing { ring, lease_lost, controller, draining, drains, open, streams, .. } = doing;
    let lease = lease_lost.as_ref().map_or("held".to_owned(), |why| format!("NOT HELD: {why}"));
    let controller = controller.as_deref().unwrap_or("not known yet");
    let mut text = format!("ring        {ring}\nlease       {lease}\ncontroller  {controller}\n");
    for lock in &doing.leads_by {
        text.push_str(&format!("leads by    {lock}\n"));
    }
    if let Some(lock) = &doing.waits_for_lock {
        text.push_str(&format!("waits for   {lock}\n"));
    }
    let oldest = seconds(doing.oldest_write_millis);
    let oldest = if doing.writes > 0 { format!(", the oldest for {oldest}") } else { String::new() };
    text.push_str(&format!("writes      {} under way{oldest}\n\n", doing.writes));
    text.push_str(&format!("{draining} objects are to be released.\n"));
    for Drain { resource, object, waits_for, millis } in drains {
        let line = format!("{resource} {object} waits for {waits_for}, for {}", seconds(*millis));
        text.push_str(&wrap("- ", &line));
        text.push('\n');
    }
    text.push_str(&format!("\n{open} watches and lists are open, or may be gone on from.\n"));
    if !streams.is_empty() {
        let mut table = Table::new(["RESOURCE", "KIND", "STATE", "VERSION", "FOR", "UNREAD", "CLIENT"]);
        for stream in streams {
            table.row(row(stream));
        }
        text.push_str(&table.render());
    }
    text
}

fn row(stream: &Stream) -> [String; 7] {
    let state = match stream.state {
        StreamState::Opening => "opening",
        StreamState::Open => "open",
        StreamState::Ended => "ended",
    };
    let kind = if stream.is_watch { "watch" } else { "list" };
    let version = stream.version.clone().unwrap_or_else(|| "-".to_owned());
    // What comes after it are the machine and the library.
    let program = stream.client.split(' ').next().unwrap_or_default().to_owned();
    let (resource, age, unread) = (stream.resource.clone(), seconds(stream.millis), stream.unread.to_string());
    [resource, kind.into(), state.into(), version, age, unread, program]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn port_is_that_of_the_sidecar() {
        let pod = |ports: serde_json::Value| -> Pod {
            let proxy = json!({"name": "ringside-proxy", "ports": ports});
            serde_json::from_value(json!({"spec": {"containers": [{"name": "manager"}], "initContainers": [proxy]}}))
                .unwrap()
        };
        assert_eq!(admin_port(&pod(json!([{"name": "ringside-admin", "containerPort": 6444}]))), Some(6444));
        assert_eq!(admin_port(&pod(json!([]))), None);
    }

    #[test]
    fn each_release_and_each_stream_has_a_line() {
        let drain = Drain {
            resource: "websites.web.example.com".into(),
            object: "default/shop".into(),
            waits_for: "the grace time".into(),
            millis: 1_250,
        };
        let stream = Stream {
            resource: "websites.web.example.com".into(),
            is_watch: true,
            state: StreamState::Open,
            version: Some("812".into()),
            client: "manager/v1 (linux/amd64) kubernetes/abc".into(),
            unread: 0,
            millis: 60_000,
        };
        let doing = Doing {
            ring: "websites".into(),
            controller: Some("working".into()),
            draining: 1,
            drains: vec![drain],
            open: 1,
            streams: vec![stream],
            ..Doing::default()
        };
        let text = screen(&doing);
        assert!(text.contains("lease       held\n") && text.contains("writes      0 under way\n"), "{text}");
        assert!(
            text.contains("- websites.web.example.com default/shop waits for the grace time, for 1.2s\n"),
            "{text}"
        );
        assert!(
            text.contains("websites.web.example.com  watch  open   812      60.0s  0       manager/v1\n"),
            "{text}"
        );
        let lost = screen(&Doing { lease_lost: Some("no answer".into()), ..doing });
        assert!(lost.contains("lease       NOT HELD: no answer"), "{lost}");
    }
}
