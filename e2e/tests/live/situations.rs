//! What an operator sees of a ring when something is wrong: status, Events, metrics. The rows of `docs/dev/situations.md` name these.

mod absent;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{core::v1::ConfigMap, events::v1::Event, rbac::v1::ClusterRole},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::{Ability, Group},
    manifests,
    ring_status::{until_condition, until_status},
    system::{Settings, System},
    website::{Homes, Website, WebsiteSpec},
    workload::Workload,
};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::ObjectCounts};
use serde_json::json;

use crate::planes::{Keeps, plane};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "situations",
        vec![
            case!(the_status_follows_shards_and_objects),
            case!(what_no_shard_gets_is_named_until_it_is_over),
            case!(what_keeps_the_sharder_from_its_work_is_told_until_it_is_over),
            case!(a_webhook_that_the_api_server_does_not_reach_is_told_in_its_words),
            case!(
                "a_shard_without_its_controller_has_no_objects_until_that_is_back",
                absent::has_no_objects_until_it_is_back()
            )
            .costs("two minutes of waiting: which shard gets what then is a pure function"),
        ],
    )
}

/// Enough for a machine that runs other tests beside.
const DEADLINE: Duration = Duration::from_secs(90);
const OBJECTS: usize = 60;
/// As by default: the bounds of a proxy's memory fit it.
const LEASE: Duration = Duration::from_secs(15);

/// The API groups of what is sharded, and of webhook configurations and policies.
const SITES: &str = "web.example.com";
const ADMISSION: &str = "admissionregistration.k8s.io";

struct Fixture {
    system: System,
    ring: RingName,
    client: Client,
}

impl Fixture {
    /// With a control plane of its own, to change it.
    async fn alone(webhook: bool) -> Self {
        let mut system =
            System::start(Settings { webhook, lease_duration: LEASE, ..Settings::default() }).await.unwrap();
        let ring = system.start_sharding(1).await.unwrap();
        let client = system.control_plane().client();
        Self { system, ring, client }
    }

    /// On a plane that others share.
    async fn on(keeps: Keeps, name: &str) -> Self {
        // A case may be run once more.
        static TIMES: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{name}-{}", TIMES.fetch_add(1, Ordering::Relaxed));
        let settings = Settings { lease_duration: LEASE, ..keeps.settings() };
        let mut system = System::on(&plane(keeps).await, &name, settings).await.unwrap();
        let (ring, client) = (system.start_ring().await.unwrap(), system.control_plane().client());
        Self { system, ring, client }
    }

    async fn add_shards(&mut self, names: &[&str]) {
        for name in names {
            self.system.add_shard(name).await.unwrap();
        }
        self.system.until_counted(DEADLINE).await.unwrap();
    }

    async fn create(&self, prefix: &'static str, objects: usize) {
        Workload::idle(prefix, objects).within(self.system.namespace()).create(&self.client).await.unwrap();
    }

    fn labels(&self) -> RingLabels {
        RingLabels::of(&self.ring)
    }

    fn sites(&self) -> Api<Website> {
        Api::namespaced(self.client.clone(), self.system.namespace())
    }

    fn children(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), self.system.namespace())
    }

    fn rings(&self) -> Api<ClusterRing> {
        Api::all(self.client.clone())
    }

    /// Which resources belong to the ring.
    async fn set_resources(&self, groups_and_names: &[(&str, &str)]) {
        let resources: Vec<_> =
            groups_and_names.iter().map(|(group, name)| json!({"group": group, "resource": name})).collect();
        let patch = Patch::Merge(json!({"spec": {"resources": resources}}));
        self.rings().patch(self.ring.name(), &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until_counts(&self, what: &str, are: impl Fn(&ObjectCounts) -> bool) -> ObjectCounts {
        let counted = until_status(&self.client, &self.ring, what, DEADLINE, |status| {
            let counts = status.objects.clone().ok_or("nothing was counted")?;
            if are(&counts) { Ok(counts) } else { Err(format!("{counts:?}")) }
        });
        counted.await.unwrap()
    }

    /// It may not write the policy that protects labels, until it may again.
    async fn is_refused_a_policy(&mut self) {
        self.until_condition("LabelsProtected", "True").await;
        let before = self.deny(ADMISSION, &["create"]).await;
        let policy = format!("/apis/{ADMISSION}/v1/mutatingadmissionpolicies/{}", self.ring.made_for());
        let delete = http::Request::delete(policy).body(Vec::new()).unwrap();
        self.client.request_text(delete).await.unwrap();
        let told = self.until_condition("LabelsProtected", "False").await;
        assert!(told.reason == "PolicyRefused" && told.message.contains("mutatingadmissionpolicies"), "{told:?}");
        self.permit(before).await;
        self.until_condition("LabelsProtected", "True").await;
    }

    async fn until_condition(&self, type_: &str, status: &str) -> Condition {
        until_condition(&self.client, &self.ring, type_, status, DEADLINE).await.unwrap()
    }

    /// Waits for an Event of this reason about an object of this kind and name, of which the note says this.
    async fn until_event(&self, kind: &str, name: &str, reason: &str, note: &str) {
        let events: Api<Event> = Api::all(self.client.clone());
        let what = format!("an Event {reason} on {kind} {name} that says '{note}'");
        let told = eventually(&what, DEADLINE, || async {
            let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let about_it = all.iter().filter(|event| {
                let about = event.regarding.clone().unwrap_or_default();
                let is_here = about.namespace.is_none_or(|there| there.is_empty() || there == self.system.namespace());
                let is_it = about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name);
                is_it && is_here && about.uid.is_some()
            });
            let said: Vec<_> = about_it.map(|event| (event.reason.as_deref(), event.note.as_deref())).collect();
            let is_told = |(why, said): &(Option<&str>, Option<&str>)| {
                *why == Some(reason) && said.is_some_and(|said| said.contains(note))
            };
            if said.iter().any(is_told) { Ok(()) } else { Err(format!("{said:?}")) }
        });
        told.await.unwrap();
    }

    async fn metrics(&self) -> String {
        let port = self.system.sharders().next().unwrap().admin_port();
        ringside_e2e::system::metrics(port).await.unwrap()
    }

    /// Waits until the metrics have lines that begin so, all at once.
    async fn until_metrics(&self, lines: &[&str]) {
        let what = format!("{lines:?}");
        let found = eventually(&what, DEADLINE, || async {
            let metrics = self.metrics().await;
            let has = |line: &&str| metrics.lines().any(|one| one.starts_with(line));
            if lines.iter().all(has) { Ok(()) } else { Err(metrics) }
        });
        found.await.unwrap();
    }

    /// A metric of the ring, with the braces of its labels.
    fn of_ring(&self, name: &str) -> String {
        format!("controller_sharding_{name}{{ring=\"{}\"}}", self.ring.name())
    }

    /// The sum of a metric of the ring for all resources but those that follow others.
    async fn sum(&self, name: &str) -> f64 {
        let (metrics, of_ring) = (self.metrics().await, format!("ring=\"{}\"", self.ring.name()));
        let name = format!("controller_sharding_{name}{{");
        let is_meant = |line: &&str| {
            line.starts_with(&name) && line.contains(&of_ring) && !line.contains("resource=\"configmaps\"")
        };
        metrics.lines().filter(is_meant).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// The log of the sharder.
    fn log(&self) -> String {
        std::fs::read_to_string(self.system.sharders().next().unwrap().process().log()).unwrap()
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

    /// Waits until all objects were counted later than then; returns when they were, in seconds since 1970.
    async fn until_counted_after(&self, before: f64) -> f64 {
        let counted = eventually("all objects are counted again", DEADLINE, || async {
            let at = self.sum("counted_timestamp_seconds").await;
            if at > before { Ok(at) } else { Err(format!("{at}")) }
        });
        counted.await.unwrap()
    }
}

/// None, one, a second that gets its share, and none again, as both end without a word.
async fn the_status_follows_shards_and_objects() {
    const SHARDS: [&str; 2] = ["shard-0", "shard-1"];
    let mut fixture = Fixture::on(Keeps::Both, "status").await;
    let ring = fixture.ring.name().to_owned();
    let told = fixture.until_condition("ShardsAvailable", "False").await;
    assert!(told.reason == "NoShards" && told.message.contains("start the controller"), "{told:?}");
    fixture.until_event("ClusterRing", &ring, "NoShards", "").await;
    let labels = format!("ring=\"{ring}\",type=\"ShardsAvailable\",reason=\"NoShards\"");
    fixture.until_metrics(&[&format!("controller_sharding_clusterring_condition{{{labels}}} 0")]).await;

    fixture.add_shards(&SHARDS[..1]).await;
    for type_ in ["ShardsAvailable", "DrainsInTime", "WebhookReachable"] {
        fixture.until_condition(type_, "True").await;
    }
    fixture.until_event("ClusterRing", &ring, "ShardJoined", "shard 'shard-0' takes part, as one of 1").await;
    fixture.until_event("Lease", "shard-0", "ShardReady", "").await;
    fixture.create("site", OBJECTS).await;
    let all = i64::try_from(OBJECTS).unwrap();
    let counts = fixture.until_counts("all are counted", |counts| counts.assigned == all).await;
    assert_eq!((counts.unassigned, counts.draining, &counts.unassigned_since), (0, 0, &None));
    assert!(counts.counted_at.is_some() && counts.max_to_mean.is_some(), "{counts:?}");

    // The second gets its share by moves, and each is counted as one when its object has moved.
    fixture.add_shards(&SHARDS[1..]).await;
    let (homes, workload) = (Homes::among(SHARDS).unwrap(), Workload::idle("site", OBJECTS));
    let is_to_move = |index: &usize| homes.of(fixture.system.namespace(), &workload.name(*index)) == Some(SHARDS[1]);
    let moves = (0..OBJECTS).filter(is_to_move).count();
    let has_share = |counts: &ObjectCounts| {
        let objects: BTreeMap<_, _> = counts.shards.iter().map(|shard| (&*shard.name, shard.objects)).collect();
        let share = i64::try_from(moves).unwrap();
        objects == [(SHARDS[0], all - share), (SHARDS[1], share)].into() && counts.draining + counts.unassigned == 0
    };
    fixture.until_counts("the second shard has its share", has_share).await;
    fixture.until_metrics(&[&format!("{} {moves}", fixture.of_ring("move_duration_seconds_count"))]).await;
    assert_eq!(fixture.sum("drains_total").await, moves as f64);
    assert_eq!(fixture.sum("movements_total").await, 0.0, "no shard has gone");

    for shard in SHARDS {
        fixture.system.kill_shard(shard).await.unwrap();
    }
    // Their Leases stay for a minute longer.
    let [available, there] = ["available_shards", "shards"].map(|which| format!("clusterring_status_{which}"));
    let counted = [format!("{} 0", fixture.of_ring(&available)), format!("{} 2", fixture.of_ring(&there))];
    fixture.until_metrics(&[&counted[0], &counted[1]]).await;
    for shard in SHARDS {
        fixture.until_event("Lease", shard, "ShardExpired", "").await;
        fixture.until_event("Lease", shard, "ShardDead", "the sharder acquired it").await;
    }
    fixture.until_event("ClusterRing", &ring, "ShardLeft", "its Lease is dead; 0 are left").await;
    let told = fixture.until_condition("ShardsAvailable", "False").await;
    assert!(told.reason == "NoneAvailable" || told.reason == "NoShards", "{told:?}");
    let unowned = |counts: &ObjectCounts| (counts.unassigned, counts.unassigned_since.is_some()) == (all, true);
    fixture.until_counts("no shard has them", unowned).await;
}

/// Objects without a controller among those that follow others, and a resource that is not there.
async fn what_no_shard_gets_is_named_until_it_is_over() {
    let mut fixture = Fixture::on(Keeps::Both, "named").await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.until_condition("ChildrenHaveControllers", "True").await;
    let of_users: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "of-users"}})).unwrap();
    fixture.children().create(&PostParams::default(), &of_users).await.unwrap();
    let told = fixture.until_condition("ChildrenHaveControllers", "False").await;
    assert_eq!(told.reason, "LoneObjects");
    let named = format!("of 'configmaps' 1 without a controller, such as '{}/of-users'", fixture.system.namespace());
    assert!(told.message.contains(&named), "{told:?}");
    fixture.until_condition("Ready", "True").await;
    fixture.until_counts("it is counted", |counts| counts.lone == Some(1)).await;
    let labels = format!("ring=\"{}\",group=\"\",resource=\"configmaps\",controller=\"none\"", fixture.ring.name());
    fixture.until_metrics(&[&format!("controller_sharding_lone_objects{{{labels}}} 1")]).await;
    fixture.children().delete("of-users", &DeleteParams::default()).await.unwrap();
    fixture.until_condition("ChildrenHaveControllers", "True").await;
    fixture.until_counts("nothing is left", |counts| counts.lone == Some(0)).await;

    fixture.set_resources(&[(SITES, "websites"), ("no.example.com", "things")]).await;
    let told = fixture.until_condition("Ready", "False").await;
    assert_eq!(
        told.message,
        "resource 'things.no.example.com' is not served by the API server; check its group and plural name"
    );
    fixture.until_event("ClusterRing", fixture.ring.name(), "ReconciliationFailed", "things.no.example.com").await;
    fixture.set_resources(&[(SITES, "websites")]).await;
    fixture.until_condition("Ready", "True").await;
}

/// Permissions that it lacks, and an API server that is out of reach. Without the webhook each object is seen without owner
/// first, and how long it was is measured.
async fn what_keeps_the_sharder_from_its_work_is_told_until_it_is_over() {
    let mut fixture = Fixture::alone(false).await;
    fixture.add_shards(&["shard-0"]).await;
    fixture.create("early", 10).await;
    fixture.until_counts("they are counted", |counts| counts.assigned == 10).await;
    let took = "assignment_duration_seconds";
    fixture.until_metrics(&[&format!("{} 10", fixture.of_ring(&format!("{took}_count")))]).await;

    // It may not write a policy.
    if Ability::LabelPolicies.is_there() {
        fixture.is_refused_a_policy().await;
    }

    // Nor write to objects: they wait.
    let early = fixture.sum(&format!("{took}_sum")).await;
    let before = fixture.deny(SITES, &["patch"]).await;
    fixture.create("late", 5).await;
    let counts = fixture.until_counts("they wait", |counts| counts.unassigned == 5).await;
    let waiting = Instant::now();
    assert!(counts.unassigned_since.is_some(), "{counts:?}");
    let told = fixture.until_condition("Ready", "False").await;
    let parts = ["can't be labelled", "missing permission"];
    assert!(parts.iter().all(|part| told.message.contains(part)), "{told:?}");
    let since = fixture.of_ring("oldest_unassigned_timestamp_seconds");
    fixture.until_metrics(&["controller_sharding_unassigned_objects{", &since]).await;
    let waited = waiting.elapsed();
    fixture.permit(before).await;
    let counts = fixture.until_counts("none waits", |counts| counts.unassigned == 0).await;
    assert_eq!((counts.assigned, &counts.unassigned_since), (15, &None), "{counts:?}");
    fixture.until_condition("Ready", "True").await;
    fixture.until_metrics(&[&format!("{} 15", fixture.of_ring(&format!("{took}_count")))]).await;
    assert!(!fixture.metrics().await.contains(&since));
    assert_eq!(fixture.sum("assignments_total").await, 15.0);
    let late = fixture.sum(&format!("{took}_sum")).await - early;
    assert!(late >= 5.0 * waited.as_secs_f64(), "five waited {waited:?} each, and it was {late} s for all of them");

    // Nor list and watch them. A watch that goes on is not asked whether it may.
    let counted_at = fixture.until_counted_after(0.0).await;
    let before = fixture.deny(SITES, &["list", "watch"]).await;
    fixture.system.restart_api_server().await.unwrap();
    let told = fixture.until_condition("Ready", "False").await;
    assert!(told.message.contains("can't be watched: missing permission"), "{told:?}");
    let log = fixture.log();
    assert!(log.contains("can't watch objects; trying again"), "{log}");
    fixture.permit(before).await;
    fixture.until_counted_after(counted_at).await;
    fixture.until_condition("Ready", "True").await;

    // It does not reach the API server, and leads no more until it does.
    fixture.until_metrics(&["controller_sharding_leader 1"]).await;
    fixture.system.stop_api_server().await.unwrap();
    fixture.until_metrics(&["controller_sharding_leader 0"]).await;
    let log = fixture.log();
    assert!(log.contains("lost leadership"), "{log}");
    fixture.system.start_api_server().await.unwrap();
    fixture.until_metrics(&["controller_sharding_leader 1"]).await;
    fixture.create("last", 5).await;
    fixture.until_counts("what came later is counted, too", |counts| counts.assigned == 20).await;
}

async fn a_webhook_that_the_api_server_does_not_reach_is_told_in_its_words() {
    let mut fixture = Fixture::on(Keeps::Policy, "unreached").await;
    fixture.until_condition("WebhookReachable", "False").await;
    fixture.until_event("ClusterRing", fixture.ring.name(), "NotReached", "failed calling webhook").await;
    fixture.until_event("ClusterRing", fixture.ring.name(), "NotReached", "refused").await;
    // No client is hindered, and objects are assigned all the same.
    fixture.add_shards(&["shard-0"]).await;
    fixture.sites().create(&PostParams::default(), &Website::new("site", WebsiteSpec::default())).await.unwrap();
    fixture.system.until_settled(DEADLINE).await.unwrap();
    // Nor is its shard for long without what it made, though no pass is due.
    let labels = fixture.labels();
    let labelled = eventually("the child has its owner's label", DEADLINE, || async {
        let child = fixture.children().get("site").await.map_err(|error| error.to_string())?;
        let shard = labels.ownership(Some(child.labels())).shard;
        if shard == Some("shard-0") { Ok(()) } else { Err(format!("{shard:?}")) }
    });
    labelled.await.unwrap();
}
