//! An API server that lags shows nobody through the proxy an object that was handed over.
//!
//! The proxy's own requests are answered by an API server that knows all, the controller's by one that is held in the past:
//! as behind a load balancer. Each of them is put to that one straight as well, with the selector that the proxy adds: it
//! shows the object as it was before the move, but for a watch of the present. Without `proxy/src/stages/raise.rs` so does
//! each through the proxy, as the report then says by name.

use std::{path::Path, process::Command, time::Duration};

use futures::future::join_all;
use http::StatusCode;
use kube::{
    Api, CustomResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use ringside_e2e::{case, live::Group};
use ringside_e2e::{
    compatibility::client::{Answer, Ask, Endpoint, Http},
    control_plane::{AnotherApiServer, ControlPlane, Lag, Options},
    eventually::eventually,
    manifests,
    process::Folder,
    proxy::{Identity, Proxy},
    relay::{Offer, Relay},
    shard_identity::ShardIdentity,
    toolchain::{self, built},
    website::{Website, WebsiteSpec},
};
use ringside_ring::{RingLabels, RingName};
use serde_json::json;

/// The cases.
pub(crate) fn group() -> Group {
    Group::new("old_views", vec![case!(an_api_server_that_lags_shows_no_object_that_was_handed_over)]).strict()
}

/// For what a machine that runs other tests beside may take its time for.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the API server is held in the past at most: etcd's clients give up a connection that is silent for longer.
const HELD: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "default";
const RING: &str = "websites";
const SHARD: &str = "reader";
const COLLECTION: &str = "/apis/web.example.com/v1/namespaces/default/websites";
/// The mark of what the API server that lags has to answer.
const LATE: &str = "old-views";

struct Fixture {
    proxy: Proxy,
    relay: Relay,
    _folder: Folder,
    lag: Lag,
    lagging: AnotherApiServer,
    control_plane: ControlPlane,
}

/// An API server that makes a streaming list of it (`SetListOptionsDefaults` of k8s.io/apimachinery, where the gate
/// `WatchList` is on) asks etcd how late it is, and does not answer with the past. By the legacy path it does.
const PRESENT: &str = "watch of the present";

/// What a controller may ask that is answered with the past, by a name for the report.
fn reads(before: &str) -> Vec<(&'static str, String)> {
    let not_older = "resourceVersionMatch=NotOlderThan";
    vec![
        ("get at 0", format!("{COLLECTION}/moves?resourceVersion=0")),
        ("get at a version", format!("{COLLECTION}/moves?resourceVersion={before}")),
        ("list at 0", format!("{COLLECTION}?resourceVersion=0")),
        ("list at 0 with a limit", format!("{COLLECTION}?limit=500&resourceVersion=0")),
        ("list not older than", format!("{COLLECTION}?resourceVersion={before}&{not_older}")),
        ("list of all namespaces", "/apis/web.example.com/v1/websites?resourceVersion=0".to_owned()),
        (PRESENT, format!("{COLLECTION}?watch=1&timeoutSeconds=2")),
        ("watch at 0", format!("{COLLECTION}?watch=1&resourceVersion=0&timeoutSeconds=2")),
        (
            "streaming list at 0",
            format!("{COLLECTION}?watch=1&resourceVersion=0&sendInitialEvents=true&{not_older}&timeoutSeconds=2"),
        ),
        ("legacy watch", "/apis/web.example.com/v1/watch/websites?timeoutSeconds=2".to_owned()),
    ]
}

async fn an_api_server_that_lags_shows_no_object_that_was_handed_over() {
    let fixture = Fixture::start().await;
    let through = fixture.through();
    let late = fixture.late();
    let list_at_0 = Ask::get(format!("{COLLECTION}?resourceVersion=0"));
    for name in ["moves", "stays"] {
        fixture.create(name).await;
    }
    // What a controller does first. It begins the proxy's own knowledge of how old an answer may be.
    let first = ask(&through, &list_at_0, "first").await;
    assert!(shows_both(&first), "{}", first.text());
    let before = serde_json::from_slice::<serde_json::Value>(&first.body).unwrap()["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    // By a watch: a list that comes before the cache is ready is answered without it. A cache of a custom resource may be made
    // anew a few seconds after the server's start.
    let watched = Ask::get(format!("{COLLECTION}?watch=1&resourceVersion=0&timeoutSeconds=1"));
    eventually("the other API server has caught up, and is held there", DEADLINE, || async {
        fixture.lag.release();
        if !shows_both(&ask(&late, &watched, "caught-up").await) {
            return Err("it does not know both objects".to_owned());
        }
        fixture.lag.hold();
        let held = ask(&late, &watched, "held").await;
        if shows_both(&held) { Ok(()) } else { Err(held.text()) }
    })
    .await
    .unwrap();

    fixture.hand_over("moves").await;
    fixture.relay.send_on(LATE, &fixture.control_plane, &fixture.lagging).unwrap();
    let straight = ask_all(&late, reads(&before).into_iter().map(|(name, target)| (name, narrowed(&target)))).await;
    let of_the_present = straight.iter().filter(|(name, answer)| !shows_as_ours(answer) && *name != PRESENT);
    let of_the_present: Vec<_> = of_the_present.map(|(name, answer)| (name, answer.status, answer.text())).collect();
    assert!(of_the_present.is_empty(), "the other API server does not lag: {of_the_present:#?}");

    // Some are refused at once, others wait for what the API server does not get to know.
    let mut answers = Box::pin(ask_all(&through, reads(&before)));
    let soon = tokio::time::timeout(HELD, &mut answers).await;
    fixture.lag.release();
    let answers = match soon {
        Ok(answers) => answers,
        Err(_) => answers.await,
    };
    let shown: Vec<_> = answers.iter().filter(|(_, answer)| shows_as_ours(answer)).map(|(name, _)| name).collect();
    assert!(shown.is_empty(), "answered with the past: {shown:?}");
    let exact = Ask::get(format!("{COLLECTION}?resourceVersion={before}&resourceVersionMatch=Exact"));
    assert_eq!(ask(&through, &exact, LATE).await.status, StatusCode::GONE);

    eventually("the present is shown again", DEADLINE, || async {
        let list = ask(&through, &list_at_0, LATE).await;
        assert!(!list.text().contains(r#""name":"moves""#), "{}", list.text());
        let shown = list.status == StatusCode::OK && list.text().contains(r#""name":"stays""#);
        if shown { Ok(()) } else { Err(list.text()) }
    })
    .await
    .unwrap();
    let resumed = Ask::get(format!("{COLLECTION}?watch=1&resourceVersion={before}&timeoutSeconds=2"));
    let replayed = ask(&through, &resumed, LATE).await.text();
    // An API server that had to begin its cache anew has forgotten so old a state, and says so.
    let told = replayed.contains(r#"{"type":"DELETED""#) && replayed.contains(r#""name":"moves""#);
    assert!(told || replayed.contains(r#""code":410"#), "{replayed}");
}

/// All at once.
async fn ask_all(
    endpoint: &Endpoint,
    reads: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<(&'static str, Answer)> {
    let asked = reads.into_iter().map(|(name, target)| async move {
        let read = Ask::get(target);
        (name, ask(endpoint, &read, LATE).await)
    });
    join_all(asked).await
}

/// As the proxy narrows what selects objects.
fn narrowed(target: &str) -> String {
    let selector = labels().owned_by(&SHARD.parse().unwrap()).replace('=', "%3D");
    if target.contains("/moves?") { target.to_owned() } else { format!("{target}&labelSelector={selector}") }
}

async fn ask(endpoint: &Endpoint, ask: &Ask, mark: &str) -> Answer {
    let answered = tokio::time::timeout(DEADLINE, endpoint.exchange(Http::Two, ask, mark)).await;
    answered.unwrap_or_else(|_| panic!("{}: no answer", ask.target)).unwrap()
}

fn shows_both(answer: &Answer) -> bool {
    ["moves", "stays"].iter().all(|name| answer.text().contains(&format!(r#""name":"{name}""#)))
}

/// Whether the object that moved is in the answer, otherwise than as deleted.
fn shows_as_ours(answer: &Answer) -> bool {
    let text = answer.text();
    answer.status == StatusCode::OK
        && text.lines().any(|line| line.contains(r#""name":"moves""#) && !line.contains(r#""type":"DELETED""#))
}

fn labels() -> RingLabels {
    RingLabels::of(&RING.parse::<RingName>().unwrap())
}

impl Fixture {
    async fn start() -> Self {
        let options = Options::default();
        let control_plane = ControlPlane::start(options).await.unwrap();
        let client = control_plane.client();
        manifests::define(&client, &Website::crd()).await.unwrap();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let apply = async |file: &str| {
            manifests::apply(&client, &manifests::read(&deploy.join(file)).unwrap()).await.unwrap();
        };
        for file in ["kustomize/base/crd/clusterring.yaml", "example/roles.yaml"] {
            apply(file).await;
        }
        manifests::served(&client, "clusterrings.sharding.timebertt.dev").await.unwrap();
        apply("example/ring.yaml").await;

        let folder = Folder::create("old-views").unwrap();
        let relay = Relay::start(&control_plane, Offer::Both).await.unwrap();
        let identity =
            ShardIdentity::create(&control_plane, NAMESPACE, "website-controller", SHARD, folder.path()).await.unwrap();
        identity.connect_to(&control_plane, &relay.url()).unwrap();
        let programs = built(toolchain::ringside).await.unwrap();
        let mut command = Command::new(programs.proxy);
        command.arg("--kubeconfig").arg(identity.kubeconfig());
        let proxy =
            Proxy::start(command, Identity { ring: RING, shard: SHARD, namespace: NAMESPACE }, folder.path()).unwrap();
        proxy.until_ready().await.unwrap();
        let (lagging, lag) = control_plane.start_lagging_api_server().await.unwrap();
        Self { proxy, relay, _folder: folder, lag, lagging, control_plane }
    }

    /// The way through the proxy.
    fn through(&self) -> Endpoint {
        let token = std::fs::read_to_string(self.proxy.access.join("token")).unwrap();
        let address = ([127, 0, 0, 1], self.proxy.port).into();
        Endpoint::new(address, &self.proxy.access.join("ca.crt"), &token).unwrap()
    }

    /// The way straight to the API server that lags.
    fn late(&self) -> Endpoint {
        let address = self.lagging.url().trim_start_matches("https://").parse().unwrap();
        Endpoint::new(address, &self.control_plane.ca_path(), self.control_plane.admin_token()).unwrap()
    }

    fn websites(&self) -> Api<Website> {
        Api::namespaced(self.control_plane.client(), NAMESPACE)
    }

    async fn create(&self, name: &str) {
        let labels = Some([(labels().shard, SHARD.to_owned())].into());
        let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
        let website = Website { metadata, spec: WebsiteSpec::default(), status: None };
        self.websites().create(&PostParams::default(), &website).await.unwrap();
    }

    /// A whole move: drained, let go by the proxy, and given to another shard.
    async fn hand_over(&self, name: &str) {
        let label = async |key: &str, value: &str| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
            self.websites().patch(name, &PatchParams::default(), &patch).await.unwrap();
        };
        let keys = labels();
        label(&keys.drain, "a-move").await;
        eventually("the object is let go", DEADLINE, || async {
            let website = self.websites().get(name).await.map_err(|error| error.to_string())?;
            let labels = website.metadata.labels.unwrap_or_default();
            if labels.contains_key(&keys.shard) { Err(format!("{labels:?}")) } else { Ok(()) }
        })
        .await
        .unwrap();
        label(&keys.shard, "another").await;
    }
}
