//! An election as controllers hold it, over JSON and protobuf.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use futures::FutureExt;
use http::{Request, header};
use http_body_util::BodyExt;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::ConfigMap,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use prost::Message;
use ringside_ring::RingKind;
use ringside_runtime::admin::{Health, Probe};

use super::{lock::APART, object::RECORD, *};
use crate::{request::representation::Encoding, wire};

mod by_name;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn lease(name: &str, holder: &str) -> Lease {
    let time = || Some(MicroTime(Timestamp::new(1_700_000_000, 123_456_000).unwrap()));
    let spec = LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        acquire_time: time(),
        renew_time: time(),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    };
    let mut lease = Lease { spec: Some(spec), ..Lease::default() };
    lease.metadata.name = Some(name.into());
    lease.metadata.namespace = Some("ns".into());
    lease
}

/// As client-go writes the record, but for the fraction of the second: by it renewals differ while a clock is paused.
fn config_map(name: &str, holder: &str) -> ConfigMap {
    let record = format!(
        r#"{{"holderIdentity":"{holder}","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z","leaderTransitions":0}}"#
    );
    let mut map = ConfigMap { data: Some([("a".to_owned(), "b".to_owned())].into()), ..ConfigMap::default() };
    map.binary_data = Some([("c".to_owned(), k8s_openapi::ByteString(vec![0, 255]))].into());
    map.metadata.name = Some(name.into());
    map.metadata.namespace = Some("ns".into());
    map.metadata.annotations = Some([(RECORD.to_owned(), record)].into());
    map
}

pub(super) fn record(kind: Kind, name: &str, holder: &str) -> Object {
    match kind {
        Kind::Lease => Object::Lease(lease(name, holder)),
        Kind::ConfigMap => Object::ConfigMap(config_map(name, holder)),
    }
}

/// What an object holds besides its metadata, and the annotations.
fn content(object: &Object) -> serde_json::Value {
    let mut content = serde_json::to_value(object).unwrap();
    let metadata = content.as_object_mut().unwrap().remove("metadata").unwrap();
    content["annotations"] = metadata["annotations"].clone();
    content
}

fn lock(kind: Kind, name: &str) -> LockName {
    LockName { kind, namespace: "ns".to_owned(), name: name.to_owned() }
}

fn name_of(object: &Object) -> LockName {
    lock(object.kind(), object.metadata().name.as_deref().unwrap())
}

fn making(kind: Kind) -> LockRequest {
    LockRequest::Create(kind, "ns".to_owned())
}

/// Of Leases, as most tests use them.
fn of_lease(name: &str) -> LockName {
    lock(Kind::Lease, name)
}

fn parts(media_type: &str) -> Parts {
    parts_of(media_type, media_type)
}

fn parts_of(content: &str, accept: &str) -> Parts {
    let request = Request::builder().header(header::CONTENT_TYPE, content).header(header::ACCEPT, accept);
    request.body(()).unwrap().into_parts().0
}

fn encoding(media_type: &str) -> Encoding {
    if media_type == PROTOBUF { Encoding::Protobuf } else { Encoding::Json }
}

fn born() -> Time {
    Time(Timestamp::new(1_600_000_000, 0).unwrap())
}

/// The locks before an API server that stores what a dry run sends, under the uid `real`.
struct Server(Locks);

type Answered = Option<Result<(u16, Object), LockRefusal>>;

impl Server {
    fn new() -> Self {
        Self(Locks::new("ns".into()))
    }

    fn ask(&self, asked: &LockRequest, media_type: &str, object: &Object) -> Answered {
        self.raw(asked, media_type, media_type, &codec::encode(object, encoding(media_type)))
    }

    fn raw(&self, asked: &LockRequest, content: &str, accept: &str, body: &Bytes) -> Answered {
        let mut parts = parts(content);
        parts.headers.insert(header::ACCEPT, accept.parse().unwrap());
        if let Some(answer) = self.0.answer(asked, &parts, body) {
            return Some(read(asked.kind(), answer, accept));
        }
        let mut stored = codec::decode(asked.kind(), &parts.headers, body)?;
        self.0.may_begin(asked, &parts, body, "shard-a").then_some(())?;
        stored.metadata_mut().uid.get_or_insert("real".into());
        stored.metadata_mut().creation_timestamp.get_or_insert(born());
        self.tried(asked, &parts, body, &stored)
    }

    /// What the answer says: an API server shows no object that is gone.
    fn delete(&self, name: &LockName, accept: &str) -> String {
        let mut parts = parts(JSON);
        parts.headers.insert(header::ACCEPT, accept.parse().unwrap());
        let answer = self.0.answer(&LockRequest::Delete(name.clone()), &parts, &Bytes::new()).unwrap().unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()[header::CONTENT_TYPE]),
            (200, &accept.parse().unwrap())
        );
        let bytes = answer.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        let said = |it: [&str; 5]| it.join(" ");
        if accept == PROTOBUF {
            let status = wire::Status::decode(wire::unwrap(&bytes).unwrap().raw).unwrap();
            let details = status.details.unwrap();
            return said([&status.status, &details.name, &details.group, &details.kind, &details.uid]);
        }
        let status: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(status["kind"], "Status");
        let details =
            ["name", "group", "kind", "uid"].map(|field| status["details"][field].as_str().unwrap_or_default());
        said([status["status"].as_str().unwrap(), details[0], details[1], details[2], details[3]])
    }

    fn tried(&self, asked: &LockRequest, parts: &Parts, body: &Bytes, stored: &Object) -> Answered {
        let accept = parts.headers[header::ACCEPT].to_str().unwrap();
        let code = if matches!(asked, LockRequest::Create(..)) { 201 } else { 200 };
        let tried = Response::builder().status(code).header(header::CONTENT_TYPE, accept);
        let tried = tried.body(codec::encode(stored, encoding(accept))).unwrap();
        let answer = match self.0.judge(asked, body, &tried, "shard-a") {
            Ok(Judgement::Begins(judged)) => self.0.adopt(asked, parts, body, *judged),
            Ok(_) => return None,
            Err(refusal) => Err(refusal),
        };
        Some(read(asked.kind(), answer, accept))
    }
}

fn read(kind: Kind, answer: Result<Response<Body>, LockRefusal>, accept: &str) -> Result<(u16, Object), LockRefusal> {
    let (head, body) = answer?.into_parts();
    assert_eq!(head.headers[header::CONTENT_TYPE], accept);
    let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
    Ok((head.status.as_u16(), codec::decode(kind, &head.headers, &bytes).unwrap()))
}

fn named(lock: &LockName, verb: Verb) -> RequestInfo {
    let collection = match lock.kind {
        Kind::Lease => "apis/coordination.k8s.io/v1/namespaces/ns/leases",
        Kind::ConfigMap => "api/v1/namespaces/ns/configmaps",
    };
    let uri: http::Uri = format!("/{collection}/{}", lock.name).parse().unwrap();
    RequestInfo { verb, ..RequestInfo::of(&http::Method::GET, &uri, &http::HeaderMap::new()).unwrap().unwrap() }
}

fn an_election(kind: Kind, media_type: &str) {
    let (server, name, record) = (Server::new(), lock(kind, "lock"), |holder| record(kind, "lock", holder));
    let (create, replace, read) = (making(kind), LockRequest::Replace(name.clone()), LockRequest::Read(name.clone()));
    let get = named(&name, Verb::Get);
    assert!(!server.0.knows(&name), "until it is learned, reads are the API server's");
    let (code, created) = server.ask(&create, media_type, &record("a_1")).unwrap().unwrap();
    assert_eq!(code, 201);
    assert_eq!(created.metadata().uid.as_deref(), Some("real"), "as the API server's dry run said");
    assert_eq!(created.metadata().creation_timestamp, Some(born()));
    assert_eq!(content(&created), content(&record("a_1")), "{media_type}");
    assert_eq!(server.0.concerns(&get), Some(read.clone()));
    assert!(server.0.knows(&name));

    let again = server.ask(&create, media_type, &record("a_2")).unwrap();
    assert_eq!(again, Err(LockRefusal::AlreadyExists(name.clone())));

    let (_, renewed) = server.ask(&replace, media_type, &created).unwrap().unwrap();
    assert_eq!(renewed.metadata().uid, created.metadata().uid);
    let version = |object: &Object| object.metadata().resource_version.clone().unwrap().parse::<u64>().unwrap();
    assert!(version(&renewed) > version(&created));
    assert_eq!(server.ask(&replace, media_type, &created).unwrap(), Err(LockRefusal::Conflict(name.clone())));

    let mut released = record("");
    released.metadata_mut().resource_version.clone_from(&renewed.metadata().resource_version);
    assert_eq!(server.ask(&replace, media_type, &released).unwrap().unwrap().0, 200);
    let (_, seen) = server.raw(&read, media_type, media_type, &Bytes::new()).unwrap().unwrap();
    assert_eq!((content(&seen), seen.holder()), (content(&released), None));

    let (group, plural) = kind.names();
    let deleted = server.delete(&name, media_type);
    assert!(deleted.starts_with(&format!("Success lock {group} {plural} real")), "{deleted}");
    assert_eq!(server.raw(&read, JSON, JSON, &Bytes::new()).unwrap(), Err(LockRefusal::NotFound(name.clone())));
    let (code, recreated) = server.ask(&create, media_type, &record("a_3")).unwrap().unwrap();
    assert_eq!((code, recreated.metadata().uid == created.metadata().uid), (201, false));
    assert!(version(&renewed) < version(&recreated), "versions never come again");
}

#[test]
fn an_election_goes_as_with_the_api_server() {
    for kind in [Kind::Lease, Kind::ConfigMap] {
        for media_type in [JSON, PROTOBUF] {
            an_election(kind, media_type);
        }
    }
}

#[test]
fn what_is_no_election_is_the_api_servers() {
    let server = Server::new();
    let mut heartbeat = lease("node", "node");
    heartbeat.spec.as_mut().unwrap().acquire_time = None;
    let mut shard = lease("other-shard", "other-shard");
    shard.metadata.labels = Some([(RingKind::ClusterRing.names().lease_label.to_owned(), "ring".to_owned())].into());
    let leases = [heartbeat, shard, lease("free", ""), lease("shard-a", "x")].map(Object::Lease);
    let annotated = |annotations: Option<BTreeMap<String, String>>| {
        let mut map = config_map("settings", "");
        map.metadata.annotations = annotations;
        Object::ConfigMap(map)
    };
    let with = |record: &str| annotated(Some([(RECORD.to_owned(), record.to_owned())].into()));
    let maps = [annotated(None), with(""), with("{}"), with("a_1"), record(Kind::ConfigMap, "free", "")];
    for object in leases.into_iter().chain(maps) {
        for asked in [making(object.kind()), LockRequest::Replace(name_of(&object))] {
            for media_type in [JSON, PROTOBUF] {
                assert_eq!(server.ask(&asked, media_type, &object), None, "{object:?}");
            }
        }
    }
    assert_eq!(server.raw(&making(Kind::Lease), JSON, JSON, &Bytes::from_static(b"{")), None);
    for elsewhere in [
        "/api/v1/namespaces/other/configmaps/lock",
        "/api/v1/namespaces/ns/secrets/lock",
        "/apis/x.io/v1/namespaces/ns/configmaps/lock",
    ] {
        let put = RequestInfo::of(&http::Method::PUT, &elsewhere.parse().unwrap(), &http::HeaderMap::new());
        assert_eq!(server.0.concerns(&put.unwrap().unwrap()), None, "{elsewhere}");
    }
    assert_eq!(server.0.concerns(&named(&of_lease("lock"), Verb::Watch)), None);
}

/// The Python client's record has no transitions, fabric8's has a duration of another name.
#[test]
fn a_config_map_is_a_lock_by_whatever_record_names_a_holder() {
    for record in [
        r#"{"holderIdentity":"a","leaseDurationSeconds":17,"acquireTime":"2026-01-01 00:00:00","renewTime":"2026-01-01 00:00:00"}"#,
        r#"{"holderIdentity":"a","leaseDuration":15,"acquireTime":1767225600.0,"renewTime":1767225600.0,"leaderTransitions":0}"#,
    ] {
        let mut map = config_map("lock", "");
        map.metadata.annotations = Some([(RECORD.to_owned(), record.to_owned())].into());
        let asked = LockRequest::Replace(lock(Kind::ConfigMap, "lock"));
        assert_eq!(Server::new().ask(&asked, JSON, &Object::ConfigMap(map)).unwrap().unwrap().0, 200, "{record}");
    }
}

#[test]
fn a_lock_that_was_real_goes_on_from_its_version() {
    let server = Server::new();
    let mut real = record(Kind::Lease, "lock", "a");
    real.metadata_mut().resource_version = Some("4711".into());
    real.metadata_mut().uid = Some("u1".into());
    let (_, mine) = server.ask(&LockRequest::Replace(of_lease("lock")), PROTOBUF, &real).unwrap().unwrap();
    assert_eq!(mine.metadata().uid.as_deref(), Some("u1"));
    assert_eq!(mine.metadata().resource_version, Some((APART + 4712).to_string()));
}

#[test]
fn patches_change_a_lock_and_make_one() {
    const MERGE: &str = "application/merge-patch+json";
    let server = Server::new();
    let patch = LockRequest::Patch(of_lease("lock"));
    let takeover = Bytes::from(r#"{"spec":{"holderIdentity":"b"}}"#);
    let parts = parts_of(MERGE, PROTOBUF);
    assert!(server.0.may_begin(&patch, &parts, &takeover, "shard-a"));
    let mut free = lease("lock", "");
    free.spec.as_mut().unwrap().acquire_time = None;
    let free = Object::Lease(free);
    assert_eq!(server.tried(&patch, &parts, &takeover, &free), None, "it came to no election record");
    let adopted = server.tried(&patch, &parts, &takeover, &record(Kind::Lease, "lock", "b"));
    assert_eq!(adopted.unwrap().unwrap().0, 200);

    let renewal = Bytes::from(r#"{"spec":{"leaseDurationSeconds":30}}"#);
    let (code, lease) = server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    let spec = content(&lease)["spec"].clone();
    assert_eq!((code, &spec["holderIdentity"], &spec["leaseDurationSeconds"]), (200, &"b".into(), &30.into()));
    let stale = Bytes::from(r#"{"metadata":{"resourceVersion":"1"},"spec":{"leaseDurationSeconds":40}}"#);
    server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    assert_eq!(server.raw(&patch, MERGE, JSON, &stale).unwrap(), Err(LockRefusal::Conflict(of_lease("lock"))));
    assert!(matches!(server.raw(&patch, "text/plain", JSON, &renewal).unwrap(), Err(LockRefusal::PatchType(_))));
}

#[test]
fn patches_change_a_config_map_and_make_it_a_lock() {
    const OPERATIONS: &str = "application/json-patch+json";
    let (server, name) = (Server::new(), lock(Kind::ConfigMap, "lock"));
    let (patch, parts) = (LockRequest::Patch(name), parts_of(OPERATIONS, JSON));
    let begins = |body: &str| server.0.may_begin(&patch, &parts, &Bytes::from(body.to_owned()), "shard-a");
    for other in [r#"{"data":{"a":"b"}}"#, r#"[{"op":"add","path":"/metadata/annotations/a","value":"b"}]"#] {
        assert!(!begins(other), "{other}");
    }
    assert!(begins(r#"{"metadata":{"annotations":{"control-plane.alpha.kubernetes.io\/leader":"x"}}}"#));
    let take = |holder: &str| {
        let path = "/metadata/annotations/control-plane.alpha.kubernetes.io~1leader";
        let record = format!(r#"{{"holderIdentity":"{holder}"}}"#);
        Bytes::from(serde_json::json!([{"op": "add", "path": path, "value": record}]).to_string())
    };
    assert!(server.0.may_begin(&patch, &parts, &take("a"), "shard-a"));
    let adopted = server.tried(&patch, &parts, &take("a"), &record(Kind::ConfigMap, "lock", "a"));
    assert_eq!(adopted.unwrap().unwrap().0, 200);
    let (code, patched) = server.raw(&patch, OPERATIONS, JSON, &take("b")).unwrap().unwrap();
    assert_eq!((code, patched.holder().as_deref()), (200, Some("b")));
    assert_eq!(content(&patched)["data"], content(&record(Kind::ConfigMap, "lock", "b"))["data"], "all else stays");
}

#[test]
fn a_patch_that_leaves_the_spec_alone_begins_no_election() {
    let locks = Locks::new("ns".into());
    let begins = |body: &'static str| {
        locks.may_begin(
            &LockRequest::Patch(of_lease("lock")),
            &parts(JSON),
            &Bytes::from_static(body.as_bytes()),
            "shard-a",
        )
    };
    for other in [r#"{"metadata":{"labels":{"a":"b"}}}"#, r#"[{"op":"add","path":"/metadata/labels/a","value":"b"}]"#] {
        assert!(!begins(other), "{other}");
    }
    for may in [
        r#"[{"op":"replace","path":"/spec/holderIdentity","value":"b"}]"#,
        r#"[{"op":"add","path":"","value":{}}]"#,
        "apiVersion: coordination.k8s.io/v1\nspec:\n  holderIdentity: b\n",
    ] {
        assert!(begins(may), "{may}");
    }
}

#[test]
fn of_two_first_writes_the_second_meets_what_the_first_made() {
    let server = Server::new();
    let lease = record(Kind::Lease, "lock", "a");
    let (parts, body) = (parts(JSON), codec::encode(&lease, Encoding::Json));
    // Both were judged before either was answered.
    assert_eq!(server.tried(&making(Kind::Lease), &parts, &body, &lease).unwrap().unwrap().0, 201);
    let second = server.tried(&making(Kind::Lease), &parts, &body, &lease).unwrap();
    assert_eq!(second, Err(LockRefusal::AlreadyExists(of_lease("lock"))));
}

#[test]
fn a_patch_begins_an_election_only_if_it_says_who_holds_the_lock() {
    let (lease, asked) = (record(Kind::Lease, "lock", "another"), LockRequest::Patch(of_lease("lock")));
    let tried = Response::builder().header(header::CONTENT_TYPE, JSON).body(codec::encode(&lease, Encoding::Json));
    let (locks, tried) = (Locks::new("ns".into()), tried.unwrap());
    let judged = |body: &str| locks.judge(&asked, body.as_bytes(), &tried, "shard-a").unwrap();
    for renewal in [
        r#"{"spec":{"renewTime":"2026-01-02T03:04:05.000000Z","leaseDurationSeconds":15}}"#,
        r#"[{"op":"test","path":"/spec/holderIdentity","value":"a"},{"op":"replace","path":"/spec/renewTime","value":"x"}]"#,
    ] {
        assert!(matches!(judged(renewal), Judgement::Renews(name) if name == of_lease("lock")), "{renewal}");
    }
    for claim in [
        r#"{"spec":{"holderIdentity":"another"}}"#,
        r#"[{"op":"replace","path":"/spec/holderIdentity","value":"another"}]"#,
        r#"[{"op":"add","path":"/spec","value":{"holderIdentity":"another"}}]"#,
        "spec:\n  holderIdentity: another\n",
    ] {
        assert!(matches!(judged(claim), Judgement::Begins(_)), "{claim}");
    }
}

#[test]
fn an_answer_that_cannot_be_read_is_never_followed_by_the_write_itself() {
    let tried = Response::new(Bytes::from_static(b"<html>"));
    let judged = Locks::new("ns".into()).judge(&making(Kind::Lease), b"{}", &tried, "shard-a");
    assert_eq!(judged.unwrap_err(), LockRefusal::Answer);
}

#[test]
fn a_lock_that_the_ring_holds_is_not_there_for_the_controller_who_may_make_it() {
    for (kind, media_type) in
        [Kind::Lease, Kind::ConfigMap].into_iter().flat_map(|kind| [(kind, JSON), (kind, PROTOBUF)])
    {
        let (server, name) = (Server::new(), lock(kind, "lock"));
        let read = |holder: &str| {
            let mut real = record(kind, "lock", holder);
            real.metadata_mut().resource_version = Some("70".to_owned());
            let body = codec::encode(&real, encoding(media_type));
            server.0.read(&name, &parts(media_type).headers, &body, "ringside-example")
        };
        for other in ["old", "ringside-another", ""] {
            assert_eq!(read(other), Ok(()), "{other}");
            assert!(!server.0.knows(&name), "it is the API server's to show who leads: {other}");
        }
        assert_eq!(read("ringside-example"), Err(LockRefusal::NotFound(name.clone())));
        assert_eq!(server.0.led(), []);
        let create = server.ask(&making(kind), media_type, &record(kind, "lock", "me"));
        let (code, created) = create.unwrap().unwrap();
        assert_eq!((code, created.holder().as_deref()), (201, Some("me")));
        let version: u64 = created.metadata().resource_version.clone().unwrap().parse().unwrap();
        assert_eq!(version, APART + 71, "versions do not go back, and are none of the API server's");
        assert_eq!(server.0.led(), std::slice::from_ref(&name));
        assert_eq!(read("ringside-example"), Ok(()), "it is made by now");
        server.0.forget(&name);
        assert!(!server.0.knows(&name));
    }
}

/// As kubert's and others', whose controllers would find none to apply to for ever.
#[test]
fn an_apply_makes_a_lock_that_is_free_for_the_controller() {
    const APPLY: &str = "application/apply-patch+yaml";
    for kind in [Kind::Lease, Kind::ConfigMap] {
        let (server, name) = (Server::new(), lock(kind, "lock"));
        server.0.learn_free(&name, Some("70")).unwrap();
        let apply = |holder: &str| {
            let mut object = record(kind, "lock", holder);
            // Clients leave it to the path.
            object.metadata_mut().namespace = None;
            Bytes::from(serde_json::to_string(&object).unwrap())
        };
        let merge = server.raw(&LockRequest::Patch(name.clone()), "application/merge-patch+json", JSON, &apply("me"));
        assert_eq!(merge.unwrap(), Err(LockRefusal::NotFound(name.clone())));
        for (status, holder) in [(201, "me"), (200, "other")] {
            let (code, applied) =
                server.raw(&LockRequest::Patch(name.clone()), APPLY, PROTOBUF, &apply(holder)).unwrap().unwrap();
            assert_eq!((code, applied.holder().as_deref()), (status, Some(holder)));
            assert_eq!(name_of(&applied), name.clone());
            assert_eq!(applied.metadata().namespace.as_deref(), Some("ns"));
        }
    }
}

#[test]
fn how_long_a_lock_lasts_is_read_in_every_form_that_clients_write() {
    let lasts = |fields: &str| {
        let mut map = config_map("lock", "");
        map.metadata.annotations = Some([(RECORD.to_owned(), format!(r#"{{"holderIdentity":"a"{fields}}}"#))].into());
        Object::ConfigMap(map).lasts().as_secs_f64()
    };
    for (fields, seconds) in [
        (r#","leaseDurationSeconds":6"#, 6.0),
        (r#","leaseDuration":"17""#, 17.0),
        (r#","leaseDuration":6.5"#, 6.5),
        (r#","leaseDuration":"PT1M5S""#, 65.0),
        (r#","leaseDurationSeconds":1"#, 1.0),
        ("", 15.0),
        (r#","leaseDurationSeconds":0"#, 15.0),
        (r#","leaseDurationSeconds":-3"#, 15.0),
        (r#","leaseDuration":"soon""#, 15.0),
    ] {
        assert!((lasts(fields) - seconds).abs() < 1e-9, "{fields}: {}", lasts(fields));
    }
    for (duration, seconds) in [(Some(6), 6), (Some(0), 15), (Some(-1), 15), (None, 15)] {
        let mut lease = lease("lock", "a");
        lease.spec.as_mut().unwrap().lease_duration_seconds = duration;
        assert_eq!(Object::Lease(lease).lasts().as_secs(), seconds, "{duration:?}");
    }
}

#[test]
fn no_more_locks_are_kept_than_fit_and_deleted_ones_make_room() {
    let check = Health::new().check("locks", Probe::Ready);
    let server = Server(Locks::new("ns".into()).with_room(40 << 10).with_check(check));
    // Of both kinds together.
    let kind = |n: usize| if n.is_multiple_of(2) { Kind::Lease } else { Kind::ConfigMap };
    let create = |n| server.ask(&making(kind(n)), JSON, &record(kind(n), &format!("lock-{n}"), "a")).unwrap();
    let full = (0..1000).find(|n| create(*n).is_err()).unwrap();
    assert!(full > 20, "{full}");
    let refused = create(full).unwrap_err();
    assert!(
        refused.to_string().contains(&format!("\"lock-{full}\"")) && refused.to_string().contains("40960"),
        "{refused}"
    );
    assert_eq!(refused.answer().0, 403);
    // One that is kept may not outgrow the room either.
    let mut grown = record(kind(0), "lock-0", "a");
    grown.metadata_mut().annotations = Some([("x".to_owned(), "x".repeat(40 << 10))].into());
    let replaced = server.ask(&LockRequest::Replace(lock(kind(0), "lock-0")), JSON, &grown).unwrap();
    assert_eq!(replaced.unwrap_err().answer().0, 403);
    let knows = |n| server.0.knows(&lock(kind(n), &format!("lock-{n}")));
    for n in [6, 7] {
        server.delete(&lock(kind(n), &format!("lock-{n}")), JSON);
    }
    assert_eq!(create(full).unwrap().0, 201);
    assert!(knows(8), "only what was deleted makes room");
}

/// As of a controller whose reconcilers each elect by buckets.
#[test]
fn a_controller_may_lead_by_hundreds_of_locks() {
    let server = Server::new();
    for n in 0..600 {
        let name = format!("r{}.{:02}-of-10", n / 10, n % 10);
        assert_eq!(server.ask(&making(Kind::Lease), JSON, &record(Kind::Lease, &name, "a")).unwrap().unwrap().0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_finds_no_room_shows_in_readiness_until_it_is_given_up() {
    let health = Health::new();
    let locks = Locks::new("ns".into()).with_room(2 << 10).with_check(health.check("locks", Probe::Ready));
    assert_eq!(health.failures(Probe::Ready), [""; 0]);
    let server = Server(locks);
    let create = |n| server.ask(&making(Kind::Lease), JSON, &record(Kind::Lease, &format!("lock-{n}"), "a")).unwrap();
    let full = (0..10).find(|n| create(*n).is_err()).unwrap();
    let failures = health.failures(Probe::Ready).join("");
    assert!(failures.contains(&format!("\"lock-{full}\"")) && failures.contains("--election-lock"), "{failures}");
    tokio::time::advance(Duration::from_secs(119)).await;
    server.0.review_refused();
    assert_eq!(health.failures(Probe::Ready).len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    server.0.review_refused();
    assert_eq!(health.failures(Probe::Ready), [""; 0]);
    assert!(create(full).is_err());
    server.delete(&lock(Kind::Lease, "lock-0"), JSON);
    assert_eq!(create(full).unwrap().0, 201);
    assert_eq!(health.failures(Probe::Ready), [""; 0]);
}

/// Objects that look like locks, and are written once: one for each node, for instance.
#[tokio::test(start_paused = true)]
async fn a_lock_that_the_controller_leads_by_no_more_makes_room() {
    let server = Server(Locks::new("ns".into()).with_room(40 << 10));
    let create = |n| server.ask(&making(Kind::Lease), JSON, &record(Kind::Lease, &format!("lock-{n}"), "a")).unwrap();
    let full = (0..1000).find(|n| create(*n).is_err()).unwrap();
    tokio::time::advance(STANDSTILL).await;
    assert_eq!(create(full).unwrap_err().answer().0, 403);
    tokio::time::advance(Duration::from_secs(16)).await;
    assert_eq!(create(full).unwrap().0, 201);
}

/// Each of these would make the lock twice as long, or nest it once more.
#[test]
fn a_patch_that_copies_or_moves_is_refused() {
    let server = Server::new();
    server.ask(&making(Kind::Lease), JSON, &record(Kind::Lease, "lock", "a")).unwrap().unwrap();
    for op in ["copy", "move"] {
        let patch = format!(r#"[{{"op":"{op}","from":"/metadata","path":"/metadata/x"}}]"#);
        let asked = LockRequest::Patch(lock(Kind::Lease, "lock"));
        let refused = server.raw(&asked, "application/json-patch+json", JSON, &patch.into()).unwrap().unwrap_err();
        assert!(refused.to_string().contains("'copy' or 'move'"), "{refused}");
    }
}

/// client-go writes an unset time as an empty message.
#[test]
fn an_empty_time_is_none() {
    let server = Server::new();
    let mut body = wire::MAGIC.to_vec();
    let spec = b"\x0a\x01a\x1a\x02\x08\x05\x22\x00\x28\x00";
    // The creationTimestamp is empty too.
    let lease = [&b"\x0a\x08\x0a\x04lock\x42\x00\x12\x0b"[..], spec].concat();
    body.extend(wire::Unknown { raw: lease.into(), ..wire::Unknown::default() }.encode_to_vec());
    let body = Bytes::from(body);
    let sent = codec::decode(Kind::Lease, &parts(PROTOBUF).headers, &body).unwrap();
    assert_eq!(sent.metadata().creation_timestamp, None);
    let (_, created) = server.raw(&making(Kind::Lease), PROTOBUF, PROTOBUF, &body).unwrap().unwrap();
    assert!(matches!(created, Object::Lease(lease) if lease.spec.as_ref().unwrap().renew_time.is_none()));
}
