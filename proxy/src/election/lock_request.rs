//! What a request asks about a lock.

use super::object::{Kind, LockName, Object};

/// A request that may be about one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockRequest {
    /// Make an object of this kind in this namespace.
    Create(Kind, String),
    /// Read it.
    Read(LockName),
    /// Replace it.
    Replace(LockName),
    /// Change it.
    Patch(LockName),
    /// Delete it.
    Delete(LockName),
}

impl LockRequest {
    /// What it names.
    pub fn name(&self) -> Option<&LockName> {
        match self {
            Self::Create(..) => None,
            Self::Read(name) | Self::Replace(name) | Self::Patch(name) | Self::Delete(name) => Some(name),
        }
    }

    /// Of what kind it is, and where.
    pub(super) fn place(&self) -> (Kind, &str) {
        match self {
            Self::Create(kind, namespace) => (*kind, namespace),
            Self::Read(name) | Self::Replace(name) | Self::Patch(name) | Self::Delete(name) => {
                (name.kind, &name.namespace)
            }
        }
    }

    /// Of what kind it is.
    pub fn kind(&self) -> Kind {
        self.place().0
    }

    /// Whether it would make one of these.
    pub(super) fn makes_any_of<'a>(&self, mut names: impl Iterator<Item = &'a LockName>) -> bool {
        names.any(|name| self.place() == (name.kind, &name.namespace))
    }

    /// The name of an object that it is about.
    pub(super) fn named(&self, object: &Object) -> Option<LockName> {
        let (kind, namespace) = self.place();
        let name = object.metadata().name.clone()?;
        Some(LockName { kind, namespace: namespace.to_owned(), name })
    }
}
