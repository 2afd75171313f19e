//! The lock of the controller's election, a Lease or a ConfigMap, which the API server judges and does not store: each answer
//! beside what the API server answers of one that it has.

use super::*;

const FROM_MEMORY: &str = "tried on the API server, which is told that the ring leads, and then answered from memory, without \
                           `managedFields`: each shard's controller leads its share";

/// What a lock is, and what is written into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    pub(super) collection: &'static str,
    /// The whole of it, by its name and when it was renewed.
    pub(super) record: fn(&str, &str) -> Value,
    /// A merge patch that renews it then.
    renewal: fn(&str) -> Value,
    /// A JSON patch that renews it.
    operations: fn() -> Value,
}

pub(super) const LEASE: Lock = Lock {
    collection: LEASES,
    record: |name, renewed| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {
                "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": BEGUN, "renewTime": renewed,
            },
        })
    },
    renewal: |renewed| json!({"spec": {"renewTime": renewed}}),
    operations: || json!([{"op": "replace", "path": "/spec/leaseTransitions", "value": 1}]),
};

pub(super) const CONFIG_MAP: Lock = Lock {
    collection: CONFIG_MAPS,
    record: |name, renewed| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {RECORD: annotation(renewed)}},
        })
    },
    renewal: |renewed| json!({"metadata": {"annotations": {RECORD: annotation(renewed)}}}),
    operations: || {
        let path = format!("/metadata/annotations/{}", RECORD.replace('/', "~1"));
        json!([{"op": "replace", "path": path, "value": annotation(BEGUN)}])
    },
};

pub(super) const BEGUN: &str = "2026-01-01T00:00:00.000000Z";

/// Where client-go keeps its record in a ConfigMap.
const RECORD: &str = "control-plane.alpha.kubernetes.io/leader";

fn annotation(renewed: &str) -> String {
    let record = json!({
        "holderIdentity": "me", "leaseDurationSeconds": 15, "leaderTransitions": 0, "acquireTime": BEGUN, "renewTime": renewed,
    });
    record.to_string()
}

/// A lock on the API server and one that the proxy answers for, with names of the same length.
#[derive(Clone, Copy, Debug)]
struct Twins {
    lock: Lock,
    real: &'static str,
    learned: &'static str,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, lock) in [("election Lease", LEASE), ("election ConfigMap", CONFIG_MAP)] {
        cases.push(case(behaviour, "create, get", move |probe| begun(probe, lock)));
        let twins = Twins { lock, real: "on-the-server", learned: "in-the-memory" };
        cases.push(case(behaviour, "create, get, update, patch, delete", move |probe| lived(probe, twins)));
        let twins = Twins { lock, real: "wired-on-the-server", learned: "wired-in-the-memory" };
        cases.push(case(behaviour, "create, update, in protobuf", move |probe| wired(probe, twins)));
    }
    cases
}

/// The controller is told that it leads, and the API server that the ring does.
async fn begun(probe: Probe, lock: Lock) -> Result<Outcome> {
    let Lock { collection, record, .. } = lock;
    let create = |target: &str| Ask::new(Method::POST, target).body(JSON, record("election", BEGUN).to_string());
    let (create, tried) = (create(collection), create(&format!("{collection}?dryRun=All")));
    let create = create.accept("application/json, */*");
    let direct = probe.past(&tried).await?;
    let made = probe.proxied(&create).await?;
    let rewritten = Rewritten { headers: &["accept", "accept-encoding"], ..AS_SENT };
    let arrived = probe.arrived_as(&tried, rewritten)?;
    changes::note_query(part::DRY_RUN);
    ensure!(arrived.headers["accept"] == JSON, "{:?}", arrived.headers["accept"]);
    same(&direct, &made, StatusCode::CREATED, None)?;
    let read = Ask::get(format!("{collection}/election"));
    let direct = probe.past(&read).await?;
    let proxied = probe.unforwarded(&read).await?;
    ensure!(direct.text().contains("ringside-compatibility"), "the ring does not hold it: {}", direct.text());
    ensure!(proxied.body == made.body, "{}", proxied.text());
    Ok(Outcome::Changed(FROM_MEMORY))
}

/// One lock on the API server, and one that the proxy answers for, through the same life.
async fn lived(probe: Probe, twins: Twins) -> Result<Outcome> {
    let Twins { lock: Lock { collection, record, renewal, operations }, real: on_server, learned: in_memory } = twins;
    probe.fixture.gone(collection, on_server).await?;
    let (real, learned) = twins.paths();
    let create = |name| Ask::new(Method::POST, collection).body(JSON, record(name, BEGUN).to_string());
    let direct = probe.past(&create(on_server)).await?;
    let proxied = probe.proxied(&create(in_memory)).await?;
    same(&direct, &proxied, StatusCode::CREATED, Some(twins))?;

    let versions = [&direct, &proxied].map(version);
    let [Ok(was), Ok(is)] = versions else { anyhow::bail!("no version: {versions:?}") };
    let renewed = |name: &str, version: &str| {
        let mut lock = record(name, "2026-01-01T00:00:05.000000Z");
        lock["metadata"]["resourceVersion"] = version.into();
        lock.to_string()
    };
    let merge = renewal("2026-01-01T00:00:07.000000Z").to_string();
    let operations = operations().to_string();
    let put = |path: &str, body: String| Ask::new(Method::PUT, path).body(JSON, body);
    let patch = |path: &str, kind: &str, body: &str| Ask::new(Method::PATCH, path).body(kind, body.to_owned());
    let steps = [
        (put(&real, renewed(on_server, &was)), put(&learned, renewed(in_memory, &is)), StatusCode::OK),
        // Of a version that is not the last one any more.
        (put(&real, renewed(on_server, &was)), put(&learned, renewed(in_memory, &is)), StatusCode::CONFLICT),
        (create(on_server), create(in_memory), StatusCode::CONFLICT),
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
            let proxied = probe.unforwarded(&to_memory.clone().accept(form)).await?;
            let told = || format!("{} {}", to_memory.method, String::from_utf8_lossy(&to_memory.body));
            same(&direct, &proxied, status, Some(twins)).with_context(told)?;
        }
    }
    Ok(Outcome::Changed(FROM_MEMORY))
}

impl Twins {
    fn paths(self) -> (String, String) {
        let Lock { collection, .. } = self.lock;
        (format!("{collection}/{}", self.real), format!("{collection}/{}", self.learned))
    }
}

/// As client-go writes it: what comes in protobuf is sent in protobuf.
async fn wired(probe: Probe, twins: Twins) -> Result<Outcome> {
    let Lock { collection, record, renewal, .. } = twins.lock;
    probe.fixture.gone(collection, twins.real).await?;
    let write = |method, path: &str, body: &Answer| {
        Ask::new(method, path).body(PROTOBUF, body.body.clone()).accept(&format!("{PROTOBUF}, */*"))
    };
    // What the API server would make of it has no version yet.
    let draft = async |name| {
        let tried =
            Ask::new(Method::POST, format!("{collection}?dryRun=All")).body(JSON, record(name, BEGUN).to_string());
        probe.past(&tried.accept(PROTOBUF)).await
    };
    let (real, learned) = (draft(twins.real).await?, draft(twins.learned).await?);
    let direct = probe.past(&write(Method::POST, collection, &real)).await?;
    let proxied = probe.proxied(&write(Method::POST, collection, &learned)).await?;
    same(&direct, &proxied, StatusCode::CREATED, Some(twins))?;

    let (to_server, to_memory) = twins.paths();
    let merge = renewal("2026-01-01T00:00:05.000000Z").to_string();
    let patch = |path: &str| Ask::new(Method::PATCH, path).body(MERGE, merge.clone()).accept(PROTOBUF);
    let steps = [
        // What was read is written back.
        (write(Method::PUT, &to_server, &direct), write(Method::PUT, &to_memory, &proxied), StatusCode::OK),
        (patch(&to_server), patch(&to_memory), StatusCode::OK),
        // Of a version that is not the last one any more.
        (write(Method::PUT, &to_server, &direct), write(Method::PUT, &to_memory, &proxied), StatusCode::CONFLICT),
    ];
    for (to_server, to_memory, status) in steps {
        let direct = probe.past(&to_server).await?;
        let proxied = probe.unforwarded(&to_memory).await?;
        same(&direct, &proxied, status, Some(twins)).with_context(|| to_memory.method.to_string())?;
    }
    Ok(Outcome::Changed(FROM_MEMORY))
}

fn version(answer: &Answer) -> Result<String> {
    let lock: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
    Ok(lock["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned())
}

/// Whether both say the same of their locks, but for what is each one's own.
fn same(direct: &Answer, proxied: &Answer, status: StatusCode, twins: Option<Twins>) -> Result<()> {
    ensure!(direct.status == status, "without the proxy {}: {}", direct.status, direct.text());
    ensure!(proxied.status == status, "with it {}: {}", proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    let read = if status.is_success() { status::lock } else { status::read };
    let (one, other) = (read(direct)?, read(proxied)?);
    let one = twins.map_or_else(|| one.to_string(), |twins| one.to_string().replace(twins.real, twins.learned));
    let one: Value = serde_json::from_str(&one)?;
    ensure!(one == other, "{one} became {other}");
    Ok(())
}
