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
    /// There are as many locks as are kept.
    #[error(
        "Lease '{name}' can't be an election lock: {most} others are, and no more are kept in memory; delete those that nobody needs"
    )]
    TooMany {
        /// The one too many.
        name: String,
        /// The bound.
        most: usize,
    },
    /// A dry run was answered with something that is no Lease.
    #[error("the API server's answer to a dry run of the write to a Lease can't be read")]
    Answer,
}

impl LockRefusal {
    /// The HTTP status.
    pub fn code(&self) -> StatusCode {
        match self {
            Self::AlreadyExists(_) | Self::Conflict(_) => StatusCode::CONFLICT,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Body(_) => StatusCode::BAD_REQUEST,
            Self::PatchType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            // As for an exceeded ResourceQuota.
            Self::TooMany { .. } => StatusCode::FORBIDDEN,
            Self::Answer => StatusCode::BAD_GATEWAY,
        }
    }

    /// The Lease that it is about, if it is about one.
    pub fn lease(&self) -> Option<&str> {
        match self {
            Self::AlreadyExists(name) | Self::NotFound(name) | Self::Conflict(name) | Self::TooMany { name, .. } => {
                Some(name)
            }
            Self::Body(_) | Self::PatchType(_) | Self::Answer => None,
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
            Self::TooMany { .. } => "Forbidden",
            Self::Answer => "InternalError",
        }
    }
}

#[derive(Debug)]
pub(super) struct Lock {
    name: String,
    /// Gone once it was deleted; its name stays learned, and its versions go on rising.
    lease: Option<Lease>,
    version: u64,
}

impl Lock {
    /// Takes over a Lease as the API server would have stored it.
    pub(super) fn adopt(name: String, lease: Lease, now: Timestamp) -> Self {
        let known = lease.metadata.resource_version.as_deref().and_then(|it| it.parse().ok());
        let mut lock = Self { name, lease: None, version: known.unwrap_or(0) };
        lock.store(lease, now);
        lock
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.lease.is_none()
    }

    fn store(&mut self, mut lease: Lease, now: Timestamp) -> Lease {
        self.version += 1;
        lease.metadata.uid.get_or_insert_with(new_uid);
        lease.metadata.creation_timestamp.get_or_insert(Time(now));
        lease.metadata.resource_version = Some(self.version.to_string());
        lease.metadata.managed_fields = None;
        self.lease.insert(lease).clone()
    }

    pub(super) fn read(&self) -> Result<Lease, LockRefusal> {
        self.lease.clone().ok_or_else(|| LockRefusal::NotFound(self.name.clone()))
    }

    pub(super) fn create(&mut self, mut lease: Lease, now: Timestamp) -> Result<Lease, LockRefusal> {
        if !self.is_deleted() {
            return Err(LockRefusal::AlreadyExists(self.name.clone()));
        }
        // Another object.
        lease.metadata.uid = None;
        Ok(self.store(lease, now))
    }

    /// Replaces it, if the writer knew the present version; one that names none means any.
    pub(super) fn replace(&mut self, lease: Lease, now: Timestamp) -> Result<Lease, LockRefusal> {
        let mut next = self.read()?;
        let (mine, theirs) = (&mut next.metadata, lease.metadata);
        let differs = |theirs: &Option<String>, mine: &Option<String>| {
            theirs.as_ref().is_some_and(|it| !it.is_empty() && Some(it) != mine.as_ref())
        };
        if differs(&theirs.resource_version, &mine.resource_version) || differs(&theirs.uid, &mine.uid) {
            return Err(LockRefusal::Conflict(self.name.clone()));
        }
        mine.labels = theirs.labels;
        mine.annotations = theirs.annotations;
        mine.owner_references = theirs.owner_references;
        next.spec = lease.spec;
        Ok(self.store(next, now))
    }

    pub(super) fn delete(&mut self) -> Result<Lease, LockRefusal> {
        let last = self.read();
        self.lease = None;
        last
    }
}

/// A random UUID (RFC 9562, version 4).
fn new_uid() -> String {
    let random: u128 = rand::random();
    let id = random & !(0xf000_u128 << 64) & !(0xc_u128 << 60) | (0x4000_u128 << 64) | (0x8_u128 << 60);
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
