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

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.push(case("get of a large object, compressed with gzip", "JSON", compressed));
    cases.extend(by_form("get", FORMS, async |probe, form| {
        probe.same(&Ask::get(format!("{MAPS}/own-0")).accept(form)).await
    }));
    cases.extend(by_form("get of what is another shard's", FORMS, async |probe, form| {
        fenced::absent(&probe, &format!("{MAPS}/other-0"), "other", form).await
    }));
    cases.extend(by_form("write that changes nothing", FORMS, async |probe, form| {
        probe.same(&nothing(format!("{MAPS}/own-1")).accept(form)).await
    }));
    cases.extend(by_form("status and scale", FORMS, subresources));
    cases.extend(by_form("list of a built-in resource", FORMS, async |probe, form| {
        probe.narrowed(&exact(&probe.fixture, MAPS).accept(&of_lists(form)), SELECTED).await
    }));
    // Custom resources have no protobuf of their own.
    let of_custom = |forms: &[(&'static str, &'static str)]| {
        forms.iter().copied().filter(|(_, form)| *form != PROTOBUF).collect::<Vec<_>>()
    };
    cases.extend(by_form("list of a custom resource", of_custom(&FORMS), async |probe, form| {
        probe.narrowed(&exact(&probe.fixture, SITES).accept(&of_lists(form)), SELECTED).await
    }));
    let forms = stream::FORMS.map(|(form, media_type, _)| (form, media_type));
    cases.extend(by_form("watch of a built-in resource", forms, async |probe, form| {
        probe.narrowed(&since_begin(&probe.fixture, MAPS).accept(form), WATCHED).await
    }));
    cases.extend(by_form("watch of a custom resource", of_custom(&forms), async |probe, form| {
        probe.narrowed(&since_begin(&probe.fixture, SITES).accept(form), WATCHED).await
    }));
    cases
}

/// Long enough to be compressed, from 128 KiB on: of the shard's own it is, and nothing is shown of another's.
async fn compressed(probe: Probe) -> Result<Outcome> {
    let namespace = format!("gzip-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = Kind::ConfigMap.collection(&namespace);
    for (name, labels) in [("own", probe.fixture.main.labels()), ("other", probe.fixture.plain.labels())] {
        probe.fixture.anew(&collection, &json!(map(name, labels, 200_000))).await?;
    }
    let get = |name: &str| Ask::get(format!("{collection}/{name}")).gzip();
    let direct = probe.past(&get("own")).await?;
    ensure!(direct.headers.get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip"), "{:?}", direct.headers);
    probe.proxied(&get("other")).await?.with(StatusCode::NOT_FOUND)?;
    probe.same(&get("own")).await
}

/// A write that changes nothing, so that all of its answer can be compared.
fn nothing(target: String) -> Ask {
    Ask::new(Method::PATCH, target).body(MERGE, "{}")
}

async fn subresources(probe: Probe, form: &'static str) -> Result<Outcome> {
    let namespace = format!("forms-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = Kind::Deployment.collection(&namespace);
    probe.fixture.anew(&collection, &Kind::Deployment.object(&probe.fixture.main.labels())).await?;
    for subresource in ["status", "scale"] {
        let target = format!("{collection}/thing/{subresource}");
        let patch = nothing(target.clone()).accept(form);
        // The first one leaves its manager behind.
        probe.past(&patch).await?;
        probe.same(&Ask::get(target).accept(form)).await?;
        probe.same(&patch).await?;
    }
    Ok(Outcome::Same)
}
