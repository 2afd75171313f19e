//! Objects, lists and watches in every form that the API server has.

use anyhow::{Result, ensure};
use http::{Method, StatusCode, header};
use ringside_e2e::compatibility::Outcome;
use serde_json::json;

use super::writes::Kind;
use crate::compatibility::{
    client::Ask,
    compare::{Probe, own_answer},
    fixture::Fixture,
    objects::{FIXED, map},
    status,
    stream::{JSON, METADATA, METADATA_PROTOBUF, PROTOBUF, TABLE},
    table::{Case, case},
};

/// The forms of an object.
pub(super) const FORMS: [(&str, &str); 6] = [
    ("JSON", JSON),
    ("protobuf", PROTOBUF),
    ("YAML", "application/yaml"),
    ("metadata as JSON", METADATA),
    ("metadata as protobuf", METADATA_PROTOBUF),
    ("Table", TABLE),
];

/// The form of a list of such objects.
pub(super) fn of_lists(media_type: &str) -> String {
    media_type.replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;")
}

/// What is another shard's is answered as what is not there, but for the words.
async fn absent(probe: &Probe<'_>, media_type: &str) -> Result<Outcome> {
    let get = |name: &str| Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps/{name}")).accept(media_type);
    let there = probe.past(&get("other-0")).await?;
    ensure!(there.status == StatusCode::OK, "{}", there.text());
    // A name of the same length, so that protobuf has the same lengths.
    let (nobodys, others) = (get("nobod-0"), get("other-0"));
    let (direct, (proxied, _)) = tokio::try_join!(probe.past(&nobodys), probe.exchanged(&others))?;
    ensure!((direct.status, proxied.status) == (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND), "{}", proxied.text());
    own_answer(&direct, &proxied)?;
    let (direct, proxied) = (status::read(&direct)?, status::read(&proxied)?);
    let (direct, proxied) = (direct.to_string().replace("nobod-0", "other-0"), proxied.to_string());
    ensure!(direct == proxied, "{direct} became {proxied}");
    Ok(Outcome::Changed("answered with 404: it looks deleted, as in lists and watches"))
}

/// Long enough to be compressed, from 128 KiB on: of the shard's own it is, and nothing is shown of another's.
async fn compressed(fixture: &Fixture, mark: &str, media_type: &str) -> Result<Outcome> {
    let (probe, namespace) = (Probe::new(fixture, mark), format!("gzip-{mark}"));
    fixture.namespace(&namespace).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    for (name, labels) in [("own", fixture.main.labels()), ("other", fixture.plain.labels())] {
        fixture.anew(&collection, &json!(map(name, labels, 200_000))).await?;
    }
    let get =
        |name: &str| Ask::get(format!("{collection}/{name}")).accept(media_type).header("accept-encoding", "gzip");
    let direct = probe.past(&get("own")).await?;
    ensure!(direct.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "{:?}", direct.headers);
    let (other, _) = probe.exchanged(&get("other")).await?;
    ensure!(other.status == StatusCode::NOT_FOUND, "{}: {}", other.status, other.text());
    probe.same(&get("own")).await
}

/// What a write answers, and what subresources show: by writes that change nothing, so that all is compared.
fn written() -> impl Iterator<Item = Case> {
    FORMS.into_iter().flat_map(|(form, media_type)| {
        let nothing = |target: String| Ask::new(Method::PATCH, target).body("application/merge-patch+json", "{}");
        [
            case("write that changes nothing", form, move |fixture, mark| async move {
                let ask = nothing(format!("/api/v1/namespaces/{FIXED}/configmaps/own-1"));
                Probe::new(&fixture, &mark).same(&ask.accept(media_type)).await
            }),
            case("status and scale", form, move |fixture, mark| async move {
                let (probe, namespace) = (Probe::new(&fixture, &mark), format!("forms-{mark}"));
                fixture.namespace(&namespace).await?;
                let collection = Kind::Deployment.collection(&namespace);
                fixture.anew(&collection, &Kind::Deployment.object(&fixture.main.labels())).await?;
                let site = format!("/apis/web.example.com/v1/namespaces/{FIXED}/websites/own-1");
                let of_custom = Ask::get(format!("{site}/status")).accept(media_type);
                // Custom resources have no protobuf of their own.
                let mut outcome = match form {
                    "protobuf" => probe.same_as(&of_custom, StatusCode::NOT_ACCEPTABLE).await?,
                    _ => probe.same(&of_custom).await?,
                };
                for subresource in ["status", "scale"] {
                    let target = format!("{collection}/thing/{subresource}");
                    let patch = nothing(target.clone()).accept(media_type);
                    // The first one leaves its manager behind.
                    probe.past(&patch).await?;
                    for ask in [Ask::get(target).accept(media_type), patch] {
                        outcome = probe.same(&ask).await?;
                    }
                }
                Ok(outcome)
            }),
        ]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    gets().into_iter().chain(written()).chain(collections()).collect()
}

fn gets() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, media_type) in [("JSON", JSON), ("protobuf", PROTOBUF), ("YAML", "application/yaml")] {
        cases.push(case("get of a large object, compressed with gzip", form, move |fixture, mark| async move {
            compressed(&fixture, &mark, media_type).await
        }));
    }
    for (form, include) in [("None", "without the object"), ("Object", "with all of it")] {
        cases.push(case("get", &format!("Table, {include}"), move |fixture, mark| async move {
            let target = format!("/api/v1/namespaces/{FIXED}/configmaps/own-0?includeObject={form}");
            Probe::new(&fixture, &mark).same(&Ask::get(target).accept(TABLE)).await
        }));
    }
    for (form, media_type) in FORMS {
        cases.push(case("get", form, move |fixture, mark| async move {
            let probe = Probe::new(&fixture, &mark);
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps/own-0")).accept(media_type);
            probe.same(&ask).await
        }));
        cases.push(case("get of what is another shard's", form, move |fixture, mark| async move {
            absent(&Probe::new(&fixture, &mark), media_type).await
        }));
    }
    cases
}

/// Lists, and watches.
fn collections() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, media_type) in FORMS {
        let media_type = of_lists(media_type);
        for (behaviour, resource) in [
            ("list of a built-in resource", "/api/v1/namespaces/fixed/configmaps"),
            ("list of a custom resource", "/apis/web.example.com/v1/namespaces/fixed/websites"),
        ] {
            let media_type = media_type.clone();
            if form.contains("protobuf") && form == "protobuf" && resource.contains("web.example.com") {
                continue;
            }
            cases.push(case(behaviour, form, move |fixture, mark| async move {
                let probe = Probe::new(&fixture, &mark);
                let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", fixture.end);
                let ask = Ask::get(format!("{resource}?{exact}")).accept(&media_type);
                probe.narrowed(&ask).await
            }));
        }
    }
    for (form, media_type) in FORMS {
        if form == "YAML" {
            continue;
        }
        for (behaviour, resource) in [
            ("watch of a built-in resource", "/api/v1/namespaces/fixed/configmaps"),
            ("watch of a custom resource", "/apis/web.example.com/v1/namespaces/fixed/websites"),
        ] {
            if form == "protobuf" && resource.contains("web.example.com") {
                continue;
            }
            cases.push(case(behaviour, form, move |fixture, mark| async move {
                let probe = Probe::new(&fixture, &mark);
                let ask = Ask::get(format!("{resource}?watch=1&resourceVersion={}&timeoutSeconds=1", fixture.begin))
                    .accept(media_type);
                probe.narrowed_watch(&ask).await
            }));
        }
    }
    cases
}
