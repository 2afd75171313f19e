//! A proxy that stands still until others have its objects: the first that its controller hears is what is not its own any more.

use std::{collections::BTreeSet, net::Ipv6Addr};

use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use ringside_e2e::{control_plane::AnotherApiServer, line::Line, website::Website};
use tokio::time::timeout;

use super::fixture::{DEADLINE, Fixture, LEASE};

const OBJECTS: usize = 20;

type Events<'a> = BoxStream<'a, kube::Result<WatchEvent<Website>>>;

async fn next(events: &mut Events<'_>) -> Option<WatchEvent<Website>> {
    timeout(DEADLINE, events.try_next()).await.expect("the watch says nothing").expect("the watch is cut")
}

/// What it finds when it wakes.
enum Connections {
    Last,
    Ended,
    /// They have ended, and the API server began after others had its objects: it knows of no event before.
    EndedWithTheirServer,
}

async fn told(fixture: &Fixture, name: &str, connections: Connections) {
    let ring = fixture.ring(name).await;
    let line = Line::to(fixture.api_server()).await.unwrap();
    let shard = fixture.shard(&ring, name, &format!("https://{}", line.address()), None).await;
    let _heir = fixture.plain(&ring, &format!("{name}-heir"), LEASE).await;
    fixture.until_counted(&ring, 2).await;
    fixture.create(&ring, OBJECTS).await;
    let mut owners = fixture.until_owned(&ring, OBJECTS, |owners| owners.contains_key(name)).await;
    let mut leaving = owners.remove(name).unwrap();

    let websites = Api::<Website>::namespaced(shard.proxy.client().await.unwrap(), name);
    let mut events: Events<'_> = websites.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    // The bookmark behind them says where the watch is: without it, it could not go on.
    let (mut shown, mut is_placed) = (BTreeSet::new(), false);
    while shown != leaving || !is_placed {
        match next(&mut events).await {
            Some(WatchEvent::Added(website)) => drop(shown.insert(website.name_any())),
            Some(WatchEvent::Bookmark(_)) => is_placed = true,
            Some(WatchEvent::Modified(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    shard.proxy.process.pause().unwrap();
    if !matches!(connections, Connections::Last) {
        // Before anything is on them that it would find when it wakes.
        line.lead_to((Ipv6Addr::LOCALHOST, 1).into());
    }
    fixture.until_owned(&ring, OBJECTS, |owners| !owners.contains_key(name)).await;
    let another = if matches!(connections, Connections::EndedWithTheirServer) {
        Some(fixture.system.control_plane().start_another_api_server().await.unwrap())
    } else {
        None
    };
    line.lead_to(another.as_ref().map_or_else(|| fixture.api_server(), AnotherApiServer::address));
    shard.proxy.process.resume().unwrap();
    // The watch ends as soon as the shard has its Lease back, so it may not name all of them.
    let end = loop {
        match next(&mut events).await {
            Some(WatchEvent::Deleted(website)) => assert!(leaving.remove(&website.name_any())),
            // One that waited in the proxy.
            Some(WatchEvent::Bookmark(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(&end, Some(WatchEvent::Error(status)) if status.code == 410), "{end:?}");
    assert!(next(&mut events).await.is_none());
    let listed = websites.list_metadata(&ListParams::default()).await.unwrap();
    let kept: Vec<_> = listed.iter().map(ResourceExt::name_any).filter(|name| leaving.contains(name)).collect();
    assert!(kept.is_empty(), "a client that lists again keeps {kept:?}");
}

pub(crate) async fn tells(fixture: &Fixture) {
    tokio::join!(
        told(fixture, "waking", Connections::Last),
        told(fixture, "waking-alone", Connections::Ended),
        told(fixture, "waking-anew", Connections::EndedWithTheirServer),
    );
}
