//! The command `version`: which versions are at work, and whether they may be so together.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use ringside_ring::{
    RingKind,
    labels::{LEASE_VERSION, ring_of},
    lease::annotation,
};
use serde::Serialize;

use crate::{
    cluster::Global,
    output::{Said, render},
    rings::{Replica, all_leases, elections},
};

/// The version of this program, of sharder and proxies that are released with it.
const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// The arguments of `version`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Says the version of this program alone, without a cluster.
    #[arg(long)]
    client: bool,
}

/// What is at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Versions {
    client: String,
    /// None: no sharder leads, or one that does not say.
    sharder: Option<String>,
    /// How many proxies of each version there are.
    proxies: BTreeMap<String, usize>,
    /// What may not be at work together.
    faults: Vec<String>,
}

/// Says the versions; ends with 2 where they are too far apart.
///
/// # Errors
/// When the Leases can't be listed.
pub async fn run(global: &Global, arguments: &Arguments) -> anyhow::Result<Said> {
    if arguments.client {
        return Ok(Said::good(format!("client   {CLIENT}")));
    }
    let cluster = global.connect().await?;
    let elections = elections(&cluster.client).await?;
    let mut shards = Vec::new();
    for kind in RingKind::ALL {
        let of_kind = all_leases(&cluster.client, &ListParams::default().labels(kind.names().lease_label)).await?;
        let is_of_kind =
            |lease: &Lease| ring_of(&lease.metadata).is_some_and(|ring| ring.is_ok_and(|ring| ring.kind() == kind));
        shards.extend(of_kind.into_iter().filter(is_of_kind));
    }
    let versions = of(&elections, &shards);
    let text = render(global.output, &versions, table)?;
    Ok(if versions.faults.is_empty() { Said::good(text) } else { Said::unhealthy(text) })
}

fn of(elections: &[Lease], shards: &[Lease]) -> Versions {
    let sharder = elections.iter().find_map(|lease| annotation(lease, LEASE_VERSION)).map(str::to_owned);
    let mut proxies: BTreeMap<String, usize> = BTreeMap::new();
    // Shards without proxy say nothing.
    for version in shards.iter().filter_map(Replica::of).filter_map(|replica| replica.version) {
        *proxies.entry(version).or_default() += 1;
    }
    let of_sharder = sharder.as_deref().unwrap_or(CLIENT);
    let late = proxies.keys().filter(|version| !is_within(version, of_sharder));
    let faults = late.map(|version| {
        format!("proxies {version} beside sharder {of_sharder}: at most one minor version older is tested; roll them")
    });
    let mut faults: Vec<_> = faults.collect();
    if sharder.is_none() && !proxies.is_empty() {
        faults.push("no sharder says its version: none leads, or it is older than 0.1.0".to_owned());
    }
    Versions { client: CLIENT.to_owned(), sharder, proxies, faults }
}

/// Whether a proxy is of the sharder's minor version or the one before.
fn is_within(proxy: &str, sharder: &str) -> bool {
    let parse = |text: &str| {
        let mut numbers = text.split(['.', '-', '+']).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    match (parse(proxy), parse(sharder)) {
        (Some((major, minor)), Some((of_sharder, newest))) => {
            major == of_sharder && (minor == newest || minor.checked_add(1) == Some(newest))
        }
        _ => false,
    }
}

fn table(versions: &Versions) -> String {
    let proxies: Vec<_> = versions.proxies.iter().map(|(version, count)| format!("{version} ({count})")).collect();
    let mut text = format!(
        "client   {}\nsharder  {}\nproxies  {}\n",
        versions.client,
        versions.sharder.as_deref().unwrap_or("-"),
        if proxies.is_empty() { "-".to_owned() } else { proxies.join(", ") }
    );
    for fault in &versions.faults {
        text.push_str(&crate::output::wrap("x ", fault));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ringside_sharder::ELECTION;
    use serde_json::json;

    use super::*;
    use crate::rings::tests::lease;

    fn versions(sharder: &str, proxies: &[&str]) -> Versions {
        let at = |name: &str, version: &str| lease(name, "ready", &json!({LEASE_VERSION: version}));
        let proxies: Vec<_> =
            proxies.iter().enumerate().map(|(index, version)| at(&format!("p-{index}"), version)).collect();
        of(&[at(ELECTION, sharder)], &proxies)
    }

    #[test]
    fn proxies_may_be_one_minor_version_behind() {
        let fine = versions("0.2.0", &["0.2.0", "0.1.3", "0.2.0"]);
        assert_eq!(fine.faults, [""; 0]);
        assert!(table(&fine).contains("sharder  0.2.0\nproxies  0.1.3 (1), 0.2.0 (2)"), "{}", table(&fine));
        for proxy in ["0.0.9", "0.3.0", "1.2.0", "odd"] {
            assert_eq!(versions("0.2.0", &[proxy]).faults.len(), 1, "{proxy}");
        }
    }

    #[test]
    fn sharder_without_version_is_told_once_there_are_proxies() {
        assert_eq!(of(&[], &[]).faults, [""; 0]);
        let proxy = lease("p", "ready", &json!({LEASE_VERSION: CLIENT}));
        assert_eq!(of(&[Lease::default()], &[proxy]).faults.len(), 1);
    }
}
