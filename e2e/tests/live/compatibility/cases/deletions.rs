//! Deletions of many, in every form of the answer, and with what a client says of them in the body.

use super::*;

/// What the moment decides, of a list and of a table of what is gone.
const OF_A_COLLECTION: Bodies = Bodies::But(&[
    "metadata.resourceVersion",
    "items[].metadata.uid",
    "items[].metadata.resourceVersion",
    "items[].metadata.creationTimestamp",
    "items[].metadata.managedFields[].time",
    // How old it was.
    "rows[].cells[]",
    "rows[].object.metadata.uid",
    "rows[].object.metadata.resourceVersion",
    "rows[].object.metadata.creationTimestamp",
    "rows[].object.metadata.managedFields[].time",
]);

/// In which form a client says how it is to be done: in a body the API server reads that, and not the query. client-go
/// always sends one.
#[derive(Clone, Copy)]
enum Options {
    Json,
    Protobuf,
}

impl Options {
    /// The request with them.
    fn with(self, ask: Ask, tried: bool) -> Ask {
        match self {
            Self::Json => {
                let mut options =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
                if tried {
                    options["dryRun"] = json!(["All"]);
                }
                ask.body(JSON, options.to_string())
            }
            Self::Protobuf => ask.body(PROTOBUF, in_protobuf(tried)),
        }
    }
}

/// The same by the numbers of the fields (`Unknown` and `DeleteOptions` in k8s.io/apimachinery's generated.proto).
fn in_protobuf(tried: bool) -> Vec<u8> {
    // Each is shorter than 128 bytes: a length is one byte.
    let field = |number: u8, value: &[u8]| {
        let length = u8::try_from(value.len()).unwrap_or_default();
        [&[number << 3 | 2, length], value].concat()
    };
    let kind = [field(1, b"v1"), field(2, b"DeleteOptions")].concat();
    let mut options = field(4, b"Background");
    if tried {
        options.extend(field(5, b"All"));
    }
    [b"k8s\0".to_vec(), field(1, &kind), field(2, &options)].concat()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let of_all = "deletecollection";
    for (form, media_type) in representations::FORMS {
        cases.push(case(of_all, form, move |probe| delete(probe, Kind::ConfigMap, media_type, None)));
    }
    for (form, options) in [("options in JSON", Options::Json), ("options in protobuf", Options::Protobuf)] {
        cases.push(case(of_all, form, move |probe| delete(probe, Kind::ConfigMap, JSON, Some(options))));
    }
    cases.extend(by_pair(of_all, |probe| delete(probe, Kind::ConfigMap, JSON, Some(Options::Json))));
    for (form, options) in [("JSON", None), ("options in JSON", Some(Options::Json))] {
        let behaviour = "deletecollection of a controlled resource";
        cases.push(case(behaviour, form, move |probe| delete(probe, Kind::ReplicaSet, JSON, options)));
    }
    cases
}

/// Only the shard's own objects go. Before that they are deleted in a dry run: both answers say the same then of the
/// objects, in forms too in which nothing can be left out, and differ in the version of the moment alone.
async fn delete(probe: Probe, kind: Kind, media_type: &str, options: Option<Options>) -> Result<Outcome> {
    let media_type = &representations::of_lists(media_type);
    let namespace = format!("collection-{}", probe.mark);
    probe.fixture.namespace(&namespace).await?;
    let collection = kind.collection(&namespace);
    let other = if probe.shard.owns == probe.fixture.main.owns { &probe.fixture.plain } else { &probe.fixture.main };
    let objects = [
        ("it-is-own-1", probe.shard.labels()),
        ("it-is-own-2", probe.shard.labels()),
        ("another-1", other.labels()),
        ("nobodys-1", [].into()),
    ];
    let anew = async || {
        for (name, labels) in &objects {
            let mut object = kind.object(labels);
            object["metadata"]["name"] = (*name).into();
            probe.fixture.anew(&collection, &object).await?;
        }
        anyhow::Ok(())
    };
    let ask = |tried: bool, query: &str| {
        let query = if tried && options.is_none() { "dryRun=All" } else { query };
        let ask = Ask::new(Method::DELETE, format!("{collection}?{query}")).accept(media_type);
        options.map_or(ask.clone(), |options| options.with(ask, tried))
    };
    anew().await?;
    let tried = ask(true, "labelSelector=%21absent");
    steady(async || {
        let answer = probe.narrowed_with(&tried, SELECTED, Bodies::ButANumber).await?;
        let shown = ["it-is-own-1", "another-1", "nobodys-1"].map(|name| contains(&answer.body, name.as_bytes()));
        ensure!(shown == [true, false, false], "{}", answer.text());
        Ok(Outcome::Narrowed)
    })
    .await?;

    let ask = ask(false, "labelSelector=%21absent&gracePeriodSeconds=0");
    let mut direct = probe.past(&probe.by_hand(&ask)).await?;
    anew().await?;
    let (mut proxied, _) = probe.through(&ask, SELECTED).await?;
    ensure!(proxied.status.is_success(), "{}: {}", proxied.status, proxied.text());
    if !media_type.contains("json") {
        // In what has no paths the dry run was compared; of this the heads are.
        for answer in [&mut direct, &mut proxied] {
            answer.body = "{}".into();
        }
    }
    answers(&direct, &proxied, OF_A_COLLECTION)?;
    let left = probe.fixture.admin(&Ask::get(&collection)).await?;
    let names: Vec<_> =
        left["items"].as_array().into_iter().flatten().map(|item| item["metadata"]["name"].as_str()).collect();
    ensure!(names == [Some("another-1"), Some("nobodys-1")], "left are {names:?}");
    Ok(Outcome::Narrowed)
}
