//! A refusal, and the object of an election, as far as each says the same whichever server answers.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{client::Answer, compare::contains, compare::own_answer};

/// What a protobuf body of Kubernetes begins with.
const PROTOBUF: &[u8] = b"k8s\0";

/// What a `Status` says in JSON or YAML, but for the words of its message: those are each server's own.
pub(crate) fn read(answer: &Answer) -> Result<Value> {
    let mut status: Value = serde_saphyr::from_str(&answer.text()).with_context(|| answer.text())?;
    ensure!(status["kind"] == "Status" && status["code"] == answer.status.as_u16(), "{status}");
    ensure!(status["message"].take().is_string(), "{status}");
    Ok(status)
}

/// The reason of a `Status` in JSON.
pub(crate) fn reason(answer: &Answer) -> Result<String> {
    Ok(read(answer)?["reason"].as_str().context("a reason")?.to_owned())
}

/// Whether a refusal of the proxy's own says what the API server's says, in the same form. (Of protobuf no more than the
/// reason: the proxy's own tests read the rest.)
pub(crate) fn same_refusal(direct: &Answer, proxied: &Answer, reason: &str) -> Result<()> {
    ensure!(direct.status == proxied.status, "{} became {}: {}", direct.status, proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    if is_protobuf(direct) {
        let both = [direct, proxied].map(|it| is_protobuf(it) && contains(&it.body, reason.as_bytes()));
        ensure!(both == [true, true], "{} became {}", direct.text(), proxied.text());
        return Ok(());
    }
    let (one, other) = (read(direct)?, read(proxied)?);
    ensure!(one == other && one["reason"] == reason, "{one} became {other}");
    Ok(())
}

/// Whether an answer is Kubernetes' protobuf.
pub(crate) fn is_protobuf(answer: &Answer) -> bool {
    answer.body.starts_with(PROTOBUF)
}

/// What a Lease or a ConfigMap says, or a `Status` of it that is no refusal, but for what each server makes up.
pub(crate) fn lock(answer: &Answer) -> Result<Value> {
    let mut lock: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
    for part in ["metadata", "details"] {
        let made_up = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
        let part = lock.get_mut(part).and_then(Value::as_object_mut);
        part.into_iter().for_each(|part| part.retain(|name, _| !made_up.contains(&name.as_str())));
    }
    Ok(lock)
}
