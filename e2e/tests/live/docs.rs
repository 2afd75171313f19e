//! The commands of the book, typed as its pages show them: a page says `console,live` where they are to be run.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::Group,
    manifests,
    pages::{Block, Page, Shown, root, shell},
    system::{NAMESPACE, RING, Settings, System},
    website::Website,
};
use ringside_ring::{ClusterRing, RingLabels, RingName, cluster_ring::Fence};
use serde_json::json;

use crate::{
    command::ringside,
    labels::belongings::{FENCE, api, kinds},
};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("docs", vec![case!(commands_show_what_pages_show_and_break_glass_leaves_nothing).works()])
}

const DEPLOYMENT: &str = "website-controller";
/// The objects of the sample.
const WEBSITES: usize = 12;
const DEADLINE: Duration = Duration::from_secs(90);

const REPLICAS: [&str; 3] = [
    "website-controller-7d9f5c8b64-k2x8q",
    "website-controller-7d9f5c8b64-m9z5t",
    "website-controller-7d9f5c8b64-p4d2z",
];

/// A reader of the book at a terminal.
struct Reader(System);

impl Reader {
    /// With the sample in a cluster, its objects shared by replicas behind the API server's fence.
    async fn start() -> Self {
        let settings = Settings { fence: Fence::ApiServer, ..Settings::default() };
        let mut system = System::start(settings).await.unwrap();
        system.start_sharding(1).await.unwrap();
        for replica in REPLICAS {
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
            let is_done = |one: &&Website| one.status.as_ref().is_some_and(|it| it.observed_generation > 0);
            let done = websites.iter().filter(is_done).count();
            if done == WEBSITES { Ok(()) } else { Err(format!("{done} of {WEBSITES}")) }
        })
        .await
        .unwrap();
        Self(system)
    }

    fn client(&self) -> Client {
        self.0.control_plane().client()
    }

    async fn deployment(&self) -> Deployment {
        Api::namespaced(self.client(), NAMESPACE).get(DEPLOYMENT).await.unwrap()
    }

    /// Types a command; returns how it ended, and what it printed. Of `kubectl` it knows what pages need.
    async fn types(&self, command: &str) -> (i32, String) {
        let commands = shell::commands(command);
        let [words] = &commands[..] else { panic!("{command}: it is run without a pipe") };
        if let Some(words) = shell::of_ringside(words) {
            let arguments: Vec<_> = words[1..].iter().map(String::as_str).collect();
            return ringside(&self.0.control_plane().kubeconfig_path(), &arguments).await;
        }
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["kubectl", "scale", "deployment", name, .., "--replicas", replicas] => {
                let replicas: i32 = replicas.parse().unwrap();
                let deployments: Api<Deployment> = Api::namespaced(self.client(), NAMESPACE);
                let scaled = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                deployments.patch(name, &PatchParams::default(), &scaled).await.unwrap();
            }
            ["kubectl", "delete", "clusterring", name, ..] => {
                Api::<ClusterRing>::all(self.client()).delete(name, &DeleteParams::default()).await.unwrap();
            }
            _ => panic!("{command}: a block that is run has commands of `ringside` only"),
        }
        (0, String::new())
    }
}

/// The blocks of a page that are run.
fn live(page: &Page) -> impl Iterator<Item = &Block> {
    page.blocks_of("console").filter(|block| block.info.split(',').any(|one| one == "live"))
}

/// Of heads of columns, and of what stands first in each line below, that which is not printed.
fn missing<'a>(shown: &'a Shown, printed: &'a str) -> impl Iterator<Item = &'a String> {
    let is_head = |line: &str| !line.contains(char::is_lowercase) && line.split_whitespace().count() > 1;
    shown.output.iter().filter(move |line| line.trim() != "...").filter(move |line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // A number alone is that of another day.
        let is_word = |word: &&&str| word.contains(char::is_alphabetic);
        match is_head(line) {
            true => !printed.lines().any(|other| other.split_whitespace().eq(words.iter().copied())),
            false => words.first().filter(is_word).is_some_and(|word| !printed.contains(*word)),
        }
    })
}

/// What the pages show, and the API server does not.
async fn faults(reader: &Reader) -> Vec<String> {
    let summary = Page::read("docs/src/SUMMARY.md");
    let (mut faults, mut count) = (Vec::new(), 0);
    for page in summary.links().into_iter().map(|link| Page::read(&format!("docs/src/{link}"))) {
        for (block, shown) in live(&page).flat_map(|block| block.shown().into_iter().map(move |shown| (block, shown))) {
            let (code, printed) = reader.types(&shown.command).await;
            count += 1;
            let at = format!("{}:{}: {}", page.path, block.begin, shown.command);
            if code != 0 {
                faults.push(format!("{at}: ended with {code}: {printed}"));
            }
            faults.extend(missing(&shown, &printed).map(|line| format!("{at}: not printed: {line}")));
        }
    }
    assert!(count > 0, "no command is marked as live");
    faults
}

async fn commands_show_what_pages_show_and_break_glass_leaves_nothing() {
    let mut reader = Reader::start().await;
    reader.0.until_fenced(DEADLINE).await.unwrap();
    assert_eq!(faults(&reader).await, [""; 0]);
    let before = reader.deployment().await;
    let (code, said) = reader.types("ringside inject default/website-controller --ring websites").await;
    assert_eq!(code, 0, "{said}");
    assert_ne!(reader.deployment().await.spec.unwrap().template, before.spec.clone().unwrap().template);
    // Nothing of Ringside is at work any more: proxies that end at once, and no sharder.
    for replica in REPLICAS {
        reader.0.kill_shard(replica).await.unwrap();
    }
    reader.0.kill_sharders().await.unwrap();

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
    let ring: RingName = RING.parse().unwrap();
    for kind in kinds().chain(FENCE) {
        let left = api(&client, kind).get_opt(&ring.made_for()).await.unwrap();
        assert!(left.is_none(), "{kind} is left");
    }
    let labelled = ListParams::default().labels(&RingLabels::of(&ring).shard);
    let resources =
        [ApiResource::erase::<Website>(&()), ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Secret>(&())];
    for resource in resources {
        let left = Api::<DynamicObject>::all_with(client.clone(), &resource).list_metadata(&labelled).await.unwrap();
        assert!(left.items.is_empty(), "labels are left: {left:?}");
    }
}
