//! Elections in other namespaces than the controller's own, as cert-manager's in `kube-system`.
//!
//! A Lease there is a lock if its holder names this pod: what a controller writes for others, or as data, names another
//! holder. None is learned where the user has named the namespace, or while the controller leads by a lock of another
//! one: a part that only one replica may run elects there on purpose.

use memchr::memmem;

use super::{Kind, LockName, Locks};

/// Whether, and by which holders, locks of other namespaces are learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The user has named the namespace of the elections.
    Nowhere,
    /// Where a holder names the shard, or this host as electors know it.
    NamingUs(Option<String>),
}

impl Default for Elsewhere {
    fn default() -> Self {
        Self::NamingUs(None)
    }
}

impl Elsewhere {
    /// Whether there may be locks of this kind.
    pub(super) fn may_have(&self, kind: Kind) -> bool {
        matches!(self, Self::NamingUs(_)) && kind == Kind::Lease
    }

    /// The names that electors of this pod may have in theirs.
    fn names<'a>(&'a self, shard: &'a str) -> impl Iterator<Item = &'a str> {
        let host = match self {
            Self::Nowhere => None,
            Self::NamingUs(host) => Some(host.as_deref()),
        };
        host.into_iter().flat_map(move |host| [Some(shard), host]).flatten().filter(|name| !name.is_empty())
    }
}

impl Locks {
    /// The names that the controller's electors may have in theirs.
    pub(crate) fn our_names<'a>(&'a self, shard: &'a str) -> impl Iterator<Item = &'a str> {
        self.elsewhere.names(shard)
    }

    /// Whether a lock of another namespace, with this holder, is the controller's.
    pub(super) fn is_own(&self, namespace: &str, holder: &str, shard: &str) -> bool {
        let is_there = |name: &LockName| name.namespace == namespace;
        let is_only_there = self.learned.lock().keys().all(is_there) && self.claims.lock().keys().all(is_there);
        is_only_there && self.elsewhere.names(shard).any(|name| is_of(holder, name))
    }

    /// Whether a patch may have a holder who names this pod. At home any holder may be named.
    pub(super) fn may_name_us(&self, lock: &LockName, body: &[u8], shard: &str) -> bool {
        let names_us = || self.elsewhere.names(shard).any(|name| memmem::find(body, name.as_bytes()).is_some());
        lock.namespace == self.home || self.is_claimed(lock) || names_us()
    }
}

/// The letters and digits by which the API server ends the names that it makes.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";
/// So many of them stand at the end of a pod's name, where its workload does not number its pods.
const GENERATED_LENGTH: usize = 5;

/// Whether an elector on this host calls itself so: by the name alone, or with something behind it that makes it no name of
/// another pod. That is client-go's `_` and a UUID, or a suffix as cert-manager's `-external-cert-manager-controller`.
pub(super) fn is_of(holder: &str, host: &str) -> bool {
    let Some(rest) = holder.strip_prefix(host) else { return false };
    let end = rest.find(|next: char| !is_in_a_name(next)).unwrap_or(rest.len());
    match rest[..end].strip_prefix('-') {
        // A workload of this host's name makes such names.
        Some(more) => !more.is_empty() && !is_end_of_a_pod(more.rsplit('-').next().unwrap_or_default()),
        None => end == 0,
    }
}

fn is_in_a_name(next: char) -> bool {
    next.is_ascii_alphanumeric() || "-.".contains(next)
}

/// Whether names of pods end so: with a number, or with what the API server makes.
fn is_end_of_a_pod(end: &str) -> bool {
    let is_number = end.bytes().all(|byte| byte.is_ascii_digit());
    is_number || end.len() == GENERATED_LENGTH && end.chars().all(|next| GENERATED.contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_names_a_host_alone_or_before_what_no_pod_of_another_name_has() {
        for holder in
            ["web-1", "web-1_6a7f", "web-1/x", "web-1 x", "web-1-external-cert-manager-controller", "web-1-x_6a7f"]
        {
            assert!(is_of(holder, "web-1"), "{holder}");
        }
        for holder in [
            "web-10",
            "web-1-2_6a7f",
            "web-1-2",
            "web-1-6d4b75c5f7-x2k9p",
            "web-1-6d4b75c5f7-x2k9p_6a7f",
            "web-1-",
            "web-1--_6a7f",
            "web-1.x",
            "a-web-1",
            "web",
            "",
        ] {
            assert!(!is_of(holder, "web-1"), "{holder}");
        }
    }
}
