//! Configuration faults, all of them at once.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

/// What is wrong with a configuration: every fault, so that one start shows them all.
#[derive(Debug, Default)]
pub struct Faults(Vec<String>);

impl Faults {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the value out of a check of `option`, or notes why there is none.
    ///
    /// The fault should say what is wrong and what to write instead; the option's name is put before it.
    pub fn check<T, E: fmt::Display>(&mut self, option: &str, checked: Result<T, E>) -> Option<T> {
        checked.map_err(|fault| self.0.push(format!("{option}: {fault}"))).ok()
    }

    /// Notes a fault that concerns no single option.
    pub fn note(&mut self, fault: impl fmt::Display) {
        self.0.push(fault.to_string());
    }

    /// The end of the checks.
    ///
    /// # Errors
    /// The faults, if there were any.
    pub fn finish(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the configuration can't be used:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
    }
}

impl std::error::Error for Faults {}

/// Parses `500ms`, `15s`, `5m`, `1h`: the forms that Go programs beside ours accept too.
///
/// # Errors
/// When the text is anything else.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || format!("'{text}' is not a duration: write a whole number and a unit, such as 500ms, 15s, 5m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(error)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| error())?;
    let factor = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(error()),
    };
    number.checked_mul(factor).map(Duration::from_secs).ok_or_else(error)
}

/// Checks the name of a namespace, which is an RFC 1123 label.
///
/// # Errors
/// When the text is anything else.
pub fn parse_namespace(text: &str) -> Result<String, String> {
    let is_namespace = text.len() <= 63 && is_label(text);
    is_namespace.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "'{text}' is not a namespace: write 1 to 63 lower case letters, digits and '-', with no '-' at either end"
        )
    })
}

/// Checks the name of an object, which is an RFC 1123 subdomain for most resources.
///
/// # Errors
/// When the text is anything else.
pub fn parse_object_name(text: &str) -> Result<String, String> {
    // How long each label is Kubernetes does not look at.
    let is_subdomain = text.len() <= 253 && text.split('.').all(is_label);
    is_subdomain.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "'{text}' is not the name of an object: write 1 to 253 lower case letters, digits, '-' and '.', with a letter or digit \
             at both ends and on both sides of each '.'"
        )
    })
}

/// Whether a text is an RFC 1123 label, of whatever length.
fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

/// Parses an IP address with a port: a name would need a resolver, and could mean several.
///
/// # Errors
/// When the text is anything else.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("'{text}' is not an address: write an IP address and a port, such as 127.0.0.1:6443 or [::1]:6443")
    })
}

/// Where a listener on `address` is reached from the same machine: one that listens everywhere, on loopback.
pub fn reached_at(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_reported_together() {
        let mut faults = Faults::new();
        assert_eq!(faults.check("--a", Ok::<_, &str>(1)), Some(1));
        assert_eq!(faults.check("--b", Err::<u8, _>("is empty")), None);
        faults.note("c and d contradict each other");
        let text = faults.finish().expect_err("two faults").to_string();
        assert_eq!(text, "the configuration can't be used:\n  - --b: is empty\n  - c and d contradict each other");
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "15", "s", "-1s", "1.5s", "1d", "15 s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespaces_are_labels_and_addresses_have_a_port() {
        assert_eq!(parse_namespace("kube-system").as_deref(), Ok("kube-system"));
        for bad in ["", "-a", "a-", "A", "a.b", "ä"] {
            assert!(parse_namespace(bad).is_err(), "{bad}");
        }
        assert!(parse_namespace(&"a".repeat(64)).is_err());
        assert!(parse_address("[::1]:6443").is_ok());
        for bad in ["", "localhost:6443", "127.0.0.1", "127.0.0.1:65536", ":6443"] {
            assert!(parse_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_objects_are_labels_between_dots() {
        for good in ["lock", "lock.example.com", "0-a.b", &"a".repeat(253)] {
            assert_eq!(parse_object_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a/b", " a", "a..b", ".a", "a.", "a.-b", "ä", &"a".repeat(254)] {
            assert!(parse_object_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_listener_everywhere_is_reached_on_loopback() {
        for (listens, reached) in [
            ("0.0.0.0:6443", "127.0.0.1:6443"),
            ("[::]:6443", "[::1]:6443"),
            ("[::1]:6443", "[::1]:6443"),
            ("10.1.2.3:6443", "10.1.2.3:6443"),
        ] {
            assert_eq!(parse_address(listens).map(reached_at), parse_address(reached), "{listens}");
        }
    }
}
