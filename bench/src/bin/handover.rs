//! How long objects with children are without an owner that may work on them, from the drain to the next owner:
//! in a calm scale-out, and in twenty changes of the shards at random, one after the other or one in the other; with two
//! children each, or a chain of two, which are moved one after the other; with the
//! sharder looking for children while their owner's shard releases it, and without. What takes that from the sharder is
//! that no Lease tells the shard's grace.
//!
//! The grace begins with the drain, or with the last write of a shard that was still at work on the object: what it counts from
//! is DESIGN, "Handover", 2 c. What comes after it is told by its parts, as the API server saw them.

#![allow(clippy::print_stdout, reason = "what was measured is what the program is for")]

use std::{cmp::Reverse, env, time::Duration};

use anyhow::ensure;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, Client, ResourceExt as _};
use ringside_bench::{Table, load};
use ringside_e2e::{
    checker::{Handover, Stages, Verdict, percentile},
    churn::Churn,
    eventually::eventually,
    manifests,
    system::{NAMESPACE, Settings, System},
    workload::Workload,
};
use ringside_ring::labels::LEASE_GRACE;
use serde_json::{Value, json};
use tokio::time::sleep;

const OBJECTS: usize = 500;
const SHARDS: usize = 3;
const CHANGES: usize = 20;
const SEED: u64 = 5;
const DEADLINE: Duration = Duration::from_secs(120);
/// Until what a start leaves to be done is done.
const CALM: Duration = Duration::from_secs(5);
const PERCENTS: [usize; 4] = [50, 90, 99, 100];
/// Beyond the grace 99 of 100 moves of objects with children take less, each change of the shards by itself. A chain takes a
/// write more, one after the other.
const PROMISED: Duration = Duration::from_millis(50);
/// Both children are the object's own.
const SIBLINGS: &str = "siblings";
/// One is the other's.
const CHAIN: &str = "chain";
/// Moves that are told one by one.
const SLOWEST: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// A shard joins three others, and nothing else happens.
    ScaleOut,
    /// Shards come, go, restart and die, while objects change: each when nothing is left to do of the one before.
    Apart,
    /// The same whatever is left to do, and drawn alike: but deaths have to lie apart, so there are fewer of them.
    Changes,
}

impl Story {
    fn name(self) -> &'static str {
        match self {
            Self::ScaleOut => "scaleout",
            Self::Apart => "apart",
            Self::Changes => "changes",
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let columns = [
        "story",
        "children",
        "looks ahead",
        "moves",
        "load",
        "part, ms",
        "50th",
        "90th",
        "99th",
        "100th",
        "left behind",
        "made twice",
    ];
    let (mut table, mut kept) = (Table::new("handover", &columns), true);
    for story in [Story::ScaleOut, Story::Apart, Story::Changes] {
        for (children, ahead) in [(SIBLINGS, true), (CHAIN, true), (SIBLINGS, false), (CHAIN, false)] {
            let words = [story.name(), children, if ahead { "ahead" } else { "after" }];
            if wanted.iter().all(|wanted| words.iter().any(|word| word.eq_ignore_ascii_case(wanted))) {
                kept &= measure(&mut table, story, children, ahead).await?;
            }
        }
    }
    table.tell()?;
    ensure!(kept, "of 100 moves apart from each other one took longer beyond the grace than the promised {PROMISED:?}");
    Ok(())
}

/// Returns whether what is promised was kept, where something is.
async fn measure(table: &mut Table, story: Story, children: &str, ahead: bool) -> anyhow::Result<bool> {
    let settings = Settings { chain: children == CHAIN, ..Settings::with_short_leases() };
    let grace = settings.drain_grace;
    let verdict = run(story, ahead, settings).await?;
    ensure!(!verdict.handovers.is_empty(), "nothing moved");
    ensure!(verdict.is_clean(), "a promise was broken: {verdict:#?}");
    let spread = |of: &dyn Fn(&Handover) -> Duration| {
        let mut times: Vec<_> = verdict.handovers.iter().map(of).collect();
        times.sort_unstable();
        PERCENTS.map(|percent| json!(percentile(&times, percent).unwrap_or_default().as_secs_f64() * 1e3))
    };
    let parts: [(&str, [Value; 4]); 7] = [
        ("drain to next owner, beyond the grace", spread(&|one| one.beyond(grace))),
        ("until the acknowledgement arrives", spread(&|one| one.stages.rest.saturating_sub(grace))),
        ("until it is answered", spread(&|one| one.stages.acknowledgement)),
        ("until the sharder writes", spread(&|one| one.stages.search)),
        ("until the children are moved", spread(&|one| one.stages.children)),
        ("until the object is", spread(&|one| one.stages.assignment)),
        ("the same from the drain, with what was under way then", spread(&|one| one.whole().saturating_sub(grace))),
    ];
    slowest(&verdict, grace);
    // The mean of the last minute.
    let load = load().split(' ').next().and_then(|load| load.parse::<f64>().ok());
    for (part, times) in parts {
        let (moves, behind, twice) = (verdict.handovers.len(), verdict.left_behind.len(), verdict.second_creates.len());
        let what = [json!(story.name()), json!(children), json!(ahead)];
        let before = what.into_iter().chain([json!(moves), json!(load), json!(part)]);
        table.row(before.chain(times).chain([json!(behind), json!(twice)]));
    }
    let promised = verdict.beyond(grace);
    let within = percentile(&promised, 99).is_some_and(|time| time < PROMISED);
    let is_promised = story == Story::Apart && children == SIBLINGS && ahead;
    Ok(within || !is_promised)
}

/// Where the time went of those that took longest.
fn slowest(verdict: &Verdict, grace: Duration) {
    let mut all: Vec<_> = verdict.handovers.iter().map(|one| (one.beyond(grace), one)).collect();
    all.sort_unstable_by_key(|(beyond, _)| Reverse(*beyond));
    for (beyond, Handover { between: [from, to], stages, busy, at, .. }) in all.into_iter().take(SLOWEST) {
        let Stages { rest, acknowledgement, search, children, assignment } = *stages;
        let rest = rest.saturating_sub(grace);
        let parts = [rest, acknowledgement, search, children, assignment];
        println!("{at:.3}: {from} to {to}: {beyond:.0?} = {parts:.0?}, at work before for {busy:.0?}");
    }
}

async fn run(story: Story, ahead: bool, settings: Settings) -> anyhow::Result<Verdict> {
    let mut system = System::start(settings.clone()).await?;
    let client = system.control_plane().client();
    system.start_sharding(2).await?;
    if !ahead {
        manifests::apply(&client, &manifests::parse(MUTE)?).await?;
    }
    let mut churn = Churn::new(SEED, SHARDS, &settings);
    for shard in churn.running() {
        system.add_shard(shard).await?;
    }
    system.share_out(&workload(), DEADLINE).await?;
    until_told(&client, ahead).await?;
    sleep(CALM).await;
    match story {
        Story::ScaleOut => system.add_shard(&format!("shard-{SHARDS}")).await?,
        Story::Apart | Story::Changes => {
            let updates = workload().start_updates(&client);
            for _ in 0..CHANGES {
                let next = churn.next_change();
                println!("{:.3}: {next:?}", Timestamp::now());
                next.carry_out(&mut system).await?;
                if story == Story::Apart {
                    system.until_balanced(DEADLINE).await?;
                    system.until_settled(DEADLINE).await?;
                }
                sleep(churn.pause()).await;
            }
            updates.stop().await?;
        }
    }
    system.until_balanced(DEADLINE).await?;
    system.until_settled(DEADLINE).await?;
    Ok(system.judge_writes().await?)
}

fn workload() -> Workload {
    Workload {
        // Well below the grace.
        work: Duration::from_millis(50),
        interval: Duration::from_millis(100),
        seed: SEED,
        ..Workload::idle("site", OBJECTS)
    }
}

/// Takes the grace off every Lease.
const MUTE: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mute}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [leases]}
  matchConditions:
  - {name: tells, expression: "'ringside.dev/grace' in object.metadata.?annotations.orValue({})"}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/metadata/annotations/ringside.dev~1grace"}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mute}
spec: {policyName: mute}
"#;

/// Waits until all shards tell their grace, or none does.
async fn until_told(client: &Client, ahead: bool) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    eventually("the Leases are as they should be", DEADLINE, || async {
        let all = leases.list(&Default::default()).await.map_err(|error| error.to_string())?;
        let of_shards = all.iter().filter(|lease| lease.name_any().starts_with("shard-"));
        let odd = of_shards.filter(|lease| lease.annotations().contains_key(LEASE_GRACE) != ahead).count();
        if odd == 0 { Ok(()) } else { Err(format!("{odd} are not")) }
    })
    .await?;
    Ok(())
}
