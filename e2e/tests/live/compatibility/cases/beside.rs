//! What is asked of Leases and ConfigMaps where locks of elections may be among them: by one name, by WebSocket, and of many.

use percent_encoding::percent_decode_str;

use super::*;
use super::{controlled::beat, election::Lock};

/// A resource of which an election's lock may be: ConfigMaps are the ring's besides.
#[derive(Clone, Copy)]
enum Place {
    Leases,
    ConfigMaps,
}

impl Place {
    const BOTH: [Self; 2] = [Self::Leases, Self::ConfigMaps];

    fn one(self) -> &'static str {
        match self {
            Self::Leases => "Lease",
            Self::ConfigMaps => "ConfigMap",
        }
    }

    fn lock(self) -> Lock {
        match self {
            Self::Leases => election::LEASE,
            Self::ConfigMaps => election::CONFIG_MAP,
        }
    }

    fn collection(self) -> &'static str {
        self.lock().collection
    }

    /// Makes one that is the shard's, and by which nobody leads; returns its name and version.
    async fn made(self, probe: &Probe) -> Result<(String, String)> {
        let name = format!("{}{}", probe.shard.owns, probe.mark);
        let mut object = match self {
            Self::Leases => beat(&name),
            Self::ConfigMaps => Kind::ConfigMap.object(&probe.shard.labels()),
        };
        object["metadata"]["name"] = name.as_str().into();
        Ok((name, probe.fixture.anew(self.collection(), &object).await?))
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for place in Place::BOTH {
        let of = format!("by one name, of a {} that is no lock", place.one());
        for (form, media_type) in representations::FORMS {
            cases.push(case(&format!("list {of}"), form, move |probe| listed(probe, place, media_type)));
        }
        for (form, media_type, _) in stream::FORMS {
            cases.push(case(&format!("watch {of}"), form, move |probe| watched(probe, place, media_type)));
        }
        let behaviour = format!("watch by one name, of a {} in the shard's namespace", place.one());
        cases.push(case(&behaviour, "WebSocket", move |probe| by_websocket(probe, place)).by_http1());
        let behaviour = format!("deletecollection of {}s with a lock among them", place.one());
        cases.push(case(&behaviour, "JSON", move |probe| spared(probe, place)));
    }
    cases
}

fn by_name(place: Place, name: &str, query: &str) -> Ask {
    Ask::get(format!("{}?fieldSelector=metadata.name%3D{name}&{query}", place.collection()))
}

async fn listed(probe: Probe, place: Place, media_type: &str) -> Result<Outcome> {
    let (name, version) = place.made(&probe).await?;
    let ask = by_name(place, &name, &format!("resourceVersion={version}&resourceVersionMatch=Exact"));
    let ask = ask.accept(&representations::of_lists(media_type));
    match place {
        Place::Leases => probe.same(&ask).await,
        Place::ConfigMaps => probe.narrowed(&ask).await,
    }
}

/// It ends by itself after a second, and has one event by then.
async fn watched(probe: Probe, place: Place, media_type: &str) -> Result<Outcome> {
    let (name, version) = place.made(&probe).await?;
    let change = Ask::new(Method::PATCH, format!("{}/{name}", place.collection()));
    probe.fixture.admin(&change.body(MERGE, r#"{"metadata":{"labels":{"changed":"once"}}}"#)).await?;
    let ask = by_name(place, &name, &format!("watch=1&resourceVersion={version}&timeoutSeconds=1")).accept(media_type);
    match place {
        Place::ConfigMaps => probe.narrowed_watch(&ask).await,
        Place::Leases => {
            let rewritten = Rewritten { headers: &["accept-encoding"], ..AS_SENT };
            steady(async || {
                let shown = probe.narrowed_with(&ask, rewritten, Bodies::Exact).await?;
                ensure!(contains(&shown.body, name.as_bytes()), "it shows nothing: {}", shown.text());
                Ok(Outcome::Same)
            })
            .await
        }
    }
}

async fn by_websocket(probe: Probe, place: Place) -> Result<Outcome> {
    let (name, _) = place.made(&probe).await?;
    let ask = websocket(by_name(place, &name, "watch=1&timeoutSeconds=1"));
    let direct = Raw::send(&probe.shard.direct, &ask, &probe.mark).await?.head().await?;
    ensure!(direct.status.contains("101"), "without the proxy {direct:#?}");
    let mut proxied = Raw::send(&probe.shard.proxied, &ask, &probe.mark).await?;
    let head = proxied.head().await?;
    let body = proxied.body(&head).await?;
    ensure!(head.status.contains("200") && body.is_empty(), "{head:#?}");
    probe.nothing_arrived()?;
    Ok(Outcome::Changed(
        "answered with 200 and nothing behind it, as by a server that knows no WebSockets: clients go on by HTTP, where the \
         proxy sees when a lock has become the ring's",
    ))
}

/// The real lock, which the ring holds, is selected by its name, and stays.
async fn spared(probe: Probe, place: Place) -> Result<Outcome> {
    let name = format!("{}-in-the-memory", probe.mark);
    let Lock { collection, record, .. } = place.lock();
    let create = Ask::new(Method::POST, collection).body(JSON, record(&name, election::BEGUN).to_string());
    probe.proxied(&create).await?.done()?;
    let ask = Ask::new(Method::DELETE, format!("{collection}?fieldSelector=metadata.name%3D{name}"));
    probe.take();
    let (answer, arrived) = (probe.proxied(&ask).await?, probe.arrived()?);
    let query = arrived.target.split_once('?').context("a query")?.1;
    let query = percent_decode_str(query).decode_utf8()?;
    let fields = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=")).context("a fieldSelector")?;
    let (ours, theirs) = (format!("metadata.name!={name}"), format!(",metadata.name={name}"));
    ensure!(fields.contains(&ours) && fields.ends_with(&theirs), "{fields}");
    changes::note_query(part::FIELDS);
    let list: Value = serde_json::from_slice(&answer.body).with_context(|| answer.text())?;
    ensure!(answer.status.is_success() && list["items"] == Value::Array(Vec::new()), "{}: {list}", answer.status);
    let real = probe.fixture.admin(&Ask::get(format!("{collection}/{name}"))).await?;
    ensure!(real.to_string().contains("ringside-compatibility"), "the ring does not hold it: {real}");
    Ok(Outcome::Changed("without the locks that the proxy answers for: the real ones are the ring's"))
}
