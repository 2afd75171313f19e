//! The commands of the book, typed as its pages show them: a page says `console,live` where they are to be run.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::Group,
    manifests,
    pages::{Block, Page, Shown, root, shell},
    system::{NAMESPACE, Settings, System},
    toolchain::{self, built},
    website::Website,
};
use ringside_ring::{ClusterRing, RingLabels, cluster_ring::Fence};
use serde_json::json;

use crate::labels::belongings::{FENCE, KINDS, api};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "docs",
        vec![
            case!(commands_show_what_the_pages_show).works(),
            case!(break_glass_works_without_sharder_and_leaves_nothing).works(),
        ],
    )
}

const RING: &str = "websites";
const DEPLOYMENT: &str = "website-controller";
/// The objects of the sample.
const WEBSITES: usize = 12;
const DEADLINE: Duration = Duration::from_secs(90);

/// How many commands the pages mark as live, at least.
const FEWEST: usize = 1;

/// Replicas, beside those that the pages name.
const REPLICAS: [&str; 3] = [
    "website-controller-7d9f5c8b64-k2x8q",
    "website-controller-7d9f5c8b64-m9z5t",
    "website-controller-7d9f5c8b64-p4d2z",
];

/// A reader of the book at a terminal.
struct Reader {
    system: System,
    program: std::path::PathBuf,
}

impl Reader {
    /// With the sample in a cluster, its objects shared by these replicas.
    async fn start(settings: Settings, replicas: BTreeSet<String>) -> Self {
        let mut system = System::start(settings).await.unwrap();
        system.start_sharding(1).await.unwrap();
        for replica in &replicas {
            system.add_shard(replica).await.unwrap();
        }
        system.until_counted(DEADLINE).await.unwrap();
        let client = system.control_plane().client();
        for file in ["controller.yaml", "websites.yaml"] {
            let objects = manifests::read(&root().join("deploy/sample").join(file)).unwrap();
            manifests::apply(&client, &objects).await.unwrap();
        }
        eventually("all objects were worked on", DEADLINE, || async {
            let websites = Api::<Website>::all(client.clone()).list(&ListParams::default()).await;
            let websites = websites.map_err(|error| error.to_string())?;
            let done = websites.iter().filter(|one| one.status.as_ref().is_some_and(|it| it.observed_generation > 0));
            let done = done.count();
            if done == WEBSITES { Ok(()) } else { Err(format!("{done} of {WEBSITES}")) }
        })
        .await
        .unwrap();
        Self { system, program: built(toolchain::ringside).await.unwrap().cli }
    }

    fn client(&self) -> Client {
        self.system.control_plane().client()
    }

    async fn deployment(&self) -> Deployment {
        Api::namespaced(self.client(), NAMESPACE).get(DEPLOYMENT).await.unwrap()
    }

    /// Types a command; returns how it ended, and what it printed. Of `kubectl` it knows what pages need.
    async fn types(&self, command: &str) -> (i32, String) {
        let commands = shell::commands(command);
        let [words] = &commands[..] else { panic!("{command}: it is run without a pipe") };
        if let Some(words) = shell::of_ringside(words) {
            return self.runs(&words[1..]).await;
        }
        let (patch, delete) = (PatchParams::default(), DeleteParams::default());
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["kubectl", "scale", "deployment", name, .., "--replicas", replicas] => {
                let replicas: i32 = replicas.parse().unwrap();
                let deployments: Api<Deployment> = Api::namespaced(self.client(), NAMESPACE);
                let scaled = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                deployments.patch(name, &patch, &scaled).await.unwrap();
            }
            ["kubectl", "delete", "clusterring", name, ..] => {
                Api::<ClusterRing>::all(self.client()).delete(name, &delete).await.unwrap();
            }
            _ => panic!("{command}: a block that is run has commands of `ringside` only"),
        }
        (0, String::new())
    }

    async fn runs(&self, arguments: &[String]) -> (i32, String) {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", self.system.control_plane().kubeconfig_path());
        let Output { status, stdout, stderr } =
            tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        println!("$ ringside {}\n{text}", arguments.join(" "));
        (status.code().unwrap_or(-1), text)
    }
}

/// The blocks of a page that are run.
fn live(page: &Page) -> impl Iterator<Item = &Block> {
    page.blocks_of("console").filter(|block| block.info.split(',').any(|one| one == "live"))
}

/// How the commands of a block end: with 0, or as a third word of its fence says.
fn ends(block: &Block) -> i32 {
    block.info.split(',').find_map(|one| one.parse().ok()).unwrap_or(0)
}

/// The heads of columns, and what stands first in each line below.
fn missing<'a>(shown: &'a Shown, printed: &str) -> Vec<&'a str> {
    let is_head = |line: &str| !line.contains(char::is_lowercase) && line.split_whitespace().count() > 1;
    let mut missing = Vec::new();
    for line in shown.output.iter().filter(|line| line.trim() != "...") {
        let words: Vec<_> = line.split_whitespace().collect();
        let found = match is_head(line) {
            true => printed.lines().any(|other| other.split_whitespace().eq(words.iter().copied())),
            // A number alone is that of another day.
            false => words.first().is_none_or(|word| !word.contains(char::is_alphabetic) || printed.contains(*word)),
        };
        if !found {
            missing.push(line.as_str());
        }
    }
    missing
}

async fn commands_show_what_the_pages_show() {
    let summary = Page::read("docs/src/SUMMARY.md");
    let pages = summary.links().into_iter().map(|link| format!("docs/src/{link}"));
    let pages: Vec<_> = pages.filter(|path| root().join(path).exists()).map(|path| Page::read(&path)).collect();
    let named =
        pages.iter().flat_map(live).flat_map(|block| block.lines.iter()).flat_map(|line| line.split_whitespace());
    let replicas = named.filter(|word| word.starts_with("website-controller-")).chain(REPLICAS).map(str::to_owned);
    let reader = Reader::start(Settings::default(), replicas.collect()).await;
    let (mut faults, mut count) = (Vec::new(), 0);
    for page in &pages {
        for block in live(page) {
            for shown in block.shown() {
                let (code, printed) = reader.types(&shown.command).await;
                count += 1;
                let expected = ends(block);
                let at = format!("{}:{}: {}", page.path, block.begin, shown.command);
                if code != expected {
                    faults.push(format!("{at}: ended with {code}, not {expected}: {printed}"));
                }
                faults.extend(missing(&shown, &printed).into_iter().map(|line| format!("{at}: not printed: {line}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count >= FEWEST, "only {count} commands are marked as live");
}

async fn break_glass_works_without_sharder_and_leaves_nothing() {
    let settings = Settings { fence: Fence::ApiServer, ..Settings::default() };
    let mut reader = Reader::start(settings, REPLICAS.map(str::to_owned).into()).await;
    reader.system.until_fenced(DEADLINE).await.unwrap();
    let before = reader.deployment().await;
    let (code, said) = reader.types("ringside inject default/website-controller --ring websites").await;
    assert_eq!(code, 0, "{said}");
    assert_ne!(reader.deployment().await.spec.unwrap().template, before.spec.clone().unwrap().template);
    // Nothing of Ringside is at work any more: proxies that end at once, and no sharder.
    for replica in REPLICAS {
        reader.system.kill_shard(replica).await.unwrap();
    }
    reader.system.kill_sharders().await.unwrap();

    let page = Page::read("docs/src/turn-it-off.md");
    let typed: Vec<_> = page.blocks_of("console").take(2).flat_map(Block::shown).map(|shown| shown.command).collect();
    assert_eq!(typed.len(), 5, "four commands end it, and one cleans up: {typed:?}");
    for command in typed {
        let (code, said) = reader.types(&command).await;
        assert_eq!(code, 0, "{command}: {said}");
    }

    let after = reader.deployment().await;
    assert_eq!(after.spec, before.spec, "the Deployment is as it was");
    let client = reader.client();
    let ring: ringside_ring::RingName = RING.parse().unwrap();
    for kind in KINDS.into_iter().chain(FENCE) {
        let left = api(&client, kind).get_opt(&ring.made_for()).await.unwrap();
        assert!(left.is_none(), "{kind} is left");
    }
    let labelled = ListParams::default().labels(&RingLabels::of(&ring).shard);
    let mut left = Vec::new();
    let websites = Api::<Website>::all(client.clone()).list_metadata(&labelled).await.unwrap();
    left.extend(websites.iter().map(ResourceExt::name_any));
    let maps = Api::<ConfigMap>::all(client.clone()).list_metadata(&labelled).await.unwrap();
    left.extend(maps.iter().map(ResourceExt::name_any));
    let secrets = Api::<Secret>::all(client.clone()).list_metadata(&labelled).await.unwrap();
    left.extend(secrets.iter().map(ResourceExt::name_any));
    assert!(left.is_empty(), "labels are left on {left:?}");
}
