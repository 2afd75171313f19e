//! A shard that releases nothing: it keeps what it has, and no other shard waits for it.

use std::collections::BTreeMap;

use ringside_e2e::plain_shard::Acknowledger;
use serde_json::json;

use crate::resources::fixture::{Fixture, config_maps, entry, home};

/// Enough that each of four shards has some: a fifth of them moves when the fourth joins.
const OBJECTS: usize = 60;

pub(crate) async fn a_shard_that_releases_nothing_holds_up_no_other(fixture: &Fixture) {
    let (ring, mut shards) = fixture.ready("stuck", json!([entry(&config_maps(), &[])]), 3).await;
    let stuck = shards[0].name().to_string();
    let refuses = stuck.clone();
    let releases = move |shard: &str| shard != refuses;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), releases);
    let objects = ring.own(&config_maps());
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("o-{number}")).collect();
    let before: BTreeMap<_, _> = names.iter().map(|name| (name, home(&shards, "stuck", name))).collect();
    for (name, home) in &before {
        objects.create(name).await;
        objects.until_placed(name, home).await;
    }

    let versions = objects.versions().await;
    ring.join_one(&mut shards).await;
    let moves = |name: &str| home(&shards, "stuck", name) != before[&name.to_owned()];
    let (leave, stay): (Vec<_>, Vec<_>) = names.iter().partition(|name| moves(name));
    let (kept, moved): (Vec<_>, Vec<_>) = leave.into_iter().partition(|name| before[name] == stuck);
    assert!(!kept.is_empty() && moved.len() > 1 && !stay.is_empty(), "{kept:?} {moved:?} {stay:?}");
    for name in &moved {
        objects.until_with(name, &home(&shards, "stuck", name)).await;
    }
    // Nor does what is new wait, whichever shard gets it.
    for number in 0..OBJECTS / 4 {
        let name = format!("new-{number}");
        objects.create(&name).await;
        objects.until_placed(&name, &home(&shards, "stuck", &name)).await;
    }
    for name in kept {
        assert_eq!(objects.until_drained(name).await.0.as_ref(), Some(&stuck));
    }
    // Those that stay where they are were not written to.
    let now = objects.versions().await;
    for name in stay {
        assert_eq!(now[name], versions[name], "{name}");
    }
    ring.delete().await;
}
