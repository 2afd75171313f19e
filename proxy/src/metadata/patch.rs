//! A JSON patch (RFC 6902): which owners its operations would write, wherever their paths point.

use serde::Deserialize;
use serde_json::Value;

use super::{Owner, Unreadable, Written, WrittenMetadata, json};

#[derive(Deserialize)]
struct Operation {
    /// Absent in what no API server takes.
    path: Option<String>,
    value: Option<Value>,
}

/// The owners in a patch, whether or not they control.
///
/// A `copy` or `move` of what stands elsewhere in the object is not followed: nobody keeps owner references elsewhere.
pub(super) fn owners(body: &[u8]) -> Result<Vec<Owner>, Unreadable> {
    let operations: Vec<Operation> = json(body)?;
    let mut owners = Vec::new();
    for Operation { path, value } in operations {
        let (Some(path), Some(value)) = (path, value) else { continue };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match segments.as_slice() {
            [] => owners.extend(Written::owners(read(value)?)),
            ["metadata"] => {
                let metadata: Option<WrittenMetadata> = read(value)?;
                owners.extend(metadata.and_then(|it| it.owner_references).unwrap_or_default());
            }
            ["metadata", "ownerReferences"] => {
                let all: Option<Vec<Owner>> = read(value)?;
                owners.extend(all.unwrap_or_default());
            }
            ["metadata", "ownerReferences", _] => owners.push(read(value)?),
            // The one that is there becomes a controller, or another object: which one is meant can't be said.
            ["metadata", "ownerReferences", _, "controller" | "uid"] => {
                return Err(Unreadable::Malformed(format!("a JSON patch of {path} can't be judged; replace the list")));
            }
            _ => {}
        }
    }
    Ok(owners)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Unreadable> {
    serde_json::from_value(value).map_err(|error| Unreadable::Malformed(error.to_string()))
}
