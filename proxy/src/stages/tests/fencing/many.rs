//! Deletions of many children, which many owners control.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::*;

/// How long the API server takes for each question.
const ANSWER: Duration = Duration::from_millis(100);

/// So many parts, each with an owner of its own, listed in pages of 500; and when each question about an owner came.
fn owned(parts: usize) -> (Fenced, Arc<Mutex<Vec<Instant>>>) {
    let (objects, asked) = (Objects::default(), Arc::<Mutex<Vec<_>>>::default());
    let questions = asked.clone();
    let served = objects.clone();
    let lab = Lab::new(move |seen| {
        let query = seen.uri.query().unwrap_or_default();
        if seen.method == "GET" && seen.uri.path() == THINGS {
            questions.lock().push(Instant::now());
            let name = query.rsplit("%3D").next().unwrap().replace("%2D", "-");
            let thing = metadata(&name, OURS, None);
            let mut answer = json(full(value!({"items": [{"metadata": thing}]}).to_string()));
            answer.extensions_mut().insert(Late(ANSWER));
            return answer;
        }
        if seen.method != "GET" || seen.uri.path() != PARTS {
            return answer(&served, seen);
        }
        let from = query.split('&').find_map(|it| it.strip_prefix("continue=")).map_or(0, |at| at.parse().unwrap());
        let until = parts.min(from + 500);
        let part = |number| metadata(&format!("p{number}"), OURS, Some(owner("Thing", &format!("b-{number}"))));
        let items: Vec<_> = (from..until).map(|number| value!({ "metadata": part(number) })).collect();
        let next = if until < parts { until.to_string() } else { String::new() };
        json(full(value!({"metadata": {"continue": next}, "items": items}).to_string()))
    });
    (Fenced::over(lab, objects), asked)
}

fn lists(fenced: &Fenced) -> usize {
    fenced.lab.seen.lock().iter().filter(|seen| seen.method == "GET" && seen.uri.path() == PARTS).count()
}

#[tokio::test(start_paused = true)]
async fn deletion_of_many_asks_about_owners_in_batches() {
    let (fenced, asked) = owned(2_000);
    assert_eq!(fenced.status("DELETE", PARTS).await, 200);
    let asked = asked.lock().clone();
    let batches: BTreeSet<_> = asked.iter().collect();
    assert_eq!((asked.len(), batches.len(), lists(&fenced)), (2_000, 125, 4));
}

#[tokio::test(start_paused = true)]
async fn deletion_with_too_many_owners_is_refused_with_the_remedy() {
    let (fenced, asked) = owned(20_000);
    let answer = fenced.lab.send(ask("DELETE", PARTS)).await;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(text(answer).await.contains("delete in smaller selections"));
    assert_eq!(
        (fenced.reached("DELETE"), asked.lock().len(), lists(&fenced)),
        (0, 0, 5),
        "no more is listed than needed"
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_of_many_does_not_wait_for_ever_for_its_owners() {
    let objects = Objects::default();
    let served = objects.clone();
    let lab = Lab::new(move |seen| {
        let is_list = seen.method == "GET" && seen.uri.path() == PARTS;
        // A list without end.
        let page = value!({"metadata": {"continue": "more"}, "items": []});
        let mut answer = if is_list { json(full(page.to_string())) } else { answer(&served, seen) };
        answer.extensions_mut().insert(Late(ANSWER));
        answer
    });
    let fenced = Fenced::over(lab, objects);
    let answer = timeout(Duration::from_secs(60), fenced.status("DELETE", PARTS)).await;
    assert_eq!((answer.unwrap().as_u16(), fenced.reached("DELETE")), (503, 0));
}
