//! A JSON patch (RFC 6902): which owners its operations would write, wherever their paths point.

use serde::Deserialize;
use serde_json::Value;

use super::{MetadataToWrite, Owner, ToWrite, Unreadable, json};

#[derive(Deserialize)]
struct Operation {
    #[serde(default)]
    op: String,
    /// Absent in what no API server takes.
    path: Option<String>,
    value: Option<Value>,
}

/// The owners in a patch, whether or not they control.
///
/// Of a `copy` or `move` the value stands in the object, which is not known here: to where owners are it can't be judged.
pub(super) fn owners(body: &[u8]) -> Result<Vec<Owner>, Unreadable> {
    let operations: Vec<Operation> = json(body)?;
    let mut owners = Vec::new();
    for Operation { op, path, value } in operations {
        let Some(path) = path else { continue };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let is_about_owners = matches!(&segments[..], [] | ["metadata"] | ["metadata", "ownerReferences", ..]);
        if is_about_owners && matches!(&*op, "copy" | "move") {
            return Err(Unreadable::Malformed(format!(
                "a JSON patch that fills {path:?} by {op} can't be judged; give the value"
            )));
        }
        let Some(value) = value else { continue };
        match segments.as_slice() {
            [] => owners.extend(read::<ToWrite>(value)?.parts().1.unwrap_or_default()),
            ["metadata"] => {
                let metadata: Option<MetadataToWrite> = read(value)?;
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
