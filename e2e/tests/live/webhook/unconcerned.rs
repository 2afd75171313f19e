//! What the webhook costs those whom no ring concerns: it is not asked about their objects, and a webhook that says nothing
//! holds nobody up for long.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::{
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, ObjectMeta, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::{NAMESPACE, Settings},
    website::child,
};
use ringside_ring::ClusterRing;
use serde_json::json;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use crate::webhook::fixture::{DEADLINE, Fixture};

/// Objects of others.
const OBJECTS: usize = 10;
/// Rings beside the fixture's own.
const RINGS: usize = 9;
/// So long the webhook must not have been asked before what follows is counted.
const QUIET: Duration = Duration::from_secs(3);
/// What a create takes for which nobody waits, on a machine that does much else.
const AT_ONCE: Duration = Duration::from_secs(1);
/// What a ring's webhook may take (docs/dev/limits.md), and that.
const ONE_RING: Duration = Duration::from_secs(3);
/// What is promised: so soon a webhook that says nothing is out of the way, and the look at that.
const OUT: Duration = Duration::from_secs(17);

pub(crate) async fn what_nothing_of_the_ring_controls_never_reaches_the_webhook() {
    let fixture = Fixture::start(Settings::default()).await;
    let websites = fixture.websites().list(&ListParams::default()).await.unwrap().items;
    let children: Api<ConfigMap> = Api::namespaced(fixture.client(), NAMESPACE);
    // From then on the operators have nothing to do.
    let with = ListParams::default().labels(&fixture.labels.shard);
    eventually("each object has its child", DEADLINE, || async {
        let there = children.list_metadata(&with).await.map_err(|error| error.to_string())?.items.len();
        if there == websites.len() { Ok(()) } else { Err(format!("{there} of {}", websites.len())) }
    })
    .await
    .unwrap();
    // A proxy may yet have the webhook asked about a child that came before the webhook was.
    let mut before = calls(&fixture.client()).await;
    loop {
        sleep(QUIET).await;
        match calls(&fixture.client()).await {
            now if now == before => break,
            now => before = now,
        }
    }
    for number in 0..OBJECTS {
        // Of nobody, of somebody else's in the group of another kind, and of one that the website does not control.
        let owner = OwnerReference { controller: None, ..owner_of(&child(&websites[0], "")) };
        let other = OwnerReference { kind: "Page".to_owned(), controller: Some(true), ..owner.clone() };
        let owners = [vec![], vec![other], vec![owner]];
        let metadata = ObjectMeta {
            name: Some(format!("unconcerned-{number}")),
            owner_references: Some(owners[number % owners.len()].clone()),
            ..ObjectMeta::default()
        };
        let config = ConfigMap { metadata, ..ConfigMap::default() };
        let mut created = children.create(&PostParams::default(), &config).await.unwrap();
        created.data = Some([("a".to_owned(), "b".to_owned())].into());
        children.replace(&created.name_any(), &PostParams::default(), &created).await.unwrap();
    }
    assert_eq!(calls(&fixture.client()).await, before, "the webhook was asked");
    let made = children.create(&PostParams::default(), &child(&websites[0], "concerned")).await.unwrap();
    assert_eq!(calls(&fixture.client()).await, before + 1);
    assert_eq!(made.labels().get(&fixture.labels.shard), websites[0].labels().get(&fixture.labels.shard));
}

pub(crate) async fn a_webhook_that_says_nothing_holds_up_only_what_is_the_rings_and_is_out_of_the_way_soon() {
    let fixture = Fixture::start(Settings { lines: true, ..Settings::default() }).await;
    let client = fixture.client();
    let rings: Api<ClusterRing> = Api::all(client.clone());
    other_rings(&fixture, &rings).await;
    let until_asking = async |asking: usize, within| {
        let told = eventually("the API server is told so", within, || async {
            let now = configured_to_ask(&client).await;
            if now == asking { Ok(()) } else { Err(format!("of {now} rings")) }
        });
        told.await.unwrap();
    };
    until_asking(RINGS + 1, DEADLINE).await;
    let website = fixture.websites().list(&ListParams::default()).await.unwrap().items.remove(0);
    let children: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let create = async |config: ConfigMap| {
        let begun = Instant::now();
        children.create(&PostParams::default(), &config).await.unwrap();
        begun.elapsed()
    };
    let metadata = ObjectMeta { name: Some("unrelated".to_owned()), ..ObjectMeta::default() };
    let unrelated = ConfigMap { metadata, ..ConfigMap::default() };

    // Connections are taken there, and nobody says anything.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    lead(&fixture, |_| silent.local_addr().unwrap().port());
    let since = Instant::now();
    let took = (create(unrelated).await, create(child(&website, "first-child")).await);
    println!("an unrelated ConfigMap took {:.2?}, a child {:.2?}", took.0, took.1);
    assert!(took.0 < AT_ONCE && took.1 < ONE_RING, "{took:?}");
    until_asking(0, OUT).await;
    println!("out of the way after {:.2?}", since.elapsed());
    let condition = eventually("the ring says so", DEADLINE, || async {
        let ring = rings.get(fixture.ring.name()).await.map_err(|error| error.to_string())?;
        let conditions = ring.status.unwrap_or_default().conditions;
        let told = conditions.into_iter().find(|it| it.type_ == "WebhookReachable").ok_or("it does not say")?;
        if told.message.contains("not told to ask it") { Ok(told) } else { Err(told.message) }
    });
    assert_eq!(condition.await.unwrap().status, "False");
    let fast = eventually("no API server waits for it any more", OUT, || async {
        let took = create(child(&website, &format!("later-{}", since.elapsed().as_millis()))).await;
        if took < AT_ONCE { Ok(()) } else { Err(format!("{took:?}")) }
    });
    fast.await.unwrap();
    assert!(fixture.create().await.labels().is_empty(), "it was not asked");
    fixture.until_assigned(DEADLINE).await;
    let with = ListParams::default().labels(&format!("!{}", fixture.labels.shard));
    eventually("each child has its label all the same", DEADLINE, || async {
        let without = children.list_metadata(&with).await.map_err(|error| error.to_string())?.items;
        let without: Vec<_> = without.iter().filter(|one| !one.owner_references().is_empty()).collect();
        if without.is_empty() { Ok(()) } else { Err(format!("{} have none", without.len())) }
    })
    .await
    .unwrap();

    lead(&fixture, |webhook| webhook);
    until_asking(RINGS + 1, DEADLINE).await;
    fixture.until_answered().await;
}

/// Of Deployments, whose children are ConfigMaps too.
async fn other_rings(fixture: &Fixture, rings: &Api<ClusterRing>) {
    for number in 0..RINGS {
        let spec = json!({"resources": [{"group": "apps", "resource": "deployments",
            "controlledResources": [{"group": "", "resource": "configmaps"}]}]});
        let ring = ClusterRing::new(&format!("other-{number}"), serde_json::from_value(spec).unwrap());
        fixture.system.allow(&ring, &[NAMESPACE]).await.unwrap();
        rings.create(&PostParams::default(), &ring).await.unwrap();
    }
}

fn owner_of(child: &ConfigMap) -> OwnerReference {
    child.owner_references()[0].clone()
}

/// Where the API server's way to each replica's webhook leads from now on.
fn lead(fixture: &Fixture, to: impl Fn(u16) -> u16) {
    for sharder in fixture.system.sharders() {
        sharder.line().unwrap().lead_to(SocketAddr::from(([127, 0, 0, 1], to(sharder.webhook_port()))));
    }
}

/// How many rings' configurations have the API server ask the webhook.
async fn configured_to_ask(client: &Client) -> usize {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=ringside-sharder");
    let all = Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&ours).await.unwrap().items;
    let of_rings = all.into_iter().filter(|one| one.name_any().starts_with("sharding-clusterring-"));
    of_rings.filter(|one| one.webhooks.iter().flatten().any(|webhook| webhook.rules.is_some())).count()
}

/// How often the API server has called a ring's webhook.
async fn calls(client: &Client) -> usize {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let calls = metrics.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_admission_duration_seconds_count{")
            && line.contains("\"sharder.sharding.timebertt.dev\"")
    });
    calls.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}
