#![allow(clippy::unwrap_used)]

use kube::core::Status;
use ringside_ring::lease::ShardState::Ready;
use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::tests::held_by,
    reconcile::{Counts, Distribution},
    snapshot::tests::{example_spec, ring, snapshot, snapshot_of},
    status::report::COUNTS,
};

const STATUS: &str = "/apis/sharding.timebertt.dev/v1alpha1/clusterrings/example/status";

/// A ring that is reported on. What is written is not shown by a watch.
struct Ground {
    api: FakeApi,
    snapshot: Arc<Snapshot>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    faults: Faults,
    known: Known,
    reach: Verdicts,
    asked: Verdicts,
    modes: WebhookModes,
    notices: Notices,
    task: tokio::task::JoinHandle<Infallible>,
}

fn start() -> Ground {
    start_trusting(watch::channel(Some(Trust::Bundle(Vec::new()))).1)
}

fn start_knowing(mode: WebhookMode) -> Ground {
    let ground = start();
    ground.modes.send_replace(mode);
    ground
}

fn start_trusting(trust: watch::Receiver<Option<Trust>>) -> Ground {
    let api = FakeApi::default();
    let ring = json!({"apiVersion": "sharding.timebertt.dev/v1alpha1", "kind": "ClusterRing", "metadata": {"name": "example"}, "spec": {}});
    api.put(STATUS, ring);
    let (snapshot, notices) = (Arc::new(snapshot()), Notices::new(api.client()));
    let (known, faults) = (Known::default(), Faults::default());
    let (reach, asked, modes) = (Verdicts::default(), Verdicts::default(), WebhookModes::new(WebhookMode::Enabled));
    let told = Told {
        client: api.client(),
        watches: api.client(),
        client_config: Arc::new(ClientConfig { namespace: "ringside-system".into(), url: None }),
        trust,
        faults: faults.clone(),
        leftovers: Leftovers::default(),
        fences: crate::fence::follow(api.client()).0,
        known: known.clone(),
        creates: Default::default(),
        reach: reach.clone(),
        asked: asked.clone(),
        modes: modes.clone(),
        support: watch::Sender::new(Some(Support::NotServed)).subscribe(),
        mutating: Verdicts::default(),
        leases: held_by(&["a", "b"]),
        injects: false,
        uninjected: watch::channel(None).1,
        notices: notices.clone(),
        metrics: Metrics::default(),
        period: Duration::from_secs(300),
    };
    let (snapshots, receiver) = watch::channel(snapshot.clone());
    let task = tokio::spawn(async move { reconcile(told, receiver).await });
    Ground { api, snapshot, snapshots, faults, known, reach, asked, modes, notices, task }
}

impl Ground {
    fn status(&self) -> Value {
        self.api.get(STATUS).unwrap()["status"].clone()
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let status = self.status();
        let conditions = status["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
        (condition["status"].as_str().unwrap().to_owned(), condition["message"].as_str().unwrap().to_owned())
    }

    fn writes(&self) -> usize {
        self.api.writes().into_iter().filter(|write| write.ends_with("/status")).count()
    }

    /// The Events: of what, and their reasons.
    fn told(&self) -> Vec<(Value, Value)> {
        let events = self.api.asked().into_iter().filter(|asked| asked.path.ends_with("/events"));
        events.map(|event| (event.body["regarding"]["kind"].clone(), event.body["reason"].clone())).collect()
    }

    async fn pass(&self, time: Duration) {
        let _written = tokio::time::timeout(time, self.notices.write()).await;
    }

    /// From now on the shards have so many objects.
    fn count(&self, a: u64, b: u64) {
        let shards = [("a".to_owned(), a), ("b".to_owned(), b)].into();
        let counts = Counts { shards: Some(shards), unassigned: 0 };
        let resources = [(self.snapshot.mains[0].resource.id.clone(), counts)].into();
        self.known.say(Distribution { resources, ..Distribution::default() });
    }
}

#[tokio::test(start_paused = true)]
async fn a_ring_is_not_ready_while_its_objects_are_refused() {
    let ground = start();
    ground.pass(Duration::from_secs(1)).await;
    assert_eq!(ground.condition("Ready").0, "True");
    let main = &ground.snapshot.mains[0].resource.id;
    let forbidden = kube::Error::Api(Status::failure("cannot watch", "Forbidden").with_code(403).boxed());
    ground.faults.unwatched((main, main), &forbidden);
    ground.pass(LOOK).await;
    let message = "objects of 'configmaps' can't be watched: missing permission: cannot watch";
    assert_eq!(ground.condition("Ready"), ("False".to_owned(), message.to_owned()));
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_ring_says_so_when_its_webhook_has_no_certificate() {
    let (trust, receiver) = watch::channel(None);
    let ground = start_trusting(receiver);
    ground.pass(CERTIFIED - Duration::from_secs(1)).await;
    assert_eq!(ground.status(), Value::Null, "another replica may be making it");
    ground.pass(2 * LOOK).await;
    let message = "the webhook can't be configured: it has no certificate; the sharder's log says why";
    assert_eq!(ground.condition("Ready"), ("False".to_owned(), message.to_owned()));
    assert!(ground.told().contains(&(json!("ClusterRing"), json!("ReconciliationFailed"))), "{:?}", ground.told());
    let is_away = || matches!(*ground.asked.borrow(), Some(Err(_)));
    assert!(is_away(), "what is created meanwhile is looked for");
    trust.send_replace(Some(Trust::Bundle(Vec::new())));
    ground.pass(Duration::from_secs(1)).await;
    assert_eq!(ground.condition("Ready").0, "True");
    ground.reach.send_replace(Some(Ok(())));
    ground.pass(ACTED_ON + LOOK).await;
    assert!(!is_away());
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn counts_alone_are_written_no_more_often_than_a_person_reads_them() {
    let ground = start();
    ground.pass(Duration::from_secs(1)).await;
    assert_eq!(ground.status()["objects"], Value::Null, "nothing was counted yet");
    let mut seen = Vec::new();
    for objects in 0..60 {
        ground.count(objects, 60);
        ground.pass(Duration::from_secs(1)).await;
        seen.push(ground.status()["objects"]["assigned"].as_i64());
    }
    seen.dedup();
    assert!((5..=8).contains(&seen.len()), "{seen:?}");
    ground.pass(COUNTS).await;
    let (last, writes) = (ground.status()["objects"].clone(), ground.writes());
    assert_eq!((&last["assigned"], &last["maxToMean"]), (&json!(119), &json!("1.01")));
    ground.pass(Duration::from_secs(3600)).await;
    assert_eq!(ground.writes(), writes, "nothing is left to tell");
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_begins_to_be_wrong_is_told_at_once_in_the_status_and_by_an_event() {
    let ground = start();
    ground.count(3, 3);
    ground.pass(Duration::from_secs(1)).await;
    ground.reach.send_replace(Some(Err("connection refused".to_owned())));
    ground.pass(Duration::from_millis(100)).await;
    assert_eq!(ground.condition("WebhookReachable").0, "False");
    ground.known.drains.remember(
        &ground.snapshot.mains[0].resource.id,
        &crate::target::Target { uid: "u".into(), ..Default::default() },
        "a",
        "m",
    );
    ground.known.drains.report(&crate::target::Target { uid: "u".into(), name: "o".into(), ..Default::default() });
    ground.pass(LOOK * 2).await;
    let (status, message) = ground.condition("DrainsInTime");
    assert!(status == "False" && message.contains("shard 'a' of 1"), "{message}");
    let nobody = snapshot_of(&ring(&example_spec()), &[]);
    ground.snapshots.send_replace(Arc::new(nobody));
    ground.pass(Duration::from_millis(100)).await;
    assert_eq!(ground.condition("ShardsAvailable").0, "False");
    let back = snapshot_of(&ring(&example_spec()), &[("a", Ready), ("b", Ready)]);
    ground.snapshots.send_replace(Arc::new(back));
    ground.pass(Duration::from_millis(100)).await;
    assert_eq!(ground.condition("ShardsAvailable").0, "True");
    let told = ground.told();
    for (kind, reason) in [
        ("ClusterRing", "NotReached"),
        ("ClusterRing", "DrainOverdue"),
        ("Lease", "DrainOverdue"),
        ("ClusterRing", "ShardLeft"),
        ("ClusterRing", "NoShards"),
        ("ClusterRing", "ShardJoined"),
    ] {
        assert!(told.contains(&(json!(kind), json!(reason))), "{kind} {reason} in {told:?}");
    }
    ground.task.abort();
}

const WEBHOOK: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sharding-clusterring-50d858e0-example";

#[tokio::test(start_paused = true)]
async fn a_webhook_out_of_reach_is_taken_out_of_the_way_and_that_is_told_and_what_it_misses_is_looked_for() {
    let ground = start_knowing(WebhookMode::AsStored);
    let asks = || ground.api.get(WEBHOOK).unwrap()["webhooks"][0]["rules"].is_array();
    let is_missed = || matches!(*ground.asked.borrow(), Some(Err(_)));
    ground.pass(Duration::from_secs(1)).await;
    assert!(!asks() && is_missed(), "before a probe has passed nothing waits for it");
    for (mode, reach) in [
        (WebhookMode::Enabled, Ok(())),
        (WebhookMode::Disabled, Err("connection refused".to_owned())),
        (WebhookMode::Disabled, Ok(())),
        (WebhookMode::Enabled, Ok(())),
    ] {
        ground.reach.send_replace(Some(reach.clone()));
        ground.modes.send_replace(mode);
        ground.pass(ACTED_ON + LOOK).await;
        assert_eq!(
            (asks(), is_missed()),
            (mode == WebhookMode::Enabled, mode != WebhookMode::Enabled),
            "{mode:?}, {reach:?}"
        );
        let (status, message) = ground.condition("WebhookReachable");
        assert_eq!(
            (&*status, message.contains("told to ask it")),
            if mode == WebhookMode::Enabled { ("True", false) } else { ("False", true) }
        );
    }
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn who_begins_to_lead_leaves_the_webhook_as_it_was_until_a_probe_tells() {
    let ground = start_knowing(WebhookMode::AsStored);
    ground.api.put(WEBHOOK, json!({"metadata": {"name": "w"}, "webhooks": [{"rules": [{}]}]}));
    ground.api.intercept(|asked, objects| {
        let stored = objects.get_mut(WEBHOOK).unwrap();
        stored["metadata"]["labels"] = json!(crate::belonging::belonging_labels());
        assert!(
            asked.path != WEBHOOK || asked.method == http::Method::GET || asked.body["webhooks"][0]["rules"].is_array()
        );
        None
    });
    ground.pass(Duration::from_secs(60)).await;
    assert!(ground.api.get(WEBHOOK).unwrap()["webhooks"][0]["clientConfig"].is_object(), "it is up to date otherwise");
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_others_add_to_the_configuration_stays_is_told_and_what_it_leaves_out_is_looked_for() {
    let ground = start();
    ground.reach.send_replace(Some(Ok(())));
    ground.pass(ACTED_ON + LOOK).await;
    assert_eq!(*ground.asked.borrow(), Some(Ok(())));
    let mut configuration = ground.api.get(WEBHOOK).unwrap();
    let added = json!([{"key": "control-plane", "operator": "NotIn", "values": ["true"]}]);
    configuration["webhooks"][0]["namespaceSelector"]["matchExpressions"] = added.clone();
    configuration["metadata"]["resourceVersion"] = json!("of others");
    ground.api.put(WEBHOOK, configuration);
    ground.pass(Duration::from_secs(900)).await;
    let (now, (status, message)) = (ground.api.get(WEBHOOK).unwrap(), ground.condition("WebhookReachable"));
    assert_eq!((&now["webhooks"][0]["namespaceSelector"]["matchExpressions"], &*status), (&added, "True"));
    assert!(message.ends_with(": control-plane"), "{message}");
    assert_eq!(ground.api.writes().into_iter().filter(|write| write.ends_with(WEBHOOK)).count(), 1, "as it was made");
    assert!(matches!(*ground.asked.borrow(), Some(Err(_))));
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_configuration_of_another_installation_stays_and_the_ring_says_so() {
    let ground = start();
    let theirs = json!({"metadata": {"name": "w", "labels": {"app.kubernetes.io/name": "controller-sharding"}}});
    ground.api.put(WEBHOOK, theirs.clone());
    ground.pass(Duration::from_secs(600)).await;
    assert_eq!(ground.api.get(WEBHOOK), Some(theirs));
    for condition in ["Ready", "WebhookReachable"] {
        let (status, message) = ground.condition(condition);
        assert!(status == "False" && message.contains("delete it, or give it that label"), "{condition}: {message}");
    }
    ground.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_ring_without_its_webhook_configuration_is_not_asked_about() {
    let reach = Some(Ok(()));
    let object = Arc::new(kube::core::DynamicObject {
        types: None,
        metadata: Default::default(),
        data: json!({"webhooks": [{"rules": [{}]}]}),
    });
    let in_place = |since| Standing::InPlace { since, object: object.clone() };
    let refused = |code| Standing::Refused { code, why: "no".to_owned() };
    let is_away = |asked: Option<Verdict>| matches!(asked, Some(Some(Err(_))));
    assert_eq!(asked(&Standing::Pending, &reach), None);
    let first = Instant::now();
    assert!(is_away(asked(&in_place(first), &reach)), "an API server does not know it yet");
    tokio::time::advance(ACTED_ON).await;
    assert_eq!(asked(&in_place(first), &reach), Some(reach.clone()));
    assert_eq!(asked(&in_place(first), &None), Some(None));
    assert!(is_away(asked(&in_place(first), &Some(Err("no route".to_owned())))));
    assert!(is_away(asked(&Standing::Disturbed { again: false }, &reach)));
    assert!(is_away(asked(&refused(Some(403)), &reach)));
    for passing in [None, Some(409), Some(429), Some(503)] {
        assert_eq!(asked(&refused(passing), &reach), None, "{passing:?}: it may be there all the same");
    }
}
