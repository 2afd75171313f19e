//! What an operator sees of a ring when something is wrong: status, Events, metrics. The rows of `docs/dev/situations.md` name these.

mod absent;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration, core::v1::ConfigMap, events::v1::Event,
        flowcontrol::v1::FlowSchema, rbac::v1::ClusterRole,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    eventually::eventually,
    manifests,
    system::{NAMESPACE, Settings, System},
    website::{Homes, Website, WebsiteSpec},
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::ObjectCounts};
use serde_json::json;
use tokio::time::sleep;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "situations",
        vec![
            case!(the_status_says_how_the_objects_are_distributed),
            case!(a_ring_without_shards_says_so_until_there_is_one),
            case!(objects_without_a_shard_are_counted_and_dated),
            case!(an_api_server_that_asks_for_a_pause_gets_one),
            case!(a_sharder_that_does_not_reach_the_api_server_leads_no_more_until_it_does),
            case!(objects_that_can_not_be_watched_are_not_counted),
            case!(a_webhook_that_the_api_server_does_not_reach_is_told_in_its_words),
            case!(a_policy_that_the_sharder_may_not_write_is_told),
            case!(a_resource_that_is_missing_is_named_until_it_is_there),
            case!(objects_that_no_shard_sees_are_counted_and_named),
            case!(an_object_whose_labels_are_refused_is_told_until_it_is_gone),
            case!(
                "a_shard_without_its_controller_has_no_objects_until_that_is_back",
                absent::has_no_objects_until_it_is_back()
            ),
        ],
    )
}

/// Enough for a machine that runs other tests beside; what is measured is printed.
const DEADLINE: Duration = Duration::from_secs(90);
const OBJECTS: usize = 60;

/// Leaves the sharder room for one write to a Website at a time, whatever else it asks for: what comes beside is refused.
const NO_ROOM: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: no-room}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: no-room}
spec:
  priorityLevelConfiguration: {name: no-room}
  matchingPrecedence: 2
  rules:
  - subjects: [{kind: User, user: {name: 'system:serviceaccount:ringside-system:ringside-sharder'}}]
    resourceRules: [{verbs: [patch], apiGroups: [web.example.com], resources: [websites], namespaces: ['*']}]
";

/// The API groups of what is sharded, and of webhook configurations and policies.
const SITES: &str = "web.example.com";
const ADMISSION: &str = "admissionregistration.k8s.io";

struct Fixture {
    system: System,
    ring: RingName,
    client: Client,
}

impl Fixture {
    async fn start(settings: Settings) -> Self {
        let mut system = System::start(settings).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        let client = system.control_plane().client();
        Self { system, ring, client }
    }

    async fn add_shards(&mut self, names: &[&str]) {
        for name in names {
            self.system.add_shard(name).await.unwrap();
        }
        self.system.until_counted(DEADLINE).await.unwrap();
    }

    async fn create(&self, prefix: &'static str, objects: usize) {
        Workload::idle(prefix, objects).create(&self.client).await.unwrap();
    }

    fn labels(&self) -> RingLabels {
        RingLabels::of(&self.ring)
    }

    fn rings(&self) -> Api<ClusterRing> {
        Api::all(self.client.clone())
    }

    async fn counts(&self) -> Result<ObjectCounts, String> {
        let ring = self.rings().get(self.ring.name()).await.map_err(|error| error.to_string())?;
        ring.status.and_then(|status| status.objects).ok_or_else(|| "nothing was counted".to_owned())
    }

    async fn until_counts(&self, what: &str, are: impl Fn(&ObjectCounts) -> bool) -> ObjectCounts {
        let counted = eventually(what, DEADLINE, || async {
            let counts = self.counts().await?;
            if are(&counts) { Ok(counts) } else { Err(format!("{counts:?}")) }
        });
        counted.await.unwrap()
    }

    async fn until_condition(&self, type_: &str, status: &str) -> Condition {
        let start = Instant::now();
        let what = format!("{type_} is {status}");
        let told = eventually(&what, DEADLINE, || async {
            let ring = self.rings().get(self.ring.name()).await.map_err(|error| error.to_string())?;
            let conditions = ring.status.unwrap_or_default().conditions;
            let found = conditions.iter().find(|one| one.type_ == type_ && one.status == status).cloned();
            found.ok_or_else(|| format!("{conditions:?}"))
        });
        let told = told.await.unwrap();
        eprintln!("{type_} is {status} after {:?}: {}", start.elapsed(), told.message);
        told
    }

    /// Waits for an Event of this reason about an object of this kind and name; returns its note.
    async fn until_event(&self, kind: &str, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::all(self.client.clone());
        let what = format!("an Event {reason} on {kind} {name}");
        let note = eventually(&what, DEADLINE, || async {
            let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let of = |event: &Event| {
                let about = event.regarding.clone().unwrap_or_default();
                let is = about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name);
                (is && about.uid.is_some()).then(|| event.reason.clone().unwrap_or_default())
            };
            let found = all.iter().find(|event| of(event).as_deref() == Some(reason));
            let reasons = || all.iter().filter_map(of).collect::<Vec<_>>();
            found.and_then(|event| event.note.clone()).ok_or_else(|| format!("{:?}", reasons()))
        });
        note.await.unwrap()
    }

    async fn metrics(&self) -> String {
        let port = self.system.sharders().next().unwrap().admin_port();
        ringside_e2e::system::metrics(port).await.unwrap()
    }

    /// Takes these verbs about what is in this API group from the sharder; returns its roles as they were.
    async fn deny(&self, group: &str, verbs: &[&str]) -> Vec<ClusterRole> {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let mut before = roles.list(&ListParams::default()).await.unwrap().items;
        before.retain(|role| {
            role.name_any() == "ringside-sharder" || role.labels().contains_key("ringside.dev/aggregate-to-sharder")
        });
        for mut role in before.clone() {
            let rules = role.rules.iter_mut().flatten();
            let about = rules.filter(|rule| rule.api_groups.iter().flatten().any(|one| one == group));
            about.for_each(|rule| rule.verbs.retain(|verb| !verbs.contains(&verb.as_str())));
            role.metadata.managed_fields = None;
            roles.replace(&role.name_any(), &PostParams::default(), &role).await.unwrap();
        }
        manifests::aggregate_roles(&self.client).await.unwrap();
        before
    }

    /// Gives it these roles back.
    async fn permit(&self, before: Vec<ClusterRole>) {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        for mut role in before {
            role.metadata.resource_version = roles.get(&role.name_any()).await.unwrap().resource_version();
            role.metadata.managed_fields = None;
            roles.replace(&role.name_any(), &PostParams::default(), &role).await.unwrap();
        }
        manifests::aggregate_roles(&self.client).await.unwrap();
    }

    /// When all objects were counted last, in seconds since 1970, as the metric says.
    async fn counted_at(&self) -> Result<i64, String> {
        let metrics = self.metrics().await;
        let line = metrics.lines().find(|line| line.starts_with("controller_sharding_counted_timestamp_seconds{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).ok_or(metrics)
    }

    /// Waits until all objects were counted later than then.
    async fn until_counted_after(&self, before: i64) -> i64 {
        let counted = eventually("all objects are counted anew", DEADLINE, || async {
            let at = self.counted_at().await?;
            if at > before { Ok(at) } else { Err(format!("{at}")) }
        });
        counted.await.unwrap()
    }

    async fn until_metric(&self, line: &str) {
        let found = eventually(line, DEADLINE, || async {
            let metrics = self.metrics().await;
            if metrics.lines().any(|one| one.starts_with(line)) { Ok(()) } else { Err(metrics) }
        });
        found.await.unwrap();
    }
}

async fn the_status_says_how_the_objects_are_distributed() {
    let mut fixture = Fixture::start(Settings::default()).await;
    fixture.add_shards(&["shard-0", "shard-1"]).await;
    fixture.create("site", OBJECTS).await;
    let all = i64::try_from(OBJECTS).unwrap();
    let counts = fixture.until_counts("all are counted", |counts| counts.assigned == all).await;
    assert_eq!((counts.unassigned, counts.draining, &counts.unassigned_since), (0, 0, &None));
    let shards: BTreeMap<_, _> = counts.shards.iter().map(|shard| (&*shard.name, shard.objects)).collect();
    assert_eq!((shards.len(), shards.values().sum()), (2, all), "{shards:?}");
    assert!(counts.counted_at.is_some() && counts.max_to_mean.is_some(), "{counts:?}");
    fixture.until_condition("ShardsAvailable", "True").await;
    fixture.until_condition("DrainsInTime", "True").await;
    fixture.until_condition("WebhookReachable", "True").await;
    // A third shard gets its share by moves, and each is counted as one when its object has moved.
    fixture.add_shards(&["shard-2"]).await;
    let counts = fixture
        .until_counts("the third shard has its share", |counts| {
            let has_some = counts.shards.iter().any(|shard| shard.name == "shard-2" && shard.objects > 0);
            let sum: i64 = counts.shards.iter().map(|shard| shard.objects).sum();
            has_some && counts.draining == 0 && counts.unassigned == 0 && sum == all
        })
        .await;
    assert_eq!(counts.assigned, all);
    let homes = Homes::among(["shard-0", "shard-1", "shard-2"]).unwrap();
    let names = (0..OBJECTS).map(|index| Workload::idle("site", OBJECTS).name(index));
    let moves = names.filter(|name| homes.of(NAMESPACE, name) == Some("shard-2")).count();
    let took = format!("controller_sharding_move_duration_seconds_count{{ring=\"{}\"}} {moves}", fixture.ring);
    fixture.until_metric(&took).await;
    let metrics = fixture.metrics().await;
    assert_eq!(value(&metrics, "controller_sharding_drains_total"), moves as f64, "{metrics}");
    assert_eq!(value(&metrics, "controller_sharding_movements_total"), 0.0, "no shard has gone: {metrics}");
}

/// The sum of a metric for all resources but those that follow others.
fn value(metrics: &str, name: &str) -> f64 {
    let found = metrics.lines().filter(|line| line.starts_with(name) && !line.contains("resource=\"configmaps\""));
    found.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn a_ring_without_shards_says_so_until_there_is_one() {
    let mut fixture = Fixture::start(Settings::default()).await;
    let ring = fixture.ring.to_string();
    let told = fixture.until_condition("ShardsAvailable", "False").await;
    assert!(told.reason == "NoShards" && told.message.contains("start the controller"), "{told:?}");
    fixture.until_event("ClusterRing", &ring, "NoShards").await;
    fixture
        .until_metric(&format!(
            "controller_sharding_clusterring_condition{{ring=\"{ring}\",type=\"ShardsAvailable\",reason=\"NoShards\"}} 0"
        ))
        .await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.until_condition("ShardsAvailable", "True").await;
    let joined = fixture.until_event("ClusterRing", &ring, "ShardJoined").await;
    assert_eq!(joined, "shard 'shard-0' takes part, as one of 1");
    fixture.until_event("Lease", "shard-0", "ShardReady").await;
    fixture.create("site", 4).await;
    fixture.until_counts("it has them", |counts| (counts.assigned, counts.unassigned) == (4, 0)).await;
    // It ends without a word, and then for good.
    fixture.system.kill_shard("shard-0").await.unwrap();
    fixture.until_event("Lease", "shard-0", "ShardExpired").await;
    let dead = fixture.until_event("Lease", "shard-0", "ShardDead").await;
    assert!(dead.contains("the sharder acquired it"), "{dead}");
    // Its Lease stays for a minute longer.
    let counted = |which: &str| format!("controller_sharding_clusterring_status_{which}{{ring=\"{ring}\"}}");
    fixture.until_metric(&format!("{} 0", counted("available_shards"))).await;
    fixture.until_metric(&format!("{} 1", counted("shards"))).await;
    let left = fixture.until_event("ClusterRing", &ring, "ShardLeft").await;
    assert!(left.contains("its Lease is dead; 0 are left"), "{left}");
    let told = fixture.until_condition("ShardsAvailable", "False").await;
    assert!(told.reason == "NoneAvailable" || told.reason == "NoShards", "{told:?}");
    let counts = fixture.until_counts("nobody has them", |counts| (counts.assigned, counts.unassigned) == (0, 4)).await;
    assert!(counts.unassigned_since.is_some(), "{counts:?}");
}

async fn objects_without_a_shard_are_counted_and_dated() {
    let mut fixture = Fixture::start(Settings { webhook: false, ..Settings::default() }).await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.create("early", 10).await;
    fixture.until_counts("they are counted", |counts| counts.assigned == 10).await;
    // Without the webhook each was seen without owner first, and how long it was is measured.
    let took = "controller_sharding_assignment_duration_seconds";
    fixture.until_metric(&format!("{took}_count{{ring=\"{}\"}} 10", fixture.ring)).await;
    let early = value(&fixture.metrics().await, &format!("{took}_sum"));
    // What the sharder may not write to waits, and that shows.
    let before = fixture.deny(SITES, &["patch"]).await;
    fixture.create("late", 5).await;
    let counts = fixture.until_counts("they wait", |counts| counts.unassigned == 5).await;
    let waiting = Instant::now();
    assert!(counts.unassigned_since.is_some(), "{counts:?}");
    let told = fixture.until_condition("Ready", "False").await;
    assert!(told.message.contains("can't be assigned: missing permission"), "{told:?}");
    fixture.until_metric("controller_sharding_unassigned_objects{").await;
    let since = format!("controller_sharding_oldest_unassigned_timestamp_seconds{{ring=\"{}\"}}", fixture.ring);
    fixture.until_metric(&since).await;
    let waited = waiting.elapsed();
    fixture.permit(before).await;
    let counts = fixture.until_counts("none waits", |counts| counts.unassigned == 0).await;
    assert_eq!((counts.assigned, &counts.unassigned_since), (15, &None), "{counts:?}");
    fixture.until_condition("Ready", "True").await;
    fixture.until_metric(&format!("{took}_count{{ring=\"{}\"}} 15", fixture.ring)).await;
    let metrics = fixture.metrics().await;
    assert!(!metrics.contains(&since));
    assert_eq!(value(&metrics, "controller_sharding_assignments_total"), 15.0, "{metrics}");
    let late = value(&metrics, &format!("{took}_sum")) - early;
    assert!(late >= 5.0 * waited.as_secs_f64(), "five waited {waited:?} each, and it was {late} s for all of them");
}

/// By its own fairness, and not by a server that plays it.
async fn an_api_server_that_asks_for_a_pause_gets_one() {
    /// So many writes are under way at once by then, of which the API server lets one in, and one that had begun before.
    const AT_ONCE: usize = 3;
    const COUNTED: Duration = Duration::from_secs(5);
    let mut fixture = Fixture::start(Settings::default()).await;
    // More than are written in the time, one at a time with a pause after each.
    fixture.create("site", OBJECTS).await;
    manifests::apply(&fixture.client, &manifests::parse(NO_ROOM).unwrap()).await.unwrap();
    let schemas: Api<FlowSchema> = Api::all(fixture.client.clone());
    eventually("the API server goes by it", DEADLINE, || async {
        let schema = schemas.get("no-room").await.map_err(|error| error.to_string())?;
        let conditions = schema.status.and_then(|status| status.conditions).unwrap_or_default();
        let dangles = conditions.iter().find(|one| one.type_.as_deref() == Some("Dangling"));
        let in_place = dangles.is_some_and(|one| one.status.as_deref() == Some("False"));
        if in_place { Ok(()) } else { Err(format!("{conditions:?}")) }
    })
    .await
    .unwrap();
    fixture.add_shards(&["shard-0"]).await;
    let throttled = async || {
        let metrics = fixture.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("controller_sharding_throttled_total "));
        line.unwrap().parse::<usize>().unwrap()
    };
    fixture.until_metric("controller_sharding_write_limit 2").await;
    let (before, begin) = (throttled().await, Instant::now());
    sleep(COUNTED).await;
    let refused = throttled().await - before;
    let counted = begin.elapsed();
    eprintln!("{refused} writes were refused in {counted:?}");
    // Each answer says when to come back: after a second.
    let rounds = usize::try_from(counted.as_secs()).unwrap() + 2;
    assert!((1..=rounds * AT_ONCE).contains(&refused), "{refused} writes were refused in {counted:?}");
    let labels = RingLabels::of(&fixture.ring);
    let unassigned = ListParams::default().labels(&format!("!{}", labels.shard));
    let sites: Api<Website> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let waiting = sites.list_metadata(&unassigned).await.unwrap().items.len();
    assert!(waiting > OBJECTS / 4, "{waiting} wait: one was let in at a time, with no pause between two");
    let counts = fixture.until_counts("some wait", |counts| counts.unassigned > 0).await;
    assert!(counts.unassigned_since.is_some(), "{counts:?}");

    schemas.delete("no-room", &DeleteParams::default()).await.unwrap();
    let start = Instant::now();
    let all = i64::try_from(OBJECTS).unwrap();
    fixture.until_counts("none waits", |counts| (counts.assigned, counts.unassigned) == (all, 0)).await;
    eprintln!("all had a shard {:?} after the API server had room for them", start.elapsed());
}

async fn a_sharder_that_does_not_reach_the_api_server_leads_no_more_until_it_does() {
    let mut fixture = Fixture::start(Settings::default()).await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.create("site", OBJECTS).await;
    let all = i64::try_from(OBJECTS).unwrap();
    fixture.until_counts("all are counted", |counts| counts.assigned == all).await;
    fixture.until_metric("controller_sharding_leader 1").await;

    fixture.system.stop_api_server().await.unwrap();
    let start = Instant::now();
    fixture.until_metric("controller_sharding_leader 0").await;
    eprintln!("it leads no more {:?} after the API server was gone", start.elapsed());
    let log = fixture.system.sharders().next().unwrap().process().log().to_owned();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.lines().any(|line| line.contains("lost leadership")), "{said}");

    fixture.system.start_api_server().await.unwrap();
    fixture.until_metric("controller_sharding_leader 1").await;
    fixture.create("late", OBJECTS).await;
    fixture.until_counts("what came later is counted, too", |counts| counts.assigned == 2 * all).await;
}

async fn objects_that_can_not_be_watched_are_not_counted() {
    let mut fixture = Fixture::start(Settings::default()).await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.create("site", 10).await;
    let counted_at = fixture.until_counted_after(0).await;
    let before = fixture.deny(SITES, &["list", "watch"]).await;
    // A watch that goes on is not asked whether it may.
    fixture.system.stop_api_server().await.unwrap();
    fixture.system.start_api_server().await.unwrap();
    let told = fixture.until_condition("Ready", "False").await;
    assert!(told.message.contains("can't be watched: missing permission"), "{told:?}");
    let log = std::fs::read_to_string(fixture.system.sharders().next().unwrap().process().log()).unwrap();
    assert!(log.contains("can't watch objects; trying again"), "{log}");
    fixture.permit(before).await;
    fixture.until_counted_after(counted_at).await;
    fixture.until_condition("Ready", "True").await;
}

async fn a_webhook_that_the_api_server_does_not_reach_is_told_in_its_words() {
    let mut fixture = Fixture::start(Settings { webhook: false, ..Settings::default() }).await;
    let told = fixture.until_condition("WebhookReachable", "False").await;
    assert!(told.message.contains("failed calling webhook") && told.message.contains("refused"), "{told:?}");
    fixture.until_event("ClusterRing", fixture.ring.name(), "NotReached").await;
    // Nobody else is hindered, and objects are assigned all the same.
    fixture.add_shards(&["shard-0"]).await;
    let sites: Api<Website> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    sites.create(&PostParams::default(), &Website::new("site", WebsiteSpec::default())).await.unwrap();
    fixture.system.until_settled(DEADLINE).await.unwrap();
    // Nor is its shard for long without what it made, though no pass is due.
    let children: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let labels = RingLabels::of(&fixture.ring);
    let labelled = eventually("the child has its owner's label", DEADLINE, || async {
        let child = children.get("site").await.map_err(|error| error.to_string())?;
        let shard = labels.ownership(Some(child.labels())).shard;
        if shard == Some("shard-0") { Ok(()) } else { Err(format!("{shard:?}")) }
    });
    labelled.await.unwrap();
}

async fn a_policy_that_the_sharder_may_not_write_is_told() {
    let fixture = Fixture::start(Settings::default()).await;
    fixture.until_condition("LabelsProtected", "True").await;
    let before = fixture.deny(ADMISSION, &["create"]).await;
    let policy = format!("/apis/{ADMISSION}/v1/mutatingadmissionpolicies/{}", fixture.ring.made_for());
    let delete = http::Request::delete(policy).body(Vec::new()).unwrap();
    fixture.client.request_text(delete).await.unwrap();
    let told = fixture.until_condition("LabelsProtected", "False").await;
    assert!(told.reason == "PolicyRefused" && told.message.contains("mutatingadmissionpolicies"), "{told:?}");
    fixture.permit(before).await;
    fixture.until_condition("LabelsProtected", "True").await;
}

async fn a_resource_that_is_missing_is_named_until_it_is_there() {
    let fixture = Fixture::start(Settings::default()).await;
    let more = json!({"spec": {"resources": [{"group": "web.example.com", "resource": "websites"},
        {"group": "no.example.com", "resource": "things"}]}});
    fixture.rings().patch(fixture.ring.name(), &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    let told = fixture.until_condition("Ready", "False").await;
    assert_eq!(
        told.message,
        "resource 'things.no.example.com' is not served by the API server; check its group and plural name"
    );
    fixture.until_event("ClusterRing", fixture.ring.name(), "ReconciliationFailed").await;
    let less = json!({"spec": {"resources": [{"group": "web.example.com", "resource": "websites"}]}});
    fixture.rings().patch(fixture.ring.name(), &PatchParams::default(), &Patch::Merge(less)).await.unwrap();
    fixture.until_condition("Ready", "True").await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client.clone());
    assert!(configurations.list(&ListParams::default()).await.unwrap().items.len() >= 2);
}

async fn objects_that_no_shard_sees_are_counted_and_named() {
    let mut fixture = Fixture::start(Settings::default()).await;
    fixture.add_shards(&["shard-0"]).await;
    let controlled = fixture.until_condition("ChildrenHaveControllers", "True").await;
    assert_eq!(controlled.reason, "AllControlled");
    let config_maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let of_users: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "of-users"}})).unwrap();
    config_maps.create(&PostParams::default(), &of_users).await.unwrap();
    let told = fixture.until_condition("ChildrenHaveControllers", "False").await;
    assert_eq!(told.reason, "LoneObjects");
    assert!(
        told.message.contains(&format!("of 'configmaps' 1 without a controller, such as '{NAMESPACE}/of-users'")),
        "{}",
        told.message
    );
    fixture.until_condition("Ready", "True").await;
    fixture.until_counts("it is counted", |counts| counts.lone == Some(1)).await;
    let labels = format!("ring=\"{}\",group=\"\",resource=\"configmaps\",controller=\"none\"", fixture.ring);
    fixture.until_metric(&format!("controller_sharding_lone_objects{{{labels}}} 1")).await;
    config_maps.delete("of-users", &DeleteParams::default()).await.unwrap();
    fixture.until_condition("ChildrenHaveControllers", "True").await;
    fixture.until_counts("nothing is left", |counts| counts.lone == Some(0)).await;
}

/// Admits no labels but those of the house.
const HOUSE_LABELS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: house-labels}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [web.example.com], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: [websites]}]
  validations:
  - expression: \"!has(object.metadata.labels) || object.metadata.labels.all(key, key in ['app', 'team'])\"
    message: only the labels app and team are allowed
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: house-labels}
spec: {policyName: house-labels, validationActions: [Deny]}
";

async fn an_object_whose_labels_are_refused_is_told_until_it_is_gone() {
    let mut system = System::start(Settings::default()).await.unwrap();
    let client = system.control_plane().client();
    let websites: Api<Website> = Api::namespaced(client.clone(), NAMESPACE);
    let [before, other] = ["before", "probe"].map(|name| Website::new(name, WebsiteSpec::default()));
    websites.create(&PostParams::default(), &before).await.unwrap();
    manifests::apply(&client, &manifests::parse(HOUSE_LABELS).unwrap()).await.unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut labelled = other.clone();
    labelled.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
    eventually("the policy acts", DEADLINE, || async {
        websites.create(&dry, &labelled).await.err().map(drop).ok_or_else(|| "it was created".to_owned())
    })
    .await
    .unwrap();
    let ring = system.start_sharding(1).await.unwrap();
    let mut fixture = Fixture { system, ring, client };
    fixture.system.add_shard("shard-0").await.unwrap();
    let told = fixture.until_condition("Ready", "False").await.message;
    let about =
        format!("objects of 'websites.web.example.com' can't be labelled, 1 of them, such as '{NAMESPACE}/before': ");
    assert!(told.contains(&about) && told.contains("only the labels app and team are allowed"), "{told}");
    let note = fixture.until_event("Website", "before", "LabelsRefused").await;
    assert!(note.contains("only the labels app and team are allowed"), "{note}");
    websites.delete("before", &DeleteParams::default()).await.unwrap();
    fixture.until_condition("Ready", "True").await;
}
