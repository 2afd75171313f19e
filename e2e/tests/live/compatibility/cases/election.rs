//! The lock of the controller's election, a Lease or a ConfigMap, which the API server judges and does not store: each answer
//! beside what the API server answers of one that it has.

use super::*;

const FROM_MEMORY: &str = "tried on the API server, which is told that the ring leads, and then answered from memory, without \
                           `managedFields`: each shard's controller leads its share";

/// What a lock is, and what is written into it.
#[derive(Clone, Copy)]
pub(super) struct Lock {
    pub(super) collection: &'static str,
    /// The whole of it, by its name and when it was renewed.
    pub(super) record: fn(&str, &str) -> Value,
    /// A merge patch that renews it then.
    renewal: fn(&str) -> Value,
    /// A JSON patch that renews it.
    operations: fn() -> Value,
}

const LEASE: Lock = Lock {
    collection: LEASES,
    record: |name, renewed| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {
                "holderIdentity": "me", "leaseDurationSeconds": 60, "leaseTransitions": 0,
                "acquireTime": BEGUN, "renewTime": renewed,
            },
        })
    },
    renewal: |renewed| json!({"spec": {"renewTime": renewed}}),
    operations: || json!([{"op": "replace", "path": "/spec/leaseTransitions", "value": 1}]),
};

const CONFIG_MAP: Lock = Lock {
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
        "holderIdentity": "me", "leaseDurationSeconds": 60, "leaderTransitions": 0, "acquireTime": BEGUN, "renewTime": renewed,
    });
    record.to_string()
}

pub(super) const LOCKS: [(&str, Lock); 2] = [("Lease", LEASE), ("ConfigMap", CONFIG_MAP)];

/// The form in which a controller writes its lock, and the names of one on the API server and of one that the proxy answers
/// for. They have the same length.
type Twins = (&'static str, [&'static str; 2]);

const TWINS: [(&str, Twins); 2] = [
    ("JSON", (JSON, ["on-the-server", "in-the-memory"])),
    // As client-go writes it.
    ("protobuf", (PROTOBUF, ["wired-on-the-server", "wired-in-the-memory"])),
];

pub(crate) fn cases() -> Vec<Case> {
    let begin = by_form("beginning of an election", LOCKS, begun);
    let forms = LOCKS.into_iter().flat_map(|(kind, lock)| {
        TWINS.map(|(form, twins)| (format!("{kind}: create, update, patch, get, delete, in {form}"), (lock, twins)))
    });
    begin.chain(by_form("election", forms, lived)).collect()
}

/// The controller is told that it leads, and the API server that the ring does.
async fn begun(probe: Probe, lock: Lock) -> Result<Outcome> {
    let Lock { collection, record, .. } = lock;
    let create = |target: &str| Ask::new(Method::POST, target).body(JSON, record("election", BEGUN).to_string());
    let (create, tried) = (create(collection), create(&format!("{collection}?dryRun=All")));
    let direct = probe.past(&tried).await?;
    let made = probe.proxied(&create.accept("application/json, */*")).await?;
    let arrived = probe.arrived_as(&tried, Rewritten { headers: &["accept", "accept-encoding"], ..AS_SENT })?;
    changes::note_query(part::DRY_RUN);
    ensure!(arrived.headers["accept"] == JSON, "{:?}", arrived.headers["accept"]);
    same(&direct, &made, StatusCode::CREATED, ["", ""])?;
    let read = Ask::get(format!("{collection}/election"));
    let (direct, proxied) = (probe.past(&read).await?, probe.unforwarded(&read).await?);
    ensure!(direct.text().contains("ringside-compatibility"), "the ring does not hold it: {}", direct.text());
    ensure!(proxied.body == made.body, "{}", proxied.text());
    Ok(Outcome::Changed(FROM_MEMORY))
}

/// One lock on the API server, and one that the proxy answers for, through the same life.
async fn lived(probe: Probe, (lock, (form, names)): (Lock, Twins)) -> Result<Outcome> {
    let Lock { collection, record, renewal, operations } = lock;
    probe.fixture.gone(collection, names[0]).await?;
    let paths = names.map(|name| format!("{collection}/{name}"));
    let mut creates = Vec::new();
    for name in names {
        let create = Ask::new(Method::POST, collection).body(JSON, record(name, BEGUN).to_string());
        // What the API server would make of it is there in protobuf too, and has no version yet.
        let tried = Ask { target: format!("{collection}?dryRun=All"), ..create.clone() }.accept(PROTOBUF);
        creates.push(match form {
            JSON => create,
            _ => Ask::new(Method::POST, collection).body(form, probe.past(&tried).await?.done()?.body).accept(JSON),
        });
    }
    let direct = probe.past(&creates[0]).await?;
    let proxied = probe.proxied(&creates[1]).await?;
    same(&direct, &proxied, StatusCode::CREATED, names)?;

    let version = |made: &Answer| {
        let made: Value = serde_json::from_slice(&made.body)?;
        Ok::<_, anyhow::Error>(made["metadata"]["resourceVersion"].clone())
    };
    let versions = [version(&direct)?, version(&proxied)?];
    let of_both = |ask: &dyn Fn(usize) -> Ask| [ask(0), ask(1)];
    let renew = of_both(&|side| {
        let mut lock = record(names[side], "2026-01-01T00:00:05.000000Z");
        lock["metadata"]["resourceVersion"] = versions[side].clone();
        Ask::new(Method::PUT, &paths[side]).body(JSON, lock.to_string())
    });
    let patch = |kind, body: Value| of_both(&|side| Ask::new(Method::PATCH, &paths[side]).body(kind, body.to_string()));
    let get = of_both(&|side| Ask::get(&paths[side]));
    let delete = of_both(&|side| Ask::new(Method::DELETE, &paths[side]));
    let steps = [
        (renew.clone(), StatusCode::OK),
        // Of a version that is not the last one any more.
        (renew, StatusCode::CONFLICT),
        ([creates[0].clone(), creates[1].clone()], StatusCode::CONFLICT),
        (patch(MERGE, renewal("2026-01-01T00:00:07.000000Z")), StatusCode::OK),
        (patch(JSON_PATCH, operations()), StatusCode::OK),
        (get.clone(), StatusCode::OK),
        (delete.clone(), StatusCode::OK),
        (get, StatusCode::NOT_FOUND),
        (delete, StatusCode::NOT_FOUND),
    ];
    for ([to_server, to_memory], status) in steps {
        let (direct, proxied) = (probe.past(&to_server).await?, probe.unforwarded(&to_memory).await?);
        let told = || format!("{} {}", to_memory.method, String::from_utf8_lossy(&to_memory.body));
        same(&direct, &proxied, status, names).with_context(told)?;
    }
    Ok(Outcome::Changed(FROM_MEMORY))
}

/// Whether both say the same of their locks, but for what is each one's own.
fn same(direct: &Answer, proxied: &Answer, status: StatusCode, [real, learned]: [&str; 2]) -> Result<()> {
    ensure!(direct.status == status, "without the proxy {}: {}", direct.status, direct.text());
    ensure!(proxied.status == status, "with it {}: {}", proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    let read = if status.is_success() { status::lock } else { status::read };
    let (one, other) = (read(direct)?, read(proxied)?);
    let one: Value = serde_json::from_str(&one.to_string().replace(real, learned))?;
    ensure!(one == other, "{one} became {other}");
    Ok(())
}
