//! An election as controllers hold it, over JSON and protobuf.
#![allow(clippy::unwrap_used)]

use futures::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

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
    let request = Request::builder().header(header::CONTENT_TYPE, media_type).header(header::ACCEPT, media_type);
    request.body(()).unwrap().into_parts().0
}

fn encoding(media_type: &str) -> Encoding {
    if media_type == PROTOBUF { Encoding::Protobuf } else { Encoding::Json }
}

struct Server(Locks);

impl Server {
    fn new() -> Self {
        Self(Locks::new("ns".into()))
    }

    fn ask(&self, asked: &Asked, media_type: &str, lease: &Lease) -> Option<Result<(u16, Lease), LockRefusal>> {
        let body = codec::encode(lease, encoding(media_type));
        self.raw(asked, media_type, media_type, &body)
    }

    fn raw(
        &self,
        asked: &Asked,
        content: &str,
        accept: &str,
        body: &Bytes,
    ) -> Option<Result<(u16, Lease), LockRefusal>> {
        let mut parts = parts(content);
        parts.headers.insert(header::ACCEPT, accept.parse().unwrap());
        let answer = self.0.answer(asked, &parts, body, "shard-a")?;
        Some(answer.map(|response| {
            assert_eq!(response.headers()[header::CONTENT_TYPE], accept);
            let (head, body) = response.into_parts();
            let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
            (head.status.as_u16(), codec::decode(&head.headers, &bytes).unwrap())
        }))
    }
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
        assert!(created.metadata.uid.is_some() && created.metadata.creation_timestamp.is_some());
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

        assert_eq!(server.raw(&Asked::Delete("lock".into()), JSON, JSON, &Bytes::new()).unwrap().unwrap().0, 200);
        assert_eq!(server.raw(&read, JSON, JSON, &Bytes::new()).unwrap(), Err(LockRefusal::NotFound("lock".into())));
        let (code, anew) = server.ask(&Asked::Create, media_type, &record("lock", "a_3")).unwrap().unwrap();
        assert_eq!((code, anew.metadata.uid == created.metadata.uid), (201, false));
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
    let takeover = Bytes::from(
        r#"{"spec":{"holderIdentity":"b","acquireTime":"2026-01-01T00:00:00.000000Z","leaseTransitions":3}}"#,
    );
    assert_eq!(server.raw(&patch, MERGE, JSON, &takeover), None);
    let mut idle = record("lock", "");
    idle.spec = Some(LeaseSpec::default());
    let base = codec::encode(&idle, Encoding::Json);
    let adopted = server.0.adopt_patched(&patch, &parts(MERGE), &takeover, &base, "shard-a");
    assert!(adopted.unwrap().is_ok());
    let renewal = Bytes::from(r#"{"spec":{"leaseDurationSeconds":30}}"#);
    let (code, lease) = server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!((code, spec.holder_identity.as_deref(), spec.lease_duration_seconds), (200, Some("b"), Some(30)));
    let stale = Bytes::from(r#"{"metadata":{"resourceVersion":"1"},"spec":{"leaseDurationSeconds":40}}"#);
    server.raw(&patch, MERGE, JSON, &renewal).unwrap().unwrap();
    assert_eq!(server.raw(&patch, MERGE, JSON, &stale).unwrap(), Err(LockRefusal::Conflict("lock".into())));
    assert!(matches!(server.raw(&patch, "text/plain", JSON, &renewal).unwrap(), Err(LockRefusal::PatchType(_))));
}

/// client-go writes an unset time as an empty message.
#[test]
fn an_empty_time_is_none() {
    let server = Server::new();
    let mut body = wire::MAGIC.to_vec();
    let spec = b"\x0a\x01a\x1a\x02\x08\x05\x22\x00\x28\x00";
    let lease = [&b"\x0a\x08\x0a\x04lock\x42\x00\x12\x0b"[..], spec].concat();
    body.extend(wire::Unknown { raw: lease.into(), ..wire::Unknown::default() }.encode_to_vec());
    let before = Timestamp::now();
    let (_, created) = server.raw(&Asked::Create, PROTOBUF, PROTOBUF, &body.into()).unwrap().unwrap();
    assert_eq!(created.spec.unwrap().renew_time, None);
    assert!(created.metadata.creation_timestamp.unwrap().0 >= before);
}
