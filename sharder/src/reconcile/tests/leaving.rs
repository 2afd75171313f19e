//! What leaves the ring loses its labels, in the order of a handover.

use super::*;

fn at(resource: &str, name: &str) -> String {
    format!("/api/v1/namespaces/other/{resource}/{name}")
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_namespace_that_is_not_the_rings_is_released_by_its_shard_first() {
    let mut world = World::new();
    let put = |resource: &str, name: &str, owner: Option<&str>, shard: Option<&str>| {
        let mut object = object(&world.labels, name, shard);
        object["metadata"]["namespace"] = json!("other");
        let object = owner.map_or(object.clone(), |owner| owned(object, owner));
        world.api.put(&at(resource, name), object);
    };
    put(CONFIG_MAPS, "left", None, Some("a"));
    put(SECRETS, "child", Some("left"), Some("a"));
    put(CONFIG_MAPS, "abandoned", None, Some("gone"));
    put(CONFIG_MAPS, "plain", None, None);
    let (api, labels) = (world.api.clone(), world.labels.clone());
    let label = |resource: &str, name: &str, key: &str| {
        api.get(&at(resource, name)).unwrap()["metadata"]["labels"][key].as_str().map(str::to_owned)
    };
    let (shard, drain) = (labels.shard.clone(), labels.drain.clone());
    world.begin().await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(label(CONFIG_MAPS, "abandoned", &shard), None);
    assert!(label(CONFIG_MAPS, "left", &drain).is_some());
    assert_eq!(label(SECRETS, "child", &shard).as_deref(), Some("a"));
    let mut released = api.get(&at(CONFIG_MAPS, "left")).unwrap();
    released["metadata"].as_object_mut().unwrap().remove("labels");
    api.put(&at(CONFIG_MAPS, "left"), released);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(label(SECRETS, "child", &shard), None);
    assert!(!world.written().contains(&"plain".to_owned()));
    let of_cluster = world.asked(|asked| asked.path == "/api/v1/configmaps" && !asked.query.contains("watch=true"));
    assert!(!of_cluster.is_empty());
    for asked in of_cluster {
        assert!(asked.query.contains("fieldSelector=metadata.namespace%21%3Ddefault"), "watched already: {asked:?}");
    }
}

/// What had no label there was not kept.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_selected_again_has_all_its_objects_distributed() {
    let mut world = World::new();
    for (name, shard) in [("labelled", Some("a")), ("plain", None)] {
        let mut object = object(&world.labels, name, shard);
        object["metadata"]["namespace"] = json!("other");
        world.api.put(&at(CONFIG_MAPS, name), object);
    }
    world.begin().await;
    sleep(Duration::from_secs(2)).await;
    let shard = |world: &World| {
        let labels = &world.api.get(&at(CONFIG_MAPS, "plain")).unwrap()["metadata"]["labels"];
        labels[&world.labels.shard].is_string()
    };
    assert!(!shard(&world));
    world.roles.set("other", "project");
    sleep(Duration::from_secs(2)).await;
    assert!(shard(&world));
}

/// The watch may be a moment behind another replica's, which places objects among other shards.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_leaves_is_left_at_once() {
    let mut world = World::of(among(&[]));
    world.put(CONFIG_MAPS, "o", None);
    world.begin().await;
    world.roles.set("default", "none");
    sleep(Duration::from_millis(1)).await;
    world.among(&["a", "b"]).await;
    assert_eq!(world.shard(CONFIG_MAPS, "o"), None);
}

/// As by a tool that removes the label and sets it again.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_leaves_for_a_moment_keeps_all_its_objects() {
    let mut world = World::of(among(&[]));
    world.put(CONFIG_MAPS, "o", None);
    world.begin().await;
    world.roles.set("default", "none");
    sleep(Duration::from_millis(100)).await;
    world.roles.set("default", "project");
    sleep(Duration::from_secs(2)).await;
    world.among(&["a", "b"]).await;
    assert!(world.shard(CONFIG_MAPS, "o").is_some());
}

/// Eleven namespaces are watched by one watch, of which the list takes its time.
#[tokio::test(start_paused = true)]
async fn a_watch_that_takes_the_place_of_others_leaves_no_gap() {
    let mut world = World::new();
    world.begin().await;
    for collection in [CONFIG_MAPS, SECRETS] {
        world.api.slow(Method::GET, &format!("/api/v1/{collection}"), Duration::from_secs(60));
    }
    (0..11).for_each(|number| world.roles.set(&format!("n-{number}"), "project"));
    sleep(Duration::from_secs(10)).await;
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    sleep(Duration::from_secs(180)).await;
    let feeds =
        world.asked(|asked| asked.query.contains("watch=true") && asked.path.contains("namespaces/default")).len();
    sleep(Duration::from_secs(600)).await;
    let later =
        world.asked(|asked| asked.query.contains("watch=true") && asked.path.contains("namespaces/default")).len();
    assert_eq!(feeds, later, "they have ended");
}

/// It may work on the object still.
#[tokio::test(start_paused = true)]
async fn labels_of_a_shard_that_is_not_known_come_off_under_the_hold_on_its_lease() {
    let mut world = World::new();
    let mut object = object(&world.labels, "o", Some("unknown"));
    object["metadata"]["namespace"] = json!("other");
    world.api.put(&at(CONFIG_MAPS, "o"), object);
    world.begin().await;
    let is_labelled = |world: &World| {
        world.api.get(&at(CONFIG_MAPS, "o")).unwrap()["metadata"]["labels"][&world.labels.shard].is_string()
    };
    sleep(Duration::from_secs(20)).await;
    assert!(is_labelled(&world));
    hold_name(&world.leases, "unknown");
    sleep(Duration::from_secs(1)).await;
    assert!(!is_labelled(&world));
}

/// There the API server's fence does not stand.
#[tokio::test(start_paused = true)]
async fn nothing_is_released_by_force_in_a_namespace_that_has_left() {
    let mut world = World::fenced();
    let mut object = object(&world.labels, "o", Some("a"));
    object["metadata"]["namespace"] = json!("other");
    world.api.put(&at(CONFIG_MAPS, "o"), object);
    world.begin().await;
    let deadline = world.snapshots.borrow().spec.drain_deadline();
    sleep(deadline + Duration::from_secs(15)).await;
    let labels = world.api.get(&at(CONFIG_MAPS, "o")).unwrap()["metadata"]["labels"].clone();
    assert!(labels[&world.labels.shard] == "a" && labels[&world.labels.drain].is_string(), "{labels}");
}

/// Both have to be read, as their uids are none that the index keeps.
#[tokio::test(start_paused = true)]
async fn object_that_has_the_name_of_a_stray_keeps_its_labels() {
    let mut world = World::new();
    let owner = world.name("a", 0);
    world.put(CONFIG_MAPS, &owner, Some("a"));
    let with_uid = |mut object: Value, uid: &str| {
        object["metadata"]["uid"] = json!(uid);
        object
    };
    world.api.put(&path(SECRETS, "o"), with_uid(object(&world.labels, "o", Some("a")), "the stray"));
    world.begin().await;
    sleep(crate::reconcile::judge::LONE - Duration::from_secs(5)).await;
    world.api.hold_watches_on(&format!("/api/v1/namespaces/default/{SECRETS}"), true);
    let child = owned(object(&world.labels, "o", Some("a")), &owner);
    world.api.put(&path(SECRETS, "o"), with_uid(child, "a child"));
    sleep(Duration::from_secs(10)).await;
    let reads = world.asked(|asked| asked.method == Method::GET && asked.path == path(SECRETS, "o"));
    assert_eq!((reads.len(), world.shard(SECRETS, "o").as_deref()), (1, Some("a")));
}
