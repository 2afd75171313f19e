//! Label keys and values: the only channel between sharder and shards besides the Lease (CONTRACT, "Labels").

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    kind::RingKind,
    name::{InvalidName, MAX_NAME_LEN, RingName, ShardName},
};

/// On a shard Lease: its state, written by the sharder for people to read. See [`crate::lease::ShardState`].
pub const LEASE_STATE: &str = "alpha.sharding.timebertt.dev/state";
/// Annotation on a shard Lease: which instance of the shard holds it, by its Pod's uid or else by a random id. An
/// addition of ours, optional: it tells a restarted container, which may go on, from a re-created Pod or a second
/// process of the same name, which are others.
pub const LEASE_INSTANCE: &str = "ringside.dev/instance";
/// Annotation on a shard Lease, by the sharder: the [instance](LEASE_INSTANCE) that may work under this shard's name. Two
/// Leases of one name can exist in two namespaces; objects name a shard without its namespace, so one of them may work.
pub const LEASE_ADMITTED: &str = "ringside.dev/admitted";
/// The value of [`LEASE_ADMITTED`] where no instance may work: it is not the uid of any Pod.
pub const ADMITS_NONE: &str = "none";
/// Annotation on a shard Lease, by the sharder: the newest generation of the ring. A shard that knows an older one does not know
/// which resources are the ring's.
pub const LEASE_RING_GENERATION: &str = "ringside.dev/ring-generation";
/// On a shard Lease: the Pod that the shard's token is bound to, empty when it is bound to none. An addition of ours,
/// optional: the API server's fence tells shards apart by that Pod, and only the shard itself knows its token.
pub const LEASE_TOKEN_POD: &str = "ringside.dev/token-pod";
/// Annotation on a shard Lease: how much of the objects the shard gets, compared with the others. An addition of ours,
/// optional, for the writer of the Lease: the shard, or a person. See [`crate::weight::Weight`].
pub const LEASE_WEIGHT: &str = "ringside.dev/weight";

/// Annotation on a shard Lease, by a person: the shard is emptied, whatever its weight. An addition of ours, optional: apart
/// from the [weight](LEASE_WEIGHT), so that a proxy that writes one does not end it, and its end gives the weight back.
pub const LEASE_DRAINED: &str = "ringside.dev/drained";

/// Annotation on a shard Lease: the group of shards that the shard is of (`spec.groups` of the ring). An addition of ours, optional.
/// The shard writes it, or a person.
pub const LEASE_GROUP: &str = "ringside.dev/group";

/// Annotation on a shard Lease, by the proxy, and on the sharder's election Lease: the version of the program that holds it.
pub const LEASE_VERSION: &str = "ringside.dev/version";

/// Annotation on a shard Lease: how long nothing was sent about an object before the shard releases it. An addition of
/// ours, optional. See [`crate::grace::Grace`].
pub const LEASE_GRACE: &str = "ringside.dev/grace";

/// Annotation on a shard Lease: whether the controller behind the shard's proxy works, or is about to end. An addition of ours,
/// optional. See
/// [`crate::controller::Controller`].
pub const LEASE_CONTROLLER: &str = "ringside.dev/controller";

/// The field manager of a shard that acknowledges a drain which carries a [grace](crate::grace::Grace). An addition of ours:
/// a client that drops both labels under another name has released nothing, such as a controller that PUTs its own
/// object from a template. A shard that promises no grace acknowledges as the contract says, under any name.
pub const ACKNOWLEDGER: &str = "ringside-acknowledgement";
/// The field manager of a shard that labels an existing object without controller, for an owner's controller to adopt. An
/// addition of ours: the policy that keeps labels lets no other client but the sharder add one.
pub const ADOPTION: &str = "ringside-adoption";

const SHARD_PREFIX: &str = "shard.alpha.sharding.timebertt.dev";
const DRAIN_PREFIX: &str = "drain.alpha.sharding.timebertt.dev";

/// The label keys of one ring's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingLabels {
    /// Key of the label that names the shard which works on an object.
    pub shard: String,
    /// Key of the label that asks that shard to release the object.
    pub drain: String,
}

impl RingLabels {
    /// The keys for the ring of this name.
    pub fn of(ring: &RingName) -> Self {
        let suffix = ring.label_name();
        Self { shard: format!("{SHARD_PREFIX}/{suffix}"), drain: format!("{DRAIN_PREFIX}/{suffix}") }
    }

    /// The selector of the objects that `shard` works on, as a query parameter's value before percent-encoding.
    ///
    /// The API server evaluates it, and itself sends `DELETED` when an object is drained or moved.
    pub fn owned_by(&self, shard: &ShardName) -> String {
        format!("{}={shard},!{}", self.shard, self.drain)
    }

    /// The selector of the objects that `shard` is asked to release.
    pub fn drained_from(&self, shard: &ShardName) -> String {
        format!("{}={shard},{}", self.shard, self.drain)
    }

    /// The selector of the objects that name `shard`, drained or not.
    pub fn naming(&self, shard: &ShardName) -> String {
        format!("{}={shard}", self.shard)
    }

    /// What the labels of an object say about its owner.
    pub fn ownership<'a>(&self, labels: Option<&'a BTreeMap<String, String>>) -> Ownership<'a> {
        let get = |key: &String| labels.and_then(|labels| labels.get(key)).map(String::as_str);
        Ownership { shard: get(&self.shard), drain: get(&self.drain) }
    }

    /// The fields below a value that hold one of the keys, as a key of a map or the key that an expression names: templates
    /// and selectors that were written with an object's labels.
    pub fn fields_in(&self, value: &Value) -> Vec<String> {
        let is_label = |text: &str| text == self.shard || text == self.drain;
        let below = |(dot, step): (&str, &str), value| -> Vec<_> {
            self.fields_in(value).into_iter().map(|field| format!("{dot}{step}{field}")).collect()
        };
        let mut fields: Vec<String> = match value {
            Value::Object(map) if map.keys().any(|key| is_label(key)) => vec![String::new()],
            Value::Object(map) => map.iter().flat_map(|(key, value)| below((".", key), value)).collect(),
            Value::Array(items) => items.iter().flat_map(|item| below(("", "[]"), item)).collect(),
            Value::String(text) if is_label(text) => vec![String::new()],
            _ => Vec::new(),
        };
        fields.dedup();
        fields
    }
}

/// The two labels of an object that say who works on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership<'a> {
    /// The value of the shard label, whatever a client wrote into it.
    pub shard: Option<&'a str>,
    /// The value of the drain label: its presence counts, ours is unique to the move.
    pub drain: Option<&'a str>,
}

impl RingName {
    /// The part of the keys of the ring's labels after the `/`. At most 63 characters.
    pub(crate) fn label_name(&self) -> String {
        match self.kind() {
            RingKind::ClusterRing => label_suffix(self),
            RingKind::ControllerRing => self.name().to_owned(),
        }
    }

    /// The name of what the sharder makes for the ring: its `MutatingWebhookConfiguration`, and its policies with their bindings.
    pub fn made_for(&self) -> String {
        let prefix = self.kind().names().made_for_prefix;
        match self.kind() {
            RingKind::ClusterRing => format!("{prefix}{}-{}", short_hash(self), self.name()),
            RingKind::ControllerRing => format!("{prefix}{}", self.name()),
        }
    }

    /// The selector of the Leases of the ring's shards.
    pub fn lease_selector(&self) -> String {
        format!("{}={}", self.kind().names().lease_label, self.name())
    }
}

/// The name that a `ClusterRing` has in label keys: `clusterring-<first 8 hex digits of the SHA-256 of the name>-<name>`, cut to
/// 63 characters.
///
/// The hash keeps long names with a common beginning apart. A cut may leave a `-`, `_` or `.` at the end,
/// which no label may have, so those go as well.
fn label_suffix(ring: &RingName) -> String {
    let mut suffix = format!("clusterring-{}-{}", short_hash(ring), ring.name());
    // Ring names are ASCII, so any cut is at a character's border.
    suffix.truncate(MAX_NAME_LEN);
    suffix.truncate(suffix.trim_end_matches(['-', '_', '.']).len());
    suffix
}

/// The first 8 hex digits of the SHA-256 of the ring's name.
pub fn short_hash(ring: &RingName) -> String {
    let digest = Sha256::digest(ring.name().as_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// The name of the ring that a shard's Lease is of; none for any other Lease. Of labels of both kinds the
/// newer one counts: a shard that changes to it may leave the older one there.
pub fn ring_of(lease: &ObjectMeta) -> Option<Result<RingName, InvalidName>> {
    let labels = lease.labels.as_ref()?;
    let named = |kind: RingKind| labels.get(kind.names().lease_label).map(|name| RingName::new(kind, name));
    RingKind::ALL.into_iter().rev().find_map(named)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};

    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_those_of_the_contract() {
        let labels = RingLabels::of(&"example".parse().expect("valid"));
        assert_eq!(labels.shard, "shard.alpha.sharding.timebertt.dev/clusterring-50d858e0-example");
        assert_eq!(labels.drain, "drain.alpha.sharding.timebertt.dev/clusterring-50d858e0-example");
    }

    #[test]
    fn a_cut_that_ends_in_a_separator_is_cut_further() {
        // 21 characters stand before the ring's name, so its 42nd is the last that fits.
        let ring: RingName = format!("{}.tail", "a".repeat(41)).parse().expect("valid");
        let suffix = label_suffix(&ring);
        assert_eq!(suffix.len(), 62);
        assert!(suffix.ends_with('a'), "{suffix}");
    }

    proptest! {
        #[test]
        fn labels_are_always_valid_and_differ(
            // Names with a long beginning in common, which is all that the cut leaves, and names without.
            beginning in "([a-z0-9]([a-z0-9-]{49,50}[a-z0-9])?)?",
            a in "[a-z0-9]([a-z0-9.-]{0,9}[a-z0-9])?",
            b in "[a-z0-9]([a-z0-9.-]{0,9}[a-z0-9])?",
            kinds in (select(&RingKind::ALL), select(&RingKind::ALL)),
        ) {
            let name = |kind, end: &str| RingName::new(kind, &format!("{beginning}{end}"));
            let (Ok(a), Ok(b)) = (name(kinds.0, &a), name(kinds.1, &b)) else { return Ok(()) };
            for key in [RingLabels::of(&a).shard, RingLabels::of(&a).drain] {
                let (prefix, name) = key.split_once('/').expect("a prefix");
                prop_assert!(prefix.len() <= 253);
                prop_assert!(!name.is_empty() && name.len() <= MAX_NAME_LEN);
                prop_assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(name.ends_with(|c: char| c.is_ascii_alphanumeric()));
                prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
            }
            prop_assert_eq!(a == b, RingLabels::of(&a) == RingLabels::of(&b));
        }
    }

    #[test]
    fn a_label_is_found_wherever_a_spec_holds_it() {
        let of = |ring: &str| RingLabels::of(&ring.parse().expect("valid"));
        let (labels, other) = (of("example"), of("other"));
        let (copied, foreign) = (json!({"a": "b", &labels.shard: "s-0"}), json!({&other.shard: "s-0"}));
        let found = |spec: Value| labels.fields_in(&spec);
        let template = json!({"metadata": {"labels": copied}, "spec": {"replicas": 1}});
        assert_eq!(
            found(json!({"selector": {"matchLabels": copied}, "template": template})),
            [".selector.matchLabels", ".template.metadata.labels"]
        );
        assert_eq!(found(json!({"selector": copied})), [".selector"], "of a Service");
        let drained = json!({"metadata": {"labels": {&labels.drain: "m"}}});
        assert_eq!(
            found(json!({"jobTemplate": {"spec": {"template": drained}}})),
            [".jobTemplate.spec.template.metadata.labels"]
        );
        let claims = json!([{"metadata": {"labels": foreign}}, template, template]);
        assert_eq!(found(json!({"volumeClaimTemplates": claims})), [".volumeClaimTemplates[].metadata.labels"]);
        let expressions = json!([{"key": &labels.shard, "operator": "Exists"}]);
        assert_eq!(
            found(json!({"podSelector": {"matchExpressions": expressions}})),
            [".podSelector.matchExpressions[].key"]
        );
        assert_eq!(found(json!({"selector": foreign, "note": format!("see {}", labels.shard)})), [""; 0]);
    }

    #[test]
    fn names_of_both_kinds_are_those_of_the_contract() {
        let ring: RingName = "controllerring/example".parse().expect("valid");
        let labels = RingLabels::of(&ring);
        assert_eq!(labels.shard, "shard.alpha.sharding.timebertt.dev/example");
        assert_eq!(labels.drain, "drain.alpha.sharding.timebertt.dev/example");
        assert_eq!(ring.made_for(), "controllerring-example");
        assert_eq!(ring.lease_selector(), "alpha.sharding.timebertt.dev/controllerring=example");
        let older: RingName = "example".parse().expect("valid");
        assert_eq!(older.made_for(), "sharding-clusterring-50d858e0-example");
        assert_eq!(older.lease_selector(), "alpha.sharding.timebertt.dev/clusterring=example");
    }

    #[test]
    fn kinds_with_one_name_share_no_name_in_the_cluster() {
        let [older, newer] = RingKind::ALL.map(|kind| RingName::new(kind, "example").expect("valid"));
        assert_ne!(older, newer);
        assert_ne!(RingLabels::of(&older), RingLabels::of(&newer));
        assert_ne!(older.made_for(), newer.made_for());
        assert_ne!(older.lease_selector(), newer.lease_selector());
    }
}
