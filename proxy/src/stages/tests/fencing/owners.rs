//! What is created under an owner whose kind, or whose chain of owners, can't be told for sure.

use super::*;

/// How the API server serves the kind `Thing`, which an owner reference names in `v1`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Serves {
    Named,
    AnotherVersion,
    /// Both versions are there, and none lists it.
    Unlisted,
    NoGroup,
    /// The kind is another resource's, which is not of the ring.
    Redefined,
}

const ALL: [Serves; 5] = [Serves::Named, Serves::AnotherVersion, Serves::Unlisted, Serves::NoGroup, Serves::Redefined];

/// Whose the owner is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owned {
    LetGo,
    Others,
    Ours,
}

fn served(objects: &Objects, seen: &Seen, serves: Serves) -> Response<Body> {
    let missing = || {
        let mut answer = json(full(value!({"kind": "Status", "message": "not found"}).to_string()));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        answer
    };
    let list = |things: &[&str]| {
        let kind = |(name, kind): (&str, &str)| value!({"name": name, "kind": kind, "namespaced": true});
        let all = things.iter().map(|name| (*name, "Thing")).chain([("parts", "Part")]);
        json(full(value!({"resources": all.map(kind).collect::<Vec<_>>()}).to_string()))
    };
    let version = value!({"versions": [{"version": "v1"}, {"version": "v2"}]});
    match (seen.uri.path(), serves) {
        _ if seen.method != "GET" => ok(),
        ("/apis/x.io" | "/apis/x.io/v1" | "/apis/x.io/v2", Serves::NoGroup) => missing(),
        ("/apis/x.io", _) => json(full(version.to_string())),
        ("/apis/x.io/v1", Serves::Named) | ("/apis/x.io/v2", Serves::AnotherVersion) => list(&["things"]),
        ("/apis/x.io/v1", Serves::AnotherVersion) => missing(),
        ("/apis/x.io/v1", Serves::Redefined) => list(&["gadgets"]),
        ("/apis/x.io/v1" | "/apis/x.io/v2", _) => list(&[]),
        (THINGS, serves) if serves != Serves::Named => missing(),
        (path, _) => {
            let path = path.replace("/v2/", "/v1/");
            let uri = format!("{path}?{}", seen.uri.query().unwrap_or_default()).parse().unwrap();
            answer(objects, &Seen { uri, ..seen.clone() })
        }
    }
}

fn serving(serves: Serves) -> (Fenced, Arc<Mutex<Serves>>) {
    let (objects, state) = (Objects::default(), Arc::new(Mutex::new(serves)));
    let (there, now) = (objects.clone(), state.clone());
    (Fenced::over(Lab::new(move |seen| served(&there, seen, *now.lock())), objects), state)
}

impl Fenced {
    async fn create_under(&self, owner: Value) -> StatusCode {
        let body = value!({"metadata": {"name": "x", "ownerReferences": [owner]}}).to_string();
        self.write("POST", PARTS, "application/json", body).await
    }
}

/// What a create under such an owner is answered.
fn expected(serves: Serves, owned: Owned) -> u16 {
    match (serves, owned) {
        (_, Owned::LetGo) => 409,
        (Serves::Unlisted | Serves::NoGroup, _) => 503,
        (Serves::Named | Serves::AnotherVersion, Owned::Others) => 409,
        (Serves::Redefined, _) | (_, Owned::Ours) => 200,
    }
}

/// Each owner, with each state of its kind, which is remembered from before or is not.
#[tokio::test(start_paused = true)]
async fn create_under_an_owner_of_uncertain_kind_is_refused() {
    for (serves, remembered) in ALL.into_iter().flat_map(|serves| [(serves, false), (serves, true)]) {
        for owned in [Owned::LetGo, Owned::Others, Owned::Ours] {
            let (fenced, state) = serving(Serves::Named);
            if remembered {
                fenced.put(&format!("{THINGS}/c"), OURS, None);
                assert_eq!(fenced.create_under(owner("Thing", "c")).await, 200);
            }
            let before = fenced.reached("POST");
            match owned {
                Owned::LetGo => {
                    fenced.let_go().await;
                    fenced.thing(NOBODYS);
                }
                Owned::Others => fenced.thing(OTHERS),
                Owned::Ours => fenced.thing(OURS),
            }
            *state.lock() = serves;
            let expected = expected(serves, owned);
            let case = format!("{serves:?} {owned:?}, remembered: {remembered}");
            assert_eq!(fenced.create_under(owner("Thing", "b")).await, expected, "{case}");
            assert_eq!(fenced.reached("POST") - before, usize::from(expected == 200), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn remembered_kind_ages() {
    let (fenced, state) = serving(Serves::Redefined);
    fenced.thing(OTHERS);
    assert_eq!(fenced.create_under(owner("Thing", "b")).await, 200, "the ring has no gadgets");
    *state.lock() = Serves::Named;
    advance(Duration::from_secs(60)).await;
    assert_eq!(fenced.create_under(owner("Thing", "b")).await, 409);
}

#[tokio::test(start_paused = true)]
async fn owner_of_a_foreign_group_passes_without_a_question() {
    let (fenced, _) = serving(Serves::NoGroup);
    for (version, kind) in [("v1", "Pod"), ("apps/v1", "Deployment"), ("batch/v1", "Job")] {
        let owner = value!({"apiVersion": version, "kind": kind, "name": "b", "uid": "1", "controller": true});
        assert_eq!(fenced.create_under(owner).await, 200, "{kind}");
    }
    assert_eq!(fenced.reached("GET"), 0);
}

#[tokio::test]
async fn chain_of_owners_that_is_too_long_or_a_circle_is_refused() {
    for (length, expected) in [(8, 200), (9, 503), (12, 503)] {
        let fenced = Fenced::new();
        for number in 0..length {
            let above = (number + 1 < length).then(|| owner("Part", &format!("p{}", number + 1)));
            fenced.put(&format!("{PARTS}/p{number}"), OURS, above);
        }
        for _ in 0..2 {
            assert_eq!(fenced.create_under(owner("Part", "p0")).await, expected, "{length}");
        }
        assert_eq!(fenced.reached("POST"), if expected == 200 { 2 } else { 0 });
    }
    let fenced = Fenced::new();
    fenced.put(&format!("{PARTS}/p"), OURS, Some(owner("Part", "q")));
    fenced.put(&format!("{PARTS}/q"), OURS, Some(owner("Part", "p")));
    assert_eq!(fenced.create_under(owner("Part", "p")).await, 503);
    for method in ["PUT", "DELETE"] {
        let status = fenced.write(method, &format!("{PARTS}/p"), "application/json", "{}").await;
        assert_eq!((status.as_u16(), fenced.reached(method)), (503, 0), "{method}");
    }
}
