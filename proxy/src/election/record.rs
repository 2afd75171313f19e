//! The record in a real lock. In a Lease it is the `spec`. In a ConfigMap each client writes a form of its own and reads no
//! other, as fabric8 its `leaseDuration` and its times, so the ring's is the controller's, in the ring's name.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::{Value, json};

use super::object::{Kind, Object, RECORD};

/// How long a lock lasts without renewal where its record does not say (the default of client-go).
pub(super) const LASTS: Duration = Duration::from_secs(15);
const HOLDER: &str = "holderIdentity";
const SECONDS: &str = "leaseDurationSeconds";
const RENEWED: &str = "renewTime";
/// Digits of a second in a time, where none is there to be like.
const DIGITS: usize = 6;

/// A record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    kind: Kind,
    fields: Value,
}

impl Record {
    /// Of a lock; none where it has none, or one that can't be read.
    pub(super) fn of(kind: Kind, lock: &DynamicObject) -> Option<Self> {
        let fields = match kind {
            Kind::Lease => lock.data.get("spec").cloned(),
            Kind::ConfigMap => serde_json::from_str(lock.annotations().get(RECORD)?).ok(),
        };
        Some(Self { kind, fields: fields.filter(Value::is_object)? })
    }

    /// Of a lock as the controller has it.
    pub(super) fn of_object(object: &Object) -> Option<Self> {
        let fields = match object {
            Object::Lease(lease) => serde_json::to_value(lease.spec.as_ref()?).ok(),
            Object::ConfigMap(map) => serde_json::from_str(map.metadata.annotations.as_ref()?.get(RECORD)?).ok(),
        };
        Some(Self { kind: object.kind(), fields: fields.filter(Value::is_object)? })
    }

    /// That the ring holds it, as of now. `real` is the lock that there is, `like` as the controller has it.
    pub(super) fn for_ring(kind: Kind, ring: &str, real: Option<&DynamicObject>, like: Option<&Object>) -> Self {
        let now = Timestamp::now();
        let before = real.and_then(|real| Self::of(kind, real));
        let wished = like.and_then(Self::of_object);
        let goes_on = before.as_ref().is_some_and(|before| before.holder() == Some(ring));
        let fields = match (before, wished) {
            (Some(before), _) if goes_on => before.fields,
            // What else is in a Lease stays there.
            (Some(before), Some(wished)) if kind == Kind::Lease => over(before.fields, wished.fields),
            (_, Some(wished)) => wished.fields,
            (Some(before), None) if kind == Kind::Lease => over(before.fields, anew(kind, now)),
            (_, None) => anew(kind, now),
        };
        let mut record = Self { kind, fields };
        record.fields[HOLDER] = ring.into();
        record.fields[RENEWED] = like_time(record.fields[RENEWED].as_str(), now).into();
        record
    }

    /// Who holds it.
    pub(super) fn holder(&self) -> Option<&str> {
        self.fields[HOLDER].as_str().filter(|holder| !holder.is_empty())
    }

    /// When it was renewed, as its holder wrote it.
    pub(super) fn renewed(&self) -> String {
        self.fields[RENEWED].to_string()
    }

    /// How long it lasts without renewal: in seconds, be they a number or, as the Python client writes them, a string; or as
    /// fabric8 writes it.
    pub(super) fn lasts(&self) -> Duration {
        let said = [SECONDS, "leaseDuration"].into_iter().find_map(|field| match &self.fields[field] {
            Value::String(said) => {
                let seconds = said.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                seconds.or_else(|| Duration::try_from(said.parse::<SignedDuration>().ok()?).ok())
            }
            said => Duration::try_from_secs_f64(said.as_f64()?).ok(),
        });
        said.filter(|lasts| !lasts.is_zero()).unwrap_or(LASTS)
    }

    /// A lock with this record, and all else that is in it.
    pub(super) fn within(self, mut lock: DynamicObject) -> DynamicObject {
        match self.kind {
            Kind::Lease if lock.data.is_object() => lock.data["spec"] = self.fields,
            Kind::Lease => lock.data = json!({"spec": self.fields}),
            Kind::ConfigMap => drop(lock.annotations_mut().insert(RECORD.to_owned(), self.fields.to_string())),
        }
        lock.metadata.managed_fields = None;
        lock
    }
}

/// As client-go writes it.
fn anew(kind: Kind, now: Timestamp) -> Value {
    let transitions = match kind {
        Kind::Lease => "leaseTransitions",
        Kind::ConfigMap => "leaderTransitions",
    };
    json!({SECONDS: LASTS.as_secs(), "acquireTime": like_time(None, now), transitions: 0})
}

fn over(mut under: Value, fields: Value) -> Value {
    if let (Value::Object(under), Value::Object(fields)) = (&mut under, fields) {
        under.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    under
}

/// A time in the form of another: clients differ in how much of a second they write, and some read nothing else.
fn like_time(form: Option<&str>, now: Timestamp) -> String {
    let fraction = form.map(|form| form.split_once('.').map_or(0, |(_, rest)| rest.trim_end_matches('Z').len()));
    format!("{now:.*}", fraction.unwrap_or(DIGITS).min(9))
}
