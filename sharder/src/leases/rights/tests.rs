//! Tests of what counts as a grant, with time as an argument, and of the questions, against a fake API server.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use ringside_ring::placement::DEFAULT_TOKENS_PER_SHARD;
use ringside_runtime::clock::TokioClock;
use serde_json::json;

use super::*;
use crate::{
    fixtures::FakeApi,
    leases::{
        book::tests::{at, in_namespace, lease},
        tests::list,
    },
};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[test]
fn only_an_explicit_no_excludes_a_namespace() {
    let mut rights = Rights::default();
    assert!(!rights.has("a") && !rights.count("a"), "not before it was asked about");
    let mut answered = |answer, second| {
        rights.take("a", answer, at(second));
        (rights.count("a"), rights.is_revoked("a"))
    };
    assert_eq!(answered(None, 0), (true, false), "an error excludes nothing");
    assert_eq!(answered(Some(false), 1), (false, false));
    assert_eq!(answered(None, 2), (false, false), "nor does it include what was refused");
    assert_eq!(answered(Some(true), 3), (true, false));
}

#[test]
fn a_namespace_is_revoked_after_a_minute_while_another_is_granted() {
    let mut rights = Rights::default();
    let mut after = |second, answer, other| {
        rights.take("other", Some(other), at(second));
        rights.take("a", Some(answer), at(second));
        rights.is_revoked("a")
    };
    assert!(!after(0, true, true));
    assert!(!after(1, false, true) && !after(60, false, true), "as of an API server that starts");
    assert!(after(61, false, true));
    assert!(!after(62, false, false), "it may write none at all: that says nothing of this one");
    assert!(after(63, false, true));
    assert!(!after(64, true, true));
}

#[test]
fn refused_namespaces_are_asked_about_more_often() {
    let mut rights = Rights::default();
    let all = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(rights.due(&all, at(0)).0.len(), 3);
    for (namespace, answer) in [("a", Some(true)), ("b", Some(false)), ("c", None)] {
        rights.take(namespace, answer, at(0));
    }
    assert_eq!(rights.due(&all, at(9)), (vec![], Some(at(10))));
    assert_eq!(rights.due(&all, at(10)), (vec!["b".to_owned(), "c".to_owned()], Some(at(60))));
    assert_eq!(rights.due(&["d".to_owned()].into(), at(10)), (vec!["d".to_owned()], None));
    assert!(!rights.has("a"), "it has no Lease any more");
}

/// Leases that are asked about by this API server, which grants the namespace `default` alone.
fn asking(api: &FakeApi) -> (Leases, tokio::task::JoinHandle<Result<(), Infallible>>) {
    api.put(REVIEWS, json!({}));
    api.intercept(|asked, objects| {
        let namespace = asked.body["spec"]["resourceAttributes"]["namespace"].as_str()?;
        objects.insert(REVIEWS.to_owned(), json!({"spec": {}, "status": {"allowed": namespace == "default"}}));
        None
    });
    let leases = Leases::new(Arc::new(TokioClock::start())).where_granted(DEFAULT_TOKENS_PER_SHARD);
    let asked = tokio::spawn(ask(api.client(), leases.clone()));
    (leases, asked)
}

/// The shards of all rings; none while they are not known.
fn shards(leases: &Leases) -> Option<Vec<String>> {
    let members = leases.members()?;
    Some(members.values().flat_map(|of| of.iter().map(|(shard, _)| shard.to_string())).collect())
}

#[tokio::test(start_paused = true)]
async fn leases_make_shards_only_where_the_sharder_was_granted_its_rights() {
    let api = FakeApi::default();
    let (leases, asking) = asking(&api);
    list(&leases, [lease("a", "a", 0, 1), in_namespace(lease("ghost", "ghost", 0, 1), "x")]);
    assert_eq!(shards(&leases), None, "nothing is known before the API server has answered");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shards(&leases).unwrap(), ["a"]);
    leases.see(in_namespace(lease("a", "a", 0, 2), "x"));
    leases.see(in_namespace(lease("b", "b", 0, 2), "y"));
    assert_eq!(shards(&leases).unwrap(), ["a"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (members, ring) = (leases.members().unwrap(), "example".parse().unwrap());
    assert!(members[&ring].may_receive("a"), "the name of a real shard is its own");
    assert_eq!(shards(&leases).unwrap(), ["a"]);
    asking.abort();
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_question_excludes_nothing() {
    let api = FakeApi::default();
    let (leases, asking) = asking(&api);
    api.intercept(|asked, _| (asked.method == Method::POST).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    list(&leases, [lease("a", "a", 0, 1)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shards(&leases).unwrap(), ["a"]);
    asking.abort();
}

#[test]
fn an_authorizer_that_fails_says_no_sure_no() {
    let said = |allowed, denied, fault: &str| {
        answer(
            "a",
            &SubjectAccessReviewStatus {
                allowed,
                denied,
                evaluation_error: Some(fault.to_owned()),
                ..SubjectAccessReviewStatus::default()
            },
        )
    };
    assert_eq!((said(true, None, ""), said(true, None, "x")), (Some(true), Some(true)));
    assert_eq!((said(false, None, ""), said(false, None, "x")), (Some(false), None));
    assert_eq!(said(false, Some(true), "x"), Some(false));
}
