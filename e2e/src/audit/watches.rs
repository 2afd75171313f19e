//! When a shard's controller was shown objects: its watches, as the API server wrote them down.

use std::{collections::HashMap, path::Path};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use percent_encoding::percent_decode_str;
use ringside_ring::RingLabels;
use serde::Deserialize;

use super::{AuditError, User, lines};

/// A watch of a shard's controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The shard.
    pub shard: String,
    /// The resource.
    pub resource: String,
    /// When its answer began.
    pub from: Timestamp,
    /// When it ended; none where it had not, or its API server was killed.
    pub until: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Reference,
    stage_timestamp: MicroTime,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    resource: String,
}

/// The watches in the log that were narrowed to a share of the ring: those of controllers. A proxy's own watch asks for what
/// is drained.
pub fn watches(path: &Path, labels: &RingLabels) -> Result<Vec<Watch>, AuditError> {
    let narrowed = format!("!{}", labels.drain);
    let mut watches: HashMap<String, Watch> = HashMap::new();
    lines(path, |line| {
        let event: Event = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let is_narrowed = || percent_decode_str(&event.request_uri).decode_utf8_lossy().contains(&narrowed);
        if event.verb != "watch" || !is_narrowed() {
            return Ok(());
        }
        let Some(shard) = event.user.pod() else { return Ok(()) };
        let at = event.stage_timestamp.0;
        match &*event.stage {
            "ResponseStarted" => {
                let (shard, resource) = (shard.clone(), event.object_ref.resource);
                watches.insert(event.id, Watch { shard, resource, from: at, until: None });
            }
            // One that was refused never began.
            _ => {
                if let Some(watch) = watches.get_mut(&event.id) {
                    watch.until = Some(at);
                }
            }
        }
        Ok(())
    })?;
    Ok(watches.into_values().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::audit::POD_NAME;

    fn labels() -> RingLabels {
        RingLabels::of(&"websites".parse().unwrap())
    }

    /// What v1.37.0 writes of a watch.
    fn event(id: &str, stage: &str, selector: &str, second: u8) -> Value {
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": stage, "auditID": id,
            "requestURI": format!("/api/v1/configmaps?labelSelector={selector}&watch=true"), "verb": "watch",
            "user": {"username": "x", "extra": {POD_NAME: ["shard-1"]}},
            "objectRef": {"resource": "configmaps", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 200},
            "stageTimestamp": format!("2026-01-02T03:04:{second:02}.000000Z"),
        })
    }

    fn read(events: &[Value]) -> Vec<Watch> {
        let folder = TempDir::new().unwrap();
        let log = folder.path().join("audit.log");
        fs::write(&log, events.iter().flat_map(|event| [event.to_string(), "\n".to_owned()]).collect::<String>())
            .unwrap();
        watches(&log, &labels()).unwrap()
    }

    #[test]
    fn a_watch_goes_from_its_answer_to_its_end() {
        let selector = format!("x%3Dshard-1%2C%21{}", labels().drain.replace('/', "%2F"));
        let began = event("a", "ResponseStarted", &selector, 5);
        let [open] = &read(std::slice::from_ref(&began))[..] else { panic!("one") };
        assert_eq!((&*open.shard, &*open.resource, open.until), ("shard-1", "configmaps", None));
        let [ended] = &read(&[began, event("a", "ResponseComplete", &selector, 9)])[..] else { panic!("one") };
        assert_eq!(ended.until.unwrap().duration_since(ended.from).as_secs(), 4);
        assert_eq!(read(&[event("a", "ResponseComplete", &selector, 9)]), [], "it was refused");
    }

    #[test]
    fn the_watch_of_a_proxy_itself_and_what_is_no_watch_show_a_controller_nothing() {
        let own = event("a", "ResponseStarted", &format!("x%3Dshard-1%2C{}", labels().drain.replace('/', "%2F")), 5);
        let mut list = event("b", "ResponseStarted", &format!("%21{}", labels().drain), 5);
        list["verb"] = json!("list");
        assert_eq!(read(&[own, list]), []);
    }
}
