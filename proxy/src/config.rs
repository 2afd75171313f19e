//! The configuration: read once, from arguments and environment, with all faults reported together.

use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, builder::FalseyValueParser};
use http::HeaderValue;
use ringside_ring::{RingName, ShardName, Weight};
use ringside_runtime::{
    config::{Faults, parse_address, parse_duration, parse_namespace, parse_object_name},
    logging::{self, FlushGuard, Format, parse_filter},
};

use crate::controller::Mode;

/// The options as they come, so that nothing is refused before everything was looked at.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The ring that this controller is a shard of: NAME of a ClusterRing, or controllerring/NAME.
    #[arg(long, env = "RINGSIDE_RING", default_value = "", hide_default_value = true)]
    ring: String,
    /// Name of this shard, where the API server can't tell which pod this is. Default: the hostname.
    #[arg(long, env = "RINGSIDE_SHARD_NAME")]
    shard_name: Option<String>,
    /// Namespace of the shard Lease. Default: the pod's or kubeconfig's.
    #[arg(long, env = "RINGSIDE_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Namespace of the locks of the controller's elections, where it has them in another. Default: that of the shard Lease.
    #[arg(long, env = "RINGSIDE_ELECTION_NAMESPACE")]
    election_namespace: Option<String>,
    /// Name of a lock of the controller's elections whose Lease does not show that it is one, as without acquireTime or
    /// leaseTransitions. Several of them with commas, or by the option again.
    #[arg(long, env = "RINGSIDE_ELECTION_LOCK", value_delimiter = ',')]
    election_lock: Vec<String>,
    /// How to reach the API server. Default: as a pod of the cluster.
    #[arg(long, env = "RINGSIDE_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// What to do with requests that carry another account's token: pass them with that token, or refuse them.
    #[arg(long, env = "RINGSIDE_FOREIGN_TOKENS", default_value = "pass")]
    foreign_tokens: String,
    /// When the controller counts as working, so that the shard gets objects: while it is watching the ring's main resources,
    /// or always, for one that lists them now and then.
    #[arg(long, env = "RINGSIDE_CONTROLLER", default_value = "watching")]
    controller: String,
    /// Where the controller connects to.
    #[arg(long, env = "RINGSIDE_LISTEN", default_value = "127.0.0.1:6443")]
    listen: String,
    /// Folder for kubeconfig, ca.crt, token and namespace, shared with the controller.
    #[arg(long, env = "RINGSIDE_ACCESS_DIR", default_value = "/var/run/ringside", global = true)]
    pub(crate) access_dir: PathBuf,
    /// Where /livez, /readyz, /metrics and /doing are served, and `probe` and `leave` ask.
    #[arg(long, env = "RINGSIDE_ADMIN_LISTEN", default_value = "127.0.0.1:6444", global = true)]
    pub(crate) admin_listen: String,
    /// How long the shard Lease lasts without renewal: whole seconds.
    #[arg(long, env = "RINGSIDE_LEASE_DURATION", default_value = "15s")]
    lease_duration: String,
    /// How long the proxy waits after the last write about a drained object before it releases it: longer than the
    /// controller's longest silent call.
    #[arg(long, env = "RINGSIDE_DRAIN_GRACE", default_value = "2s")]
    drain_grace: String,
    /// How much of the objects this shard gets, compared with the others: 0 to 10, with two decimals at most. Default: 1, or the
    /// annotation on the Lease.
    #[arg(long, env = "RINGSIDE_WEIGHT")]
    weight: Option<String>,
    /// The group of shards that this shard is of, as `spec.groups` of the ring names it. Default: none, or the annotation on the
    /// Lease.
    #[arg(long, env = "RINGSIDE_GROUP")]
    group: Option<String>,
    /// Shows the ring's labels to the controller, and passes on what it writes to them.
    #[arg(long, env = "RINGSIDE_SHOW_LABELS", value_parser = FalseyValueParser::new())]
    show_labels: bool,
    /// Threads of the proxy: one, which takes least. More of them answer more requests at once, where the node has processors to
    /// spare, and take more for each.
    #[arg(long, env = "RINGSIDE_THREADS", default_value = "1")]
    threads: String,
    /// Which clients find a deletionTimestamp in each DELETED of a watch: kopf, which ends timers and daemons by it, all that ask
    /// for JSON, or none.
    #[arg(long, env = "RINGSIDE_DELETION_TIMESTAMPS", default_value = "kopf")]
    deletion_timestamps: String,
    /// What to log, such as info or info,ringside_proxy=debug.
    #[arg(long, env = "RINGSIDE_LOG_FILTER", default_value = LOG_FILTER)]
    log_filter: String,
    /// How to log: text or json.
    #[arg(long, env = "RINGSIDE_LOG_FORMAT", default_value = "text")]
    log_format: String,
}

/// What is done with a request that carries another account's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ForeignTokens {
    /// It is narrowed and fenced like any other, and sent with that token alone.
    Pass,
    /// It is answered with 401.
    Refuse,
}

/// Which clients find a deletionTimestamp in each `DELETED` of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeletionTimestamps {
    /// kopf, by its user agent.
    Kopf,
    /// All that ask for JSON.
    All,
    /// None: a `DELETED` of an object that is there says so.
    None,
}

impl DeletionTimestamps {
    /// Whether a client with this user agent finds one.
    pub fn are_for(self, user_agent: Option<&HeaderValue>) -> bool {
        match self {
            Self::Kopf => user_agent.is_some_and(|agent| agent.as_bytes().starts_with(b"kopf/")),
            Self::All => true,
            Self::None => false,
        }
    }
}

/// The configuration, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The ring.
    pub ring: RingName,
    /// The shard's name, if it was given.
    pub shard_name: Option<ShardName>,
    /// The host's name, the last resort for the shard's.
    pub hostname: Option<String>,
    /// The namespace of the shard Lease, if it was given.
    pub lease_namespace: Option<String>,
    /// The namespace of the controller's locks, if it was given.
    pub election_namespace: Option<String>,
    /// The names of those of them that are locks whatever their fields are.
    pub election_locks: BTreeSet<String>,
    /// The kubeconfig, unless in a cluster.
    pub kubeconfig: Option<PathBuf>,
    /// What is done with tokens of other accounts.
    pub foreign_tokens: ForeignTokens,
    /// When the controller counts as working.
    pub controller: Mode,
    /// Where the controller connects to.
    pub listen: SocketAddr,
    /// The access folder.
    pub access_dir: PathBuf,
    /// Where probes and metrics are served.
    pub admin_listen: SocketAddr,
    /// How long the Lease lasts.
    pub lease_duration: Duration,
    /// How long an object rests before the shard releases it.
    pub drain_grace: Duration,
    /// The shard's weight, if it was given.
    pub weight: Option<Weight>,
    /// The shard's group, if it was given.
    pub group: Option<String>,
    /// Whether the controller sees the labels of the ring.
    pub show_labels: bool,
    /// Threads of the proxy.
    pub threads: NonZeroUsize,
    /// Which clients find a deletionTimestamp in each `DELETED`.
    pub deletion_timestamps: DeletionTimestamps,
    /// What to log.
    pub log_filter: String,
    /// How to log.
    pub log_format: Format,
}

/// kube's client logs every failed attempt as an error, besides returning it to us who log it with its meaning.
const LOG_FILTER: &str = "info,kube_client::client::builder=off";
/// A Lease counts in seconds, and is renewed five times in its duration. The sharder accepts no longer one.
const LEASE_DURATIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(*ringside_ring::lease::DURATION_SECONDS.end());

/// More of them only take memory.
const MAX_THREADS: usize = 64;

impl Config {
    /// Writes log records as it says, until the guard is dropped.
    pub fn log(&self) -> FlushGuard {
        let filter = parse_filter(&self.log_filter);
        filter.map(|filter| logging::init(self.log_format, filter)).unwrap_or_default()
    }

    /// What is open to others than this pod, and what that means.
    pub fn exposed(&self) -> Vec<String> {
        let meanings = [
            (
                "--listen",
                self.listen,
                "a client that reaches it and has the token of the access folder acts with this pod's permissions",
            ),
            (
                "--admin-listen",
                self.admin_listen,
                "a client that reaches it can read the metrics, what this shard does and why it is not ready, without any token; \
                 nothing can be changed there",
            ),
        ];
        let beyond = meanings.iter().filter(|(_, address, _)| !address.ip().is_loopback());
        beyond
            .map(|(flag, address, meaning)| format!("{flag} {address} is not a loopback address: {meaning}"))
            .collect()
    }

    pub(crate) fn check(options: Options, hostname: Option<String>) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let ring = faults.check("--ring", ring(&options.ring));
        let shard_name = faults.check("--shard-name", options.shard_name.map(|name| name.parse()).transpose());
        let lease_namespace =
            faults.check("--lease-namespace", options.lease_namespace.as_deref().map(parse_namespace).transpose());
        let election_namespace = faults
            .check("--election-namespace", options.election_namespace.as_deref().map(parse_namespace).transpose());
        let election_locks = options.election_lock.iter();
        let election_locks: Vec<_> =
            election_locks.map(|name| faults.check("--election-lock", parse_object_name(name))).collect();
        let foreign_tokens = faults.check("--foreign-tokens", choice(&options.foreign_tokens));
        let controller = faults.check("--controller", choice(&options.controller));
        let listen = faults.check("--listen", parse_address(&options.listen));
        let admin_listen = faults.check("--admin-listen", parse_address(&options.admin_listen));
        let lease_duration = faults.check("--lease-duration", lease_duration(&options.lease_duration));
        let drain_grace = faults.check("--drain-grace", parse_duration(&options.drain_grace));
        let weight = faults.check("--weight", options.weight.map(|weight| weight.parse()).transpose());
        let group = faults.check("--group", options.group.as_deref().map(parse_object_name).transpose());
        let threads = faults.check("--threads", threads(&options.threads));
        let deletion_timestamps = faults.check("--deletion-timestamps", choice(&options.deletion_timestamps));
        let filter = faults.check("--log-filter", parse_filter(&options.log_filter));
        let log_format = faults.check("--log-format", options.log_format.parse());
        if listen.is_some_and(|it| it.port() != 0) && listen == admin_listen {
            faults.note("--listen and --admin-listen are the same address: give them different ports");
        }
        let checked = (|| {
            filter?;
            Some(Self {
                ring: ring?,
                shard_name: shard_name?,
                hostname,
                lease_namespace: lease_namespace?,
                election_namespace: election_namespace?,
                election_locks: election_locks.into_iter().collect::<Option<_>>()?,
                kubeconfig: options.kubeconfig,
                foreign_tokens: foreign_tokens?,
                controller: controller?,
                listen: listen?,
                access_dir: options.access_dir,
                admin_listen: admin_listen?,
                lease_duration: lease_duration?,
                drain_grace: drain_grace?,
                weight: weight?,
                group: group?,
                show_labels: options.show_labels,
                threads: threads?,
                deletion_timestamps: deletion_timestamps?,
                log_filter: options.log_filter,
                log_format: log_format?,
            })
        })();
        faults.finish()?;
        // Whatever is missing was noted as a fault.
        checked.ok_or_else(Faults::new)
    }
}

fn ring(name: &str) -> Result<RingName, String> {
    if name.is_empty() {
        return Err("is missing: name the ring, here or as RINGSIDE_RING".to_owned());
    }
    name.parse().map_err(|error: ringside_ring::name::InvalidName| error.to_string())
}

/// One of the words that an option takes.
fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(T::to_possible_value);
        let words: Vec<_> = words.map(|word| word.get_name().to_owned()).collect();
        format!("'{text}' can't be used: write {}", words.join(" or "))
    })
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= MAX_THREADS);
    threads
        .ok_or_else(|| format!("'{text}' can't be a number of threads: write a whole number from 1 to {MAX_THREADS}"))
}

fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.subsec_nanos() != 0 || !LEASE_DURATIONS.contains(&duration) {
        return Err(format!("'{text}' can't be a Lease's duration: write whole seconds from 5s to 120s"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::OsString;

    use super::*;
    use crate::command::{Command, CommandError};

    impl Config {
        /// That of these arguments.
        pub(crate) fn of(arguments: &[&str]) -> Self {
            parse(arguments).unwrap()
        }
    }

    fn parse(arguments: &[&str]) -> Result<Config, CommandError> {
        let arguments = std::iter::once("ringside-proxy").chain(arguments.iter().copied()).map(OsString::from);
        match Command::parse(arguments, None)? {
            Command::Run(config) => Ok(*config),
            Command::Probe(_) | Command::Leave(_) => unreachable!("not asked for"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let config = parse(&["--ring", "example"]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:6443");
        assert_eq!(config.admin_listen.to_string(), "127.0.0.1:6444");
        assert_eq!(config.access_dir, PathBuf::from("/var/run/ringside"));
        assert_eq!(config.lease_duration, Duration::from_secs(15));
        assert_eq!(config.drain_grace, Duration::from_secs(2));
        assert_eq!(config.foreign_tokens, ForeignTokens::Pass);
        assert_eq!(config.controller, Mode::Watching);
        assert_eq!(parse(&["--ring", "example", "--controller=always"]).unwrap().controller, Mode::Always);
        assert!(!config.show_labels);
        assert!(parse(&["--ring", "example", "--show-labels"]).unwrap().show_labels);
    }

    #[test]
    fn one_thread_is_enough_unless_another_number_is_asked_for() {
        let threads = |arguments: &[&str]| {
            parse(&[&["--ring", "example"], arguments].concat()).map(|config| config.threads.get())
        };
        assert_eq!(threads(&[]).unwrap(), 1);
        assert_eq!(threads(&["--threads=4"]).unwrap(), 4);
        for wrong in ["0", "65", "many", "-1"] {
            let told = threads(&[&format!("--threads={wrong}")]).unwrap_err().to_string();
            assert!(told.contains("--threads: ") && told.contains("from 1 to 64"), "{told}");
        }
    }

    #[test]
    fn deletion_timestamps_are_for_kopf_all_or_none() {
        let [kopf, other] = ["kopf/1.45.2", "kube-rs"].map(HeaderValue::from_static);
        for (arguments, are_for) in [
            (&[][..], [true, false, false]),
            (&["--deletion-timestamps=all"], [true, true, true]),
            (&["--deletion-timestamps=none"], [false, false, false]),
        ] {
            let marks = parse(&[&["--ring", "example"], arguments].concat()).unwrap().deletion_timestamps;
            assert_eq!([Some(&kopf), Some(&other), None].map(|agent| marks.are_for(agent)), are_for, "{arguments:?}");
        }
        let told = parse(&["--ring", "example", "--deletion-timestamps=some"]).unwrap_err().to_string();
        assert!(told.contains("--deletion-timestamps") && told.contains("write kopf or all or none"), "{told}");
    }

    #[test]
    fn a_lease_duration_that_the_sharder_does_not_go_by_is_refused() {
        let duration = |text: &str| parse(&["--ring", "example", "--lease-duration", text]);
        assert_eq!(duration("120s").unwrap().lease_duration, Duration::from_secs(120));
        for text in ["121s", "15000s", "1s"] {
            let told = duration(text).unwrap_err().to_string();
            assert!(told.contains("--lease-duration: ") && told.contains("from 5s to 120s"), "{told}");
        }
    }

    #[test]
    fn what_listens_beyond_loopback_is_warned_of_with_what_that_means() {
        let exposed = |arguments: &[&str]| parse(&[&["--ring", "example"], arguments].concat()).unwrap().exposed();
        assert!(exposed(&[]).is_empty());
        assert!(exposed(&["--listen=[::1]:6443", "--admin-listen=127.0.0.2:6444"]).is_empty());
        let both = exposed(&["--listen=[::]:6443", "--admin-listen=0.0.0.0:6444"]);
        let [listen, admin] = &both[..] else { panic!("{both:?}") };
        assert!(listen.contains("--listen [::]:6443") && listen.contains("this pod's permissions"), "{listen}");
        assert!(admin.contains("--admin-listen 0.0.0.0:6444") && admin.contains("without any token"), "{admin}");
    }

    #[test]
    fn all_faults_are_reported_at_once_each_with_its_flag_and_a_remedy() {
        let long = "a".repeat(64);
        let error = parse(&[
            "--ring",
            &long,
            "--shard-name",
            "A",
            "--lease-namespace",
            "a.b",
            "--election-namespace",
            "c.d",
            "--election-lock",
            "e_f",
            "--foreign-tokens",
            "maybe",
            "--controller",
            "sometimes",
            "--listen",
            "here",
            "--admin-listen",
            "6444",
            "--lease-duration",
            "1500ms",
            "--drain-grace",
            "soon",
            "--weight",
            "heavy",
            "--group",
            "A group",
            "--log-filter",
            "a=b=c",
            "--log-format",
            "xml",
        ]);
        let text = error.unwrap_err().to_string();
        for flag in [
            "--ring: ",
            "--shard-name: ",
            "--lease-namespace: ",
            "--election-namespace: ",
            "--election-lock: ",
            "--foreign-tokens: ",
            "--controller: ",
            "--listen: ",
            "--admin-listen: ",
            "--lease-duration: ",
            "--drain-grace: ",
            "--weight: ",
            "--group: ",
            "--log-filter: ",
            "--log-format: ",
        ] {
            assert!(text.contains(flag), "{flag} in {text}");
        }
        assert!(text.contains("63 at most") && text.contains("whole seconds"), "{text}");
    }

    #[test]
    fn locks_are_named_by_an_option_each_or_with_commas() {
        let named = |arguments: &[&str]| {
            let config = parse(&[&["--ring", "example"], arguments].concat()).unwrap();
            config.election_locks.into_iter().collect::<Vec<_>>()
        };
        assert!(named(&[]).is_empty());
        assert_eq!(named(&["--election-lock", "b.example.com", "--election-lock=a"]), ["a", "b.example.com"]);
        assert_eq!(named(&["--election-lock=b,a", "--election-lock", "a"]), ["a", "b"]);
        let text = parse(&["--ring", "example", "--election-lock=a,B", "--election-lock=c/d"]).unwrap_err().to_string();
        for fault in ["--election-lock: 'B' ", "--election-lock: 'c/d' ", "write 1 to 253 lower case letters"] {
            assert!(text.contains(fault), "{fault} in {text}");
        }
    }

    #[test]
    fn a_missing_ring_is_a_fault_like_others() {
        let text = parse(&["--listen", "x"]).unwrap_err().to_string();
        assert!(text.contains("RINGSIDE_RING") && text.contains("--listen"), "{text}");
        let same = parse(&["--ring", "a", "--admin-listen", "127.0.0.1:6443"]).unwrap_err().to_string();
        assert!(same.contains("different ports"), "{same}");
    }
}
