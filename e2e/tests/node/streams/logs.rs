//! What a container has written.

use std::{fmt::Write as _, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use http::{StatusCode, header};
use ringside_e2e::compatibility::{
    client::{Ask, Http},
    compare::{Bodies, Extent, answers, arrival, passed_on},
};
use tokio::{io::AsyncWriteExt as _, time::timeout};

use super::{DEADLINE, Proxy, Site, Streams, start_pod};
use crate::Fixture;

const LINES: usize = 2000;

/// Of a pod without a ring, and of one of the ring.
pub(crate) async fn a_log_is_read_as_without_the_proxy(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    let whole = (0..LINES).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "line {line}");
        text
    });
    for site in streams.sites() {
        let arguments = format!("[lines, '{LINES}']");
        start_pod(&fixture.node, site.namespace, "logs-written", (&arguments, ""), "Succeeded").await.unwrap();
        for http in Http::BOTH {
            for query in ["", "?follow=true", "?tailLines=10", "?timestamps=true&limitBytes=1000"] {
                let ask = log(&site, "logs-written", query);
                let compared = streams.exchange(site.proxy, &ask, http).await;
                let text = compared.with_context(|| format!("{} by {}", ask.target, http.name())).unwrap();
                let is_part = query.contains("Lines") || query.contains("Bytes");
                assert!(is_part || text == whole, "{} bytes", text.len());
            }
        }
    }
}

fn log(site: &Site<'_>, pod: &str, query: &str) -> Ask {
    Ask::get(format!("/api/v1/namespaces/{}/pods/{pod}/log{query}", site.namespace))
}

impl Streams {
    /// Sends it past the proxy and through it, compares all that passed, and returns what came.
    async fn exchange(&self, proxy: &Proxy, ask: &Ask, http: Http) -> Result<String> {
        let (mark, endpoint) = (self.mark(), &proxy.endpoint);
        let direct = self.direct.exchange(http, ask, &mark).await?;
        let proxied = endpoint.exchange(http, ask, &mark).await?;
        let arrived = self.door.take(&mark);
        let [arrived] = &arrived[..] else { anyhow::bail!("{} requests arrived", arrived.len()) };
        ensure!((&arrived.method, &arrived.target) == (&ask.method, &ask.target), "{arrived:#?}");
        let mut sent = ask.sent(&mark)?;
        sent.insert(header::AUTHORIZATION, format!("Bearer {}", endpoint.token()).parse()?);
        sent.insert(header::HOST, endpoint.address().to_string().parse()?);
        arrival(&sent, &arrived.headers, &proxy.as_seen, &[])?;
        passed_on(arrived, &proxied, Extent::Whole)?;
        answers(&direct, &proxied, Bodies::Exact)?;
        ensure!(proxied.status == StatusCode::OK && !proxied.body.is_empty(), "{}", proxied.text());
        Ok(proxied.text())
    }
}

/// Each line comes when it is written, and not when there are more: nothing is written before all have seen what was.
pub(crate) async fn a_line_comes_when_it_is_written(fixture: Arc<Fixture>) {
    let streams = super::of(&fixture).await;
    for site in streams.sites() {
        let pod = "logs-live";
        start_pod(&fixture.node, site.namespace, pod, ("[echo]", "stdin: true"), "Running").await.unwrap();
        let [_, way] = streams.ways(&fixture, site.proxy).await;
        let mut writer = way.start(&["attach", "-n", site.namespace, "-i", pod]);
        let mut writes = writer.stdin.take().unwrap();
        // There is an answer when there is a line.
        writes.write_all(b"zero\n").await.unwrap();
        let mut followers = Vec::new();
        for http in Http::BOTH {
            let (ask, mark) = (log(&site, pod, "?follow=true"), streams.mark());
            let open = timeout(DEADLINE, site.proxy.endpoint.open(http, &ask, &mark)).await.unwrap().unwrap();
            followers.push((http.name(), open));
        }
        for line in ["zero", "one", "two"] {
            if line != "zero" {
                writes.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            let wanted = format!("heard {line}\n");
            for (by, open) in &mut followers {
                let read = timeout(DEADLINE, open.until(|read| read.len() >= wanted.len())).await;
                let read = read.unwrap_or_else(|_| panic!("{by}: {line} does not come")).unwrap();
                assert_eq!(String::from_utf8_lossy(&read), wanted, "{by}");
            }
        }
        writer.kill().await.unwrap();
    }
}
