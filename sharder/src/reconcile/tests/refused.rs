//! What the API server refuses delays no other object, and is told.

use http::StatusCode;

use super::*;

/// From now on writes to objects of these names are answered so.
pub(super) fn refuse(world: &World, begin: &'static str, status: StatusCode) {
    world.api.intercept(move |asked, _| {
        let name = asked.path.rsplit('/').next().unwrap_or_default();
        (asked.method == Method::PATCH && name.starts_with(begin)).then_some(status)
    });
}

#[tokio::test(start_paused = true)]
async fn thousands_that_are_refused_hold_up_no_other_object_and_are_seldom_tried() {
    const MANY: usize = 1_500;
    let mut world = World::new();
    refuse(&world, "bad-", StatusCode::UNPROCESSABLE_ENTITY);
    for number in 0..MANY {
        world.put(CONFIG_MAPS, &format!("bad-{number}"), None);
    }
    world.begin().await;
    sleep(Duration::from_secs(60)).await;
    let tried = world.written().len();
    assert!(tried <= 3 * MANY, "{tried}");
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    sleep(MOMENT).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    sleep(Duration::from_secs(240)).await;
    assert!(world.written().len() <= tried + 2 * MANY, "{}", world.written().len());
    // What is mended is not waited for.
    world.api.intercept(|_, _| None);
    world.put(CONFIG_MAPS, "bad-0", None);
    sleep(Duration::from_secs(30)).await;
    assert!(world.shard(CONFIG_MAPS, "bad-0").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_label_is_taken_back_is_written_seldom_although_each_write_is_shown() {
    let mut world = World::new();
    world.put(CONFIG_MAPS, "o", None);
    world.api.put_labels_back();
    world.begin().await;
    sleep(Duration::from_secs(600)).await;
    let written = world.written().len();
    assert!((5..25).contains(&written), "{written}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_a_minute_is_told_until_it_is_assigned() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    world.put_child("child", &name, Some("b"));
    refuse(&world, "o-", StatusCode::UNPROCESSABLE_ENTITY);
    world.begin().await;
    let told = |world: &World| world.faults.of(&world.snapshots.borrow()).join("; ");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(told(&world), "");
    sleep(Duration::from_secs(400)).await;
    let begins = format!("objects of 'configmaps' can't be labelled, 1 of them, such as 'default/{name}': ");
    assert!(told(&world).starts_with(&begins) && told(&world).contains("422"), "{}", told(&world));
    assert!(world.faults.take_untold(&world.snapshots.borrow()).is_some());
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(400)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
    assert_eq!(told(&world), "");
}

/// Its owner stays apart from it: each attempt to bring it fails.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_refused_for_a_minute_is_told_until_it_is_with_its_owner() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("a"));
    world.put_child("child", &name, Some("b"));
    refuse(&world, "child", StatusCode::UNPROCESSABLE_ENTITY);
    world.begin().await;
    let told = |world: &World| world.faults.of(&world.snapshots.borrow()).join("; ");
    assert_eq!(world.known.failed_moves.all().len(), 1, "the condition of its own says so at once");
    sleep(Duration::from_secs(200)).await;
    assert!(told(&world).contains("'secrets' that it controls"), "{}", told(&world));
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(100)).await;
    assert_eq!((world.shard(SECRETS, "child").as_deref(), &*told(&world)), (Some("a"), ""));
    assert!(world.known.failed_moves.all().is_empty());
}

/// The status of the ring was written before that.
#[tokio::test(start_paused = true)]
async fn what_is_refused_is_told_where_the_ring_had_no_shards_at_first() {
    let mut world = World::of(among(&[]));
    world.put(CONFIG_MAPS, "o", None);
    refuse(&world, "o", StatusCode::UNPROCESSABLE_ENTITY);
    world.begin().await;
    let told = |world: &World| world.faults.of(&world.snapshots.borrow()).len();
    assert_eq!(told(&world), 0);
    world.among(&["a", "b"]).await;
    sleep(Duration::from_secs(80)).await;
    assert_eq!(told(&world), 1);
}

/// It has not read the roles yet, and not all of them at once.
#[tokio::test(start_paused = true)]
async fn what_an_api_server_refuses_that_has_just_started_sends_no_owner_elsewhere() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    world.put_child("child", &name, Some("b"));
    world.api.forget_roles(Some("secrets"));
    world.begin().await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name), None);
    world.api.forget_roles(None);
    sleep(Duration::from_secs(1)).await;
    let shards = [(CONFIG_MAPS, &*name), (SECRETS, "child")].map(|(resource, name)| world.shard(resource, name));
    assert_eq!(shards, [Some("a".to_owned()), Some("a".to_owned())]);
    assert!(world.known.failed_moves.all().is_empty());
    // For good it is a permission that is missing, and the family stays together.
    let name = world.name("a", 1);
    world.api.forget_roles(Some("secrets"));
    world.put_child("other", &name, Some("b"));
    world.put(CONFIG_MAPS, &name, None);
    sleep(Duration::from_secs(15)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("b"));
}

/// Of a shard that has released nothing of late.
#[tokio::test(start_paused = true)]
async fn moves_go_on_when_drains_are_answered_again() {
    for is_webhook in [true, false] {
        let mut world = World::new();
        let names: Vec<_> = (0..16).map(|number| world.name("a", number)).collect();
        names.iter().for_each(|name| world.put(CONFIG_MAPS, name, Some("b")));
        match is_webhook {
            true => world.api.lose_webhook(Some(CONFIG_MAPS)),
            false => refuse(&world, "o-", StatusCode::INTERNAL_SERVER_ERROR),
        }
        world.begin().await;
        sleep(Duration::from_secs(10)).await;
        let tried: std::collections::BTreeSet<_> = world.written().into_iter().collect();
        assert_eq!(tried.len(), names.len());
        let (known, _) = world.known.drains.oldest(0);
        assert_eq!(known == 0, is_webhook, "what a webhook keeps out was not carried out");
        world.api.lose_webhook(None);
        world.api.intercept(|_, _| None);
        sleep(Duration::from_secs(20)).await;
        assert!(names.iter().all(|name| world.drain(name).is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_told_and_heals() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    refuse(&world, "o-", StatusCode::FORBIDDEN);
    world.begin().await;
    let told = |world: &World| world.faults.of(&world.snapshots.borrow()).join("; ");
    assert!(told(&world).contains("missing permission"), "{}", told(&world));
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((told(&world).as_str(), world.shard(CONFIG_MAPS, &name).as_deref()), ("", Some("a")));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_was_refused_is_told_no_longer_once_it_works() {
    let mut world = World::new();
    let mut odd = object(&world.labels, "o", None);
    odd["metadata"]["uid"] = json!("such an object has to be read");
    world.api.put(&path(CONFIG_MAPS, "o"), odd);
    world.api.intercept(|asked, _| {
        (asked.method == Method::GET && asked.path.ends_with("/o")).then_some(StatusCode::FORBIDDEN)
    });
    world.begin().await;
    let told = |world: &World| world.faults.of(&world.snapshots.borrow()).join("; ");
    assert!(told(&world).contains("missing permission"), "{}", told(&world));
    world.api.intercept(|_, _| None);
    sleep(Duration::from_secs(120)).await;
    assert!(world.shard(CONFIG_MAPS, "o").is_some());
    assert_eq!(told(&world), "");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_told_no_longer_although_another_object_fails() {
    let mut world = World::new();
    let [healed, away] = [world.name("a", 0), world.name("a", 1)];
    world.put(CONFIG_MAPS, &healed, None);
    world.put(CONFIG_MAPS, &away, None);
    let answers = |of_healed: Option<StatusCode>| {
        let (healed, away) = (path(CONFIG_MAPS, &healed), path(CONFIG_MAPS, &away));
        world.api.intercept(move |asked, _| match asked.method == Method::PATCH {
            true if asked.path == healed => of_healed,
            true if asked.path == away => Some(StatusCode::SERVICE_UNAVAILABLE),
            _ => None,
        });
    };
    answers(Some(StatusCode::FORBIDDEN));
    world.begin().await;
    assert_eq!(world.faults.of(&world.snapshots.borrow()).len(), 1);
    world.api.intercept(|_, _| None);
    let (healed, away) = (path(CONFIG_MAPS, &healed), path(CONFIG_MAPS, &away));
    world.api.intercept(move |asked, _| {
        (asked.method == Method::PATCH && asked.path == away).then_some(StatusCode::SERVICE_UNAVAILABLE)
    });
    sleep(Duration::from_secs(180)).await;
    assert!(world.api.get(&healed).unwrap()["metadata"]["labels"].is_object());
    assert_eq!(world.faults.of(&world.snapshots.borrow()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_stray_whose_labels_may_not_be_taken_off_is_told() {
    let mut world = World::new();
    refuse(&world, "lone", StatusCode::FORBIDDEN);
    world.put(SECRETS, "lone", Some("a"));
    world.begin().await;
    sleep(crate::reconcile::judge::LONE).await;
    let told = world.faults.of(&world.snapshots.borrow()).join("; ");
    let begins = "objects of 'secrets' can't be labelled, 1 of them, such as 'default/lone': missing permission";
    assert!(told.starts_with(begins), "{told}");
}

/// Wherever it stands among them.
#[tokio::test(start_paused = true)]
async fn children_that_are_refused_keep_no_sibling_from_its_owner() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, Some("a"));
    let child = |number: usize| format!("child-{number:03}");
    (0..180).for_each(|number| world.put_child(&child(number), &name, Some("b")));
    let good = [0, 90, 179].map(child);
    let accepted = good.clone().map(|child| path(SECRETS, &child));
    world.api.intercept(move |asked, _| {
        let is_refused = asked.method == Method::PATCH && !accepted.contains(&asked.path);
        is_refused.then_some(StatusCode::FORBIDDEN)
    });
    world.begin().await;
    sleep(Duration::from_secs(60)).await;
    for child in good {
        assert_eq!(world.shard(SECRETS, &child).as_deref(), Some("a"), "{child}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_whose_writes_hang_holds_up_no_other() {
    let mut spec = example_spec();
    spec["resources"].as_array_mut().unwrap().push(json!({"group": "apps", "resource": "deployments"}));
    let two = [("a", ShardState::Ready), ("b", ShardState::Ready)];
    let mut world = World::of(snapshot_of(&ring_of(&spec), &two));
    for number in 0..500 {
        let at = format!("/apis/apps/v1/namespaces/default/deployments/stuck-{number}");
        world.api.put(&at, object(&world.labels, &format!("stuck-{number}"), None));
        world.api.slow(Method::PATCH, &at, Duration::from_secs(10));
    }
    world.begin().await;
    sleep(Duration::from_secs(5)).await;
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.shard(CONFIG_MAPS, &name).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_refused_and_gone_is_told_no_longer() {
    let mut world = World::new();
    let name = world.name("a", 0);
    world.put(CONFIG_MAPS, &name, None);
    refuse(&world, "o-", StatusCode::INTERNAL_SERVER_ERROR);
    world.begin().await;
    sleep(Duration::from_secs(200)).await;
    assert_eq!(world.faults.of(&world.snapshots.borrow()).len(), 1);
    world.api.remove(&path(CONFIG_MAPS, &name));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(world.faults.of(&world.snapshots.borrow()), Vec::<String>::new());
}
