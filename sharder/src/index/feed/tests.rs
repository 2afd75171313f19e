//! Feeds against an API server that answers by a script.

#![allow(clippy::unwrap_used)]

use std::{collections::VecDeque, future::pending};

use crate::lock::Mutex;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::{
    super::{
        Mark, Progress, Scope,
        tests::{LEAVES, ROOTS, Told, index, kinds, labels, object, uuid},
    },
    list::END,
    *,
};

/// What the API server answers next.
enum Answer {
    Events(Vec<Value>),
    /// Events, and then silence.
    Open(Vec<Value>),
    /// The same, and an end after more than a minute.
    Late(Vec<Value>),
    Json(Value),
    Refused(u16),
    Never,
}

fn shown(kind: &str, name: usize, version: u64, shard: Option<&str>) -> Value {
    let metadata = object((&format!("o{name}"), &uuid(name)), version, shard, None);
    json!({"type": kind, "object": {"metadata": metadata}})
}

fn bookmark(version: u64, is_end: bool) -> Value {
    let annotations = if is_end { json!({END: "true"}) } else { json!({}) };
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": "Expired"})
}

fn page(continues: &str, objects: &[usize]) -> Answer {
    let items: Vec<_> = objects.iter().map(|name| shown("", *name, 1, None)["object"].clone()).collect();
    Answer::Json(json!({"metadata": {"resourceVersion": "50", "continue": continues}, "items": items}))
}

/// A feed after the API server gave these answers.
struct Ran {
    /// What was asked for, the last of it without an answer.
    queries: Vec<String>,
    names: Vec<String>,
    told: Arc<Mutex<Told>>,
    progress: Arc<Progress>,
    mode: Mode,
}

async fn run(answers: Vec<Answer>) -> Ran {
    run_with(ROOTS, watch::Sender::new(()), answers, |_| {}).await
}

/// `at`: is called with the number of each request.
async fn run_with(
    resource: super::super::ResourceId,
    went_back: watch::Sender<()>,
    answers: Vec<Answer>,
    at: impl Fn(usize) + Send + Sync + 'static,
) -> Ran {
    let asked = watch::Sender::new(Vec::<String>::new());
    let script = Arc::new(Mutex::<_>::new(VecDeque::from(answers)));
    let all = script.lock().len();
    let (asks, at) = (asked.clone(), Arc::new(at));
    let service = tower::service_fn(move |request: Request<Body>| {
        asks.send_modify(|asked| asked.push(request.uri().query().unwrap_or_default().to_owned()));
        at(asks.borrow().len());
        let answer = script.lock().pop_front();
        async move {
            let text = |events: Vec<Value>| events.iter().map(|event| format!("{event}\n")).collect::<String>();
            let (code, text, open_for) = match answer {
                None | Some(Answer::Never) => pending().await,
                Some(Answer::Events(events)) => (200, text(events), Duration::ZERO),
                Some(Answer::Open(events)) => (200, text(events), Duration::MAX),
                Some(Answer::Late(events)) => (200, text(events), Duration::from_secs(75)),
                Some(Answer::Json(json)) => (200, json.to_string(), Duration::ZERO),
                Some(Answer::Refused(code)) => (code, failure(code).to_string(), Duration::ZERO),
            };
            let frames = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(text)))]);
            let end = stream::once(sleep(open_for)).filter_map(|()| async { None });
            let frames = frames.chain(end).boxed();
            let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    let (index, told, _) = index();
    let progress = Arc::<Progress>::default();
    let of = (kinds()[usize::from(resource.0)].resource.clone(), Client::new(service, "default"));
    let source = Source {
        index: Arc::clone(&index),
        resource,
        scope: Scope::Cluster,
        progress: Arc::clone(&progress),
        listing: Arc::default(),
    };
    let feed = Feed::new(of, source, Arc::new(Semaphore::new(1)), went_back.subscribe());
    let feed =
        if resource == ROOTS { feed } else { feed.or_labelled(labels().shard, watch::Sender::new(false).subscribe()) };
    let (mode, mut asks) = (feed.mode(), asked.subscribe());
    tokio::select! {
        never = feed.run() => match never {},
        asked = asks.wait_for(|asked| asked.len() > all) => drop(asked.unwrap()),
    }
    let mut names = index.read(|objects| objects.roots(resource).map(|it| it.name().to_owned()).collect::<Vec<_>>());
    names.sort();
    let (queries, mode) = (asked.borrow().clone(), *mode.borrow());
    Ran { queries, names, told, progress, mode }
}

fn is_list(query: &str) -> bool {
    query.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan") && !query.contains("resourceVersion=1")
}

#[tokio::test(start_paused = true)]
async fn stream_ends_and_goes_on_from_its_version() {
    let before = Mark::now();
    let ran = run(vec![Answer::Events(vec![
        shown("ADDED", 1, 3, None),
        shown("ADDED", 2, 4, None),
        bookmark(9, true),
        shown("ADDED", 3, 11, None),
        shown("DELETED", 1, 12, None),
        bookmark(15, false),
    ])])
    .await;
    assert_eq!(ran.names, ["o2", "o3"]);
    assert!(is_list(&ran.queries[0]), "{:?}", ran.queries);
    assert!(ran.queries[1].contains("resourceVersion=15") && !ran.queries[1].contains("sendInitialEvents"));
    assert!(ran.queries.iter().all(|query| query.contains("allowWatchBookmarks=true")));
    assert!(ran.progress.is_proven(before) && ran.progress.has_delivered(15) && !ran.progress.has_delivered(16));
}

#[tokio::test(start_paused = true)]
async fn server_without_streaming_lists_is_asked_for_pages() {
    let ran = run(vec![Answer::Refused(422), page("more", &[1, 2]), page("", &[3]), Answer::Refused(410)]).await;
    assert_eq!(ran.names, ["o1", "o2", "o3"]);
    assert!(ran.queries[1].contains("limit=500") && !ran.queries[1].contains("resourceVersion"));
    assert!(ran.queries[2].contains("continue=more"));
    assert!(ran.queries[3].contains("resourceVersion=50") && ran.queries[3].contains("watch=true"));
    assert!(!ran.queries[4].contains("sendInitialEvents"), "it is known by now: {:?}", ran.queries);
}

#[tokio::test(start_paused = true)]
async fn expired_watch_lists_again_and_forgets_what_is_gone() {
    let ran = run(vec![
        Answer::Events(vec![
            shown("ADDED", 1, 3, None),
            shown("ADDED", 2, 4, None),
            bookmark(9, true),
            bookmark(10, false),
        ]),
        Answer::Events(vec![json!({"type": "ERROR", "object": failure(410)})]),
        Answer::Open(vec![shown("ADDED", 2, 4, None), shown("ADDED", 3, 12, None), bookmark(13, true)]),
    ]);
    let ran = tokio::time::timeout(Duration::from_secs(1000), ran).await.unwrap();
    assert_eq!(ran.names, ["o2", "o3"]);
    assert!(is_list(&ran.queries[2]), "{:?}", ran.queries);
    assert_eq!(ran.told.lock().removed.len(), 1);
    assert!(ran.queries[3].contains("resourceVersion=13"), "a silent stream is opened again: {:?}", ran.queries);
}

#[tokio::test(start_paused = true)]
async fn broken_watch_goes_on_without_a_list() {
    let ran = run(vec![
        Answer::Events(vec![bookmark(9, true), shown("ADDED", 1, 10, None)]),
        Answer::Refused(500),
        Answer::Events(Vec::new()),
        Answer::Events(vec![json!({"type": "ERROR", "object": failure(500)})]),
        Answer::Events(vec![shown("ADDED", 2, 12, None)]),
    ])
    .await;
    assert_eq!(ran.names, ["o1", "o2"]);
    assert!(ran.queries[1..5].iter().all(|query| query.contains("resourceVersion=10")), "{:?}", ran.queries);
    let failed = ran.told.lock().failed.clone();
    // It is told to work when it is opened, and when it shows something.
    assert_eq!(failed, [false, false, true, false, true, false, true, false, false]);
}

/// There was nothing to say.
#[tokio::test(start_paused = true)]
async fn watch_that_ends_after_a_silence_has_not_failed() {
    let ran = run(vec![Answer::Late(vec![bookmark(9, true)]), Answer::Late(Vec::new())]).await;
    assert!(ran.queries[1..].iter().all(|query| query.contains("resourceVersion=9")), "{:?}", ran.queries);
    assert!(!ran.told.lock().failed.contains(&true));
}

#[tokio::test(start_paused = true)]
async fn list_that_is_cut_off_forgets_nothing() {
    let ran = run(vec![
        Answer::Events(vec![shown("ADDED", 1, 3, None), bookmark(9, true), bookmark(10, false)]),
        Answer::Refused(410),
        Answer::Events(vec![shown("ADDED", 2, 12, None)]),
    ])
    .await;
    assert_eq!(ran.names, ["o1", "o2"]);
    assert!(ran.queries[3].contains("limit=500"), "the next is in pages: {:?}", ran.queries);
}

/// A server behind the API server may take such a list for a watch.
#[tokio::test(start_paused = true)]
async fn streaming_list_that_stands_still_is_told_and_made_in_pages() {
    let begun = Instant::now();
    let ran = run(vec![Answer::Open(vec![shown("ADDED", 1, 3, None), bookmark(4, false)]), page("", &[2])]).await;
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(ran.queries[1].contains("limit=500"), "{:?}", ran.queries);
    assert_eq!((ran.names, &ran.told.lock().failed[..]), (vec!["o2".to_owned()], &[true, false][..]));
    let ran = run(vec![Answer::Never, page("", &[2])]).await;
    assert_eq!(ran.names, ["o2"]);
}

#[tokio::test(start_paused = true)]
async fn older_time_of_the_server_is_listed_anew() {
    let went_back = watch::Sender::new(());
    let tells = went_back.clone();
    let ran = run_with(
        ROOTS,
        went_back,
        vec![
            Answer::Events(vec![shown("ADDED", 1, 30, Some("a")), bookmark(90, true), bookmark(91, false)]),
            Answer::Open(vec![bookmark(92, false)]),
            Answer::Open(vec![shown("ADDED", 1, 20, Some("b")), bookmark(40, true)]),
        ],
        move |request| {
            if request == 2 {
                tells.send_replace(());
            }
        },
    )
    .await;
    assert!(is_list(&ran.queries[2]), "{:?}", ran.queries);
    assert!(!ran.progress.has_delivered(41), "versions of before say nothing");
    assert_eq!(ran.told.lock().changed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn resource_with_few_children_is_watched_by_label() {
    let mut child = shown("ADDED", 1, 3, Some("a"));
    child["object"]["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": uuid(9), "controller": true}]);
    let foreign = (2..=5).map(|name| shown("ADDED", name, 4, None));
    let list = |objects: usize| {
        let all = std::iter::once(child.clone()).chain(foreign.clone().take(objects)).chain([bookmark(9, true)]);
        vec![Answer::Events(all.collect())]
    };
    for (foreign, mode) in [(3, Mode::All), (4, Mode::Labelled)] {
        let ran = run_with(LEAVES, watch::Sender::new(()), list(foreign), |_| {}).await;
        assert_eq!(ran.mode, mode);
        let by_label = ran.queries[1].contains("labelSelector=shard.alpha.sharding.timebertt.dev");
        assert_eq!(by_label, mode == Mode::Labelled, "{:?}", ran.queries);
        assert!(!ran.queries[0].contains("labelSelector"));
    }
}

/// An API server that answers nothing, and how often it was asked.
fn silent() -> (Client, Arc<Mutex<usize>>) {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let service = tower::service_fn(move |_: Request<Body>| {
        *count.lock() += 1;
        pending::<Result<Response<Body>, Infallible>>()
    });
    (Client::new(service, "default"), asked)
}

/// Its conversion webhook is down, say.
#[tokio::test(start_paused = true)]
async fn watch_goes_on_in_a_version_that_works() {
    let asked = watch::Sender::new(Vec::<String>::new());
    let asks = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let code = if path.contains("/v1/") { 500 } else { 422 };
        asks.send_modify(|asked| asked.push(path));
        let mut response = Response::new(Body::from(failure(code).to_string().into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let resource = crate::snapshot::tests::resource("x.io", "Thing", "things");
    resource.also_serve("v2");
    let source = Source {
        index: index().0,
        resource: ROOTS,
        scope: Scope::Cluster,
        progress: Arc::default(),
        listing: Arc::default(),
    };
    let of = (resource, Client::new(service, "default"));
    let feed = Feed::new(of, source, Arc::new(Semaphore::new(1)), watch::Sender::new(()).subscribe());
    let mut asks = asked.subscribe();
    tokio::select! {
        never = feed.run() => match never {},
        asked = asks.wait_for(|asked| asked.len() > 1) => drop(asked.unwrap()),
    }
    assert_eq!(asked.borrow()[..2], ["/apis/x.io/v1/things", "/apis/x.io/v2/things"]);
}

/// What one shows the other would take for gone.
#[tokio::test(start_paused = true)]
async fn lists_of_one_resource_wait_for_each_other() {
    let (client, asked) = silent();
    let (index, listing) = (index().0, Arc::<super::super::sources::Listing>::default());
    let feed = |scope: Scope| {
        let of = (kinds()[usize::from(ROOTS.0)].resource.clone(), client.clone());
        let (index, listing) = (Arc::clone(&index), Arc::clone(&listing));
        let source = Source { index, resource: ROOTS, scope, progress: Arc::default(), listing };
        Feed::new(of, source, Arc::new(Semaphore::new(2)), watch::Sender::new(()).subscribe()).run()
    };
    let both = futures::future::join(feed(Scope::Cluster), feed(Scope::Namespace("n".into())));
    assert!(timeout(Duration::from_secs(10), both).await.is_err());
    assert_eq!(*asked.lock(), 1);
}

/// A list shows all there is, whichever objects are watched from its end on.
#[tokio::test(start_paused = true)]
async fn list_under_way_goes_on_when_others_are_to_be_watched() {
    let (client, asked) = silent();
    let (index, all) = (index().0, watch::Sender::new(false));
    let of = (kinds()[usize::from(LEAVES.0)].resource.clone(), client);
    let source =
        Source { index, resource: LEAVES, scope: Scope::Cluster, progress: Arc::default(), listing: Arc::default() };
    let feed = Feed::new(of, source, Arc::new(Semaphore::new(1)), watch::Sender::new(()).subscribe());
    let feed = feed.or_labelled(labels().shard, all.subscribe());
    let changes = async {
        sleep(Duration::from_secs(1)).await;
        all.send_replace(true);
        sleep(Duration::from_secs(9)).await;
    };
    tokio::select! {
        never = feed.run() => match never {},
        () = changes => {}
    }
    assert_eq!(*asked.lock(), 1);
}
