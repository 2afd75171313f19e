//! A refusal, read in whatever form it came.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{client::Answer, compare::own_answer};

/// What a protobuf body of Kubernetes begins with.
const MAGIC: &[u8] = b"k8s\0";

/// What a `Status` says, but for the words of its message: those are each server's own.
pub(crate) fn read(answer: &Answer) -> Result<Value> {
    if let Some(raw) = object(answer)? {
        return protobuf(&raw);
    }
    let mut status: Value = serde_saphyr::from_str(&answer.text()).with_context(|| answer.text())?;
    ensure!(status["kind"] == "Status" && status["message"].take().is_string(), "{status}");
    Ok(status)
}

/// Whether a refusal of the proxy's own says what the API server's says, in the same form.
pub(crate) fn same_refusal(direct: &Answer, proxied: &Answer) -> Result<()> {
    ensure!(direct.status == proxied.status, "{} became {}: {}", direct.status, proxied.status, proxied.text());
    own_answer(direct, proxied)?;
    let (one, other) = (read(direct)?, read(proxied)?);
    ensure!(one == other, "{one} became {other}");
    Ok(())
}

/// What a Lease or a ConfigMap says, or a `Status` of it that is no refusal, but for what each server makes up. Of protobuf by
/// the numbers of the fields (k8s.io/api/coordination/v1 and k8s.io/apimachinery).
pub(crate) fn lock(answer: &Answer) -> Result<Value> {
    /// uid, resourceVersion, creationTimestamp, managedFields.
    const MADE_UP: [u64; 4] = [5, 6, 8, 17];
    let Some(raw) = object(answer)? else {
        let mut lease: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
        for part in ["metadata", "details"] {
            let made_up = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
            let part = lease.get_mut(part).and_then(Value::as_object_mut);
            part.into_iter().for_each(|part| part.retain(|name, _| !made_up.contains(&name.as_str())));
        }
        return Ok(lease);
    };
    let mut read = json!({});
    for (number, part) in fields(&raw)? {
        for (field, value) in fields(&part)?.into_iter().filter(|(field, _)| number != 1 || !MADE_UP.contains(field)) {
            // Of the spec, the times.
            let value = if number == 2 && [3, 4].contains(&field) { json!(fields(&value)?) } else { text(&value) };
            read[number.to_string()][field.to_string()] = value;
        }
    }
    Ok(read)
}

/// By the numbers of the fields (`Status` and `StatusDetails` in k8s.io/apimachinery's generated.proto). What is empty is not
/// there: Go writes it, others don't.
fn protobuf(status: &[u8]) -> Result<Value> {
    let mut read = json!({});
    for (number, value) in fields(status)? {
        match number {
            1 | 3 => {}
            5 => {
                for (number, value) in fields(&value)? {
                    read["details"][number.to_string()] = text(&value);
                }
            }
            number => read[number.to_string()] = text(&value),
        }
    }
    ensure!(!read["4"].is_null() && !read["6"].is_null(), "no reason and no code: {read}");
    Ok(read)
}

/// The object in a body of protobuf, if it is one.
fn object(answer: &Answer) -> Result<Option<Vec<u8>>> {
    let Some(unknown) = answer.body.strip_prefix(MAGIC) else { return Ok(None) };
    let raw = fields(unknown)?.into_iter().find(|(number, _)| *number == 2);
    Ok(Some(raw.context("an object")?.1))
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

/// Numbers and contents of a message's fields that are not empty; of a number its digits.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => match varint(&mut bytes)? {
                0 => Vec::new(),
                number => number.to_string().into_bytes(),
            },
            2 => {
                let length = usize::try_from(varint(&mut bytes)?)?;
                let (value, rest) = bytes.split_at_checked(length).context("a field is cut")?;
                bytes = rest;
                value.to_vec()
            }
            other => anyhow::bail!("no field of a Status is of wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields.retain(|(_, value)| !value.is_empty());
    Ok(fields)
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().context("a number is cut")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    anyhow::bail!("a number is too long")
}
