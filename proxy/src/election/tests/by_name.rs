//! Locks that are known by their names.

use super::{
    super::record::{LASTS, Record},
    *,
};
use crate::access::Handout;

/// Of an elector that writes who leads, and when it was renewed, and nothing else.
fn bare(name: &str) -> Object {
    let mut lease = lease(name, "a");
    let LeaseSpec { holder_identity, renew_time, .. } = lease.spec.unwrap();
    lease.spec = Some(LeaseSpec { holder_identity, renew_time, ..LeaseSpec::default() });
    Object::Lease(lease)
}

fn naming(name: &str) -> Server {
    Server(Locks::new("ns".into()).with_named([name.to_owned()].into()))
}

#[test]
fn a_lease_that_is_named_is_a_lock_by_its_holder_alone() {
    let (held, name) = (bare("lock"), of_lease("lock"));
    for asked in [making(Kind::Lease), LockRequest::Replace(name.clone())] {
        for media_type in [JSON, PROTOBUF] {
            for other in [Server::new(), naming("another")] {
                assert_eq!(other.ask(&asked, media_type, &held), None, "no user names it, so it passes");
            }
            let server = naming("lock");
            let (_, made) = server.ask(&asked, media_type, &held).unwrap().unwrap();
            assert_eq!(content(&made), content(&held), "{media_type}");
            assert_eq!(server.0.led(), std::slice::from_ref(&name));
        }
    }
}

#[test]
fn a_patch_and_an_apply_make_a_lease_that_is_named_a_lock() {
    let (held, patch) = (bare("lock"), LockRequest::Patch(of_lease("lock")));
    let body = Bytes::from(r#"{"spec":{"holderIdentity":"a","renewTime":"2026-01-01T00:00:00.000000Z"}}"#);
    for media_type in ["application/merge-patch+json", "application/apply-patch+yaml"] {
        let (parts, server) = (parts_of(media_type, JSON), naming("lock"));
        assert!(server.0.may_begin(&patch, &parts, &body, "shard-a"), "{media_type}");
        assert_eq!(Server::new().tried(&patch, &parts, &body, &held), None, "{media_type}");
        assert_eq!(server.tried(&patch, &parts, &body, &held).unwrap().unwrap().0, 200, "{media_type}");
    }
}

#[test]
fn a_name_makes_no_lock_of_what_nobody_holds_or_what_is_a_shards() {
    let mut shards = lease("lock", "a");
    shards.metadata.labels = Some([(RingKind::ClusterRing.names().lease_label.to_owned(), "ring".to_owned())].into());
    let free = [Kind::Lease, Kind::ConfigMap].map(|kind| record(kind, "lock", ""));
    for object in free.into_iter().chain([Object::Lease(shards)]) {
        assert_eq!(naming("lock").ask(&making(object.kind()), JSON, &object), None, "{object:?}");
    }
    let own = naming("shard-a").ask(&making(Kind::Lease), JSON, &bare("shard-a"));
    assert_eq!(own, None, "the Lease of this shard");
}

#[test]
fn a_lock_that_does_not_say_how_long_it_lasts_is_held_for_as_long_as_by_default() {
    let held = bare("lock");
    let of_the_ring = Record::for_ring(Kind::Lease, "ringside-example", None, Some(&held));
    assert_eq!((of_the_ring.holder(), of_the_ring.lasts()), (Some("ringside-example"), LASTS));
    assert_eq!(held.lasts(), LASTS);
}

#[test]
fn what_looks_like_a_lock_takes_no_room_from_one_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let kept = || Kept::new(Handout::to(folder.path().to_owned()));
    let name = of_lease("lock");
    let locks = Locks::kept_in("ns".into(), kept()).with_named([name.name.clone()].into());
    let server = Server(locks.with_room(20 << 10));
    let create = |name: &str| server.ask(&making(Kind::Lease), JSON, &record(Kind::Lease, name, "a")).unwrap();
    let full = (0..1000).find(|n| create(&format!("lock-{n}")).is_err()).unwrap();
    assert_eq!(create("lock").unwrap().0, 201);
    server.0.wait_until_kept();
    assert_eq!(Locks::kept_in("ns".into(), kept()).led().len(), full + 1, "as the next proxy knows");
    server.delete(&name, JSON);
    assert_eq!(create("one-too-many").unwrap_err().answer().0, 403, "nor is its room another's");
    assert_eq!(create("lock").unwrap().0, 201);
    server.delete(&of_lease("lock-7"), JSON);
    assert_eq!(create("one-more").unwrap().0, 201);
    assert!(server.0.knows(&name));
}

#[test]
fn a_deletion_of_many_leaves_out_a_lease_that_is_named_before_it_was_written_here() {
    let server = naming("lock");
    let spared = |path: &str| {
        let info = RequestInfo::of(&http::Method::DELETE, &path.parse().unwrap(), &HeaderMap::new());
        server.0.spared(&info.unwrap().unwrap())
    };
    let leases = spared("/apis/coordination.k8s.io/v1/namespaces/ns/leases");
    assert_eq!(leases.as_deref(), Some("metadata.name!=lock"));
    assert_eq!(spared("/apis/coordination.k8s.io/v1/namespaces/other/leases"), None);
    assert_eq!(spared("/api/v1/namespaces/ns/configmaps"), None, "what shows no record may be anything");
}
