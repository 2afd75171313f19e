//! What a client asks before it knows which resources there are.

use super::*;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// Behaviour, form, path and media type.
const ASKS: [(&str, &str, &str, &str); 16] = [
    ("discovery", "groups", "/apis", JSON),
    ("discovery", "groups as protobuf", "/apis", PROTOBUF),
    ("discovery", "resources of the core group", "/api/v1", JSON),
    ("discovery", "resources of a custom group", "/apis/web.example.com/v1", JSON),
    ("discovery", "paths", "/", JSON),
    ("aggregated discovery", "groups", "/apis", AGGREGATED),
    ("aggregated discovery", "groups as protobuf", "/apis", AGGREGATED_PROTOBUF),
    ("aggregated discovery", "core group", "/api", AGGREGATED),
    ("OpenAPI v2", "JSON", "/openapi/v2", JSON),
    ("OpenAPI v3", "index", "/openapi/v3", JSON),
    ("OpenAPI v3", "protobuf", "/openapi/v3/apis/apps/v1", OPENAPI_V3),
    ("version", "JSON", "/version", JSON),
    ("health", "livez", "/livez?verbose", JSON),
    ("health", "readyz", "/readyz?verbose", JSON),
    ("keys of service account tokens", "OpenID configuration", "/.well-known/openid-configuration", JSON),
    ("keys of service account tokens", "keys", "/openid/v1/jwks", "*/*"),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, form, path, media_type) in ASKS {
        cases.push(case(behaviour, form, async move |probe| probe.same(&Ask::get(path).accept(media_type)).await));
    }
    cases.push(case("who am I", "JSON", |probe| who_am_i(probe, &[])));
    let user = &[
        ("impersonate-user", "somebody"),
        ("impersonate-group", "some"),
        ("impersonate-group", "others"),
        ("impersonate-uid", "a-uid"),
        ("impersonate-extra-scopes", "read"),
        ("impersonate-extra-scopes", "write"),
    ];
    cases.push(case("impersonation", "JSON", |probe| who_am_i(probe, user)));
    cases.push(case("304, by ETag", "OpenAPI v3", async |probe| {
        let ask = Ask::get("/openapi/v3/api/v1");
        let tag = probe.past(&ask).await?.headers.get(header::ETAG).context("an ETag")?.to_str()?.to_owned();
        probe.same_as(&ask.header("if-none-match", &tag), StatusCode::NOT_MODIFIED).await
    }));
    cases.push(case("compressed with gzip", "OpenAPI v2", async |probe| {
        let ask = Ask::get("/openapi/v2").gzip();
        let direct = probe.past(&ask).await?;
        ensure!(direct.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "{:?}", direct.headers);
        probe.same(&ask).await
    }));
    cases
}

async fn who_am_i(probe: Probe, headers: &'static [(&'static str, &'static str)]) -> Result<Outcome> {
    let ask = Ask::new(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let ask = ask.body(JSON, r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#);
    let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    probe.same_with(&ask, Bodies::But(&["metadata.creationTimestamp"]), Expected::Done).await
}
