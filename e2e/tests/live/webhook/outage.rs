//! Without the webhook, without any sharder: objects can be created, and have an owner as soon as somebody is back.
//!
//! How soon is taken from what the API server wrote down, of all objects: these tests themselves may be late to look.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    api::{admissionregistration::v1::MutatingWebhookConfiguration, coordination::v1::Lease, core::v1::ConfigMap},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use ringside_e2e::{
    audit::{self, Request, Requests},
    checker::Change,
    eventually::{eventually, in_time},
    system::{NAMESPACE, Return, SHARDER_USER, Settings},
    website::child,
};
use tokio::time::{Instant, sleep};

use crate::webhook::fixture::{DEADLINE, Fixture};

/// How long there is no sharder.
const OUTAGE: Duration = Duration::from_secs(15);
/// The time between two creates meanwhile.
const PAUSE: Duration = Duration::from_millis(200);
/// What is promised: so soon after the sharders' return every object has an owner.
const BACK: Duration = Duration::from_secs(2);
/// What is promised: so soon after its creation an object has an owner by the controller alone.
const ALONE: Duration = Duration::from_secs(1);
/// What the object that waits longest may take beyond either: on two cores the operators are at work by then on all that was
/// assigned before.
const ALLOWANCE: Duration = Duration::from_secs(2);
/// With the start of the processes, which took seconds beside other work. Who waits for the Lease of a leader that is dead takes
/// longer.
const BOUND: Duration = Duration::from_secs(12);
/// What the replicas wait for a leader that does not renew.
const ELECTION_LEASE: Duration = Duration::from_secs(15);

pub(crate) async fn after_an_outage_of_all_sharders_every_object_has_an_owner_at_once() {
    let mut fixture = Fixture::start(Settings { audit_requests: true, ..Settings::default() }).await;
    let mut requests = Requests::of(fixture.system.control_plane().audit_log(), SHARDER_USER);
    for (pods, outage) in [(Return::SamePod, OUTAGE), (Return::OtherPod, ELECTION_LEASE / 5)] {
        fixture.until_assigned(DEADLINE).await;
        fixture.system.kill_sharders().await.unwrap();
        let (killed, led) = (Instant::now(), leader(&fixture).await);
        let mut created = BTreeSet::new();
        while killed.elapsed() < outage {
            let website = fixture.create().await;
            assert!(!fixture.is_labelled(&website), "a sharder runs");
            created.insert(website.name_any());
            sleep(PAUSE).await;
        }
        // Those of before.
        requests.since().unwrap();
        let begun = Instant::now();
        fixture.system.return_sharders(pods).await.unwrap();
        let took = until_given(&mut requests, &created).await;
        let (most, all) = (took[(took.len() - 1) * 9 / 10], took[took.len() - 1]);
        println!(
            "{pods:?}: {} objects have an owner {all:.2?} after the sharders' return, nine in ten of them after {most:.2?}, \
             {:.2?} after their processes were to start; promised are 2 s",
            created.len(),
            begun.elapsed()
        );
        in_time("nine in ten have an owner", most, BACK);
        in_time("all have an owner", all, BACK + ALLOWANCE);
        fixture.until_assigned(DEADLINE).await;
        assert_eq!(led == leader(&fixture).await, pods == Return::SamePod, "{led}");
        fixture.until_answered().await;
    }
}

/// How long it took until each of these objects had an owner, the shortest time first. From when the API server first heard of
/// who gave the first of them one: it is back by then, whatever it took to make its Pod and to load a program.
///
/// Nothing is asked meanwhile: with lists of all objects fifty times a second this would measure itself.
async fn until_given(requests: &mut Requests, objects: &BTreeSet<String>) -> Vec<Duration> {
    let (mut back, mut given) = (BTreeMap::<String, Timestamp>::new(), BTreeMap::<String, (Timestamp, String)>::new());
    eventually("every object has an owner", BOUND, || {
        for Request { verb, resource, name, pod, received, answered, code, .. } in requests.since().unwrap() {
            let pod = pod.expect("a sharder's token is bound to its Pod");
            let first = back.entry(pod.clone()).or_insert(received);
            *first = received.min(*first);
            // Who has no owner is written to by nobody but the sharder, to get one.
            if verb == "patch" && resource == "websites" && (200..300).contains(&code) && objects.contains(&name) {
                given.entry(name).or_insert((answered, pod));
            }
        }
        let without = objects.len() - given.len();
        async move { if without == 0 { Ok(()) } else { Err(format!("{without} objects have none")) } }
    })
    .await
    .unwrap();
    let (_, by) = given.values().min().unwrap();
    let mut took: Vec<_> = given.values().map(|(at, _)| between(back[by], *at)).collect();
    took.sort_unstable();
    took
}

/// Nothing, where the later was earlier.
fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

/// Who leads the sharders, by their Lease.
async fn leader(fixture: &Fixture) -> String {
    let leases: Api<Lease> = Api::namespaced(fixture.client(), "ringside-system");
    leases.get("ringside-sharder").await.unwrap().spec.unwrap().holder_identity.unwrap()
}

/// Objects that are created one after the other, without the webhook.
const OBJECTS: usize = 60;
/// And children.
const CHILDREN: usize = 30;

pub(crate) async fn without_its_webhook_configuration_the_sharder_assigns_objects_right_after_their_creation() {
    let fixture = Fixture::start(Settings::default()).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client());
    let name = fixture.ring.made_for();
    let away = {
        let (configurations, name) = (configurations.clone(), name.clone());
        tokio::spawn(async move {
            loop {
                // That it is not there is what it is for.
                let _ = configurations.delete(&name, &DeleteParams::default()).await;
                sleep(Duration::from_millis(20)).await;
            }
        })
    };
    eventually("the API server no longer calls the webhook", DEADLINE, || async {
        if fixture.is_labelled(&fixture.create().await) { Err("it was called".to_owned()) } else { Ok(()) }
    })
    .await
    .unwrap();
    let (mut created, mut called) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..OBJECTS {
        let website = fixture.create().await;
        if fixture.is_labelled(&website) {
            // Somebody writes the configuration again and again; a call may get through.
            called.insert(website.name_any());
            continue;
        }
        eventually("the object has an owner", DEADLINE, || async {
            let now = fixture.websites().get(&website.name_any()).await.map_err(|error| error.to_string())?;
            if fixture.is_labelled(&now) { Ok(()) } else { Err("none".to_owned()) }
        })
        .await
        .unwrap();
        created.insert(website.name_any());
        sleep(Duration::from_millis(50)).await;
    }
    let alone = children_alone(&fixture, created.first().unwrap()).await;
    away.abort();
    assert!(created.len() > OBJECTS / 2, "{called:?} met the webhook");
    let took = without_owner(&fixture, &created).await;
    let most = |share: usize| took[(took.len() - 1) * share / 100];
    println!(
        "assigned by the controller alone: {} objects, half of them within {:.0?}, all within {:.0?}; promised is 1 s",
        took.len(),
        most(50),
        most(100)
    );
    in_time("nine in ten have an owner", most(90), ALONE);
    in_time("all have an owner", most(100), ALONE + ALLOWANCE);
    println!("{} children that came alone: {alone:.0?}", alone.len());
    assert!(alone.len() > CHILDREN / 2, "most met the webhook");
    in_time("nine in ten children have labels", alone[alone.len() * 9 / 10], ALONE);
    in_time("all children have labels", alone[alone.len() - 1], ALONE + ALLOWANCE);
}

/// How long children had no label that came after their owner, one by one; the shortest time first. Such as met the webhook
/// all the same are left out.
async fn children_alone(fixture: &Fixture, owner: &str) -> Vec<Duration> {
    let owner = fixture.websites().get(owner).await.unwrap();
    let children: Api<ConfigMap> = Api::namespaced(fixture.client(), NAMESPACE);
    let is_labelled =
        |child: &ConfigMap| child.labels().get(&fixture.labels.shard) == owner.labels().get(&fixture.labels.shard);
    let mut took = Vec::new();
    for number in 0..CHILDREN {
        let name = format!("alone-{number}");
        let created = children.create(&PostParams::default(), &child(&owner, &name)).await.unwrap();
        if is_labelled(&created) {
            continue;
        }
        let since = Instant::now();
        eventually("the child is with its owner", DEADLINE, || async {
            let now = children.get(&name).await.map_err(|error| error.to_string())?;
            if is_labelled(&now) { Ok(()) } else { Err(format!("{:?}", now.metadata.labels)) }
        })
        .await
        .unwrap();
        took.push(since.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    took.sort_unstable();
    took
}

/// How long each of these objects had no owner, the shortest time first: from the answer to who created it until that to the
/// sharder, who gave it one.
async fn without_owner(fixture: &Fixture, objects: &BTreeSet<String>) -> Vec<Duration> {
    let log = fixture.system.control_plane().audit_log();
    let written = eventually("the API server wrote all of it down", DEADLINE, || {
        let (mut created, mut given) = (BTreeMap::new(), BTreeMap::new());
        let read = audit::read(&log, &fixture.labels, "", |write| {
            // A child may have the name of its owner.
            if write.resource.resource != "websites" {
                return;
            }
            let has_owner = write.object.labels.is_some_and(|labels| labels.shard.is_some());
            if write.change == Change::Created {
                created.insert(write.object.name, write.answered);
            } else if write.by_sharder && has_owner {
                given.entry(write.object.name).or_insert(write.answered);
            }
        });
        read.unwrap();
        let of = |name: &String| {
            let name = format!("{NAMESPACE}/{name}");
            Some(between(*created.get(&name)?, *given.get(&name)?))
        };
        let took: Option<Vec<_>> = objects.iter().map(of).collect();
        async move { took.ok_or_else(|| "not yet".to_owned()) }
    });
    let mut took = written.await.unwrap();
    took.sort();
    took
}
