//! What only a real node shows: pods, their containers and their tokens. All cases share one node, but for those that
//! start their own.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "what an administrator sees is part of the result")]

mod deployed;
mod lifecycle;
mod streams;

use std::{
    io::Write as _,
    process::ExitCode,
    sync::{Arc, LazyLock},
};

use ringside_e2e::{
    control_plane::Options,
    live::{Case, Group, Runner, Shared},
    node::{Node, Requirements, with_node},
    toolchain::{self, Environment, RingsidePrograms},
};
use tokio::runtime::Handle;

use self::{deployed::Deployed, streams::Streams};

/// What the cases share.
pub(crate) struct Fixture {
    pub(crate) node: Node,
    programs: RingsidePrograms,
    /// Sharder and shards in pods, for the cases that need them.
    deployed: Shared<Deployed>,
    /// A pod and ways to it, for the cases about streams.
    streams: Shared<Streams>,
}

impl Fixture {
    /// The system in pods, installed by the first case that asks.
    pub(crate) async fn deployed(&self) -> Arc<Deployed> {
        self.deployed.get(async || Deployed::install(&self.node).await.unwrap()).await
    }
}

static FIXTURE: Shared<Fixture> = Shared::new();

/// What was started before the first case.
pub(crate) async fn fixture() -> Arc<Fixture> {
    FIXTURE.get(async || panic!("cases come after the node")).await
}

/// A case of a function that is given what the cases share.
macro_rules! case {
    ($($part:ident)::+) => {
        ringside_e2e::case!(concat!($("::", stringify!($part)),+), $($part)::+(crate::fixture().await))
    };
}
pub(crate) use case;

/// A group of cases that need a node.
pub(crate) fn group(name: &'static str, cases: impl IntoIterator<Item = Case>) -> Group {
    let cases = cases.into_iter().map(|case| case.costs("a node, and two minutes").unless(without_node));
    Group::new(name, cases.collect())
}

/// Why this machine can have no node.
fn without_node() -> Option<String> {
    static MISSING: LazyLock<Option<String>> =
        LazyLock::new(|| Requirements::check().err().map(|missing| missing.to_string()));
    MISSING.clone()
}

fn main() -> ExitCode {
    // The longest come first.
    let mut runner = Runner::of_process(vec![deployed::group(), streams::group(), lifecycle::group()]);
    if !runner.has_work() {
        return runner.run();
    }
    // Before the network is one without a way to registries.
    runner.prepare();
    let programs = toolchain::ringside(&Environment::of_process()).unwrap();
    let options = Options { audit: true, ..Options::default() };
    let ended = with_node(options, async |node| {
        let (deployed, streams) = (Shared::new(), Shared::new());
        let fixture = FIXTURE.get(async || Fixture { node, programs, deployed, streams }).await;
        let code = tokio::task::block_in_place(|| runner.run_in(&Handle::current()));
        FIXTURE.end();
        if code != ExitCode::SUCCESS {
            let _ = writeln!(std::io::stderr(), "the logs are kept in {:?}", fixture.node.keep_logs());
        }
        code
    });
    ended.unwrap()
}
