//! Classification against the examples in the API server's own documentation of `RequestInfo`, and hostile ones.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn info(method: &Method, uri: &str) -> Result<Option<RequestInfo>, BadRequest> {
    RequestInfo::of(method, &uri.parse().unwrap(), &HeaderMap::new())
}

/// `verb group resource/subresource namespace/name`, with `-` for what is not there.
fn summary(method: &Method, uri: &str) -> String {
    let Some(info) = info(method, uri).unwrap() else { return "none".to_owned() };
    let resource = info.resource;
    let or = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
    let (namespace, name, sub) = (or(resource.namespace), or(resource.name), or(resource.subresource));
    format!("{:?} {} {sub} {namespace}/{name}", info.verb, resource.kind)
}

#[test]
fn resources_are_recognized_as_the_api_server_does() {
    let get = |uri: &str| summary(&Method::GET, uri);
    assert_eq!(get("/api/v1/namespaces"), "List namespaces - -/-");
    assert_eq!(get("/api/v1/namespaces/other"), "Get namespaces - -/other");
    assert_eq!(get("/api/v1/namespaces/other/finalize"), "Get namespaces finalize -/other");
    assert_eq!(get("/api/v1/namespaces/other/pods"), "List pods - other/-");
    assert_eq!(get("/api/v1/namespaces/other/pods/"), "List pods - other/-");
    assert_eq!(get("/api/v1/pods"), "List pods - -/-");
    assert_eq!(get("/api/v1/namespaces/other/pods/foo"), "Get pods - other/foo");
    assert_eq!(get("/api/v1/namespaces/other/pods/foo/log"), "Get pods log other/foo");
    assert_eq!(get("/apis/apps/v1/namespaces/other/deployments"), "List deployments.apps - other/-");
    assert_eq!(get("/apis/apps/v1/deployments?watch=true"), "Watch deployments.apps - -/-");
    assert_eq!(get("/api/v1/watch/pods"), "Watch pods - -/-");
    assert_eq!(get("/api/v1/watch/namespaces/other/pods"), "Watch pods - other/-");
    assert_eq!(get("/api/v1/watch/namespaces/other/pods/foo"), "Watch pods - other/foo");
    assert_eq!(get("/api/v1/watch/namespaces/other/status"), "Watch namespaces status -/other");
    assert_eq!(get("/apis/x.io/v1/namespaces/status/things"), "List things.x.io - status/-");
    assert_eq!(get("/apis/x.io/v1/proxy/namespaces/other/things/foo"), "Unknown things.x.io - other/foo");
    assert_eq!(summary(&Method::PATCH, "/apis/x.io/v1/watch/things"), "Watch things.x.io - -/-");
    assert_eq!(summary(&Method::HEAD, "/api/v1/pods"), "List pods - -/-");
    assert_eq!(summary(&Method::DELETE, "/api/v1/namespaces/a/pods"), "DeleteCollection pods - a/-");
    assert_eq!(summary(&Method::DELETE, "/api/v1/namespaces/a/pods/b"), "Delete pods - a/b");
    assert_eq!(summary(&Method::POST, "/api/v1/namespaces/a/pods/b/eviction"), "Create pods eviction a/b");
    assert_eq!(summary(&Method::PATCH, "/apis/x.io/v1/namespaces/a/things/b/status"), "Patch things.x.io status a/b");
}

/// RFC 9110, section 7.8.
#[test]
fn an_upgrade_is_asked_for_by_two_headers() {
    let upgrade = |headers: &[(&'static str, &'static str)]| {
        let pairs = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers = HeaderMap::from_iter(pairs);
        RequestInfo::of(&Method::GET, &"/api/v1/pods?watch=1".parse().unwrap(), &headers).unwrap().unwrap().upgrade
    };
    assert!(upgrade(&[("connection", "Upgrade"), ("upgrade", "websocket")]));
    assert!(upgrade(&[("connection", "keep-alive"), ("connection", "x, upgrade"), ("upgrade", "WebSocket")]));
    assert!(!upgrade(&[("upgrade", "websocket")]));
    assert!(!upgrade(&[("connection", "keep-alive"), ("upgrade", "websocket")]));
    assert!(!upgrade(&[("connection", "Upgrade")]));
}

#[test]
fn what_is_no_resource_is_left_alone() {
    for uri in ["/", "/healthz", "/version", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3/a"]
    {
        assert_eq!(summary(&Method::GET, uri), "none", "{uri}");
    }
}

#[test]
fn watch_is_a_flag_as_the_api_server_reads_flags() {
    for (value, verb) in [("true", Verb::Watch), ("1", Verb::Watch), ("", Verb::Watch), ("t", Verb::Watch)] {
        assert_eq!(info(&Method::GET, &format!("/api/v1/pods?watch={value}")).unwrap().unwrap().verb, verb, "{value}");
    }
    for value in ["false", "0", "False"] {
        assert_eq!(
            info(&Method::GET, &format!("/api/v1/pods?watch={value}")).unwrap().unwrap().verb,
            Verb::List,
            "{value}"
        );
    }
    assert_eq!(info(&Method::GET, "/api/v1/pods?watch").unwrap().unwrap().verb, Verb::Watch);
    assert_eq!(info(&Method::GET, "/api/v1/pods?w%61tch=1").unwrap().unwrap().verb, Verb::Watch);
}

#[test]
fn a_percent_encoded_path_hides_nothing() {
    assert_eq!(summary(&Method::GET, "/api/v1/p%6Fds"), "List pods - -/-");
    assert_eq!(summary(&Method::GET, "/api/v1%2Fpods"), "List pods - -/-");
    assert_eq!(summary(&Method::GET, "/api/v1/pods/%ff"), "Get pods - -/\u{fffd}");
    for around in ["//api/v1/pods", "/api/v1/pods//", "/%2Fapi/v1/pods%2f"] {
        assert_eq!(summary(&Method::GET, around), "List pods - -/-", "{around}");
    }
    for uri in [
        "/api/v1/pods%",
        "/api/v1/%zz",
        "/api//v1/pods",
        "/api/v1//pods",
        "/x//api/../api/v1/pods",
        "/api/v1/namespaces//pods",
        "/api/v1/watch//pods",
        "/api/v1/./pods",
        "/x/../api/v1/pods",
        "/api/v1/pods/%2e%2e",
    ] {
        assert!(matches!(info(&Method::GET, uri), Err(BadRequest::Path(_))), "{uri}");
    }
}

#[test]
fn what_is_behind_a_subresource_is_not_for_the_api_server_but_cannot_climb_out() {
    let service = "/api/v1/namespaces/a/services/x/proxy";
    for inside in ["//y", "/%2Fy", "/a//b/", "//", "/apis//z"] {
        let summary = summary(&Method::GET, &format!("{service}{inside}"));
        assert_eq!(summary, "Get services proxy a/x", "{inside}");
    }
    for outside in ["/..", "//../x", "/%2e%2e/y", "/a/./b"] {
        let refused = info(&Method::GET, &format!("{service}{outside}"));
        assert!(matches!(refused, Err(BadRequest::Path(BadPath::NotClean(_)))), "{outside}");
    }
    for before in ["/api/v1/namespaces/a/services/x//proxy", "/api/v1/namespaces/a//services/x/proxy"] {
        assert!(matches!(info(&Method::GET, before), Err(BadRequest::Path(_))), "{before}");
    }
}

#[test]
fn what_go_cannot_decode_in_a_query_changes_nothing() {
    for query in ["watch=%zz", "watch=1;x", "a;watch=1", "watch=0&watch=1"] {
        assert_eq!(info(&Method::GET, &format!("/api/v1/pods?{query}")).unwrap().unwrap().verb, Verb::List, "{query}");
    }
    assert!(info(&Method::POST, "/api/v1/namespaces/a/pods/b/exec?command=a;b").is_ok());
}

/// What servers know that serve several clusters, or stand behind a router.
fn prefix() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("clusters/x".to_owned()),
        Just("k8s/clusters/c-1".to_owned()),
        Just("//a".to_owned()),
        Just("API".to_owned()),
        Just("api%20".to_owned()),
        "[a-z]{1,3}-[a-z0-9]{1,4}(/[a-z0-9]{1,6}){0,2}",
    ]
}

proptest! {
    #[test]
    fn no_list_hides_behind_a_prefix(
        prefix in prefix(),
        root in prop_oneof![Just("api/v1/pods"), Just("apis/x.io/v1/things"), Just("%61pis/x.io/v1/things"), Just("apis")],
        behind in "(/[a-z0-9]{1,6}){0,2}/?(\\?watch=1)?",
        slash in prop_oneof![Just("/"), Just("%2f"), Just("//")],
    ) {
        let uri = format!("/{prefix}{slash}{root}{behind}");
        let refused = info(&Method::GET, &uri);
        prop_assert!(matches!(refused, Err(BadRequest::Path(BadPath::Prefixed(_)))), "{uri}: {refused:?}");
    }

    #[test]
    fn api_and_apis_are_names_like_others(
        name in prop_oneof![Just("api"), Just("apis")],
        other in prop_oneof![Just("api"), Just("apis"), Just("x")],
    ) {
        let get = |uri: String| summary(&Method::GET, &uri);
        prop_assert_eq!(get(format!("/api/v1/namespaces/{name}")), format!("Get namespaces - -/{name}"));
        prop_assert_eq!(get(format!("/api/v1/namespaces/{name}/pods/{other}")), format!("Get pods - {name}/{other}"));
        prop_assert_eq!(get(format!("/apis/{name}/v1/{other}")), format!("List {other}.{name} - -/-"));
        prop_assert_eq!(get(format!("/api/v1/namespaces/a/services/y/proxy/{name}/v1/pods")), "Get services proxy a/y");
        prop_assert_eq!(get(format!("/apis/{name}/{other}")), "none");
    }

    #[test]
    fn what_is_about_no_resource_passes_whatever_it_is_called(
        root in prop_oneof![
            Just("openapi/v3"), Just("version"), Just("healthz"), Just("livez"), Just("readyz"), Just("metrics"),
            Just("logs"), Just(".well-known"), Just("openid/v1"), Just("debug/pprof"), Just("swaggerapi"),
        ],
        name in prop_oneof![Just("api"), Just("apis"), Just("x")],
        behind in "(/[0-9]{1,6}){0,2}",
    ) {
        prop_assert_eq!(summary(&Method::GET, &format!("/{root}/{name}{behind}")), "none");
        prop_assert_eq!(summary(&Method::GET, &format!("/x{behind}")), "none", "nothing of the API is in it");
    }
}
