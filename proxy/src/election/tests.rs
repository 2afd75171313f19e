//! An election as controllers hold it, over JSON and protobuf.
#![allow(clippy::unwrap_used)]

use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::{
    api::coordination::v1::LeaseSpec,
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};

use prost::Message;

use super::*;
use crate::wire;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn record(name: &str, holder: &str) -> Lease {
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

type Answered = Option<Result<(u16, Lease), LockRefusal>>;

impl Server {
    fn new() -> Self {
        Self(Locks::new("ns".into()))
    }

    fn ask(&self, asked: &Asked, media_type: &str, lease: &Lease) -> Answered {
        self.raw(asked, media_type, media_type, &codec::encode(lease, encoding(media_type)))
    }

    fn raw(&self, asked: &Asked, content: &str, accept: &str, body: &Bytes) -> Answered {
        let mut parts = parts(content);
        parts.headers.insert(header::ACCEPT, accept.parse().unwrap());
        if let Some(answer) = self.0.answer(asked, &parts, body) {
            return Some(read(answer, accept));
        }
        let mut stored = codec::decode(&parts.headers, body)?;
        self.0.may_begin(asked, &parts, body, "shard-a").then_some(())?;
        stored.metadata.uid.get_or_insert("real".into());
        stored.metadata.creation_timestamp.get_or_insert(born());
        self.tried(asked, &parts, body, &stored)
    }

    /// What the answer says: an API server shows no object that is gone.
    fn delete(&self, name: &str, accept: &str) -> String {
        let mut parts = parts(JSON);
        parts.headers.insert(header::ACCEPT, accept.parse().unwrap());
        let answer = self.0.answer(&Asked::Delete(name.into()), &parts, &Bytes::new()).unwrap().unwrap();
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
        let details = ["name", "group", "kind", "uid"].map(|field| status["details"][field].as_str().unwrap());
        said([status["status"].as_str().unwrap(), details[0], details[1], details[2], details[3]])
    }

    fn tried(&self, asked: &Asked, parts: &Parts, body: &Bytes, stored: &Lease) -> Answered {
        let accept = parts.headers[header::ACCEPT].to_str().unwrap();
        let code = if *asked == Asked::Create { 201 } else { 200 };
        let tried = Response::builder().status(code).header(header::CONTENT_TYPE, accept);
        let tried = tried.body(codec::encode(stored, encoding(accept))).unwrap();
        Some(read(self.0.adopt(asked, parts, body, &tried, "shard-a")?, accept))
    }
}

fn read(answer: Result<Response<Body>, LockRefusal>, accept: &str) -> Result<(u16, Lease), LockRefusal> {
    let (head, body) = answer?.into_parts();
    assert_eq!(head.headers[header::CONTENT_TYPE], accept);
    let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
    Ok((head.status.as_u16(), codec::decode(&head.headers, &bytes).unwrap()))
}

fn named(name: &str, verb: Verb) -> RequestInfo {
    let uri: http::Uri = format!("/apis/coordination.k8s.io/v1/namespaces/ns/leases/{name}").parse().unwrap();
    RequestInfo { verb, ..RequestInfo::of(&http::Method::GET, &uri, &http::HeaderMap::new()).unwrap() }
}

#[test]
fn an_election_goes_as_with_the_api_server() {
    for media_type in [JSON, PROTOBUF] {
        let server = Server::new();
        let (replace, read) = (Asked::Replace("lock".into()), Asked::Read("lock".into()));
        assert_eq!(
            server.0.concerns(&named("lock", Verb::Get)),
            None,
            "until it is learned, reads are the API server's"
        );
        let (code, created) = server.ask(&Asked::Create, media_type, &record("lock", "a_1")).unwrap().unwrap();
        assert_eq!(code, 201);
        assert_eq!(created.metadata.uid.as_deref(), Some("real"), "as the API server's dry run said");
        assert_eq!(created.metadata.creation_timestamp, Some(born()));
        assert_eq!(created.spec, record("lock", "a_1").spec, "{media_type}");
        assert_eq!(server.0.concerns(&named("lock", Verb::Get)), Some(read.clone()));

        let again = server.ask(&Asked::Create, media_type, &record("lock", "a_2")).unwrap();
        assert_eq!(again, Err(LockRefusal::AlreadyExists("lock".into())));

        let (_, renewed) = server.ask(&replace, media_type, &created).unwrap().unwrap();
        assert_eq!(renewed.metadata.uid, created.metadata.uid);
        let versions =
            [&created, &renewed].map(|it| it.metadata.resource_version.clone().unwrap().parse::<u64>().unwrap());
        assert!(versions[1] > versions[0]);
        assert_eq!(server.ask(&replace, media_type, &created).unwrap(), Err(LockRefusal::Conflict("lock".into())));

        let mut released = renewed;
        released.spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(server.ask(&replace, media_type, &released).unwrap().unwrap().0, 200);
        let (_, seen) = server.raw(&read, media_type, media_type, &Bytes::new()).unwrap().unwrap();
        assert_eq!(seen.spec.unwrap().holder_identity.as_deref(), Some(""));

        let deleted = server.delete("lock", media_type);
        assert!(deleted.starts_with("Success lock coordination.k8s.io leases real"), "{deleted}");
        assert_eq!(server.raw(&read, JSON, JSON, &Bytes::new()).unwrap(), Err(LockRefusal::NotFound("lock".into())));
        let (code, anew) = server.ask(&Asked::Create, media_type, &record("lock", "a_3")).unwrap().unwrap();
        assert_eq!((code, anew.metadata.uid == created.metadata.uid), (201, false));
        assert!(versions[1] < anew.metadata.resource_version.unwrap().parse().unwrap(), "versions never come again");
    }
}

#[test]
fn what_is_no_election_is_the_api_servers() {
    let server = Server::new();
    let mut heartbeat = record("node", "node");
    heartbeat.spec.as_mut().unwrap().acquire_time = None;
    let mut shard = record("other-shard", "other-shard");
    shard.metadata.labels = Some([(LEASE_RING.to_owned(), "ring".to_owned())].into());
    let mut free = record("free", "");
    free.spec.as_mut().unwrap().holder_identity = Some(String::new());
    for lease in [heartbeat, shard, free, record("shard-a", "x")] {
        for asked in [Asked::Create, Asked::Replace(lease.metadata.name.clone().unwrap())] {
            assert_eq!(server.ask(&asked, JSON, &lease), None, "{lease:?}");
        }
    }
    assert_eq!(server.raw(&Asked::Create, JSON, JSON, &Bytes::from_static(b"{")), None);
    let elsewhere = RequestInfo::of(
        &http::Method::PUT,
        &"/apis/coordination.k8s.io/v1/namespaces/other/leases/lock".parse().unwrap(),
        &http::HeaderMap::new(),
    );
    assert_eq!(server.0.concerns(&elsewhere.unwrap()), None);
    assert_eq!(server.0.concerns(&named("lock", Verb::Watch)), None);
}

#[test]
fn a_lock_that_was_real_goes_on_from_its_version() {
    let server = Server::new();
    let mut real = record("lock", "a");
    real.metadata.resource_version = Some("4711".into());
    real.metadata.uid = Some("u1".into());
    let (_, mine) = server.ask(&Asked::Replace("lock".into()), PROTOBUF, &real).unwrap().unwrap();
    assert_eq!(mine.metadata.uid.as_deref(), Some("u1"));
    assert_eq!(mine.metadata.resource_version.as_deref(), Some("4712"));
}

#[test]
fn patches_change_a_lock_and_make_one() {
    const MERGE: &str = "application/merge-patch+json";
    let server = Server::new();
    let patch = Asked::Patch("lock".into());
    let takeover = Bytes::from(r#"{"spec":{"holderIdentity":"b"}}"#);
    let parts = parts_of(MERGE, PROTOBUF);
    assert!(server.0.may_begin(&patch, &parts, &takeover, "shard-a"));
    let mut free = record("lock", "");
    free.spec.as_mut().unwrap().acquire_time = None;
    assert_eq!(server.tried(&patch, &parts, &takeover, &free), None, "it came to no election record");
    let adopted = server.tried(&patch, &parts, &takeover, &record("lock", "b"));
    assert_eq!(adopted.unwrap().unwrap().0, 200);

    let renewal = Bytes::from(r#"{"spec":{"leaseDurationSeconds":30}}"#);
    let (code, lease) = server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!((code, spec.holder_identity.as_deref(), spec.lease_duration_seconds), (200, Some("b"), Some(30)));
    let stale = Bytes::from(r#"{"metadata":{"resourceVersion":"1"},"spec":{"leaseDurationSeconds":40}}"#);
    server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    assert_eq!(server.raw(&patch, MERGE, JSON, &stale).unwrap(), Err(LockRefusal::Conflict("lock".into())));
    assert!(matches!(server.raw(&patch, "text/plain", JSON, &renewal).unwrap(), Err(LockRefusal::PatchType(_))));
}

#[test]
fn a_patch_that_leaves_the_spec_alone_begins_no_election() {
    let locks = Locks::new("ns".into());
    let begins = |body: &'static str| {
        locks.may_begin(&Asked::Patch("lock".into()), &parts(JSON), &Bytes::from_static(body.as_bytes()), "shard-a")
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
    let lease = record("lock", "a");
    let (parts, body) = (parts(JSON), codec::encode(&lease, Encoding::Json));
    // Both were judged before either was answered.
    assert_eq!(server.tried(&Asked::Create, &parts, &body, &lease).unwrap().unwrap().0, 201);
    let second = server.tried(&Asked::Create, &parts, &body, &lease).unwrap();
    assert_eq!(second, Err(LockRefusal::AlreadyExists("lock".into())));
}

#[test]
fn an_answer_that_cannot_be_read_is_never_followed_by_the_write_itself() {
    let locks = Locks::new("ns".into());
    let tried = Response::new(Bytes::from_static(b"<html>"));
    let answer = locks.adopt(&Asked::Create, &parts(JSON), &Bytes::new(), &tried, "shard-a");
    assert!(matches!(answer, Some(Err(LockRefusal::Answer))));
}

#[test]
fn no_more_locks_are_kept_than_fit_and_deleted_ones_make_room() {
    let server = Server::new();
    let create = |n: usize| server.ask(&Asked::Create, JSON, &record(&format!("lock-{n}"), "a")).unwrap();
    for n in 0..MAX_LOCKS {
        assert_eq!(create(n).unwrap().0, 201);
    }
    let refused = create(MAX_LOCKS).unwrap_err();
    assert!(refused.to_string().contains("'lock-32'") && refused.to_string().contains("32 others"), "{refused}");
    assert_eq!(refused.code(), 403);
    server.delete("lock-7", JSON);
    assert_eq!(create(MAX_LOCKS).unwrap().0, 201);
    assert_eq!(server.0.concerns(&named("lock-7", Verb::Get)), None, "forgotten");
    assert!(server.0.concerns(&named("lock-8", Verb::Get)).is_some());
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
    let sent = codec::decode(&parts(PROTOBUF).headers, &body).unwrap();
    assert_eq!(sent.metadata.creation_timestamp, None);
    let (_, created) = server.raw(&Asked::Create, PROTOBUF, PROTOBUF, &body).unwrap().unwrap();
    assert_eq!(created.spec.unwrap().renew_time, None);
}
