//! Watches in protobuf, as clients in Go watch what is built in.

use prost::Message as _;

use super::*;
use crate::{frames::behind_length, wire};

#[tokio::test(start_paused = true)]
async fn what_left_meanwhile_is_told_as_a_whole_in_protobuf() {
    let object = |name: &str, version: &str| {
        let metadata = wire::Metadata {
            name: name.into(),
            namespace: "ns".into(),
            uid: format!("uid-{name}"),
            resource_version: version.into(),
            owner_references: vec![wire::OwnerReference { name: "o".into(), ..wire::OwnerReference::default() }],
            ..wire::Metadata::default()
        };
        wire::AnyMetadata { metadata: Some(metadata) }
    };
    let deleted = |object: &wire::AnyMetadata| {
        let extension = wire::RawExtension { raw: wire::wrap("x.io/v1", "Thing", object) };
        let event = wire::WatchEvent { event_type: "DELETED".into(), object: Some(extension) };
        behind_length(&event.encode_to_vec())
    };
    let (server, first) = mpsc::unbounded::<Bytes>();
    let first = Mutex::new(Some(first));
    let first = move |_: &Seen| {
        let pieces = first.lock().take().unwrap().map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
        protobuf(boxed(StreamBody::new(pieces)))
    };
    let gone = || {
        let mut gone = json(full("{}"));
        *gone.status_mut() = StatusCode::GONE;
        gone
    };
    let metadata = wire::ListMeta { resource_version: "12".into(), ..wire::ListMeta::default() };
    let items = [("a", "7"), ("b", "8")].map(|(name, version)| object(name, version).encode_to_vec().into()).into();
    let then = wire::wrap("x.io/v1", "ThingList", &wire::List { metadata: Some(metadata), items });
    let then = move || protobuf(full(then.clone()));
    let lab = restarted::restarted(first, |_| protobuf(silent().into_body()), gone, then);
    let mut request = ask("GET", "/apis/x.io/v1/things?watch=1&resourceVersion=5");
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(PROTOBUF));
    let mut body = lab.send(request).await.into_body();
    let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
    server.unbounded_send(deleted(&object("z", "12"))).unwrap();
    assert_eq!(next().await, deleted(&object("z", "12")));
    lab.shared.gate.close();
    server.close_channel();
    let event = wire::WatchEvent::decode(next().await.slice(4..)).unwrap();
    let told = wire::unwrap(&event.object.unwrap().raw).unwrap();
    assert_eq!((&*event.event_type, told.type_meta.unwrap().kind), ("DELETED", "Thing".to_owned()));
    assert_eq!(wire::AnyMetadata::decode(told.raw).unwrap(), object("a", "40"));
}
