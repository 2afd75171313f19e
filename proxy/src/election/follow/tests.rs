#![allow(clippy::unwrap_used)]

use futures::{FutureExt, future::pending};
use http::HeaderMap;
use k8s_openapi::{
    List,
    api::{coordination::v1::Lease, core::v1::ConfigMap},
    jiff::Timestamp,
};
use prost::Message;

use super::*;
use crate::{
    election::{
        Judged, Kind, codec,
        room::{MAX_BYTES, OVERHEAD},
        tests::record,
    },
    wire,
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const RING: &str = "ringside-example";

fn accept(encoding: Encoding) -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(encoding.media_type()))])
}

/// A lock of this kind that is known, and has this holder.
fn known(kind: Kind, holder: &str) -> (Arc<Locks>, LockName) {
    let (locks, name) =
        (Arc::new(Locks::new("ns".into())), LockName { kind, namespace: "ns".to_owned(), name: "lock".to_owned() });
    let lock = Lock::adopt(name.clone(), record(kind, "lock", holder), Timestamp::now());
    locks.learned.lock().insert(name.clone(), lock);
    (locks, name)
}

fn kinds_and_encodings() -> impl Iterator<Item = (Kind, Encoding)> {
    let both = |kind| [(kind, Encoding::Json), (kind, Encoding::Protobuf)];
    [Kind::Lease, Kind::ConfigMap].into_iter().flat_map(both)
}

#[tokio::test]
async fn an_event_is_in_the_form_that_was_asked_for() {
    for (kind, encoding) in kinds_and_encodings() {
        let (locks, name) = known(kind, "me");
        let wish = WatchOptions::of(&Query::parse("allowWatchBookmarks=1&sendInitialEvents=1").unwrap());
        let response = follow(locks, name, wish, &accept(encoding), pending());
        let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let events = response.into_body().frame().now_or_never().unwrap().unwrap().unwrap().into_data().unwrap();
        let first = match encoding {
            Encoding::Json => {
                assert_eq!(media_type, "application/json");
                events.slice(..events.iter().position(|byte| *byte == b'\n').unwrap())
            }
            Encoding::Protobuf => {
                assert_eq!(media_type, format!("{PROTOBUF};stream=watch"));
                let length = u32::from_be_bytes(events[..4].try_into().unwrap());
                events.slice(4..4 + usize::try_from(length).unwrap())
            }
        };
        let object = codec::decode_event(kind, encoding, &first).unwrap();
        assert_eq!((object.kind(), object.holder().as_deref()), (kind, Some("me")));
    }
}

#[tokio::test]
async fn a_list_is_in_the_form_that_was_asked_for() {
    for (kind, encoding) in kinds_and_encodings() {
        let (locks, name) = known(kind, "me");
        let list = locks.list(&name, &accept(encoding)).unwrap();
        let bytes = list.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
        let version = (APART + 1).to_string();
        let (of, items) = match (kind, encoding) {
            (Kind::Lease, Encoding::Json) => {
                let list: List<Lease> = serde_json::from_slice(&bytes).unwrap();
                (list.metadata.resource_version, list.items.into_iter().map(Object::Lease).collect())
            }
            (Kind::ConfigMap, Encoding::Json) => {
                let list: List<ConfigMap> = serde_json::from_slice(&bytes).unwrap();
                (list.metadata.resource_version, list.items.into_iter().map(Object::ConfigMap).collect())
            }
            (_, Encoding::Protobuf) => {
                let unknown = wire::unwrap(&bytes).unwrap();
                let (api_version, of) = kind.type_meta();
                let types = wire::TypeMeta { api_version: api_version.to_owned(), kind: format!("{of}List") };
                assert_eq!(unknown.type_meta, Some(types));
                let list = wire::List::decode(unknown.raw).unwrap();
                let wrap = |raw| wire::Unknown { raw, ..wire::Unknown::default() }.encode_to_vec();
                let events = list.items.into_iter().map(|raw| {
                    let raw = [wire::MAGIC, &wrap(raw)].concat().into();
                    let event =
                        wire::WatchEvent { event_type: String::new(), object: Some(wire::RawExtension { raw }) };
                    codec::decode_event(kind, encoding, &event.encode_to_vec().into()).unwrap()
                });
                (Some(list.metadata.unwrap().resource_version), events.collect::<Vec<_>>())
            }
        };
        assert_eq!(of.as_ref(), Some(&version));
        let [object] = &items[..] else { panic!("{items:?}") };
        assert_eq!((object.holder().as_deref(), &object.metadata().resource_version), (Some("me"), &Some(version)));
    }
}

#[test]
fn the_ring_is_seen_as_the_holder_in_an_event_of_either_form() {
    for (kind, encoding) in kinds_and_encodings() {
        let (locks, name) =
            (Locks::new("ns".into()), LockName { kind, namespace: "ns".to_owned(), name: "lock".to_owned() });
        let read = |holder: &str| {
            let framed = codec::encode_event("MODIFIED", &record(kind, "lock", holder), encoding);
            // Without what stands between events.
            let event = match encoding {
                Encoding::Json => framed.slice(..framed.len() - 1),
                Encoding::Protobuf => framed.slice(4..),
            };
            locks.read_event(&name, encoding, &event, RING).is_ok()
        };
        assert!(read("old") && read("") && read("ringside-another"));
        assert!(!locks.knows(&name));
        assert!(!read(RING) && locks.knows(&name));
    }
}

#[tokio::test]
async fn who_follows_a_lock_that_is_kept_no_more_is_told() {
    let (locks, name) = known(Kind::Lease, "me");
    let wish = WatchOptions::of(&Query::parse("sendInitialEvents=0").unwrap());
    let watch = follow(locks.clone(), name.clone(), wish, &HeaderMap::new(), pending());
    let mut events = watch.into_body();
    let mut next = || events.frame().now_or_never().map(|frame| frame.unwrap().unwrap().into_data().unwrap());
    assert_eq!(next(), None);
    locks.learned.lock().get_mut(&name).unwrap().delete().unwrap();
    let others = |n| LockName { kind: Kind::Lease, namespace: "ns".to_owned(), name: format!("lock-{n}") };
    let mut large = record(Kind::Lease, "lock-0", "me");
    // It has room alone.
    let padding = MAX_BYTES - OVERHEAD - large.bytes() - 100;
    large.metadata_mut().annotations = Some([("x".to_owned(), "x".repeat(padding))].into());
    locks.make_room(&Judged { name: others(0), object: large, status: http::StatusCode::OK }).unwrap();
    assert_eq!(next(), Some(expired(Encoding::Json)));
}
