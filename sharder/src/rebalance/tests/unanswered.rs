//! Drains that were asked for without an answer.

use std::time::Duration;

use http::{Method, StatusCode};
use tokio::time::sleep;

use super::{CONFIG_MAPS, name_of, object, objects, path, scope};
use crate::{assign::assign, drains::Figures, fixtures::FakeApi, survey::Way};

#[tokio::test(start_paused = true)]
async fn a_drain_without_an_answer_may_be_under_way_and_has_its_deadline() {
    let (at_once, later) = (Some(Duration::ZERO), Some(Duration::from_secs(12)));
    for (status, lands) in [
        (StatusCode::FORBIDDEN, None),
        (StatusCode::GATEWAY_TIMEOUT, None),
        (StatusCode::GATEWAY_TIMEOUT, at_once),
        (StatusCode::GATEWAY_TIMEOUT, later),
        // It was asked again and again, and the first time it was carried out.
        (StatusCode::TOO_MANY_REQUESTS, at_once),
    ] {
        let api = FakeApi::default();
        let scope = scope(&api);
        let (name, drain) = (name_of("a", &scope), scope.snapshot.labels.drain.clone());
        let misplaced = path(CONFIG_MAPS, &name);
        api.put(&misplaced, object(&scope, &name, Some("b")));
        api.intercept(move |asked, _| (asked.method == Method::PATCH).then_some(status));
        objects::pass(&scope, Way::Pages).await.unwrap();
        let (resource, id) = (&scope.main.resource.id, scope.drains.id(&format!("uid-{name}")));
        assert_eq!(id.is_some(), status != StatusCode::FORBIDDEN, "{status}");
        assert_eq!(scope.drains.figures().get(resource), None, "it may not be");
        let works = async |time| {
            tokio::select! {
                never = assign(&scope) => match never {},
                () = sleep(time) => {}
            }
        };
        if let Some(lands) = lands {
            works(lands).await;
            let mut drained = object(&scope, &name, Some("b"));
            drained["metadata"]["labels"][&drain] = id.into();
            api.put(&misplaced, drained);
        }
        // It is seen by a look at all that drain, and a deadline later it is late.
        let look = Duration::from_secs(10);
        works(look + look / 2).await;
        let told = |which: fn(&Figures) -> usize| scope.drains.figures().get(resource).map_or(0, which);
        let is_there = usize::from(lands.is_some());
        assert_eq!(told(|figures| figures.draining), is_there, "{status}, {lands:?}");
        assert_eq!(told(|figures| figures.overdue.len()), 0, "its time begins when it is seen");
        works(scope.snapshot.spec.drain_deadline() + look).await;
        assert_eq!(told(|figures| figures.overdue.len()), is_there, "{status}, {lands:?}");
        assert_eq!(scope.drains.id(&format!("uid-{name}")).is_some(), lands.is_some(), "{status}, {lands:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_while_it_drains_already_has_the_deadline_of_that() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (name, drain) = (name_of("a", &scope), scope.snapshot.labels.drain.clone());
    let misplaced = path(CONFIG_MAPS, &name);
    api.put(&misplaced, object(&scope, &name, Some("b")));
    let mut drained = object(&scope, &name, Some("b"));
    drained["metadata"]["labels"][&drain] = "earlier".into();
    // An earlier write was carried out after the object was looked at.
    api.intercept(move |asked, objects| {
        (asked.method == Method::PATCH).then(|| {
            objects.insert(asked.path.clone(), drained.clone());
            StatusCode::UNPROCESSABLE_ENTITY
        })
    });
    objects::pass(&scope, Way::Pages).await.unwrap();
    assert_eq!(scope.drains.id(&format!("uid-{name}")).as_deref(), Some("earlier"));
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_while_it_was_asked_for_may_be_carried_out_and_is_seen() {
    let api = FakeApi::default();
    let scope = scope(&api);
    let (name, drain, resource) = (name_of("a", &scope), scope.snapshot.labels.drain.clone(), &scope.main.resource.id);
    let misplaced = path(CONFIG_MAPS, &name);
    api.put(&misplaced, object(&scope, &name, Some("b")));
    api.slow(Method::PATCH, &misplaced, Duration::from_secs(100));
    // As when the shards change.
    let pass = objects::pass(&scope, Way::Pages);
    assert!(tokio::time::timeout(Duration::from_secs(1), pass).await.is_err());
    let id = scope.drains.id(&format!("uid-{name}"));
    assert!(id.is_some() && scope.drains.figures().is_empty() && !scope.drains.any(resource));
    scope.drains.forget_unseen_since(resource, tokio::time::Instant::now() + Duration::from_secs(1), 0);
    assert_eq!(scope.drains.id(&format!("uid-{name}")), id, "whoever looks now may be too early");
    let mut drained = object(&scope, &name, Some("b"));
    drained["metadata"]["labels"][&drain] = id.into();
    api.put(&misplaced, drained);
    tokio::select! {
        never = assign(&scope) => match never {},
        () = sleep(Duration::from_secs(15)) => {}
    }
    assert_eq!(scope.drains.figures()[resource].draining, 1);
}
