//! Deletions of many, in every form of the answer, and with what a client says of them in the body.

use super::*;

/// How it is to be done, as client-go always says it in a body: the API server reads that, and not the query.
const OPTIONS: &str =
    r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","gracePeriodSeconds":0"#;

pub(crate) fn cases() -> Vec<Case> {
    let forms = representations::FORMS.map(|(form, media_type)| (form, (Kind::ConfigMap, media_type)));
    let mut cases: Vec<_> = by_form("deletecollection", forms, delete).collect();
    cases.push(case("deletecollection of a controlled resource", "JSON", |probe| {
        delete(probe, (Kind::ReplicaSet, JSON))
    }));
    cases
}

/// Only the shard's own objects go. Before that they are deleted in a dry run: both answers say the same then of the
/// objects, and differ in the version of the moment alone.
async fn delete(probe: Probe, (kind, media_type): (Kind, &'static str)) -> Result<Outcome> {
    let namespace = format!("collection-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = kind.collection(&namespace);
    let (own, other) = (probe.fixture.main.labels(), probe.fixture.plain.labels());
    let objects = [("it-is-own-1", own.clone()), ("it-is-own-2", own), ("another-1", other), ("nobodys-1", [].into())];
    for (name, labels) in objects {
        let mut object = kind.object(&labels);
        object["metadata"]["name"] = name.into();
        probe.fixture.anew(&collection, &object).await?;
    }
    let ask = |dry_run: &str| {
        let ask = Ask::new(Method::DELETE, format!("{collection}?labelSelector=%21absent"));
        ask.accept(&representations::of_lists(media_type)).body(JSON, format!("{OPTIONS}{dry_run}}}"))
    };
    let tried = ask(r#","dryRun":["All"]"#);
    steady(async |_| {
        let answer = probe.narrowed_with(&tried, SELECTED, Bodies::ButANumber).await?;
        let shown = ["it-is-own-1", "another-1", "nobodys-1"].map(|name| contains(&answer.body, name.as_bytes()));
        ensure!(shown == [true, false, false], "{}", answer.text());
        Ok(Outcome::Narrowed)
    })
    .await?;
    probe.through(&ask(""), SELECTED).await?.0.done()?;
    let left = probe.fixture.admin(&Ask::get(&collection)).await?;
    let names: Vec<_> =
        left["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].as_str()).collect();
    ensure!(names == [Some("another-1"), Some("nobodys-1")], "left are {names:?}");
    Ok(Outcome::Narrowed)
}
