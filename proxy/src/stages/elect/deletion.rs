//! Deletions: of one lock, which may be a dry run, and of many objects, with locks among them.

use bytes::Bytes;
use serde::Deserialize;

use super::super::{context::AdmittedRequest, narrow::with_query};
use crate::{election::Locks, request::Query, status::Refusal};

/// Of `DeleteOptions`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[serde(default)]
    dry_run: Vec<String>,
}

/// Whether a deletion deletes nothing. Where it has a body the API server reads that and nothing else (`DeleteResource` of
/// k8s.io/apiserver). What can't be read here is no dry run: then the lock is taken for deleted, which its controller finds out
/// with its next renewal, and the real one stays.
pub(super) fn is_dry(query: &Query, body: &Bytes) -> bool {
    if body.is_empty() {
        return query.first("dryRun").is_some();
    }
    serde_json::from_slice::<DeleteOptions>(body).is_ok_and(|options| !options.dry_run.is_empty())
}

/// Leaves locks out of a deletion of many: the real ones are the ring's, and not this controller's to delete.
pub(super) fn spare_locks(
    locks: &Locks,
    AdmittedRequest { request, context }: &mut AdmittedRequest,
) -> Result<(), Refusal> {
    let info = &mut context.info;
    let Some(spared) = locks.spared(info) else { return Ok(()) };
    // Ours comes first: whatever stands at the end of the client's own, it has been read by then.
    let theirs = info.query.first("fieldSelector").filter(|it| !it.is_empty()).map(|it| format!(",{it}"));
    info.query.set("fieldSelector", &(spared + theirs.as_deref().unwrap_or_default()));
    *request.uri_mut() = with_query(request.uri(), &info.query.to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_deletion_is_a_dry_run_by_its_body_if_it_has_one() {
        for (query, body, dry) in [
            ("", "", false),
            ("dryRun=All", "", true),
            ("dryRun=All", r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#, false),
            ("dryRun=All", r#"{"dryRun":[]}"#, false),
            ("", r#"{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}"#, true),
            ("dryRun=All", "k8s\0", false),
        ] {
            let is_dry = is_dry(&Query::parse(query).unwrap(), &Bytes::from_static(body.as_bytes()));
            assert_eq!(is_dry, dry, "{query} {body}");
        }
    }
}
