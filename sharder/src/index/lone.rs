//! Objects of controlled resources that follow no object of the ring: they get no label, and no shard sees them.

use std::fmt;

/// Why an object follows none of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Nothing controls it, and no object of the ring owns it.
    Unowned,
    /// Nothing controls it, and several objects of the ring own it.
    Several,
    /// Its controller is outside of the ring.
    Foreign,
}

/// Such objects of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lone {
    /// Those without any controller.
    pub(crate) uncontrolled: u64,
    /// Those of them that have several owners of the ring.
    pub(crate) several: u64,
    /// Those whose controller is outside the ring.
    pub(crate) foreign: u64,
    /// Namespace and name of one of them.
    pub(crate) example: Option<String>,
}

impl Lone {
    /// How many there are.
    pub(crate) fn objects(&self) -> u64 {
        self.uncontrolled + self.foreign
    }
}

impl fmt::Display for Lone {
    /// How many have no controller, how many have one outside the ring, and which is one of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.uncontrolled, self.foreign) {
            (some, 0) => write!(f, "{some} without a controller")?,
            (0, some) => write!(f, "{some} with a controller outside the ring")?,
            (none, foreign) => write!(f, "{none} without a controller and {foreign} with one outside the ring")?,
        }
        if self.several > 0 {
            write!(f, " ({} have several owners of the ring)", self.several)?;
        }
        self.example.as_ref().map_or(Ok(()), |place| write!(f, ", such as '{place}'"))
    }
}
