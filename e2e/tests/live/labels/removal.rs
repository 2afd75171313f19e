//! A ring that is removed leaves nothing behind, whichever program removes it.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use ringside_e2e::{
    eventually::eventually,
    toolchain::{self, built},
    website::Website,
};
use ringside_ring::{ClusterRing, cluster_ring::Fence};

use crate::{
    labels::{
        belongings::{FENCE, api, kinds},
        fixture::{DEADLINE, Fixture},
    },
    planes::Keeps,
};

/// The resources of the ring, as they are counted.
const RESOURCES: [&str; 3] = ["websites.web.example.com", "configmaps", "secrets"];

/// The kinds of what is there of all that is made for the ring.
async fn belongings(fixture: &Fixture) -> Vec<&'static str> {
    let (name, mut there) = (fixture.ring.made_for(), Vec::new());
    for kind in kinds().chain(FENCE) {
        there.extend(api(&fixture.client(), kind).get_opt(&name).await.unwrap().map(|_| kind));
    }
    there
}

/// How many objects of each resource carry labels of the ring.
async fn labelled(fixture: &Fixture) -> [usize; 3] {
    let any = |key: &str| ListParams::default().labels(key);
    let mut counts = [0; 3];
    for selector in [fixture.labels.shard.clone(), format!("!{},{}", fixture.labels.shard, fixture.labels.drain)] {
        let client = fixture.client();
        counts[0] += Api::<Website>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[1] += Api::<ConfigMap>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[2] += Api::<Secret>::all(client).list_metadata(&any(&selector)).await.unwrap().items.len();
    }
    counts
}

/// How many objects of each resource carry labels of a ring of which all is there that can be made for one.
async fn whole(fixture: &Fixture) -> [usize; 3] {
    assert_eq!(belongings(fixture).await, kinds().chain(FENCE).collect::<Vec<_>>());
    let counts = labelled(fixture).await;
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    counts
}

async fn delete_ring(fixture: &Fixture) -> ClusterRing {
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    let ring = rings.get(fixture.ring.name()).await.unwrap();
    rings.delete(fixture.ring.name(), &DeleteParams::default()).await.unwrap();
    ring
}

async fn assert_nothing_is_left(fixture: &Fixture) {
    eventually("nothing is left of the ring", DEADLINE, || async {
        let (labelled, there) = (labelled(fixture).await, belongings(fixture).await);
        let nothing = labelled == [0; 3] && there.is_empty();
        if nothing { Ok(()) } else { Err(format!("{labelled:?} have labels, and there are {there:?}")) }
    })
    .await
    .unwrap();
}

/// Runs `ringside cleanup` with the rights of an administrator.
async fn cleanup(fixture: &Fixture, arguments: &[&str]) -> (bool, String) {
    let program = built(toolchain::ringside).await.unwrap();
    let mut command = Command::new(program.cli);
    command.args(["cleanup", fixture.ring.name()]).args(arguments);
    command.env("KUBECONFIG", fixture.system.control_plane().kubeconfig_path());
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    (status.success(), format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap()))
}

/// That a table says of each resource that so many objects were found, and how many are left of these.
fn assert_counted(table: &str, found: [usize; 3], left: [usize; 3]) {
    for ((resource, found), left) in RESOURCES.into_iter().zip(found).zip(left) {
        assert_eq!(row(table, resource), [found.to_string(), left.to_string()], "{table}");
    }
}

/// The numbers that a table says of a resource.
fn row<'a>(table: &'a str, resource: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(resource));
    row.unwrap_or_default().split_whitespace().skip(1).collect()
}

/// What a line of a log says of something.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

pub(crate) async fn removing_the_ring_takes_everything_off() {
    let fixture = Fixture::fenced(Fence::ApiServer, Keeps::Both, "labels-removed").await;
    let before = whole(&fixture).await;
    let ring = delete_ring(&fixture).await;
    assert_nothing_is_left(&fixture).await;
    let log = fixture.system.sharders().next().unwrap().process().log().to_owned();
    let (said, total) = eventually("the sharder says how many", DEADLINE, || async {
        let said = std::fs::read_to_string(&log).unwrap();
        let line = said
            .lines()
            .find(|line| line.contains("cleaned up after a ring") && line.contains(fixture.ring.name()))
            .ok_or("it does not")?;
        let total = field(line, "objects").ok_or(line)?.to_owned();
        Ok::<_, String>((said, total))
    })
    .await
    .unwrap();
    assert_eq!(total, before.iter().sum::<usize>().to_string());
    for (resource, count) in RESOURCES.into_iter().zip(before) {
        let line = said.lines().find(|line| {
            line.contains("took the labels")
                && field(line, "ring") == Some(fixture.ring.name())
                && field(line, "resource") == Some(resource)
        });
        assert_eq!(field(line.unwrap(), "taken"), Some(&*count.to_string()), "{resource}");
    }

    // It comes back, and so does everything.
    let rings: Api<ClusterRing> = Api::all(fixture.client());
    let again = ClusterRing::new(&ring.name_any(), ring.spec);
    rings.create(&Default::default(), &again).await.unwrap();
    fixture.system.until_balanced(DEADLINE).await.unwrap();
    eventually("all have their labels again", DEADLINE, || async {
        let now = labelled(&fixture).await;
        if now == before { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await
    .unwrap();
    // So it goes where the command removes it while everything runs.
    let before = whole(&fixture).await;
    let (clean, table) = cleanup(&fixture, &[]).await;
    assert!(clean && table.contains(&format!("ClusterRing {}: removed", fixture.ring)), "{table}");
    assert_counted(&table, before, [0; 3]);
    assert_nothing_is_left(&fixture).await;
}

pub(crate) async fn the_command_takes_off_what_no_sharder_saw_go() {
    let mut fixture = Fixture::start().await;
    let before = whole(&fixture).await;
    fixture.system.kill_sharders().await.unwrap();
    // There is no garbage collector: all of it is left to the command.
    delete_ring(&fixture).await;
    eventually("the ring is gone", DEADLINE, || async {
        let ring = Api::<ClusterRing>::all(fixture.client()).get_opt(fixture.ring.name()).await;
        ring.map_err(|error| error.to_string())?.map_or(Ok(()), |ring| Err(format!("{:?}", ring.metadata)))
    })
    .await
    .unwrap();
    let kinds = belongings(&fixture).await;
    let (clean, table) = cleanup(&fixture, &["--dry-run"]).await;
    assert!(clean && table.matches(": there\n").count() == kinds.len(), "{table}");
    assert_counted(&table, before, before);
    assert_eq!((labelled(&fixture).await, belongings(&fixture).await), (before, kinds.clone()), "it was dry");
    let (clean, table) = cleanup(&fixture, &[]).await;
    assert!(clean && table.matches(": removed\n").count() == kinds.len(), "{table}");
    assert_counted(&table, before, [0; 3]);
    assert_nothing_is_left(&fixture).await;
    let (clean, table) = cleanup(&fixture, &["--resource=websites.web.example.com"]).await;
    assert!(clean && row(&table, "all") == ["0", "0"], "{table}");
    let (clean, table) = cleanup(&fixture, &["--resource=things.example.com"]).await;
    assert!(!clean && table.contains("does not serve things.example.com"), "{table}");
}
