//! What a client asks before it knows which resources there are.

use http::HeaderValue;

use super::*;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const OPENAPI_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// Behaviour, form, path and media type.
const ASKS: [(&str, &str, &str, &str); 26] = [
    ("discovery", "groups", "/apis", JSON),
    ("discovery", "groups as protobuf", "/apis", PROTOBUF),
    ("discovery", "versions of the core group", "/api", JSON),
    ("discovery", "a group", "/apis/apps", JSON),
    ("discovery", "resources of the core group", "/api/v1", JSON),
    ("discovery", "resources of a built-in group", "/apis/apps/v1", JSON),
    ("discovery", "resources of a custom group", "/apis/web.example.com/v1", JSON),
    ("discovery", "paths", "/", JSON),
    ("aggregated discovery", "groups", "/apis", AGGREGATED),
    ("aggregated discovery", "groups as protobuf", "/apis", AGGREGATED_PROTOBUF),
    ("aggregated discovery", "core group", "/api", AGGREGATED),
    ("OpenAPI v2", "JSON", "/openapi/v2", JSON),
    ("OpenAPI v2", "protobuf", "/openapi/v2", OPENAPI_V2),
    ("OpenAPI v3", "index", "/openapi/v3", JSON),
    ("OpenAPI v3", "JSON", "/openapi/v3/api/v1", JSON),
    ("OpenAPI v3", "protobuf", "/openapi/v3/apis/apps/v1", OPENAPI_V3),
    ("OpenAPI v3", "custom group", "/openapi/v3/apis/web.example.com/v1", JSON),
    ("version", "JSON", "/version", JSON),
    ("health", "healthz", "/healthz", JSON),
    ("health", "livez", "/livez?verbose", JSON),
    ("health", "readyz", "/readyz?verbose", JSON),
    ("health", "one check", "/readyz/ping", JSON),
    ("keys of service account tokens", "OpenID configuration", "/.well-known/openid-configuration", JSON),
    ("keys of service account tokens", "keys", "/openid/v1/jwks", "*/*"),
    ("who am I", "JSON", "/apis/authentication.k8s.io/v1/selfsubjectreviews", JSON),
    ("impersonation", "JSON", "/apis/authentication.k8s.io/v1/selfsubjectreviews", JSON),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (behaviour, form, path, media_type) in ASKS {
        cases.push(case(behaviour, form, async move |probe| {
            let ask = Ask::get(path).accept(media_type);
            let ask = match behaviour {
                "who am I" => who(ask),
                "impersonation" => impersonating(who(ask)),
                _ => ask,
            };
            let loose = matches!(behaviour, "who am I" | "impersonation");
            let bodies = if loose { Bodies::But(&["metadata.creationTimestamp"]) } else { Bodies::Exact };
            probe.same_with(&ask, bodies, Expected::Done).await
        }));
    }
    for (form, path, media_type) in [
        ("aggregated discovery", "/apis", AGGREGATED),
        ("OpenAPI v2", "/openapi/v2", OPENAPI_V2),
        ("OpenAPI v3", "/openapi/v3/api/v1", JSON),
    ] {
        let ask = Ask::get(path).accept(media_type);
        cases.push(case("304, by ETag", form, move |probe| unchanged(probe, ask)));
        // Of the aggregated discovery it would, were there more of it: 128 KiB.
        let compressed = form == "OpenAPI v2";
        let behaviour =
            if compressed { "compressed with gzip" } else { "gzip accepted, of what the API server does not compress" };
        cases.push(case(behaviour, form, async move |probe| {
            let ask = Ask::get(path).accept(media_type).gzip();
            let direct = probe.past(&ask).await?;
            let coding = direct.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
            ensure!(coding == compressed.then_some(b"gzip"), "{} bytes, {:?}", direct.body.len(), direct.headers);
            probe.same(&ask).await
        }));
    }
    cases.push(case("OpenAPI v3", "by hash, to keep", by_hash));
    cases
}

fn who(ask: Ask) -> Ask {
    let body = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    Ask { method: Method::POST, ..ask }.body(JSON, body)
}

fn impersonating(ask: Ask) -> Ask {
    ask.header("impersonate-user", "somebody")
        .header("impersonate-group", "some")
        .header("impersonate-group", "others")
        .header("impersonate-uid", "a-uid")
        .header("impersonate-extra-scopes", "read")
        .header("impersonate-extra-scopes", "write")
}

/// Who has it already is told so, and given nothing.
async fn unchanged(probe: Probe, ask: Ask) -> Result<Outcome> {
    let tag = probe.past(&ask).await?.headers.get(header::ETAG).context("an ETag")?.to_str()?.to_owned();
    probe.same_as(&ask.header("if-none-match", &tag), StatusCode::NOT_MODIFIED).await
}

async fn by_hash(probe: Probe) -> Result<Outcome> {
    let index: Value = serde_json::from_slice(&probe.past(&Ask::get("/openapi/v3")).await?.body)?;
    let path = index["paths"]["api/v1"]["serverRelativeURL"].as_str().context("a path with a hash")?;
    let ask = Ask::get(path);
    let direct = probe.past(&ask).await?;
    ensure!(direct.headers.contains_key(header::EXPIRES), "{:?}", direct.headers);
    let (proxied, _) = probe.through(&ask, AS_SENT).await?;
    // It may be kept for a year from now on: a second may pass between the two.
    let mut both = [direct, proxied];
    both.iter_mut().for_each(|answer| drop(answer.headers.remove(header::EXPIRES)));
    answers(&both[0], &both[1], Bodies::Exact)
}
