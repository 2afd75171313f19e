//! What comes from another shard is shown after its children.

use super::*;

const ROOTS: &str = "/apis/x.io/v1/things?watch=1&resourceVersion=5";
const CHILDREN: &str = "/apis/x.io/v1/parts?watch=1&resourceVersion=5";
/// What the sharder assigned.
const ASSIGNED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"managedFields\":[{\"manager\":\"ringside-sharder\"}]}}}\n";
const CREATED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"managedFields\":[{\"manager\":\"kubectl\"}]}}}\n";
const CHILD: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"child\"}}}\n";
const MOMENT: Duration = Duration::from_millis(20);

type Events = mpsc::UnboundedSender<&'static str>;

/// A controller that watches objects and their children, and what the API server writes to each watch.
struct Family {
    lab: Lab,
    roots: (Events, Body),
    children: (Events, Body),
    /// For a watch that is asked for once more.
    again: Events,
}

impl Family {
    /// The API server answers what is asked about children after so long.
    async fn watching(knows_after: Duration) -> Self {
        let ([children, roots, again], respond) = streams();
        let lab = Lab::new(move |seen| {
            if seen.uri.path().ends_with("/namespaces/default/parts") {
                let mut answer = json(full("{\"items\":[]}"));
                answer.extensions_mut().insert(Late(knows_after));
                return answer;
            }
            if !seen.uri.query().is_some_and(|query| query.contains("watch=1")) {
                // Where a watch may begin.
                return json(full("{\"metadata\":{\"resourceVersion\":\"1\"}}"));
            }
            respond(seen)
        });
        let parts = GroupResource { resource: "parts".into(), ..things() };
        let families = [(things(), vec![parts.clone()])].into();
        let policy = Policy { families, resources: [things(), parts].into(), ..Policy::default() };
        lab.shared.knowledge.send_replace(RingState::Known(Arc::new(policy)));
        let children = (children, lab.get(CHILDREN).await.into_body());
        let roots = (roots, lab.get(ROOTS).await.into_body());
        let mut family = Self { lab, roots, children, again };
        assert_eq!((family.root(), family.child()), (None, None));
        family
    }

    /// What the client gets now of its objects.
    fn root(&mut self) -> Option<String> {
        now(&mut self.roots.1)
    }

    /// What it gets of them within this time.
    async fn root_within(&mut self, time: Duration) -> Option<String> {
        let frame = timeout(time, self.roots.1.frame()).await.ok()?;
        Some(said(frame))
    }

    fn child(&mut self) -> Option<String> {
        now(&mut self.children.1)
    }

    /// How often the API server was asked what it knows of the children.
    fn asked(&self) -> usize {
        let seen = self.lab.seen.lock();
        let is_question = |seen: &&Seen| {
            let path = seen.uri.path().ends_with("/namespaces/default/parts");
            path && seen.uri.query() == Some("fieldSelector=metadata.name%3D-")
        };
        seen.iter().filter(is_question).count()
    }
}

fn now(body: &mut Body) -> Option<String> {
    body.frame().now_or_never().map(said)
}

fn said(frame: Option<Result<Frame<Bytes>, BodyError>>) -> String {
    match frame {
        Some(Ok(frame)) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
        Some(Err(_)) => "an error".into(),
        None => "the end".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_assigned_waits_until_the_watch_of_its_children_has_caught_up() {
    let mut family = Family::watching(10 * MOMENT).await;
    family.roots.0.unbounded_send(ASSIGNED).unwrap();
    family.roots.0.unbounded_send(DELETED).unwrap();
    assert_eq!(family.root_within(9 * MOMENT).await, None);
    family.children.0.unbounded_send(CHILD).unwrap();
    assert_eq!((family.root(), family.asked()), (None, 1), "the API server may know of more");
    assert_eq!(family.child().as_deref(), Some(CHILD));
    assert_eq!(family.root_within(10 * MOMENT).await, None, "its client has yet to take it");
    assert_eq!(family.child(), None, "now it has");
    assert_eq!(behind(&family.lab, 12), 1, "what waits behind it was not shown");
    assert_eq!(family.root().as_deref(), Some(ASSIGNED));
    assert_eq!(family.root().as_deref(), Some(DELETED), "in their order");
    assert_eq!((family.root(), behind(&family.lab, 12), family.asked()), (None, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_comes_meanwhile_waits_together_and_is_asked_for_once() {
    let mut family = Family::watching(10 * MOMENT).await;
    family.roots.0.unbounded_send(ASSIGNED).unwrap();
    assert_eq!(family.root(), None);
    for _ in 0..50 {
        family.roots.0.unbounded_send(ASSIGNED).unwrap();
    }
    assert_eq!(family.root_within(12 * MOMENT).await.as_deref(), Some(ASSIGNED));
    assert_eq!((family.root(), family.asked()), (None, 2));
    assert_eq!(family.root_within(12 * MOMENT).await.as_deref(), Some(ASSIGNED));
    let rest: Vec<_> = std::iter::from_fn(|| family.root()).collect();
    assert_eq!((rest.len(), family.asked()), (49, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_created_with_its_label_and_what_a_watch_begins_with_passes_at_once() {
    let mut family = Family::watching(MOMENT).await;
    for event in [
        CREATED,
        "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"managedFields\":[{\"manager\":\"ringside-sharder\"}]}}}\n",
    ] {
        family.roots.0.unbounded_send(event).unwrap();
        assert_eq!(family.root().as_deref(), Some(event));
    }
    let (server, respond) = streaming();
    let lab = Lab::new(respond);
    let mut begins = lab
        .get("/apis/x.io/v1/things?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
        .await
        .into_body();
    server.unbounded_send(ASSIGNED).unwrap();
    assert_eq!(now(&mut begins).as_deref(), Some(ASSIGNED));
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_longer_than_three_seconds() {
    let mut family = Family::watching(Duration::from_secs(60)).await;
    family.roots.0.unbounded_send(ASSIGNED).unwrap();
    assert_eq!(family.root_within(Duration::from_millis(2_999)).await, None);
    assert_eq!(family.root_within(MOMENT).await.as_deref(), Some(ASSIGNED));
    assert_eq!(family.lab.shared.metrics.have_arrived("too_late"), 1);
}

/// What left may be among what waits, or come while the watch is asked for again.
#[tokio::test(start_paused = true)]
async fn what_waits_when_the_lease_is_lost_is_asked_for_again_and_what_left_is_told() {
    let half = ASSIGNED.split_at(40).0;
    for held in [&[ASSIGNED][..], &[ASSIGNED, DELETED], &[ASSIGNED, half]] {
        let mut family = Family::watching(10 * MOMENT).await;
        for piece in held {
            family.roots.0.unbounded_send(piece).unwrap();
            assert_eq!(family.root(), None);
        }
        family.lab.shared.gate.close();
        for event in [ASSIGNED, DELETED] {
            family.again.unbounded_send(event).unwrap();
        }
        assert_eq!(family.root_within(20 * MOMENT).await.as_deref(), Some(DELETED), "{held:?}");
        let asked = family.lab.last();
        assert!(asked.uri.query().unwrap().contains("resourceVersion=5"), "from what its client has: {}", asked.uri);
        assert!(family.roots.0.is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_half_of_what_waits_when_the_lease_is_lost_is_broken_off() {
    let (first, second) = ASSIGNED.split_at(40);
    let mut family = Family::watching(10 * MOMENT).await;
    family.roots.0.unbounded_send(first).unwrap();
    assert_eq!(family.root().as_deref(), Some(first));
    family.roots.0.unbounded_send(second).unwrap();
    assert_eq!(family.root(), None);
    family.lab.shared.gate.close();
    assert_eq!(family.root_within(20 * MOMENT).await.as_deref(), Some("an error"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_while_something_waits_shows_it_first() {
    let mut family = Family::watching(10 * MOMENT).await;
    family.roots.0.unbounded_send(ASSIGNED).unwrap();
    family.roots.0.close_channel();
    assert_eq!(family.root_within(12 * MOMENT).await.as_deref(), Some(ASSIGNED));
    assert_eq!(family.root().as_deref(), Some("the end"));
}
