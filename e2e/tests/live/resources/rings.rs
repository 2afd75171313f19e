//! Rings, their shards and their objects, in whatever order they come.

use kube::ResourceExt as _;
use ringside_e2e::plain_shard::{Acknowledger, PlainShard};
use serde_json::json;

use crate::resources::fixture::{Fixture, config_maps, custom, definition, entry, home, secrets, team};

/// Enough that some move in both of two rings when a shard joins each.
const OBJECTS: usize = 30;

pub(crate) async fn every_kind(fixture: &Fixture) {
    fixture.define(&definition("planets", "Planet", "Cluster", &[("v1", true)])).await;
    fixture.define(&definition("ships", "Ship", "Namespaced", &[("v1", true)])).await;
    fixture.namespace("every-kind", "every-kind").await;
    let (planets, ships) = (custom("v1", "Planet", "planets"), custom("v1", "Ship", "ships"));
    let resources = json!([entry(&planets, &[&secrets()]), entry(&ships, &[]), entry(&config_maps(), &[])]);
    let ring = fixture.ring("every-kind", resources, team("every-kind")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let space = Some("every-kind");
    for (resource, namespace) in [(planets.clone(), None), (ships, space), (config_maps(), space)] {
        let objects = ring.objects(&resource, namespace);
        for name in ["a", "b", "c"] {
            objects.create(name).await;
            objects.until_owned(name).await;
        }
    }
    // A child of an object without namespace is in one.
    let earth = ring.objects(&planets, None).api.get("a").await.unwrap();
    let children = ring.objects(&secrets(), space);
    children.create_under("of-a", &earth).await;
    assert_eq!(children.until_owned("of-a").await, ring.objects(&planets, None).owner("a").await.0.unwrap());
    // And nothing else of the namespace.
    let free = children.create("free").await;
    assert_eq!(children.owner_of(&free), (None, None));
}

pub(crate) async fn generated_names(fixture: &Fixture) {
    fixture.namespace("generated", "generated").await;
    let ring = fixture.ring("generated", json!([entry(&config_maps(), &[])]), team("generated")).await;
    let _shards = ring.join(2).await;
    ring.until_ready_is("True", "").await;
    let objects = ring.objects(&config_maps(), Some("generated"));
    for _ in 0..5 {
        let created = objects.generate("made-up-").await;
        objects.until_owned(&created.name_any()).await;
    }
}

pub(crate) async fn after_everything(fixture: &Fixture) {
    fixture.namespace("afterwards", "afterwards").await;
    let ring = fixture.ring("afterwards", json!([entry(&config_maps(), &[])]), team("afterwards")).await;
    let _shards = ring.join(2).await;
    let objects = ring.objects(&config_maps(), Some("afterwards"));
    objects.create("o").await;
    let before = objects.until_owned("o").await;
    // The ring goes, its shards stay, and it comes again.
    ring.delete().await;
    objects.until_bare("o").await;
    let ring = fixture.ring("afterwards", json!([entry(&config_maps(), &[])]), team("afterwards")).await;
    ring.until_available(2).await;
    assert_eq!(objects.until_owned("o").await, before);
}

pub(crate) async fn several(fixture: &Fixture) {
    fixture.namespace("several", "several").await;
    let resources = json!([entry(&config_maps(), &[])]);
    let one = fixture.ring("several-one", resources.clone(), team("several")).await;
    let other = fixture.ring("several-other", resources, team("several")).await;
    let (mut of_ones, mut of_others) = (one.join(2).await, other.join(3).await);
    let (_let_go, _let_go_too) = (
        Acknowledger::start(&fixture.client(), &one.labels, &config_maps(), |_| true),
        Acknowledger::start(&fixture.client(), &other.labels, &config_maps(), |_| true),
    );
    let (of_one, of_other) =
        (one.objects(&config_maps(), Some("several")), other.objects(&config_maps(), Some("several")));
    let names: Vec<_> = (0..OBJECTS).map(|number| format!("o-{number}")).collect();
    for name in &names {
        of_one.create(name).await;
        of_one.until_owned(name).await;
        of_other.until_owned(name).await;
    }
    // A shard joins in each ring, and some objects move in both, side by side.
    let homes = |ones: &[PlainShard], others: &[PlainShard]| -> Vec<_> {
        names.iter().map(|name| (home(ones, "several", name), home(others, "several", name))).collect()
    };
    let before = homes(&of_ones, &of_others);
    tokio::join!(one.join_one(&mut of_ones), other.join_one(&mut of_others));
    let now = homes(&of_ones, &of_others);
    let in_both = before.iter().zip(&now).filter(|(before, now)| before.0 != now.0 && before.1 != now.1).count();
    assert!(in_both > 0);
    for (name, (home, other_home)) in names.iter().zip(now) {
        of_one.until(name, "is where the one ring says", |owner| *owner == (Some(home.clone()), None)).await;
        of_other.until(name, "and the other", |owner| *owner == (Some(other_home.clone()), None)).await;
    }
    let kept = of_other.owners("o-").await;
    one.delete().await;
    for (name, _) in &kept {
        of_one.until_bare(name).await;
    }
    assert_eq!(of_other.owners("o-").await, kept, "the other ring is not concerned");
}

pub(crate) async fn resource_joins(fixture: &Fixture) {
    fixture.namespace("joins", "joins").await;
    let ring = fixture.ring("joins", json!([entry(&config_maps(), &[])]), team("joins")).await;
    let _shards = ring.join(2).await;
    let _acknowledger = Acknowledger::start(&fixture.client(), &ring.labels, &secrets(), |_| true);
    let objects = ring.objects(&secrets(), Some("joins"));
    objects.create("from-before").await;
    ring.until_ready_is("True", "").await;
    assert_eq!(objects.owner("from-before").await, (None, None));
    ring.change(json!({"resources": [entry(&config_maps(), &[]), entry(&secrets(), &[])]})).await;
    objects.until_owned("from-before").await;
}
