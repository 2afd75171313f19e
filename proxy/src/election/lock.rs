//! One lock in memory, with the API server's rules: resourceVersions that conflict, a uid, deletion.

use http::{HeaderMap, StatusCode};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};

use super::{
    object::{LockName, Object},
    patch,
    room::OVERHEAD,
};

/// Why a request to a lock is not done, as the API server would say it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// An object of that name is there.
    #[error("{0} already exists")]
    AlreadyExists(LockName),
    /// It is gone.
    #[error("{0} not found")]
    NotFound(LockName),
    /// The write was made on an old version.
    #[error(
        "Operation cannot be fulfilled on {0}: the object has been modified; please apply your changes to the latest version and try again"
    )]
    Conflict(LockName),
    /// The body can't be used.
    #[error("the body of a write to an election's lock can't be used: {0}")]
    Body(String),
    /// The patch is of a kind that is not known.
    #[error("a patch of type '{0}' is not supported for an election's lock")]
    PatchType(String),
    /// The locks that are kept leave no room.
    #[error(
        "{name} can't be an election's lock: with the others it would take more than {most} bytes of memory; delete those that \
         are not needed, or name them by --election-lock"
    )]
    NoRoom {
        /// The one that was refused.
        name: LockName,
        /// What all may take.
        most: usize,
    },
    /// The ring can't hold the lock, so a replica that elects past the proxies could lead beside the shards.
    #[error("{name} can't be held for the ring, so the controller does not lead: {why}")]
    NotHeld {
        /// The lock.
        name: LockName,
        /// What the API server says.
        why: String,
        /// Whether a permission is missing.
        forbidden: bool,
    },
    /// A dry run was answered with something that is no lock.
    #[error("the API server's answer to a dry run of the write to an election's lock can't be read")]
    Answer,
}

impl LockRefusal {
    /// The HTTP status, and the reason in a `Status`.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::AlreadyExists(_) => (StatusCode::CONFLICT, "AlreadyExists"),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, "NotFound"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "Conflict"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::PatchType(_) => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType"),
            // As for an exceeded ResourceQuota.
            Self::NoRoom { .. } | Self::NotHeld { forbidden: true, .. } => (StatusCode::FORBIDDEN, "Forbidden"),
            // It is worth to try again.
            Self::NotHeld { .. } => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Answer => (StatusCode::BAD_GATEWAY, "InternalError"),
        }
    }

    /// The lock that it is about, if it is about one.
    pub fn lock(&self) -> Option<&LockName> {
        match self {
            Self::AlreadyExists(name)
            | Self::NotFound(name)
            | Self::Conflict(name)
            | Self::NoRoom { name, .. }
            | Self::NotHeld { name, .. } => Some(name),
            Self::Body(_) | Self::PatchType(_) | Self::Answer => None,
        }
    }
}

/// By so much the versions here are apart from those of the API server, so that it refuses a write that was made on one
/// of them and comes to it: such a write could take the lock from another leader, or free it, when the proxy has
/// started again.
pub(super) const APART: u64 = 1 << 62;

#[derive(Clone, Debug)]
pub(super) struct Lock {
    name: LockName,
    /// Gone once it was deleted; its name stays learned, and its versions go on rising.
    object: Option<Object>,
    /// The length of its text.
    length: usize,
    version: u64,
    /// The version in which the object was made, or deleted: it is there, or not, since then.
    since: u64,
}

impl Lock {
    /// Takes over an object as the API server would have stored it.
    pub(super) fn adopt(name: LockName, object: Object, now: Timestamp) -> Self {
        let mut lock = Self::free(name, object.metadata().resource_version.as_deref());
        lock.store(object, now);
        lock
    }

    /// One that is free as far as this shard's controller is concerned, beyond this version.
    pub(super) fn free(name: LockName, version: Option<&str>) -> Self {
        let known = version.and_then(|it| it.parse().ok()).unwrap_or(0_u64);
        let version = known.saturating_add(APART);
        Self { name, object: None, length: 0, version, since: version }
    }

    pub(super) fn name(&self) -> &LockName {
        &self.name
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.object.is_none()
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        OVERHEAD + self.name.name.len() + self.length
    }

    pub(super) fn object(&self) -> Option<&Object> {
        self.object.as_ref()
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The version in which the object that was there before the present one, or that is gone, was deleted.
    pub(super) fn deleted_in(&self) -> u64 {
        if self.is_deleted() { self.since } else { self.since - 1 }
    }

    /// Returns what a client knows of the lock that has seen this version. Of a lock that was changed since, that is
    /// only that it existed. `None` where this can't be told any more.
    pub(super) fn seen_in(&self, version: u64) -> Option<Option<Object>> {
        if !self.is_deleted() && version == self.since - 1 {
            // While it is not there nothing changes.
            return Some(None);
        }
        (self.since..=self.version).contains(&version).then(|| self.object.clone().map(|object| object.of(version)))
    }

    fn store(&mut self, mut object: Object, now: Timestamp) -> Object {
        self.version += 1;
        if self.is_deleted() {
            self.since = self.version;
        }
        let metadata = object.metadata_mut();
        metadata.uid.get_or_insert_with(new_uid);
        metadata.creation_timestamp.get_or_insert(Time(now));
        metadata.resource_version = Some(self.version.to_string());
        metadata.managed_fields = None;
        self.length = object.bytes();
        self.object.insert(object).clone()
    }

    pub(super) fn read(&self) -> Result<Object, LockRefusal> {
        self.object.clone().ok_or_else(|| LockRefusal::NotFound(self.name.clone()))
    }

    pub(super) fn create(&mut self, mut object: Object, now: Timestamp) -> Result<Object, LockRefusal> {
        if !self.is_deleted() {
            return Err(LockRefusal::AlreadyExists(self.name.clone()));
        }
        let metadata = object.metadata_mut();
        // Another object.
        metadata.uid = None;
        // The path says it, so a client need not.
        metadata.namespace.get_or_insert_with(|| self.name.namespace.clone());
        Ok(self.store(object, now))
    }

    /// Replaces it, if the writer knew the present version; one that names none means any.
    pub(super) fn replace(&mut self, mut next: Object, now: Timestamp) -> Result<Object, LockRefusal> {
        let mine = self.read()?.metadata().clone();
        let theirs = next.metadata_mut();
        let differs = |theirs: &Option<String>, mine: &Option<String>| {
            theirs.as_ref().is_some_and(|it| !it.is_empty() && Some(it) != mine.as_ref())
        };
        if differs(&theirs.resource_version, &mine.resource_version) || differs(&theirs.uid, &mine.uid) {
            return Err(LockRefusal::Conflict(self.name.clone()));
        }
        *theirs = ObjectMeta {
            labels: theirs.labels.take(),
            annotations: theirs.annotations.take(),
            owner_references: theirs.owner_references.take(),
            ..mine
        };
        Ok(self.store(next, now))
    }

    /// As a patch would make it. An apply makes what is not there.
    pub(super) fn patched(&self, headers: &HeaderMap, body: &[u8]) -> Result<Object, LockRefusal> {
        match (&self.object, patch::is_apply(headers)) {
            (Some(base), _) => patch::apply(base, headers, body),
            (None, true) => patch::applied(&self.name, body),
            (None, false) => Err(LockRefusal::NotFound(self.name.clone())),
        }
    }

    pub(super) fn patch(
        &mut self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(StatusCode, Object), LockRefusal> {
        let object = self.patched(headers, body)?;
        if self.is_deleted() {
            return self.create(object, now).map(|object| (StatusCode::CREATED, object));
        }
        self.replace(object, now).map(|object| (StatusCode::OK, object))
    }

    pub(super) fn delete(&mut self) -> Result<Object, LockRefusal> {
        let last = self.read()?;
        (self.object, self.length) = (None, 0);
        self.version += 1;
        self.since = self.version;
        Ok(last)
    }
}

/// A random UUID (RFC 9562, version 4).
fn new_uid() -> String {
    let random: u128 = rand::random();
    let id = random & !(0xf000_u128 << 64) & !(0xc_u128 << 60) | (0x4000_u128 << 64) | (0x8_u128 << 60);
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
