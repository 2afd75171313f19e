//! Objects, lists and watches in every form that the API server has.

use super::*;

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

/// Long enough to be compressed, from 128 KiB on: of the shard's own it is, and nothing is shown of another's.
async fn compressed(probe: Probe, media_type: &str) -> Result<Outcome> {
    let namespace = format!("gzip-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
    for (name, labels) in [("own", probe.fixture.main.labels()), ("other", probe.fixture.plain.labels())] {
        probe.fixture.anew(&collection, &json!(map(name, labels, 200_000))).await?;
    }
    let get = |name: &str| Ask::get(format!("{collection}/{name}")).accept(media_type).gzip();
    let direct = probe.past(&get("own")).await?;
    ensure!(direct.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "{:?}", direct.headers);
    probe.proxied(&get("other")).await?.with(StatusCode::NOT_FOUND)?;
    probe.same(&get("own")).await
}

/// What a write answers, and what subresources show: by writes that change nothing, so that all is compared.
fn written() -> impl Iterator<Item = Case> {
    FORMS.into_iter().flat_map(|(form, media_type)| {
        let nothing = |target: String| Ask::new(Method::PATCH, target).body(MERGE, "{}");
        [
            case("write that changes nothing", form, async move |probe| {
                probe.same(&nothing(format!("{MAPS}/own-1")).accept(media_type)).await
            }),
            case("status and scale", form, async move |probe| {
                let namespace = format!("forms-{}", probe.mark);
                probe.fixture.namespace(&namespace).await?;
                let collection = Kind::Deployment.collection(&namespace);
                probe.fixture.anew(&collection, &Kind::Deployment.object(&probe.fixture.main.labels())).await?;
                let of_custom = Ask::get(format!("{SITES}/own-1/status")).accept(media_type);
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
        let behaviour = "get of a large object, compressed with gzip";
        cases.push(case(behaviour, form, move |probe| compressed(probe, media_type)));
    }
    for (form, include) in [("None", "without the object"), ("Object", "with all of it")] {
        cases.push(case("get", &format!("Table, {include}"), async move |probe| {
            probe.same(&Ask::get(format!("{MAPS}/own-0?includeObject={form}")).accept(TABLE)).await
        }));
    }
    for (form, media_type) in FORMS {
        cases.push(case("get", form, async move |probe| {
            probe.same(&Ask::get(format!("{MAPS}/own-0")).accept(media_type)).await
        }));
        cases.push(case("get of what is another shard's", form, async move |probe| {
            fenced::absent(&probe, &format!("{MAPS}/other-0"), "other", media_type).await
        }));
    }
    cases
}

/// Lists, and watches.
fn collections() -> Vec<Case> {
    let mut cases = Vec::new();
    let resources = [("a built-in resource", MAPS), ("a custom resource", SITES)];
    // Custom resources have no protobuf of their own.
    let exists = |media_type: &str, resource: &str| media_type != PROTOBUF || resource != SITES;
    for (form, media_type) in FORMS {
        for (what, resource) in resources.into_iter().filter(|(_, resource)| exists(media_type, resource)) {
            cases.push(case(&format!("list of {what}"), form, async move |probe| {
                let ask = Ask::get(format!("{resource}?{}", probe.fixture.exact()));
                probe.narrowed(&ask.accept(&of_lists(media_type))).await
            }));
        }
    }
    for (form, media_type, _) in stream::FORMS {
        for (what, resource) in resources.into_iter().filter(|(_, resource)| exists(media_type, resource)) {
            cases.push(case(&format!("watch of {what}"), form, async move |probe| {
                let ask = Ask::get(format!("{resource}?watch=1&{}", probe.fixture.since_begin()));
                probe.narrowed_watch(&ask.accept(media_type)).await
            }));
        }
    }
    cases
}
