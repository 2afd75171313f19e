//! What a platform team does with Ringside on a real node, by the commands of the documentation: from an empty cluster to a
//! sharded controller, through a day of changes, and back.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a story prints what its commands said")]

mod inventory;
mod story;
mod terminal;
mod work;

use std::{process::ExitCode, sync::LazyLock};

use ringside_e2e::{
    control_plane::Options,
    helm::Chart,
    live::{Case, Group, Runner, Shared},
    node::{Node, Requirements, with_node},
    toolchain::{self, Environment, Need},
};
use ringside_ring::cluster_ring::GroupResource;
use tokio::runtime::Handle;

use self::terminal::Programs;

/// What the story is told on.
struct Fixture {
    node: Node,
    programs: Programs,
    chart: Chart,
}

static FIXTURE: Shared<Fixture> = Shared::new();

fn main() -> ExitCode {
    let case = Case::once("from_an_empty_cluster_to_shards_and_back", || {
        Box::pin(async {
            let fixture = FIXTURE.get(async || panic!("the story comes after the node")).await;
            story::tell(&fixture).await;
        })
    });
    let case = case.alone().costs("a node, and ten minutes").unless(without_node);
    let case = case.needs(Need::Helm).needs(Need::Kubectl).needs(Need::ControllerManager);
    let mut runner = Runner::of_process(vec![Group::new("adoption", vec![case])]);
    if !runner.has_work() {
        return runner.run();
    }
    // Before the network is one without a way to registries.
    runner.prepare();
    let environment = Environment::of_process();
    let chart = Chart::find(&environment).unwrap();
    let programs = Programs {
        ringside: toolchain::ringside(&environment).unwrap().cli,
        helm: chart.program().to_owned(),
        kubectl: toolchain::kubectl(&environment).unwrap(),
    };
    let resource = |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
    let written = vec![
        resource("web.example.com", "websites"),
        resource("", "configmaps"),
        resource("", "secrets"),
        resource("coordination.k8s.io", "leases"),
    ];
    let options = Options { audit_writes: written, ..Options::default() };
    let ended = with_node(options, async |node| {
        let fixture = FIXTURE.get(async || Fixture { node, programs, chart }).await;
        let code = tokio::task::block_in_place(|| runner.run_in(&Handle::current()));
        FIXTURE.end();
        if code != ExitCode::SUCCESS {
            println!("the logs are kept in {:?}", fixture.node.keep_logs());
        }
        code
    });
    ended.unwrap()
}

/// Why this machine can have no node.
fn without_node() -> Option<String> {
    static MISSING: LazyLock<Option<String>> =
        LazyLock::new(|| Requirements::check().err().map(|missing| missing.to_string()));
    MISSING.clone()
}
