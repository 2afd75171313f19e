//! Objects, lists and watches in every form that the API server has.

use anyhow::ensure;
use http::StatusCode;
use ringside_e2e::compatibility::Outcome;

use crate::{
    client::{Ask, Http},
    compare::Probe,
    objects::FIXED,
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

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (form, media_type) in FORMS {
        cases.push(case("get", form, move |ground, mark| async move {
            let probe = Probe::new(&ground, &mark);
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps/own-0")).accept(media_type);
            probe.same(&ask).await
        }));
        cases.push(case("get of what is another shard's", form, move |ground, mark| async move {
            let ask = Ask::get(format!("/api/v1/namespaces/{FIXED}/configmaps/other-0")).accept(media_type);
            let there = Probe::new(&ground, &mark).past(&ask).await?;
            let shown = ground.main.proxied.exchange(Http::Two, &ask, &mark).await?;
            ensure!((there.status, shown.status) == (StatusCode::OK, StatusCode::NOT_FOUND), "{}", shown.text());
            Ok(Outcome::Changed("answered with 404: it looks deleted, as in lists and watches"))
        }));
    }
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
            cases.push(case(behaviour, form, move |ground, mark| async move {
                let probe = Probe::new(&ground, &mark);
                let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", ground.end);
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
            cases.push(case(behaviour, form, move |ground, mark| async move {
                let probe = Probe::new(&ground, &mark);
                let ask = Ask::get(format!("{resource}?watch=1&resourceVersion={}&timeoutSeconds=1", ground.begin))
                    .accept(media_type);
                probe.narrowed_watch(&ask).await
            }));
        }
    }
    cases
}
