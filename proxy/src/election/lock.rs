//! One Lease in memory, with the API server's rules: resourceVersions that conflict, a uid, deletion.

use http::StatusCode;
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

/// Why a request to a lock is not done, as the API server would say it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockRefusal {
    /// A Lease of that name is there.
    #[error("leases.coordination.k8s.io \"{0}\" already exists")]
    AlreadyExists(String),
    /// It is gone.
    #[error("leases.coordination.k8s.io \"{0}\" not found")]
    NotFound(String),
    /// The write was made on an old version.
    #[error(
        "Operation cannot be fulfilled on leases.coordination.k8s.io \"{0}\": the object has been modified; please apply your changes to the latest version and try again"
    )]
    Conflict(String),
    /// The body can't be used.
    #[error("the body of a write to a Lease can't be used: {0}")]
    Body(String),
    /// The patch is of a kind that is not known.
    #[error("a patch of type '{0}' is not supported for an election Lease")]
    PatchType(String),
}

impl LockRefusal {
    /// The HTTP status.
    pub fn code(&self) -> StatusCode {
        match self {
            Self::AlreadyExists(_) | Self::Conflict(_) => StatusCode::CONFLICT,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::PatchType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    /// The reason in a `Status`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::NotFound(_) => "NotFound",
            Self::Conflict(_) => "Conflict",
            Self::Body(_) => "BadRequest",
            Self::PatchType(_) => "UnsupportedMediaType",
        }
    }
}

#[derive(Debug)]
pub(super) struct Lock {
    lease: Lease,
    version: u64,
    /// It was deleted; its name stays learned.
    deleted: bool,
}

impl Lock {
    /// Takes over a Lease as a controller wrote it, made new or over a real one whose version it knew.
    pub(super) fn adopt(lease: Lease, now: Timestamp) -> Self {
        let known = lease.metadata.resource_version.as_deref().and_then(|it| it.parse().ok());
        let mut lock = Self { lease, version: known.unwrap_or(0), deleted: false };
        let metadata = &mut lock.lease.metadata;
        metadata.uid.get_or_insert_with(new_uid);
        metadata.creation_timestamp.get_or_insert(Time(now));
        lock.rise();
        lock
    }

    pub(super) fn current(&self) -> Lease {
        self.lease.clone()
    }

    fn name(&self) -> String {
        self.lease.metadata.name.clone().unwrap_or_default()
    }

    fn rise(&mut self) {
        self.version += 1;
        self.lease.metadata.resource_version = Some(self.version.to_string());
        self.lease.metadata.managed_fields = None;
    }

    pub(super) fn read(&self) -> Result<Lease, LockRefusal> {
        if self.deleted { Err(LockRefusal::NotFound(self.name())) } else { Ok(self.current()) }
    }

    pub(super) fn create(&mut self, mut lease: Lease, now: Timestamp) -> Result<Lease, LockRefusal> {
        if !self.deleted {
            return Err(LockRefusal::AlreadyExists(self.name()));
        }
        // Another object, at a version that goes on rising.
        lease.metadata.uid = None;
        lease.metadata.resource_version = Some(self.version.to_string());
        *self = Self::adopt(lease, now);
        Ok(self.current())
    }

    /// Replaces it, if the writer knew the present version; one that names none means any.
    pub(super) fn replace(&mut self, lease: Lease) -> Result<Lease, LockRefusal> {
        let (mine, theirs) = (&self.read()?.metadata, &lease.metadata);
        let differs = |theirs: &Option<String>, mine: &Option<String>| {
            theirs.as_ref().is_some_and(|it| !it.is_empty() && Some(it) != mine.as_ref())
        };
        if differs(&theirs.resource_version, &mine.resource_version) || differs(&theirs.uid, &mine.uid) {
            return Err(LockRefusal::Conflict(self.name()));
        }
        self.lease.metadata.labels.clone_from(&theirs.labels);
        self.lease.metadata.annotations.clone_from(&theirs.annotations);
        self.lease.metadata.owner_references.clone_from(&theirs.owner_references);
        self.lease.spec = lease.spec;
        self.rise();
        Ok(self.current())
    }

    pub(super) fn delete(&mut self) -> Result<Lease, LockRefusal> {
        let last = self.read()?;
        self.deleted = true;
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
