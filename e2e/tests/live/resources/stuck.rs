//! A shard that lets go of nothing: it keeps what it has, and nobody else waits for it.

use std::collections::BTreeMap;

use ringside_e2e::plain_shard::Acknowledger;
use serde_json::json;

use crate::resources::fixture::{Fixture, config_maps, entry, home, team};

/// Enough that each of four shards has some: a fifth of them moves when the fourth joins.
const OBJECTS: usize = 60;

pub(crate) async fn holds_up_only_its_own(fixture: &Fixture) {
    fixture.namespace("stuck", "stuck").await;
    let ring = fixture.ring("stuck", json!([entry(&config_maps(), &[])]), team("stuck")).await;
    let mut shards = ring.join(3).await;
    let stuck = shards[0].name().to_string();
    let refuses = stuck.clone();
    let lets_go = move |shard: &str| shard != refuses;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &config_maps(), lets_go);
    ring.until_ready_is("True", "").await;
    let objects = ring.objects(&config_maps(), Some("stuck"));
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("o-{number}")).collect();
    let before: BTreeMap<_, _> = names.iter().map(|name| (name, home(&shards, "stuck", name))).collect();
    for (name, home) in &before {
        objects.create(name).await;
        assert_eq!(objects.until_owned(name).await, *home);
    }

    let versions = objects.versions().await;
    ring.join_one(&mut shards).await;
    let moves = |name: &str| home(&shards, "stuck", name) != before[&name.to_owned()];
    let (leave, stay): (Vec<_>, Vec<_>) = names.iter().partition(|name| moves(name));
    let (kept, moved): (Vec<_>, Vec<_>) = leave.into_iter().partition(|name| before[name] == stuck);
    assert!(!kept.is_empty() && moved.len() > 1 && !stay.is_empty(), "{kept:?} {moved:?} {stay:?}");
    for name in &moved {
        let home = home(&shards, "stuck", name);
        objects.until(name, "has moved", |owner| *owner == (Some(home.clone()), None)).await;
    }
    // Nor does what is new wait, whoever gets it.
    for number in 0..OBJECTS / 4 {
        let name = format!("new-{number}");
        objects.create(&name).await;
        assert_eq!(objects.until_owned(&name).await, home(&shards, "stuck", &name));
    }
    for name in kept {
        objects.until(name, "is asked for", |(shard, drain)| shard.as_ref() == Some(&stuck) && drain.is_some()).await;
    }
    // Those that stay where they are were not written to.
    let now = objects.versions().await;
    for name in stay {
        assert_eq!(now[name], versions[name], "{name}");
    }
    ring.delete().await;
}
