//! Writes to an election Lease, in any form, and what is answered from memory afterwards. The input: two digits for the
//! content type and the kind of write, and two bodies.
#![no_main]

use bytes::Bytes;
use http::{Request, Response, header, request::Parts};
use libfuzzer_sys::fuzz_target;
use ringside_proxy::election::{Asked, Locks};

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
const RECORD: &str = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"lock","namespace":"ns",
    "resourceVersion":"7"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,"leaseTransitions":1,
    "acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000000Z"}}"#;

fn head(content_type: &str) -> Parts {
    let request = Request::builder().header(header::CONTENT_TYPE, content_type).header(header::ACCEPT, content_type);
    // The header values above are valid.
    request.body(()).expect("a request").into_parts().0
}

fuzz_target!(|input: &[u8]| {
    let [kind, asked, bodies @ ..] = input else { return };
    let border = bodies.windows(BORDER.len()).position(|it| it == BORDER);
    let (first, second) = border.map_or((bodies, &bodies[..0]), |at| (&bodies[..at], &bodies[at + BORDER.len()..]));
    let locks = Locks::new("ns".into());
    let content_type = CONTENT_TYPES[usize::from(*kind) % CONTENT_TYPES.len()];
    let parts = head(content_type);
    let writes = [Asked::Create, Asked::Replace("lock".into()), Asked::Patch("lock".into())];
    let asked = &writes[usize::from(*asked) % writes.len()];
    let (first, second) = (Bytes::copy_from_slice(first), Bytes::copy_from_slice(second));
    // Nothing is known, so nothing is answered.
    assert!(locks.answer(asked, &parts, &first).is_none());
    locks.may_begin(asked, &parts, &first, "shard");
    // An API server that sends anything.
    let tried = Response::builder().header(header::CONTENT_TYPE, content_type).body(first.clone()).expect("a response");
    let _ = Locks::new("ns".into()).adopt(asked, &parts, &first, &tried, "shard");
    // And one that sends what it should.
    let tried = Response::builder().header(header::CONTENT_TYPE, "application/json");
    let tried = tried.body(Bytes::from_static(RECORD.as_bytes())).expect("a response");
    let adopted = locks.adopt(asked, &parts, &Bytes::new(), &tried, "shard");
    assert!(adopted.is_some_and(|answer| answer.is_ok()));
    for body in [&first, &second] {
        let _ = locks.answer(asked, &parts, body);
        let read = locks.answer(&Asked::Read("lock".into()), &parts, &Bytes::new());
        assert!(read.is_some_and(|answer| answer.is_ok()), "the lock is gone, and nobody deleted it");
    }
});
