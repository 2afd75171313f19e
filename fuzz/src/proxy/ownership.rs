//! Who controls what a request writes, whose the object in an answer is, and the label that an object gets, in any form. The
//! input: a digit for the content type, and the body.

use bytes::Bytes;
use http::{HeaderMap, header};
use ringside_proxy::{
    labels::insert::with_label,
    metadata::{of_answer, of_list, of_request},
};
use serde_json::Value;

const KEY: &str = "s/k";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const FORMS: [&str; 7] = [
    JSON,
    PROTOBUF,
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/yaml",
];

fn of(form: &str) -> HeaderMap {
    // The names above are valid.
    HeaderMap::from_iter([(header::CONTENT_TYPE, form.parse().expect("a header value"))])
}

/// The uids of the controllers, by another way: the whole object as a tree.
fn in_tree(object: &Value) -> Vec<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let controls = |owner: &Value| owner["controller"] == Value::Bool(true);
    // Without a controller all that are named in full.
    let is_controlled = owners.iter().any(controls);
    let is_named = |owner: &Value| {
        ["apiVersion", "kind", "name"].iter().all(|part| owner[*part].as_str().is_some_and(|text| !text.is_empty()))
    };
    let counts = owners.iter().filter(|owner| if is_controlled { controls(owner) } else { is_named(owner) });
    counts.map(|owner| owner["uid"].as_str().unwrap_or_default()).collect()
}

/// The object gets this label and nothing else, if it gets it.
fn label(form: &str, body: &Bytes) {
    let Some(labelled) = with_label(&of(form), body, KEY, "me") else { return };
    if let (JSON, Ok(mut tree)) = (form, serde_json::from_slice::<Value>(body)) {
        assert!(tree["metadata"]["labels"].get(KEY).is_none());
        tree["metadata"]["labels"][KEY] = "me".into();
        assert_eq!(serde_json::from_slice::<Value>(&labelled).ok(), Some(tree));
    }
    if let (PROTOBUF, Ok(mut metadata)) = (form, of_answer(&of(form), body)) {
        metadata.labels.get_or_insert_default().insert(KEY.to_owned(), "me".to_owned());
        assert_eq!(of_answer(&of(form), &labelled), Ok(metadata));
    }
}

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let [form, body @ ..] = input else { return };
    let form = FORMS[usize::from(*form) % FORMS.len()];
    let body = Bytes::copy_from_slice(body);
    let written = of_request(&of(form), &body);
    let _ = (of_answer(&of(form), &body), of_list(&body));
    label(form, &body);
    let tree: Option<Value> = serde_json::from_slice(&body).ok();
    if form != JSON {
        return;
    }
    // What is read of JSON is what stands there, whatever is skipped around it, and the same is read as YAML.
    if let (Ok(written), Some(tree)) = (&written, &tree) {
        let uids: Vec<_> = written.owners.iter().map(|owner| owner.uid.as_str()).collect();
        assert_eq!(uids, in_tree(tree));
        assert_eq!(written.name.as_deref(), tree["metadata"]["name"].as_str());
        assert_eq!(of_request(&of("application/apply-patch+yaml"), &body).as_ref(), Ok(written));
    }
}
