//! The controller's election Lease, which the API server judges and does not store: each answer beside what the API
//! server answers of a Lease that it has.

use anyhow::{Context as _, Result, ensure};
use http::{Method, StatusCode};
use ringside_e2e::compatibility::Outcome;
use serde_json::{Value, json};

use super::{
    refusals::LEASES,
    writes::{JSON, JSON_PATCH, MERGE},
};
use crate::{
    changes::{self, part},
    client::{Answer, Ask},
    compare::{Probe, Rewritten, own_answer},
    ground::Ground,
    status,
    stream::PROTOBUF,
    table::{Case, case},
};

const FROM_MEMORY: &str = "tried on the API server, and then answered from memory, without `managedFields`: each shard's \
                           controller leads its share";

/// The names have the same length.
const REAL: &str = "on-the-server";
const LEARNED: &str = "in-the-memory";

pub(crate) fn cases() -> Vec<Case> {
    let behaviour = "election Lease";
    vec![
        case(behaviour, "create, get", |ground, mark| async move { begun(&Probe::new(&ground, &mark)).await }),
        case(behaviour, "create, get, update, patch, delete", |ground, mark| async move {
            lived(&ground, &Probe::new(&ground, &mark)).await
        }),
    ]
}

fn record(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {
            "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    })
}

/// The controller is told that it leads, and the API server has no such Lease.
async fn begun(probe: &Probe<'_>) -> Result<Outcome> {
    let create = |target: &str| Ask::new(Method::POST, target).body(JSON, record("election").to_string());
    let (create, tried) = (create(LEASES), create(&format!("{LEASES}?dryRun=All")));
    let create = create.accept("application/json, */*");
    let made = probe.shard.proxied.exchange(probe.http, &create, probe.mark);
    let (direct, made) = tokio::try_join!(probe.past(&tried), made)?;
    let arrived = probe.arrived()?;
    changes::note_query(part::DRY_RUN);
    let rewritten = Rewritten { headers: &["accept", "accept-encoding"], ..Rewritten::default() };
    probe.check_arrival(&tried, &arrived, rewritten)?;
    ensure!(arrived.headers["accept"] == "application/json", "{:?}", arrived.headers["accept"]);
    same(&direct, &made, StatusCode::CREATED)?;
    let read = Ask::get(format!("{LEASES}/election"));
    let direct = probe.past(&read).await?;
    let (proxied, arrived) = probe.exchanged(&read).await?;
    ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
    ensure!(direct.status == StatusCode::NOT_FOUND, "{}", direct.text());
    ensure!(proxied.body == made.body, "{}", proxied.text());
    Ok(Outcome::Changed(FROM_MEMORY))
}

/// One Lease on the API server, and one that the proxy answers for, through the same life.
async fn lived(ground: &Ground, probe: &Probe<'_>) -> Result<Outcome> {
    ground.gone(LEASES, REAL).await?;
    let (real, learned) = (format!("{LEASES}/{REAL}"), format!("{LEASES}/{LEARNED}"));
    let create = |name| Ask::new(Method::POST, LEASES).body(JSON, record(name).to_string());
    let direct = probe.past(&create(REAL)).await?;
    let (proxied, _) = probe.exchanged(&create(LEARNED)).await?;
    same(&direct, &proxied, StatusCode::CREATED)?;

    let versions = [&direct, &proxied].map(version);
    let [Ok(was), Ok(is)] = versions else { anyhow::bail!("no version: {versions:?}") };
    let renewed = |name: &str, version: &str| {
        let mut lease = record(name);
        lease["metadata"]["resourceVersion"] = version.into();
        lease["spec"]["renewTime"] = "2026-01-01T00:00:05.000000Z".into();
        lease.to_string()
    };
    let merge = json!({"spec": {"renewTime": "2026-01-01T00:00:07.000000Z"}}).to_string();
    let operations = json!([{"op": "replace", "path": "/spec/leaseTransitions", "value": 1}]).to_string();
    let put = |path: &str, body: String| Ask::new(Method::PUT, path).body(JSON, body);
    let patch = |path: &str, kind: &str, body: &str| Ask::new(Method::PATCH, path).body(kind, body.to_owned());
    let steps = [
        (put(&real, renewed(REAL, &was)), put(&learned, renewed(LEARNED, &is)), StatusCode::OK),
        // Of a version that is not the last one any more.
        (put(&real, renewed(REAL, &was)), put(&learned, renewed(LEARNED, &is)), StatusCode::CONFLICT),
        (create(REAL), create(LEARNED), StatusCode::CONFLICT),
        (patch(&real, MERGE, &merge), patch(&learned, MERGE, &merge), StatusCode::OK),
        (patch(&real, JSON_PATCH, &operations), patch(&learned, JSON_PATCH, &operations), StatusCode::OK),
        (Ask::get(&real), Ask::get(&learned), StatusCode::OK),
        (Ask::new(Method::DELETE, &real), Ask::new(Method::DELETE, &learned), StatusCode::OK),
        (Ask::get(&real), Ask::get(&learned), StatusCode::NOT_FOUND),
        (Ask::new(Method::DELETE, &real), Ask::new(Method::DELETE, &learned), StatusCode::NOT_FOUND),
    ];
    for (to_server, to_memory, status) in steps {
        // What is read does not change it.
        let forms: &[&str] = if to_server.method == Method::GET { &[JSON, PROTOBUF] } else { &[JSON] };
        for form in forms {
            let direct = probe.past(&to_server.clone().accept(form)).await?;
            let (proxied, arrived) = probe.exchanged(&to_memory.clone().accept(form)).await?;
            ensure!(arrived.is_empty(), "it arrived at the API server: {arrived:#?}");
            let told = || format!("{} {}", to_memory.method, String::from_utf8_lossy(&to_memory.body));
            same(&direct, &proxied, status).with_context(told)?;
        }
    }
    Ok(Outcome::Changed(FROM_MEMORY))
}

fn version(answer: &Answer) -> Result<String> {
    let lease: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
    Ok(lease["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned())
}

/// Whether both say the same of their Leases, but for what is each one's own.
fn same(direct: &Answer, proxied: &Answer, status: StatusCode) -> Result<()> {
    ensure!(direct.status == status, "without the proxy {}: {}", direct.status, direct.text());
    ensure!(proxied.status == status, "with it {}: {}", proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    let (one, other) = if status.is_success() {
        (status::lease(direct)?, status::lease(proxied)?)
    } else {
        (status::read(direct)?, status::read(proxied)?)
    };
    let one: Value = serde_json::from_str(&one.to_string().replace(REAL, LEARNED))?;
    ensure!(one == other, "{one} became {other}");
    Ok(())
}
