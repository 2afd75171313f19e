//! Writes to an election's lock, in any form, and what is answered from memory afterwards. The input: a digit for the
//! content type, one for the kinds of lock and of write (0 to 2 of a Lease, 3 to 5 of a ConfigMap), and two bodies.

use bytes::Bytes;
use http::{Request, Response, header, request::Parts};
use ringside_proxy::election::{Judgement, Kind, LockName, LockRequest, Locks};

/// Between the bodies of two writes.
const BORDER: &[u8] = b"\n--\n";

const CONTENT_TYPES: [&str; 6] = [
    "application/json",
    "application/vnd.kubernetes.protobuf",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// What the API server would have stored of the write that began an election.
const LEASE: &str = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lock","namespace":"ns",
    "resourceVersion":"7"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"leaseTransitions":1,
    "acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z"}}"#;
const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"lock","namespace":"ns",
    "resourceVersion":"7","annotations":{"control-plane.alpha.kubernetes.io/leader":"{\"holderIdentity\":\"a\"}"}}}"#;

fn head(content_type: &str) -> Parts {
    let request = Request::builder().header(header::CONTENT_TYPE, content_type).header(header::ACCEPT, content_type);
    // The header values above are valid.
    request.body(()).expect("a request").into_parts().0
}

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let [kind, asked, bodies @ ..] = input else { return };
    let border = bodies.windows(BORDER.len()).position(|it| it == BORDER);
    let (first, second) = border.map_or((bodies, &bodies[..0]), |at| (&bodies[..at], &bodies[at + BORDER.len()..]));
    let locks = Locks::new("ns".into());
    let content_type = CONTENT_TYPES[usize::from(*kind) % CONTENT_TYPES.len()];
    let parts = head(content_type);
    let kinds = [(Kind::Lease, LEASE), (Kind::ConfigMap, CONFIG_MAP)];
    let (kind, record) = kinds[usize::from(*asked / 3) % kinds.len()];
    let name = LockName { kind, namespace: "ns".into(), name: "lock".into() };
    let writes =
        [LockRequest::Create(kind, "ns".into()), LockRequest::Replace(name.clone()), LockRequest::Patch(name.clone())];
    let asked = &writes[usize::from(*asked) % writes.len()];
    let (first, second) = (Bytes::copy_from_slice(first), Bytes::copy_from_slice(second));
    // Nothing is known, so nothing is answered.
    assert!(locks.answer(asked, &parts, &first).is_none());
    locks.may_begin(asked, &parts, &first, "shard");
    // An API server that sends anything.
    let tried = Response::builder().header(header::CONTENT_TYPE, content_type).body(first.clone()).expect("a response");
    if let Ok(Judgement::Begins(judged)) = locks.judge(asked, &first, &tried, "shard") {
        let _ = Locks::new("ns".into()).adopt(asked, &parts, &first, *judged);
    }
    Locks::may_free(asked, &parts, &first);
    let _ = Locks::new("ns".into()).read(&name, &parts.headers, &first, "a");
    // And one that sends what it should.
    let tried = Response::builder().header(header::CONTENT_TYPE, "application/json");
    let tried = tried.body(Bytes::from_static(record.as_bytes())).expect("a response");
    let judged = locks.judge(asked, record.as_bytes(), &tried, "shard");
    let Ok(Judgement::Begins(judged)) = judged else { panic!("it is an election's") };
    assert!(locks.adopt(asked, &parts, &Bytes::new(), *judged).is_ok());
    for body in [&first, &second] {
        locks.claimed(asked, &parts, body);
        let _ = locks.answer(asked, &parts, body);
        let read = locks.answer(&LockRequest::Read(name.clone()), &parts, &Bytes::new());
        assert!(read.is_some_and(|answer| answer.is_ok()), "the lock is gone, and no request deleted it");
    }
}
