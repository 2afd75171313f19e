//! A ring that is removed leaves nothing behind, whoever takes it off.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use ringside_e2e::{
    eventually::eventually,
    system::Settings,
    toolchain::{self, Environment},
    website::Website,
};
use ringside_ring::{ClusterRing, labels::webhook_configuration_name};

use crate::{
    belongings::{KINDS, api},
    ground::{DEADLINE, Ground},
};

/// How many objects of each resource carry labels of the ring.
async fn labelled(ground: &Ground) -> [usize; 3] {
    let any = |key: &str| ListParams::default().labels(key);
    let mut counts = [0; 3];
    for selector in [ground.labels.shard.clone(), format!("!{},{}", ground.labels.shard, ground.labels.drain)] {
        let client = ground.client();
        counts[0] += Api::<Website>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[1] += Api::<ConfigMap>::all(client.clone()).list_metadata(&any(&selector)).await.unwrap().items.len();
        counts[2] += Api::<Secret>::all(client).list_metadata(&any(&selector)).await.unwrap().items.len();
    }
    counts
}

async fn delete_ring(ground: &Ground) -> ClusterRing {
    let rings: Api<ClusterRing> = Api::all(ground.client());
    let ring = rings.get(ground.ring.as_str()).await.unwrap();
    rings.delete(ground.ring.as_str(), &DeleteParams::default()).await.unwrap();
    ring
}

async fn assert_nothing_is_left(ground: &Ground) {
    let name = webhook_configuration_name(&ground.ring);
    eventually("nothing is left of the ring", DEADLINE, || async {
        let left = labelled(ground).await;
        if left != [0; 3] {
            return Err(format!("{left:?} have labels"));
        }
        for kind in KINDS {
            if api(&ground.client(), kind).get_opt(&name).await.map_err(|error| error.to_string())?.is_some() {
                return Err(format!("{kind} {name} is there"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// Runs `ringside-sharder cleanup` with the rights of an administrator.
async fn cleanup(ground: &Ground, arguments: &[&str]) -> (bool, String) {
    let program =
        tokio::task::spawn_blocking(|| toolchain::ringside(&Environment::of_process())).await.unwrap().unwrap();
    let mut command = Command::new(program.sharder);
    command.args(["cleanup", "--ring", ground.ring.as_str()]).args(arguments);
    command.env("KUBECONFIG", ground.system.control_plane().kubeconfig_path());
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = format!("{}{}", String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    eprintln!("cleanup {arguments:?}: {status}\n{text}");
    (status.success(), text)
}

/// The numbers that a table says of a resource.
fn row<'a>(table: &'a str, resource: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(resource));
    row.unwrap_or_default().split_whitespace().skip(1).collect()
}

#[tokio::test]
async fn removing_the_ring_takes_everything_off() {
    let ground = Ground::start(Settings::default(), true).await;
    let before = labelled(&ground).await;
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    let ring = delete_ring(&ground).await;
    assert_nothing_is_left(&ground).await;
    let log = ground.system.sharders().next().unwrap().process().log().to_owned();
    eventually("the sharder says how many", DEADLINE, || async {
        let said = std::fs::read_to_string(&log).unwrap();
        let line = said.lines().find(|line| line.contains("cleaned up after a ring"));
        line.map(ToOwned::to_owned).ok_or_else(|| "it does not".to_owned())
    })
    .await
    .map(|line| eprintln!("{line}"))
    .unwrap();

    // It comes back, and so does everything.
    let rings: Api<ClusterRing> = Api::all(ground.client());
    let again = ClusterRing::new(&ring.name_any(), ring.spec);
    rings.create(&Default::default(), &again).await.unwrap();
    ground.system.until_balanced(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn the_command_takes_off_what_no_sharder_saw_go() {
    let ground = Ground::start(Settings::default(), true).await;
    let before = labelled(&ground).await;
    for sharder in ground.system.sharders() {
        sharder.process().kill().unwrap();
        sharder.process().wait(DEADLINE).await.unwrap();
    }
    delete_ring(&ground).await;
    let (clean, table) = cleanup(&ground, &["--dry-run"]).await;
    assert!(clean, "{table}");
    for (resource, count) in ["websites.web.example.com", "configmaps", "secrets"].into_iter().zip(before) {
        assert_eq!(row(&table, resource), [count.to_string(), count.to_string()]);
    }
    assert_eq!(labelled(&ground).await, before, "it was dry");
    let (clean, table) = cleanup(&ground, &[]).await;
    assert!(clean, "{table}");
    for (resource, count) in ["websites.web.example.com", "configmaps", "secrets"].into_iter().zip(before) {
        assert_eq!(row(&table, resource), [count.to_string(), "0".to_owned()]);
    }
    assert_nothing_is_left(&ground).await;
    let (clean, table) = cleanup(&ground, &["--resource=websites.web.example.com"]).await;
    assert!(clean && row(&table, "all") == ["0", "0"], "{table}");
    let (clean, table) = cleanup(&ground, &["--resource=things.example.com"]).await;
    assert!(!clean && table.contains("does not serve things.example.com"), "{table}");
}

#[tokio::test]
async fn the_command_takes_a_whole_ring_off_while_everything_runs() {
    let ground = Ground::start(Settings::default(), true).await;
    let websites = labelled(&ground).await[0].to_string();
    let (clean, table) = cleanup(&ground, &[]).await;
    assert!(clean && table.contains("ClusterRing websites: removed"), "{table}");
    assert_eq!(row(&table, "websites.web.example.com"), [&*websites, "0"]);
    assert_nothing_is_left(&ground).await;
}
