//! When a shard was heard: what it wrote, to its Lease and else; and when its Lease was taken from it.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use k8s_openapi::jiff::Timestamp;
use ringside_ring::lease::SHARDER_HOLDER;

use super::{
    event::{Event, Response, Spec},
    lines,
};
use crate::system::SHARDER_USER;

/// What arrived of a shard, and about its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// When the Lease was written, in order, and who had it then.
    pub lease: Vec<(Timestamp, Holder)>,
    /// When anything else arrived that its Pod wrote, or was to write, in order.
    pub wrote: Vec<Timestamp>,
}

/// Who has a shard's Lease after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The shard.
    Shard,
    /// Perhaps the shard: its write was not answered, or with an error of the API server.
    PerhapsShard,
    /// The sharder, which took it.
    Sharder,
    /// Perhaps the sharder: the same of its update.
    PerhapsSharder,
    /// No holder: it was released.
    Nobody,
}

/// A write of a Lease that was carried out.
struct Written {
    received: Timestamp,
    answered: Timestamp,
    /// The version that it was made of, where it said so.
    of: Option<String>,
    /// The version that it made.
    version: Option<String>,
}

/// Whether nothing was carried out between the writes before and after that time: the later was made of what the earlier made.
fn nothing_landed(at: Timestamp, written: &[Written]) -> bool {
    let before = written.iter().filter(|write| write.answered < at).max_by_key(|write| write.answered);
    let after = written.iter().filter(|write| write.received > at).min_by_key(|write| write.received);
    let made = before.and_then(|before| before.version.as_ref());
    made.is_some() && made == after.and_then(|after| after.of.as_ref())
}

/// Who has a shard's Lease after a write of this Pod.
fn holder(spec: &Spec, shard: &str, pod: Option<&String>) -> Option<Holder> {
    match spec.holder_identity.as_deref() {
        None | Some("") => Some(Holder::Nobody),
        Some(SHARDER_HOLDER) => Some(Holder::Sharder),
        Some(holder) => (holder == shard && pod.is_some_and(|pod| pod == shard)).then_some(Holder::Shard),
    }
}

/// What the log says of each shard, by its name, which is that of its Pod and of its Lease.
pub fn heard(path: &Path) -> anyhow::Result<BTreeMap<String, Heard>> {
    let mut all: BTreeMap<String, Heard> = BTreeMap::new();
    // Writes of shards to their own Leases, and of the sharder, which takes them by an update, of which it is not known what
    // came of them.
    let mut under_way: HashMap<String, (String, Timestamp, Holder)> = HashMap::new();
    let mut written: HashMap<String, Vec<Written>> = HashMap::new();
    lines(path, 0, |line| {
        let event = Event::parse(line)?;
        if !event.is_write() {
            return Ok(());
        }
        let (pod, received) = (event.user.pod(), event.request_received_timestamp.0);
        if event.object_ref.resource != "leases" {
            // A write has a line for each of its stages.
            if let Some(pod) = pod {
                all.entry(pod.clone()).or_default().wrote.push(received);
            }
            return Ok(());
        }
        if event.stage == "RequestReceived" {
            let name = event.object_ref.name;
            let takes = event.user.username == SHARDER_USER && event.verb == "update";
            let asked = (pod == Some(&name)).then_some(Holder::PerhapsShard);
            if let Some(holder) = asked.or(takes.then_some(Holder::PerhapsSharder)) {
                under_way.insert(event.id, (name, received, holder));
            }
            return Ok(());
        }
        let code = event.response_status.code;
        // What the API server failed to do, it may have done all the same.
        if code < 500 {
            under_way.remove(&event.id);
        }
        // A create names it in its answer.
        if (200..300).contains(&code)
            && let Some(Response { metadata, spec: Some(spec), .. }) = event.response_object
        {
            let name = metadata.name.unwrap_or_default();
            let of = event.request_object.as_ref().and_then(|sent| sent.pointer("/metadata/resourceVersion")?.as_str());
            let of = of.map(str::to_owned);
            written.entry(name.clone()).or_default().push(Written {
                received,
                answered: event.stage_timestamp.0,
                of,
                version: metadata.resource_version,
            });
            // Another Lease, or a client labels this one.
            let Some(holder) = holder(&spec, &name, pod) else { return Ok(()) };
            all.entry(name).or_default().lease.push((received, holder));
        }
        Ok(())
    })?;
    for (name, received, holder) in under_way.into_values() {
        if written.get(&name).is_some_and(|written| nothing_landed(received, written)) {
            continue;
        }
        all.entry(name).or_default().lease.push((received, holder));
    }
    for heard in all.values_mut() {
        heard.lease.sort_by_key(|(at, _)| *at);
        heard.wrote.sort_unstable();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::audit::POD_NAME;

    /// What v1.37.0 writes of a write.
    fn event(id: &str, stage: &str, pod: Option<&str>, resource: &str, name: &str, second: u8) -> Value {
        let extra = pod.map(|pod| json!({POD_NAME: [pod]})).unwrap_or(json!({}));
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": stage, "auditID": id,
            "requestURI": format!("/apis/x/v1/namespaces/default/{resource}/{name}"), "verb": "update",
            "user": {"username": "x", "extra": extra}, "objectRef": {"resource": resource, "name": name},
            "responseStatus": {"metadata": {}, "code": 200},
            "requestReceivedTimestamp": format!("2026-01-02T03:04:{second:02}.000000Z"),
            "stageTimestamp": format!("2026-01-02T03:04:{second:02}.000000Z"),
        })
    }

    fn lease(id: &str, pod: Option<&str>, holder: Option<&str>, second: u8) -> Value {
        let mut event = event(id, "ResponseComplete", pod, "leases", "a", second);
        event["responseObject"] = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": holder}});
        event
    }

    fn read(events: &[Value]) -> BTreeMap<String, Heard> {
        let folder = TempDir::new().unwrap();
        let log = folder.path().join("audit.log");
        fs::write(&log, events.iter().flat_map(|event| [event.to_string(), "\n".to_owned()]).collect::<String>())
            .unwrap();
        heard(&log).unwrap()
    }

    #[test]
    fn a_lease_goes_from_its_shard_to_the_sharder_and_back() {
        let mut refused = lease("e", Some("a"), Some("a"), 5);
        refused["responseStatus"]["code"] = json!(409);
        let all = read(&[
            lease("c", None, Some(SHARDER_HOLDER), 3),
            lease("g", None, Some("a"), 2),
            event("a", "RequestReceived", Some("a"), "leases", "a", 1),
            lease("a", Some("a"), Some("a"), 1),
            lease("d", Some("a"), None, 4),
            event("b", "RequestReceived", Some("a"), "leases", "a", 2),
            refused,
            lease("f", Some("a"), Some("ringside-websites"), 6),
        ]);
        let [(name, heard)] = &all.into_iter().collect::<Vec<_>>()[..] else { panic!("one") };
        let lease: Vec<_> = heard.lease.iter().map(|(at, holder)| (at.as_second() % 60, *holder)).collect();
        let expected = [(1, Holder::Shard), (2, Holder::PerhapsShard), (3, Holder::Sharder), (4, Holder::Nobody)];
        assert_eq!((&**name, &lease[..]), ("a", &expected[..]));
        assert_eq!(heard.wrote, []);
    }

    #[test]
    fn who_asked_for_a_lease_and_got_no_answer_may_have_it() {
        let mut take = event("b", "RequestReceived", None, "leases", "a", 2);
        take["user"]["username"] = json!(SHARDER_USER);
        let mut label = take.clone();
        (label["auditID"], label["verb"]) = (json!("c"), json!("patch"));
        let mut failed = event("d", "ResponseComplete", Some("a"), "leases", "a", 3);
        failed["responseStatus"]["code"] = json!(504);
        let renewal = |id, second| event(id, "RequestReceived", Some("a"), "leases", "a", second);
        let all = read(&[renewal("a", 1), take, label, renewal("d", 3), failed]);
        let holders: Vec<_> = all["a"].lease.iter().map(|(_, holder)| *holder).collect();
        assert_eq!(holders, [Holder::PerhapsShard, Holder::PerhapsSharder, Holder::PerhapsShard]);
    }

    #[test]
    fn what_was_not_answered_did_not_land_where_the_next_write_is_made_of_the_one_before() {
        let made = |mut event: Value, of: &str, version: &str| {
            event["requestObject"] = json!({"metadata": {"resourceVersion": of}});
            event["responseObject"]["metadata"]["resourceVersion"] = json!(version);
            event
        };
        let asked = event("b", "RequestReceived", Some("a"), "leases", "a", 2);
        let mut patch = event("d", "ResponseComplete", Some("a"), "websites", "x", 2);
        patch["requestObject"] = json!([{"op": "test", "path": "/metadata/uid", "value": "u"}]);
        let takes = made(lease("a", None, Some(SHARDER_HOLDER), 1), "6", "7");
        for (of, landed) in [("7", false), ("8", true)] {
            let all = read(&[
                takes.clone(),
                asked.clone(),
                patch.clone(),
                made(lease("c", Some("a"), Some("a"), 3), of, "9"),
            ]);
            assert_eq!(all["a"].lease.iter().any(|(_, holder)| *holder == Holder::PerhapsShard), landed);
        }
        // What was under way when it arrived may have been carried out after it.
        let mut slow = takes;
        slow["stageTimestamp"] = json!("2026-01-02T03:04:02.500000Z");
        let all = read(&[slow, asked, made(lease("c", Some("a"), Some("a"), 3), "7", "9")]);
        assert!(all["a"].lease.iter().any(|(_, holder)| *holder == Holder::PerhapsShard));
    }

    #[test]
    fn what_a_pod_was_to_write_counts_answered_or_not_and_what_it_only_tried_does_not() {
        let mut tried = event("b", "ResponseComplete", Some("a"), "websites", "x", 3);
        tried["requestURI"] = json!("/apis/x/v1/namespaces/default/websites/x?dryRun=All");
        let mut get = event("c", "ResponseComplete", Some("a"), "websites", "x", 4);
        get["verb"] = json!("get");
        let all = read(&[event("a", "RequestReceived", Some("a"), "websites", "x", 2), tried, get]);
        assert_eq!(all["a"].wrote.iter().map(|at| at.as_second() % 60).collect::<Vec<_>>(), [2]);
        assert_eq!(read(&[event("a", "RequestReceived", None, "websites", "x", 2)]), BTreeMap::new());
    }
}
