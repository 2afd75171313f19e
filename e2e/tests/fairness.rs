//! An API server that takes few of the sharder's writes at once, and answers the others with 429: its Priority and Fairness is
//! told so. Everything is assigned and moves all the same, and the API server is not pressed.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what was counted is part of the result")]

use std::time::Duration;

use ringside_e2e::{
    manifests,
    system::{Settings, System, metrics},
    workload::Workload,
};

const OBJECTS: usize = 300;
const DEADLINE: Duration = Duration::from_secs(120);

/// One share of some hundred, which are two or three seats, and no queue.
const FEW_WRITES: &str = r#"
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: few-writes}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 1
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse: {type: Reject}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: few-writes}
spec:
  priorityLevelConfiguration: {name: few-writes}
  matchingPrecedence: 2
  rules:
  - subjects:
    - kind: ServiceAccount
      serviceAccount: {namespace: sharding-system, name: ringside-sharder}
    resourceRules:
    - {apiGroups: [web.example.com], resources: [websites], verbs: [patch], namespaces: ["*"]}
"#;

/// The value of a sample, or the sum of all whose line begins so.
fn sample(text: &str, begins: &str) -> f64 {
    let values = text.lines().filter(|line| line.starts_with(begins));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// How often the sharder was told to pause, and how many requests the API server refused.
async fn refused(system: &System) -> (f64, f64) {
    let sharder = system.sharders().next().unwrap();
    let told = metrics(sharder.admin_port()).await.unwrap();
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let counted = system.control_plane().client().request_text(request).await.unwrap();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"few-writes\"";
    (sample(&told, "controller_sharding_throttled_total "), sample(&counted, rejected))
}

#[tokio::test]
async fn an_api_server_that_takes_few_writes_is_given_few_and_nothing_is_left() {
    // Without the webhook each object costs the sharder a write.
    let mut system = System::start(Settings { webhook: false, ..Settings::default() }).await.unwrap();
    let client = system.control_plane().client();
    manifests::apply(&client, &manifests::parse(FEW_WRITES).unwrap()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    for shard in ["shard-0", "shard-1"] {
        system.add_shard(shard).await.unwrap();
    }
    system.until_counted(DEADLINE).await.unwrap();
    let workload = Workload::idle("site", OBJECTS);
    workload.create(&client).await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    let (told, rejected) = refused(&system).await;
    println!("{OBJECTS} objects assigned: {rejected} writes refused, {told} times told to pause");
    assert!(told > 0.0 && rejected > 0.0, "nothing was in the way");
    assert!(rejected < OBJECTS as f64 / 2.0, "the API server is pressed");

    system.add_shard("shard-2").await.unwrap();
    system.until_balanced(DEADLINE).await.unwrap();
    system.until_settled(DEADLINE).await.unwrap();
    system.until_all_worked_on(&workload, DEADLINE).await.unwrap();
    println!("and moved: {:?}", refused(&system).await);
    let (report, writes) = (system.report(DEADLINE).await.unwrap(), system.judge_writes().await.unwrap());
    assert!(report.is_clean(), "{report:#?}");
    // Without the webhook a child is its owner's shard's only a moment later, which tries to make it once more meanwhile.
    assert!(writes.foreign.is_empty() && writes.late.is_empty(), "{writes:#?} {:?}", system.keep_logs());
}
