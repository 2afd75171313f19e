//! The configuration: parsed once, from flags and environment, with all faults reported together.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration};

use clap::{Parser, builder::FalseyValueParser};
use http::Uri;
use ringside_inject::{Amounts, Resources};
use ringside_ring::{RingKind, cluster_ring::SHARDER_NAMESPACE, placement::DEFAULT_TOKENS_PER_SHARD};
use ringside_runtime::{
    config::{Faults, parse_address, parse_duration, parse_namespace},
    logging,
};
use tracing_subscriber::EnvFilter;

use crate::queue::limiter::{MAX_PERMITS, MIN_PERMITS};

/// The options as they were given, before they are checked: as text, so that every fault is seen at once.
#[derive(Clone, Debug, Parser)]
#[command(name = "ringside-sharder", version, about = "Assigns the objects of rings to shards")]
pub struct Options {
    /// Kubeconfig file; without it the service account of the pod is used.
    #[arg(long, env = "RINGSIDE_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the sharder: of its Service, its election Lease and the Secret with its certificates.
    #[arg(long, env = "RINGSIDE_NAMESPACE", default_value = SHARDER_NAMESPACE)]
    namespace: String,
    /// Address that the webhook is served on.
    #[arg(long, env = "RINGSIDE_WEBHOOK_LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:9443")]
    webhook_listen: String,
    /// URL at which the API server reaches the webhook, instead of the Service `ringside-sharder`: for a sharder outside the cluster.
    #[arg(long, env = "RINGSIDE_WEBHOOK_URL", value_name = "URL")]
    webhook_url: Option<String>,
    /// How long a certificate of the webhook is valid that the sharder makes itself; its authority's, four times that.
    #[arg(long, env = "RINGSIDE_WEBHOOK_CERTIFICATE_LIFETIME", value_name = "DURATION", default_value = "2160h")]
    webhook_certificate_lifetime: String,
    /// Folder with a certificate of cert-manager's, as tls.crt and tls.key, instead of one that the sharder makes.
    #[arg(long, env = "RINGSIDE_WEBHOOK_CERTIFICATE_DIR", value_name = "DIR")]
    webhook_certificate_dir: Option<PathBuf>,
    /// The Certificate behind that folder: cert-manager writes its authority into the webhook configurations.
    #[arg(long, env = "RINGSIDE_WEBHOOK_INJECT_CA_FROM", value_name = "NAMESPACE/NAME")]
    webhook_inject_ca_from: Option<String>,
    /// Serves rings of the kind ControllerRing beside ClusterRings. Not in a cluster where another sharder serves them.
    #[arg(long, env = "RINGSIDE_CONTROLLER_RINGS", value_parser = FalseyValueParser::new())]
    controller_rings: bool,
    /// Adds the proxy to pods that ask for it, by a webhook: those with the label ringside.dev/inject, or in a namespace with it.
    #[arg(long, env = "RINGSIDE_INJECTOR", value_parser = FalseyValueParser::new())]
    injector: bool,
    /// The proxy's image in these pods.
    #[arg(long, env = "RINGSIDE_PROXY_IMAGE", value_name = "IMAGE")]
    proxy_image: Option<String>,
    /// What the proxy requests in these pods, as cpu=50m,memory=128Mi; `none` takes a default away. A pod may say other amounts.
    #[arg(long, env = "RINGSIDE_PROXY_REQUESTS", value_name = "AMOUNTS", default_value = "")]
    proxy_requests: String,
    /// What the proxy may use in these pods, as memory=128Mi. A resource that is named here or above loses both of its defaults.
    #[arg(long, env = "RINGSIDE_PROXY_LIMITS", value_name = "AMOUNTS", default_value = "")]
    proxy_limits: String,
    /// What becomes of such pods while no sharder answers: Ignore, they run without the proxy; or Fail, they have to wait.
    #[arg(long, env = "RINGSIDE_INJECTOR_FAILURE_POLICY", value_name = "POLICY", default_value = "Ignore")]
    injector_failure_policy: String,
    /// Address of /livez, /readyz and /metrics. The probes come from the kubelet and the scrapes from other
    /// pods, so loopback would not do.
    #[arg(long, env = "RINGSIDE_ADMIN_LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:8080")]
    admin_listen: String,
    /// How often the webhook configuration, policies and resource definitions are read again without a change.
    #[arg(long, env = "RINGSIDE_SYNC_PERIOD", value_name = "DURATION", default_value = "5m")]
    sync_period: String,
    /// Tokens (virtual nodes) that a shard has on the hash ring; 100 gives the placement of kubernetes-controller-sharding.
    #[arg(long, env = "RINGSIDE_TOKENS_PER_SHARD", value_name = "NUMBER", default_value_t = DEFAULT_TOKENS_PER_SHARD.to_string())]
    tokens_per_shard: String,
    /// Writes to objects that may be under way at once, at most; fewer while the API server is slow. A small number leaves the API
    /// server more for others, and moves take longer.
    #[arg(long, env = "RINGSIDE_MAX_WRITES", value_name = "NUMBER", default_value_t = MAX_PERMITS.to_string())]
    max_writes: String,
    /// Name of this replica in the leader election, where its token names no Pod; it gets a random suffix.
    #[arg(long, env = "HOSTNAME", default_value = "ringside-sharder")]
    identity: String,
    /// Which events are logged, such as `info` or `info,ringside_sharder=debug`.
    #[arg(long, env = "RINGSIDE_LOG_FILTER", value_name = "FILTER", default_value = DEFAULT_LOG_FILTER)]
    log_filter: String,
    /// How events are logged: `text` or `json`.
    #[arg(long, env = "RINGSIDE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: String,
}

/// The client library logs the failures that it returns as well: each would be told twice.
const DEFAULT_LOG_FILTER: &str = "info,kube_client=off,kube_runtime=error";

/// The configuration of a sharder.
#[derive(Debug)]
pub struct Config {
    /// Kubeconfig file; in-cluster without it.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the sharder's own objects.
    pub namespace: String,
    /// Address that the webhook is served on.
    pub webhook_listen: SocketAddr,
    /// Where the API server finds the webhook; through the Service without it.
    pub webhook_url: Option<WebhookUrl>,
    /// Whose certificate the webhook has.
    pub webhook_certificate: CertificateSource,
    /// The kinds of ring that are served.
    pub kinds: &'static [RingKind],
    /// How the proxy is added to pods, if it is.
    pub injector: Option<Injector>,
    /// Address of the admin server.
    pub admin_listen: SocketAddr,
    /// How often webhook configurations, policies and definitions of resources are read again without a change.
    pub sync_period: Duration,
    /// Tokens a shard has on the hash ring.
    pub tokens_per_shard: NonZeroU32,
    /// Writes to objects at once, at most.
    pub max_writes: usize,
    /// Name of this replica in the leader election where it is no Pod, before its random suffix.
    pub identity: String,
    /// Which events are logged.
    pub log_filter: EnvFilter,
    /// How they are logged.
    pub log_format: logging::Format,
}

/// Where the webhook's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// From an authority of the sharder's own.
    Own {
        /// How long it is valid.
        lifetime: Duration,
    },
    /// From cert-manager.
    CertManager {
        /// The folder where it is.
        folder: PathBuf,
        /// The Certificate that it is of, as `NAMESPACE/NAME`.
        certificate: String,
    },
}

/// How the proxy is added to pods at their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injector {
    /// The proxy's image.
    pub image: String,
    /// What the proxy asks of its node.
    pub resources: Resources,
    /// What becomes of the pods while no sharder answers.
    pub failure_policy: FailurePolicy,
}

/// What the API server does where a webhook does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It lets the object pass as it is.
    Ignore,
    /// It refuses the object.
    Fail,
}

impl FailurePolicy {
    /// As a webhook configuration says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }
}

impl FromStr for FailurePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let policies = [Self::Ignore, Self::Fail];
        let known = policies.into_iter().find(|policy| policy.as_str() == text);
        known.ok_or_else(|| format!("'{text}' is neither 'Ignore' nor 'Fail'"))
    }
}

/// A URL of the webhook for API servers that can't use the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    /// Without a slash at the end: a path is appended.
    pub base: String,
    /// The host that the certificate must name.
    pub host: String,
}

/// Why a text is no webhook URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a webhook URL: write https://HOST[:PORT], without a query (the API server calls webhooks by https only)"
)]
pub struct ParseWebhookUrl(String);

impl FromStr for WebhookUrl {
    type Err = ParseWebhookUrl;

    fn from_str(text: &str) -> Result<Self, ParseWebhookUrl> {
        let error = || ParseWebhookUrl(text.to_owned());
        let url: Uri = text.parse().map_err(|_| error())?;
        let https = url.scheme_str() == Some("https");
        // The API server refuses a user, a query and a fragment in a webhook's URL.
        let plain = url.query().is_none() && !text.contains(['@', '#']);
        let host = url.host().filter(|host| !host.is_empty() && https && plain).ok_or_else(error)?;
        // An IPv6 address stands in brackets in a URL, and without them in a certificate.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { base: text.trim_end_matches('/').to_owned(), host })
    }
}

impl TryFrom<Options> for Config {
    type Error = Faults;

    fn try_from(options: Options) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let namespace = faults.check("--namespace", parse_namespace(&options.namespace));
        let webhook_listen = faults.check("--webhook-listen", parse_address(&options.webhook_listen));
        let webhook_url = faults.check("--webhook-url", options.webhook_url.as_deref().map(str::parse).transpose());
        let certificate =
            faults.check("--webhook-certificate-lifetime", parse_lifetime(&options.webhook_certificate_lifetime));
        let managed = (options.webhook_certificate_dir, options.webhook_inject_ca_from);
        let webhook_certificate = faults
            .check("--webhook-certificate-dir", parse_managed(managed))
            .map(|managed| managed.or_else(|| certificate.map(|lifetime| CertificateSource::Own { lifetime })));
        let policy = faults.check("--injector-failure-policy", options.injector_failure_policy.parse());
        let image = match (options.injector, options.proxy_image) {
            (false, _) => None,
            (true, Some(image)) if !image.is_empty() => Some(image),
            (true, _) => faults.check("--injector", Err("name the image that pods get, with --proxy-image")),
        };
        let requests = faults.check("--proxy-requests", options.proxy_requests.parse::<Amounts>());
        let limits = faults.check("--proxy-limits", options.proxy_limits.parse::<Amounts>());
        let resources = requests.zip(limits).map(|(requests, limits)| Resources::or_default(&requests, &limits));
        let injector = image.zip(policy).zip(resources).map(|((image, failure_policy), resources)| Injector {
            image,
            resources,
            failure_policy,
        });
        let admin_listen = faults.check("--admin-listen", parse_address(&options.admin_listen));
        let sync_period = faults.check("--sync-period", parse_period(&options.sync_period));
        let tokens = faults.check("--tokens-per-shard", parse_tokens(&options.tokens_per_shard));
        let max_writes = faults.check("--max-writes", parse_writes(&options.max_writes));
        let log_filter = faults.check("--log-filter", logging::parse_filter(&options.log_filter));
        let log_format = faults.check("--log-format", options.log_format.parse());
        let checked = (|| {
            Some(Self {
                kubeconfig: options.kubeconfig,
                namespace: namespace?,
                webhook_listen: webhook_listen?,
                webhook_url: webhook_url?,
                webhook_certificate: webhook_certificate??,
                kinds: if options.controller_rings { &RingKind::ALL } else { &[RingKind::ClusterRing] },
                injector,
                admin_listen: admin_listen?,
                sync_period: sync_period?,
                tokens_per_shard: tokens?,
                max_writes: max_writes?,
                identity: options.identity,
                log_filter: log_filter?,
                log_format: log_format?,
            })
        })();
        faults.finish()?;
        // Whatever is missing was noted as a fault.
        checked.ok_or_else(Faults::new)
    }
}

/// The fewest seconds between two looks at everything: each of them lists all objects of all rings.
const SHORTEST_SYNC_PERIOD: Duration = Duration::from_secs(1);
/// More tokens than this take seconds to compute at every change, and balance no better.
const MAX_TOKENS_PER_SHARD: u32 = 100_000;

fn parse_period(text: &str) -> Result<Duration, String> {
    let period = parse_duration(text)?;
    if period < SHORTEST_SYNC_PERIOD {
        return Err(format!("'{text}' is too short: every object is looked at each time, so write 1s or more"));
    }
    Ok(period)
}

/// Shorter than this, a certificate could end while it is on its way into the API server's memory.
const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = parse_duration(text)?;
    if lifetime < SHORTEST_LIFETIME {
        return Err(format!("'{text}' is too short to exchange certificates in time, so write 10s or more"));
    }
    Ok(lifetime)
}

/// The certificate of cert-manager's, if there is one: its files and its name say two halves of that.
fn parse_managed(
    (folder, certificate): (Option<PathBuf>, Option<String>),
) -> Result<Option<CertificateSource>, &'static str> {
    let is_name = |name: &str| {
        name.split_once('/')
            .is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
    };
    match (folder, certificate) {
        (None, None) => Ok(None),
        (Some(_), None) => Err("say of which Certificate the files are, with --webhook-inject-ca-from NAMESPACE/NAME"),
        (None, Some(_)) => Err("say in which folder the Certificate's Secret is mounted"),
        (Some(folder), Some(certificate)) if is_name(&certificate) => {
            Ok(Some(CertificateSource::CertManager { folder, certificate }))
        }
        _ => Err("write the Certificate of --webhook-inject-ca-from as NAMESPACE/NAME"),
    }
}

/// Parses `--tokens-per-shard`.
///
/// # Errors
/// When the text is no number of tokens.
pub fn parse_tokens(text: &str) -> Result<NonZeroU32, String> {
    let fault = || format!("'{text}' is not a number of tokens: write one from 1 to {MAX_TOKENS_PER_SHARD}");
    text.parse().ok().filter(|tokens: &NonZeroU32| tokens.get() <= MAX_TOKENS_PER_SHARD).ok_or_else(fault)
}

fn parse_writes(text: &str) -> Result<usize, String> {
    let fault = || format!("'{text}' is not a number of writes: write one from {MIN_PERMITS} to {MAX_PERMITS}");
    text.parse().ok().filter(|writes| (MIN_PERMITS..=MAX_PERMITS).contains(writes)).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Config, String> {
        let arguments = std::iter::once("ringside-sharder").chain(arguments.iter().copied());
        Config::try_from(Options::try_parse_from(arguments).unwrap()).map_err(|faults| faults.to_string())
    }

    #[test]
    fn without_options_the_defaults_of_the_contract_count() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.namespace, "ringside-system");
        assert_eq!(config.sync_period, Duration::from_secs(300));
        assert_eq!(config.tokens_per_shard, DEFAULT_TOKENS_PER_SHARD);
        assert_eq!(config.webhook_url, None);
    }

    #[test]
    fn all_faults_are_reported_at_once_each_with_its_remedy() {
        let faults = parse(&[
            "--namespace=Sharding_System",
            "--webhook-listen=9443",
            "--webhook-url=http://localhost",
            "--admin-listen=nowhere:1",
            "--sync-period=5",
            "--tokens-per-shard=0",
            "--max-writes=65",
            "--log-filter=a=b=c",
            "--log-format=xml",
        ]);
        let faults = faults.unwrap_err();
        assert_eq!(faults.lines().count(), 10, "{faults}");
        let numbers = ["sync-period", "tokens-per-shard", "max-writes"];
        for option in ["namespace", "webhook-listen", "webhook-url", "admin-listen"].into_iter().chain(numbers) {
            assert!(faults.contains(&format!("--{option}: '")), "{option} in {faults}");
        }
        assert!(parse(&["--sync-period=10ms"]).unwrap_err().contains("write 1s or more"));
    }

    #[test]
    fn a_certificate_is_our_own_or_cert_managers_with_all_that_belongs_to_it() {
        let source = |arguments: &[&str]| parse(arguments).map(|config| config.webhook_certificate);
        let ninety_days = Duration::from_secs(90 * 24 * 60 * 60);
        assert_eq!(source(&[]), Ok(CertificateSource::Own { lifetime: ninety_days }));
        let managed = ["--webhook-certificate-dir=/certificate", "--webhook-inject-ca-from=ringside-system/webhook"];
        let certificate = "ringside-system/webhook".to_owned();
        assert_eq!(source(&managed), Ok(CertificateSource::CertManager { folder: "/certificate".into(), certificate }));
        for (bad, remedy) in [
            (&managed[..1], "--webhook-inject-ca-from NAMESPACE/NAME"),
            (&managed[1..], "in which folder"),
            (&[managed[0], "--webhook-inject-ca-from=webhook"], "as NAMESPACE/NAME"),
            (&["--webhook-certificate-lifetime=9s"], "write 10s or more"),
        ] {
            let faults = source(bad).unwrap_err();
            assert!(faults.contains(remedy) && faults.lines().count() == 2, "{bad:?}: {faults}");
        }
    }

    #[test]
    fn injector_needs_an_image() {
        let injector = |arguments: &[&str]| parse(arguments).map(|config| config.injector);
        assert_eq!(injector(&["--proxy-image=p"]), Ok(None));
        let all = ["--injector", "--proxy-image=p", "--injector-failure-policy=Fail", "--proxy-limits=memory=64Mi"];
        let resources = Resources::or_default(&Amounts::default(), &"memory=64Mi".parse().unwrap());
        let expected = Injector { image: "p".to_owned(), resources, failure_policy: FailurePolicy::Fail };
        assert_eq!(injector(&all), Ok(Some(expected)));
        let faults = injector(&["--injector", "--injector-failure-policy=Maybe", "--proxy-requests=cpu"]).unwrap_err();
        assert!(faults.contains("--proxy-requests") && faults.contains("cpu=50m,memory=128Mi"), "{faults}");
        assert!(faults.contains("--proxy-image") && faults.contains("neither 'Ignore' nor 'Fail'"), "{faults}");
    }

    #[test]
    fn a_webhook_url_is_taken_apart() {
        let url: WebhookUrl = "https://127.0.0.1:9443/".parse().unwrap();
        assert_eq!(url, WebhookUrl { base: "https://127.0.0.1:9443".into(), host: "127.0.0.1".into() });
        assert_eq!("https://[::1]:9443/x".parse::<WebhookUrl>().unwrap().host, "::1");
        for bad in ["", "localhost:9443", "http://a", "https://", "https://a/?b=c", "https://u@a", "https://a/#b"] {
            assert!(bad.parse::<WebhookUrl>().is_err(), "{bad}");
        }
    }
}
