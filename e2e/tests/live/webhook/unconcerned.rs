//! What the webhook costs those whom no ring concerns: it is not asked about their objects, and a webhook that says nothing
//! holds no client up for long.

use std::time::Duration;

use k8s_openapi::{
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, PostParams},
};
use ringside_e2e::{
    eventually::eventually,
    ring_status::{condition, until_status},
    system::{NAMESPACE, Settings},
    website::child,
};
use ringside_ring::ClusterRing;
use serde_json::json;
use tokio::{net::TcpListener, time::Instant};

use crate::{
    api_server_fence::fixture::{self, config_maps},
    webhook::{
        calls::calls,
        fixture::{DEADLINE, Fixture},
    },
};

/// Rings beside the fixture's own.
const RINGS: usize = 9;
/// What a create takes that waits for no webhook, on a machine that does much else.
const AT_ONCE: Duration = Duration::from_secs(1);
/// What a ring's webhook may take (docs/dev/limits.md), and that.
const ONE_RING: Duration = Duration::from_secs(3);
/// What is promised: so soon a webhook that says nothing is out of the way, and the look at that.
const OUT: Duration = Duration::from_secs(17);

/// With a shard that has no controller, so that no other client writes.
pub(crate) async fn what_nothing_of_the_ring_owns_never_reaches_the_webhook() {
    let fixture = fixture::Fixture::start(Settings::default(), json!({})).await;
    fixture.shard("a").await;
    let website = fixture.website_of("a").await;
    let begun = Instant::now();
    eventually("the webhook assigns an object", DEADLINE, || async {
        let made = fixture.create(&fixture.admin, &format!("asked-{}", begun.elapsed().as_millis())).await;
        let made = made.map_err(|error| error.to_string())?;
        fixture.shard_of(&made.metadata).map(drop).ok_or_else(|| "an object without owner".to_owned())
    })
    .await
    .unwrap();
    let children = config_maps(&fixture.admin);
    let before = calls(&fixture.admin, "").await;
    // Without an owner, and of a controller of another kind in the group.
    let owner = OwnerReference { controller: None, ..child(&website, "").owner_references()[0].clone() };
    let other = OwnerReference { kind: "Page".to_owned(), controller: Some(true), ..owner.clone() };
    for (number, owners) in [vec![], vec![other]].into_iter().enumerate() {
        let mut config = child(&website, &format!("unconcerned-{number}"));
        config.metadata.owner_references = Some(owners);
        let mut created = children.create(&PostParams::default(), &config).await.unwrap();
        created.data = Some([("a".to_owned(), "b".to_owned())].into());
        children.replace(&created.name_any(), &PostParams::default(), &created).await.unwrap();
    }
    assert_eq!(calls(&fixture.admin, "").await, before, "the webhook was asked");
    let controlled = child(&website, "controlled");
    // Its only owner does not control it.
    let mut owned = child(&website, "owned");
    owned.metadata.owner_references = Some(vec![owner]);
    for (asked, concerned) in (before + 1..).zip([controlled, owned]) {
        let made = children.create(&PostParams::default(), &concerned).await.unwrap();
        assert_eq!(calls(&fixture.admin, "").await, asked, "{}", made.name_any());
        assert_eq!(fixture.shard_of(&made.metadata).as_deref(), Some("a"), "{}", made.name_any());
    }
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
    let mut unrelated = child(&website, "unrelated");
    unrelated.metadata.owner_references = None;

    // Connections are taken there, and no server answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    fixture.lead_webhook(|_| silent.local_addr().unwrap().port());
    let took = (create(unrelated).await, create(child(&website, "first-child")).await);
    assert!(took.0 < AT_ONCE && took.1 < ONE_RING, "{took:?}");
    until_asking(0, OUT).await;
    let condition = until_status(&client, &fixture.ring, "the ring says so", DEADLINE, |status| {
        let told = condition(status, "WebhookReachable")?.clone();
        if told.message.contains("not told to ask it") { Ok(told) } else { Err(told.message) }
    });
    assert_eq!(condition.await.unwrap().status, "False");
    let begun = Instant::now();
    let fast = eventually("no API server waits for it any more", OUT, || async {
        let took = create(child(&website, &format!("later-{}", begun.elapsed().as_millis()))).await;
        if took < AT_ONCE { Ok(()) } else { Err(format!("{took:?}")) }
    });
    fast.await.unwrap();
    assert!(fixture.create().await.labels().is_empty(), "it was not asked");
    fixture.until_assigned().await;
    fixture.lead_webhook(|webhook| webhook);
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

/// How many rings' configurations have the API server ask the webhook.
async fn configured_to_ask(client: &Client) -> usize {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=ringside-sharder");
    let all = Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&ours).await.unwrap().items;
    let of_rings = all.into_iter().filter(|one| one.name_any().starts_with("sharding-clusterring-"));
    of_rings.filter(|one| one.webhooks.iter().flatten().any(|webhook| webhook.rules.is_some())).count()
}
