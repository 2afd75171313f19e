//! The proxy's container.

use serde_json::{Value, json};

use crate::{CONTAINER, FOLDER, Injection, Object, Ports, Sidecar, VOLUME, hooks, token};

/// How long a probe waits for its answer, and for its process to start as well.
const PROBE_TIMEOUT: [u8; 2] = [4, 5];

/// The container. `seconds`: what its hook has, where it gets one.
pub(super) fn proxy(
    injection: &Injection,
    ports: Ports,
    seconds: Option<u64>,
    (on_node, spec): (bool, &Object),
) -> Value {
    let Injection { ring, image, options, metrics, sidecar, .. } = injection;
    let listen = (ports.listen != Ports::DEFAULT.listen).then(|| format!("--listen=127.0.0.1:{}", ports.listen));
    let ring = format!("--ring={ring}");
    let args: Vec<&String> = [&ring].into_iter().chain(options).chain(&listen).collect();
    let mut env =
        vec![json!({"name": "RINGSIDE_SHARD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})];
    // By the environment, which the probes read too.
    let host = if *metrics { "[::]" } else { "127.0.0.1" };
    if *metrics || ports.admin != Ports::DEFAULT.admin {
        env.push(json!({"name": "RINGSIDE_ADMIN_LISTEN", "value": format!("{host}:{}", ports.admin)}));
    }
    let mut open = Vec::new();
    if *metrics {
        // As the PodMonitor has it; `metrics` may be the controller's.
        open.push(json!({"name": "ringside-admin", "containerPort": ports.admin}));
    }
    if on_node {
        // So the scheduler sees that a node has room for one of them.
        open.push(json!({"name": "proxy", "containerPort": ports.listen, "hostPort": ports.listen}));
        open.iter_mut().for_each(|port| port["hostPort"] = port["containerPort"].clone());
    }
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "args": args,
        "env": env,
        "startupProbe": probe("started", &[("periodSeconds", 1), ("failureThreshold", 60)]),
        "readinessProbe": probe("ready", &[("periodSeconds", 5)]),
        "livenessProbe": probe("live", &[]),
        "volumeMounts": [{"name": VOLUME, "mountPath": FOLDER}, token::mount()],
        "securityContext": security_context(spec),
    });
    if let Some(resources) = injection.resources.of_container(spec.get("resources").is_some_and(|it| !it.is_null())) {
        container["resources"] = resources;
    }
    if let Some(seconds) = seconds {
        container["lifecycle"] = hooks::of_proxy(seconds);
    }
    if !open.is_empty() {
        container["ports"] = open.into();
    }
    if *sidecar == Sidecar::Native {
        container["restartPolicy"] = "Always".into();
    }
    container
}

fn probe(what: &str, settings: &[(&str, u8)]) -> Value {
    let [answer, process] = PROBE_TIMEOUT;
    let command = json!(["/ringside-proxy", "probe", what, format!("--timeout={answer}s")]);
    let mut probe = json!({"exec": {"command": command}, "timeoutSeconds": process});
    settings.iter().for_each(|(key, value)| probe[*key] = (*value).into());
    probe
}

/// What the `restricted` Pod Security Standard asks of a container. The image says which user, unless the pod does.
fn security_context(spec: &Object) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let user = spec.get("securityContext").and_then(|pod| pod.get("runAsUser"));
    if user.and_then(Value::as_u64) == Some(0)
        && let Some(context) = context.as_object_mut()
    {
        context.remove("runAsNonRoot");
    }
    context
}
