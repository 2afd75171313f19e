//! What a person reads in the logs while the API server is away: a line for each thing that fails, and not one for each attempt.

use std::{fs, path::PathBuf, time::Duration};

use kube::{Api, api::PostParams};
use ringside_e2e::{
    case,
    eventually::eventually,
    live::Group,
    system::{NAMESPACE, Settings, System},
};
use ringside_ring::ClusterRing;
use serde_json::json;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "quiet_logs",
        vec![case!(minute_without_api_server_is_few_lines_in_each_log).costs("a minute without API server")],
    )
}

const DEADLINE: Duration = Duration::from_secs(120);
const OUTAGE: Duration = Duration::from_secs(60);
/// Of a sharder with three rings, and of a proxy.
const MOST: [usize; 2] = [30, 15];

/// A log, and how much of it was there before.
struct Log(PathBuf, usize);

impl Log {
    fn of(path: &std::path::Path) -> Self {
        Self(path.to_owned(), fs::read(path).unwrap().len())
    }

    /// What has come since then.
    fn since(&self) -> String {
        fs::read_to_string(&self.0).unwrap().split_off(self.1)
    }

    async fn until_says(&self, words: &str) {
        let says = || async { self.since().contains(words).then_some(()).ok_or_else(|| self.since()) };
        eventually(words, DEADLINE, says).await.unwrap();
    }
}

async fn minute_without_api_server_is_few_lines_in_each_log() {
    let mut system = System::start(Settings::default()).await.unwrap();
    system.start_sharding(1).await.unwrap();
    let sharder = system.sharders().next().unwrap().process().log().to_owned();
    let rings: Api<ClusterRing> = Api::all(system.control_plane().client());
    for name in ["second", "third"] {
        let spec = json!({"resources": [{"group": "", "resource": "configmaps"}], "namespaceSelector": {"matchLabels": {"team": name}}});
        let ring = ClusterRing::new(name, serde_json::from_value(spec).unwrap());
        system.allow(&ring, &[NAMESPACE]).await.unwrap();
        let log = Log::of(&sharder);
        rings.create(&PostParams::default(), &ring).await.unwrap();
        log.until_says(&format!("reported the status of a ring ring={name}")).await;
    }
    system.add_shard("shard-0").await.unwrap();
    let proxy = system.shard("shard-0").unwrap().proxy().log().to_owned();
    let logs = [&sharder, &proxy].map(|path| Log::of(path));

    system.stop_api_server().await.unwrap();
    tokio::time::sleep(OUTAGE).await;
    system.start_api_server().await.unwrap();
    for (log, back) in logs.iter().zip(["became leader", "holding the Lease"]) {
        log.until_says(back).await;
    }
    for (log, most) in logs.iter().zip(MOST) {
        let said = log.since();
        println!("{} of {most} lines:\n{said}", said.lines().count());
        assert!(said.lines().count() <= most, "{} lines", said.lines().count());
    }
}
