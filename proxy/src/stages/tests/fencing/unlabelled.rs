//! Children that are created without label.

use super::*;

const ALL_TRIES: Duration = Duration::from_secs(60);

/// What the API server says to the patches that the proxy makes of its own, by their number.
type Script = Arc<dyn Fn(usize) -> Patched + Send + Sync>;

#[derive(Clone, Copy)]
enum Patched {
    /// The webhook is asked, and labels it.
    Labelled,
    /// It can't be asked.
    Unlabelled,
    Status(u16),
    /// It was deleted, and another one has its name.
    Another,
}

/// An API server that creates the part `p` with these labels; where it is patched after that the script says what comes of it.
fn creating(labels: Labels, script: impl Fn(usize) -> Patched + Send + Sync + 'static) -> Fenced {
    answering(201, labels, script)
}

/// The same, with this answer to what is to create it.
fn answering(status: u16, labels: Labels, script: impl Fn(usize) -> Patched + Send + Sync + 'static) -> Fenced {
    let (objects, script, patches) = (Objects::default(), Arc::new(script) as Script, Arc::new(Mutex::new(0)));
    let served = objects.clone();
    let lab = Lab::new(move |seen| {
        let created = |labels, status: u16| {
            let metadata = metadata("p", labels, Some(owner("Thing", "b")));
            let mut answer = json(full(value!({"kind": "Part", "metadata": metadata}).to_string()));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            answer
        };
        match seen.method.as_str() {
            // Its applies create as well.
            "POST" | "PUT" => created(labels, status),
            "PATCH" if !is_own(seen) => created(labels, status),
            "PATCH" => {
                *patches.lock() += 1;
                let mut answer = match script(*patches.lock()) {
                    Patched::Labelled => created(OURS, 200),
                    Patched::Unlabelled => created(NOBODYS, 200),
                    Patched::Status(status) => created(NOBODYS, status),
                    Patched::Another => {
                        let message = "Precondition failed: UID in precondition: uid-p, UID in object meta: uid-q";
                        let mut answer = json(full(value!({"kind": "Status", "message": message}).to_string()));
                        *answer.status_mut() = StatusCode::CONFLICT;
                        answer
                    }
                };
                // However soon, all tries together take longer than their pauses.
                answer.extensions_mut().insert(Late(Duration::from_millis(1)));
                answer
            }
            _ => answer(&served, seen),
        }
    });
    let fenced = Fenced::over(lab, objects);
    fenced.thing(OURS);
    fenced
}

fn is_own(seen: &Seen) -> bool {
    seen.uri
        .query()
        .is_some_and(|query| ["fieldManager=ringside-proxy", "fieldManager=ringside-adoption"].contains(&query))
}

impl Fenced {
    async fn create(&self, owner: Option<Value>) -> Response<Body> {
        let body = value!({"metadata": {"name": "p", "ownerReferences": owner.map(|it| vec![it])}}).to_string();
        let mut request = ask("POST", PARTS).map(|_| full(body));
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.lab.send(request).await
    }

    /// The patches of the proxy's own, when nothing more comes.
    async fn patches(&self) -> usize {
        tokio::time::sleep(ALL_TRIES).await;
        let seen = self.lab.seen.lock();
        let own: Vec<_> = seen.iter().filter(|seen| is_own(seen)).collect();
        assert!(own.iter().all(|seen| seen.uri.path() == format!("{PARTS}/p")), "{own:?}");
        own.len()
    }

    fn outcomes(&self) -> [u64; 2] {
        ["labelled", "left"].map(|outcome| self.lab.shared.metrics.were_unlabelled(outcome))
    }
}

#[tokio::test(start_paused = true)]
async fn the_webhook_is_asked_again_about_a_child_that_was_created_without_label() {
    for needed in [1, 3] {
        let script = move |nth| if nth < needed { Patched::Unlabelled } else { Patched::Labelled };
        let fenced = creating(NOBODYS, script);
        let answer = fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!(answer.status(), 201);
        let body: Value = serde_json::from_str(&text(answer).await).unwrap();
        assert_eq!(body["metadata"]["uid"], "uid-p", "the answer is passed on");
        assert_eq!((fenced.patches().await, fenced.outcomes()), (needed, [1, 0]));
    }
    // However it is created.
    for (method, uri, form) in [
        ("POST", PARTS.to_owned(), "application/yaml"),
        ("PUT", format!("{PARTS}/p"), "application/json"),
        ("PATCH", format!("{PARTS}/p"), "application/apply-patch+yaml"),
    ] {
        let fenced = creating(NOBODYS, |_| Patched::Labelled);
        let body = value!({"metadata": {"ownerReferences": [owner("Thing", "b")]}}).to_string();
        assert_eq!(fenced.write(method, &uri, form, body).await, 201);
        assert_eq!((fenced.patches().await, fenced.outcomes()), (1, [1, 0]), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_about_nothing_else() {
    let fenced = creating(OURS, |_| Patched::Labelled);
    fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!(fenced.patches().await, 0, "it has a label");
    let fenced = creating(NOBODYS, |_| Patched::Labelled);
    fenced.create(None).await;
    let foreign =
        value!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "uid-d", "controller": true});
    fenced.create(Some(foreign)).await;
    assert_eq!(fenced.patches().await, 0, "the ring does not own it");
    let fenced = creating(NOBODYS, |_| Patched::Labelled);
    let RingState::Known(policy) = fenced.lab.shared.knowledge.borrow().clone() else { panic!("it is known") };
    let others = GroupResource { resource: "others".into(), ..things() };
    let families = [(things(), [].into()), (others, [parts()].into())].into();
    fenced.lab.shared.knowledge.send_replace(RingState::Known(Arc::new(Policy { families, ..(*policy).clone() })));
    fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!((fenced.patches().await, fenced.outcomes()), (0, [0, 0]), "it is of no family");
    let fenced = creating(NOBODYS, |_| Patched::Labelled);
    let body = value!({"metadata": {"ownerReferences": [owner("Thing", "b")]}}).to_string();
    fenced.write("POST", &format!("{PARTS}?dryRun=All"), "application/json", body).await;
    assert_eq!((fenced.patches().await, fenced.outcomes()), (0, [0, 0]), "nothing was created");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_nobody_labels_is_left_to_the_sharder() {
    for (script, patches) in [
        (Patched::Unlabelled, 8),
        (Patched::Status(500), 8),
        // Until a user grants the permission.
        (Patched::Status(403), 1),
    ] {
        let fenced = creating(NOBODYS, move |_| script);
        fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!((fenced.patches().await, fenced.outcomes()), (patches, [0, 1]));
    }
    for gone in [Patched::Status(404), Patched::Another] {
        let fenced = creating(NOBODYS, move |_| gone);
        fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!((fenced.patches().await, fenced.outcomes()), (1, [0, 0]), "it was deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_a_child_whose_owner_was_let_go() {
    let fenced = creating(NOBODYS, |_| Patched::Unlabelled);
    drop(fenced.create(Some(owner("Thing", "b"))).await);
    tokio::time::sleep(Duration::from_millis(1)).await;
    fenced.let_go().await;
    let sent = fenced.lab.seen.lock().iter().filter(|seen| is_own(seen)).count();
    assert!((1..8).contains(&sent), "{sent}");
    assert_eq!(fenced.patches().await, sent);
    // Nor while it is to be released, which this would put off.
    let fenced = creating(NOBODYS, |_| Patched::Unlabelled);
    let _drained = fenced.drained();
    drop(fenced.create(Some(owner("Thing", "b"))).await);
    assert_eq!((fenced.patches().await, fenced.outcomes()), (0, [0, 0]));
    // Nor when the proxy ends.
    let fenced = creating(NOBODYS, |_| Patched::Unlabelled);
    fenced.lab.shared.upgraded.close();
    drop(fenced.create(Some(owner("Thing", "b"))).await);
    assert_eq!((fenced.patches().await, fenced.outcomes()), (0, [0, 0]));
    // Nor once the shard's Lease is lost.
    let fenced = creating(NOBODYS, |_| Patched::Unlabelled);
    drop(fenced.create(Some(owner("Thing", "b"))).await);
    fenced.lab.shared.gate.close();
    assert!(fenced.patches().await <= 1);
    assert_eq!(fenced.outcomes(), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_cared_for_at_once_than_there_is_room_for() {
    let fenced = creating(NOBODYS, |_| Patched::Unlabelled);
    for _ in 0..100 {
        drop(fenced.create(Some(owner("Thing", "b"))).await);
    }
    assert_eq!(fenced.outcomes(), [0, 36]);
    assert_eq!((fenced.patches().await, fenced.outcomes()), (64 * 8, [0, 100]));
}

#[tokio::test(start_paused = true)]
async fn so_it_is_about_one_that_is_there_already_and_that_nobody_sees() {
    let there = |labels, by: Option<Value>| {
        let fenced = answering(409, NOBODYS, |_| Patched::Labelled);
        fenced.put(&format!("{PARTS}/p"), labels, by);
        fenced
    };
    let fenced = there(NOBODYS, Some(owner("Thing", "b")));
    let answer = fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!(answer.status(), 409, "the answer is passed on");
    assert_eq!((fenced.patches().await, fenced.outcomes()), (1, [1, 0]));
    // What has its label is asked about once, however often it is to be created.
    let fenced = there(OURS, Some(owner("Thing", "b")));
    fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!(fenced.patches().await, 0);
    let questions = fenced.questions();
    for _ in 0..3 {
        fenced.create(Some(owner("Thing", "b"))).await;
    }
    assert_eq!((fenced.patches().await, fenced.questions() - questions), (0, 0));
    for (labels, by) in [(OTHERS, Some(owner("Thing", "b"))), (NOBODYS, Some(owner("Thing", "c")))] {
        let fenced = there(labels, by.clone());
        fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!((fenced.patches().await, fenced.outcomes()), (0, [0, 0]), "{labels:?} {by:?}");
    }
    // Nor without a name, or where nothing is there by now.
    let fenced = there(NOBODYS, Some(owner("Thing", "b")));
    let body = value!({"metadata": {"generateName": "p", "ownerReferences": [owner("Thing", "b")]}}).to_string();
    fenced.write("POST", PARTS, "application/json", body).await;
    fenced.objects.lock().remove(&format!("{PARTS}/p"));
    fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!(fenced.patches().await, 0);
}

/// A shard whose create of the part `p` is answered that it is there: with these labels, without controller.
fn made_before(labels: Labels, script: impl Fn(usize) -> Patched + Send + Sync + 'static) -> Fenced {
    let fenced = answering(409, NOBODYS, script);
    let mut there = metadata("p", labels, None);
    there["resourceVersion"] = "7".into();
    fenced.objects.lock().insert(format!("{PARTS}/p"), there);
    fenced
}

impl Fenced {
    /// The patches that the proxy makes for adoption, when nothing more comes.
    async fn offers(&self) -> Vec<Value> {
        tokio::time::sleep(ALL_TRIES).await;
        let seen = self.lab.seen.lock();
        let offers = seen.iter().filter(|seen| seen.uri.query() == Some("fieldManager=ringside-adoption"));
        offers.map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect()
    }

    fn adoptable(&self) -> u64 {
        self.lab.shared.metrics.were_unlabelled("adoptable")
    }
}

#[tokio::test(start_paused = true)]
async fn existing_object_without_controller_gets_the_label_of_the_owners_shard() {
    let fenced = made_before(NOBODYS, |_| Patched::Labelled);
    let answer = fenced.create(Some(owner("Thing", "b"))).await;
    assert_eq!(answer.status(), 409, "the answer is passed on");
    let patch = value!([
        {"op": "test", "path": "/metadata/uid", "value": "uid-p"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/labels/s", "value": "me"},
    ]);
    assert_eq!(fenced.offers().await, [patch]);
    assert_eq!((fenced.adoptable(), fenced.outcomes()), (1, [0, 0]));
    // Where admission takes the label off, or the object was changed meanwhile, the next create tries again.
    for (patched, left) in [(Patched::Unlabelled, 1), (Patched::Status(422), 1), (Patched::Another, 0)] {
        let fenced = made_before(NOBODYS, move |_| patched);
        fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!((fenced.offers().await.len(), fenced.adoptable(), fenced.outcomes()), (1, 0, [0, left]));
        fenced.create(Some(owner("Thing", "b"))).await;
        assert_eq!(fenced.offers().await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn existing_object_stays_as_it_is_where_the_shard_has_no_claim() {
    for labels in [OURS, OTHERS, DRAINING] {
        let fenced = made_before(labels, |_| Patched::Labelled);
        fenced.create(Some(owner("Thing", "b"))).await;
        assert!(fenced.offers().await.is_empty(), "{labels:?}");
    }
    let foreign =
        value!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "b", "uid": "uid-d", "controller": true});
    for owner in [None, Some(foreign), Some(owner("Thing", "gone"))] {
        let fenced = made_before(NOBODYS, |_| Patched::Labelled);
        fenced.create(owner.clone()).await;
        assert!(fenced.offers().await.is_empty(), "{owner:?}");
    }
    // Of no family of the owner's.
    let fenced = made_before(NOBODYS, |_| Patched::Labelled);
    let RingState::Known(policy) = fenced.lab.shared.knowledge.borrow().clone() else { panic!("it is known") };
    let others = GroupResource { resource: "others".into(), ..things() };
    let families = [(things(), [].into()), (others, [parts()].into())].into();
    fenced.lab.shared.knowledge.send_replace(RingState::Known(Arc::new(Policy { families, ..(*policy).clone() })));
    fenced.create(Some(owner("Thing", "b"))).await;
    assert!(fenced.offers().await.is_empty());
    // The owner is to leave.
    let fenced = made_before(NOBODYS, |_| Patched::Labelled);
    let _drained = fenced.drained();
    fenced.create(Some(owner("Thing", "b"))).await;
    assert!(fenced.offers().await.is_empty());
}
