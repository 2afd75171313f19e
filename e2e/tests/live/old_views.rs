//! An API server that lags shows no client of a proxy an object that was handed over.
//!
//! The proxy's own requests are answered by an API server that knows all, the controller's by one that is held in the past:
//! as behind a load balancer. Each of them is put to that one straight as well, with the selector that the proxy adds: it
//! shows the object as it was before the move, but for a watch of the present. Without `proxy/src/stages/raise.rs` so does
//! each through the proxy, as the report then says by name.

use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use ringside_e2e::{
    case,
    compatibility::client::{Answer, Ask, Endpoint, Http},
    control_plane::{AnotherApiServer, Lag},
    eventually::{enough, eventually},
    live::Group,
    proxy::Proxy,
    relay::{Offer, Relay},
    website::{Website, WebsiteSpec},
};
use serde_json::json;

use crate::proxies::{NAMESPACE, Proxies, endpoint, labels};

/// The cases.
pub(crate) fn group() -> Group {
    Group::new(
        "old_views",
        vec![
            case!(an_api_server_that_lags_shows_no_object_that_was_handed_over)
                .costs("a second API server that lags: the model tries it, and tests of the proxy"),
        ],
    )
    .strict()
}

/// For what a machine that runs other tests beside may take its time for.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the API server is held in the past at most: etcd's clients give up a connection that is silent for longer.
const HELD: Duration = Duration::from_secs(10);
const SHARD: &str = "reader";
const COLLECTION: &str = "/apis/web.example.com/v1/namespaces/default/websites";
/// The mark of what the API server that lags has to answer.
const LATE: &str = "old-views";

struct Fixture {
    proxy: Proxy,
    relay: Relay,
    lag: Lag,
    lagging: AnotherApiServer,
    proxies: Proxies,
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
    let through = endpoint(&fixture.proxy);
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
    // again a few seconds after the server's start.
    let watched = Ask::get(format!("{COLLECTION}?watch=1&resourceVersion=0&timeoutSeconds=2"));
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
    fixture.relay.send_on(LATE, &fixture.proxies.control_plane, &fixture.lagging).unwrap();
    let straight = ask_all(&late, reads(&before).into_iter().map(|(name, target)| (name, narrowed(&target)))).await;
    let of_the_past = straight.iter().filter(|(name, answer)| shows_as_ours(answer) && *name != PRESENT);
    enough("answers of the other API server with the past", of_the_past.count(), straight.len() - 1);

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
    let resumed = Ask::get(format!("{COLLECTION}?watch=1&resourceVersion={before}&timeoutSeconds=5"));
    let replayed = ask(&through, &resumed, LATE).await.text();
    // An API server that had to begin its cache again has forgotten so old a state, and says so.
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
    let answered = tokio::time::timeout(4 * DEADLINE, endpoint.exchange(Http::Two, ask, mark)).await;
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

impl Fixture {
    async fn start() -> Self {
        let proxies = Proxies::start("{resources: [{group: web.example.com, resource: websites}]}").await;
        let relay = Relay::start(&proxies.control_plane, Offer::Both).await.unwrap();
        let proxy = proxies.proxy_by(SHARD, &relay.url(), &["--lease-duration=60s"]).await;
        let (lagging, lag) = proxies.control_plane.start_lagging_api_server().await.unwrap();
        Self { proxy, relay, lag, lagging, proxies }
    }

    /// The way straight to the API server that lags.
    fn late(&self) -> Endpoint {
        let plane = &self.proxies.control_plane;
        Endpoint::new(self.lagging.address(), &plane.ca_path(), plane.admin_token()).unwrap()
    }

    fn websites(&self) -> Api<Website> {
        Api::namespaced(self.proxies.control_plane.client(), NAMESPACE)
    }

    async fn create(&self, name: &str) {
        let labels = Some([(labels().shard, SHARD.to_owned())].into());
        let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
        let website = Website { metadata, spec: WebsiteSpec::default(), status: None };
        self.websites().create(&PostParams::default(), &website).await.unwrap();
    }

    /// A whole move: drained, released by the proxy, and given to another shard.
    async fn hand_over(&self, name: &str) {
        let label = async |key: &str, value: &str| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
            self.websites().patch(name, &PatchParams::default(), &patch).await.unwrap();
        };
        let keys = labels();
        label(&keys.drain, "a-move").await;
        eventually("the object is released", DEADLINE, || async {
            let website = self.websites().get(name).await.map_err(|error| error.to_string())?;
            let labels = website.metadata.labels.unwrap_or_default();
            if labels.contains_key(&keys.shard) { Err(format!("{labels:?}")) } else { Ok(()) }
        })
        .await
        .unwrap();
        label(&keys.shard, "another").await;
    }
}
