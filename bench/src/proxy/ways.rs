//! The ways to the API server that are measured side by side.

use std::path::PathBuf;

/// A way to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Nothing between: latencies are set against it.
    Direct,
    /// nginx of the distribution, one worker.
    Nginx,
    /// haproxy of the distribution, one thread.
    Haproxy,
    /// hyper's server and client with HTTP/1.1 to the API server, one thread.
    RelayHttp1,
    /// The same with HTTP/2 to the API server.
    RelayHttp2,
    /// Ringside's proxy, asked for a resource that is in no ring.
    Outside,
    /// Ringside's proxy, asked for a resource of its ring.
    Inside,
}

/// All of them, in the order of the table.
pub(super) const WAYS: [Way; 7] =
    [Way::Direct, Way::Nginx, Way::Haproxy, Way::RelayHttp1, Way::RelayHttp2, Way::Outside, Way::Inside];
/// Those of which the better one is what the proxy is set against.
pub(super) const RELAYS: [Way; 2] = [Way::RelayHttp1, Way::RelayHttp2];
/// Ringside's.
pub(super) const OURS: [Way; 2] = [Way::Outside, Way::Inside];

/// What installs both of the distribution's programs.
pub(super) const INSTALL: &str = "apt-get install nginx haproxy";
/// Debian's folder for them is in the `PATH` of root alone.
const FOLDER: &str = "/usr/sbin";

impl Way {
    /// As the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::RelayHttp1 => "relay, HTTP/1.1 upstream",
            Self::RelayHttp2 => "relay, HTTP/2 upstream",
            Self::Outside => "ringside, outside a ring",
            Self::Inside => "ringside, inside a ring",
        }
    }

    /// The program of the distribution that it takes.
    pub(super) fn program(self) -> Option<&'static str> {
        match self {
            Self::Nginx => Some("nginx"),
            Self::Haproxy => Some("haproxy"),
            _ => None,
        }
    }
}

/// Where a program of the distribution is.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(FOLDER)]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
