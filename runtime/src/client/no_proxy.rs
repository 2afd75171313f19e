//! Whether the environment wants the API server to be reached by a proxy: read as Go's clients read it
//! (golang.org/x/net/http/httpproxy), so that kubectl and this program agree.

use std::net::IpAddr;

use http::{Uri, uri::Scheme};

use super::connector::{host, port};

/// Whether a proxy is to be used for this server.
pub(super) fn is_proxied(server: &Uri, variable: impl Fn(&str) -> Option<String>) -> bool {
    let either = |names: [&str; 2]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
    server.scheme() == Some(&Scheme::HTTPS)
        && either(["HTTPS_PROXY", "https_proxy"]).is_some()
        && !either(["NO_PROXY", "no_proxy"]).is_some_and(|list| names(&list, host(server), port(server)))
        && !is_loopback(host(server))
}

/// Never by a proxy, whatever the list says.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Whether a list names a server: by host, parent domain, address or network, each with or without a port, or by `*`.
fn names(list: &str, host: &str, port: u16) -> bool {
    let host = host.to_ascii_lowercase();
    let entries = list.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.filter(|entry| !entry.is_empty()).any(|entry| {
        let (name, its_port) = split_port(&entry);
        if its_port.is_some_and(|its| its != port) {
            return false;
        }
        match host.parse::<IpAddr>() {
            _ if name == "*" => true,
            Ok(ip) => name.parse() == Ok(ip) || name.split_once('/').is_some_and(|network| contains(network, ip)),
            // A leading dot leaves out the domain itself.
            Err(_) => {
                let parent = name.trim_start_matches('*');
                host == parent || host.strip_suffix(parent.trim_start_matches('.')).is_some_and(|it| it.ends_with('.'))
            }
        }
    })
}

/// Without the brackets of an IPv6 address, and the port if there is one.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let (name, port) = match entry.rsplit_once(':') {
        // The end of an IPv6 address without brackets is none.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().ok()),
        _ => (entry, None),
    };
    (name.trim_start_matches('[').trim_end_matches(']'), port)
}

fn contains((network, length): (&str, &str), ip: IpAddr) -> bool {
    // As 128 bits, of which an IPv4 address has the first 32.
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    network.is_ipv4() == ip.is_ipv4() && length <= longest && (bits(network) ^ bits(ip)) & mask == 0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn proxied(server: &str, no_proxy: &str) -> bool {
        let variable = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://proxy:3128".to_owned()),
            "no_proxy" => Some(no_proxy.to_owned()),
            // Set, and empty, is as not set.
            "NO_PROXY" => Some(String::new()),
            _ => None,
        };
        is_proxied(&server.parse().unwrap(), variable)
    }

    #[test]
    fn a_server_is_named_by_host_domain_address_network_or_star() {
        for (server, no_proxy, direct) in [
            ("https://api.corp:6443", "", false),
            ("https://api.corp:6443", "*", true),
            ("https://api.corp:6443", "api.corp", true),
            ("https://API.corp:6443", "x, Api.Corp:6443", true),
            ("https://api.corp:6443", "api.corp:443", false),
            ("https://api.corp", "api.corp:443", true),
            ("https://api.corp:6443", "corp", true),
            ("https://api.corp:6443", ".corp", true),
            ("https://api.corp:6443", "*.corp", true),
            ("https://corp:6443", ".corp", false),
            ("https://apicorp:6443", "corp", false),
            ("https://10.96.0.1", "10.96.0.0/12,.svc", true),
            ("https://10.112.0.1", "10.96.0.0/12", false),
            ("https://10.96.0.1", "0.0.0.0/0", true),
            ("https://10.96.0.1", "10.96.0.1:443", true),
            ("https://10.96.0.1", "10.96.0.1/33,10.96/12,10.96.0.0", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "[fd00::1]:443,10.0.0.0/0", false),
            // No client asks a proxy for these.
            ("https://127.0.0.1:6443", "", true),
            ("https://localhost:6443", "", true),
            ("http://api.corp:8080", "", true),
        ] {
            assert_eq!(!proxied(server, no_proxy), direct, "{server} {no_proxy}");
        }
        assert!(!is_proxied(&"https://api.corp".parse().unwrap(), |_| None));
    }
}
